//! Node, and the reference in it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop");

/// Nothing here takes long; a test that hangs shall say so.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The scopes of the packages that can be tested against; none, said aloud, if the reference is not to be had.
pub(crate) fn references(test: &str) -> &'static [&'static str] {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    match INSTALLED.get_or_init(install) {
        Ok(()) => &["@earendil-works", "@mariozechner"],
        Err(reason) if std::env::var_os("TURNSTATE_REQUIRE_INTEROP").is_some_and(|value| value == "1") => {
            panic!("the reference is required, but {reason}")
        }
        Err(reason) => {
            // Past the capture of the test harness, which would hide it.
            let _ = writeln!(std::io::stderr(), "skipped: interop {test}: {reason}");
            &[]
        }
    }
}

fn install() -> Result<(), String> {
    run(Command::new("node").arg("--version"))?;
    let modified = |path: &str| Path::new(DIRECTORY).join(path).metadata()?.modified();
    let installed = modified("node_modules/.package-lock.json");
    if matches!((installed, modified("package-lock.json")), (Ok(installed), Ok(wanted)) if installed >= wanted) {
        return Ok(());
    }
    run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.current_dir(DIRECTORY).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{shown} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{shown} failed: {error}")),
    }
}

fn node(script: &str, job: &Value) -> Command {
    let mut node = Command::new("node");
    node.arg(script).arg(job.to_string()).current_dir(DIRECTORY);
    node
}

/// What the reference's client tells about `job`.
pub(crate) async fn client(job: Value) -> Vec<Value> {
    let output = tokio::task::spawn_blocking(move || node("client.mjs", &job).stdin(Stdio::null()).output());
    let output = output.await.unwrap().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}{complaint}", output.status);
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A server made of the reference.
pub(crate) struct Server {
    child: Child,
    told: UnboundedReceiver<Value>,
    pub(crate) url: String,
}

impl Server {
    /// One whose token is `secret` and whose model answers with `responses`; it falls silent behind the first event of
    /// the type `stall_at`.
    pub(crate) async fn start(scope: &str, responses: Value, stall_at: Option<&str>) -> Self {
        let job = json!({"scope": scope, "token": "secret", "responses": responses, "stallAt": stall_at});
        let mut node = node("server.mjs", &job);
        // It ends when this side of its standard input does, however the test ends.
        let mut child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, told) = unbounded_channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if tell.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
            }
        });
        let url = String::new();
        let mut server = Self { child, told, url };
        server.url = format!("http://127.0.0.1:{}", server.told("port").await);
        server
    }

    /// What it tells next, which has to be about `what`.
    pub(crate) async fn told(&mut self, what: &str) -> Value {
        let told = timeout(LIMIT, self.told.recv()).await.unwrap().unwrap();
        told.get(what)
            .unwrap_or_else(|| panic!("told {told}, not of {what}"))
            .clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
