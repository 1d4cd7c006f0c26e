//! Builds all peers, one after the other, runs them in turns, and prints one table.
//!
//! `cargo run --release`, or `cargo run --release -- text:10000 turns:100` for some workloads. The peers take turns, so
//! that what else the machine does falls on all of them. It should do nothing else.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;

use peers::{Sample, Work};

/// How often each peer has its turn.
const ROUNDS: usize = 3;
/// Each is a feature and a program.
const CRATES: [&str; 5] = ["turnstate", "yoagent", "rpi-agent", "rig-agent", "adk-agent"];
const PACKAGES: [&str; 2] = ["@mariozechner", "@earendil-works"];
const WORKS: [&str; 8] =
    ["text:1000", "text:10000", "text:100000", "turns:100", "turns:1000", "calls:10", "calls:1000", "transcript:10000"];

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// Where the npm packages are pinned.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop");

type Samples = BTreeMap<(String, String), Vec<u64>>;

fn main() -> Result<(), Box<dyn Error>> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let works = if named.is_empty() { WORKS.map(String::from).to_vec() } else { named };
    let mut programs = Vec::new();
    for name in CRATES {
        eprintln!("building {name}");
        run(cargo("build").args(["--features", name, "--bin", name]))?;
        let program = Path::new(HERE).join("target/release").join(name);
        programs.push(Command::new(program));
    }
    if let Err(error) =
        run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(NODE))
    {
        eprintln!("without the npm packages: {error}");
    } else {
        for scope in PACKAGES {
            let mut node = Command::new("node");
            node.args([Path::new(HERE).join("node.mjs").as_os_str(), NODE.as_ref(), scope.as_ref()]);
            programs.push(node);
        }
    }
    for program in &mut programs {
        program.args(&works);
    }
    let (mut peers, mut samples) = (Vec::new(), Samples::new());
    for round in 1..=ROUNDS {
        for program in &mut programs {
            eprintln!("round {round} of {ROUNDS}: {program:?}");
            for line in run(program)?.lines() {
                let Sample { peer, work, nanoseconds } = serde_json::from_str(line)?;
                if !peers.contains(&peer) {
                    peers.push(peer.clone());
                }
                samples.entry((peer, work)).or_default().push(nanoseconds);
            }
        }
    }
    table(&peers, &works, samples)
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([command, "--release", "--quiet", "--locked"])
        .current_dir(HERE)
        .env("CARGO_TARGET_DIR", Path::new(HERE).join("target"));
    cargo
}

/// Runs a program; what it prints.
fn run(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// One row per peer, one column per workload: the ratio to the first peer, the median, and how far the quartiles are from
/// it.
fn table(peers: &[String], works: &[String], mut samples: Samples) -> Result<(), Box<dyn Error>> {
    let row = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
    let head = works.iter().map(|work| Ok(format!("{work}, per {}", work.parse::<Work>()?.units().1)));
    let head: Vec<String> = head.collect::<Result<_, String>>()?;
    row([String::new()].into_iter().chain(head).collect());
    row([String::from("---")].into_iter().chain(works.iter().map(|_| String::from("--:"))).collect());
    let mut ours = BTreeMap::new();
    for peer in peers {
        let mut cells = vec![peer.clone()];
        for work in works {
            let Some(times) = samples.get_mut(&(peer.clone(), work.clone())) else {
                cells.push(String::from("-"));
                continue;
            };
            times.sort_unstable();
            let quantile = |part: usize| times[(times.len() - 1) * part / 4] as f64;
            let (low, median, high) = (quantile(1), quantile(2), quantile(3));
            let base = *ours.entry(work).or_insert(median);
            let spread = (high - median).max(median - low) / median * 100.0;
            let units = work.parse::<Work>()?.units().0 as f64;
            cells.push(format!("{:.1}x, {} ±{spread:.0}%", median / base, time(median / units)));
        }
        row(cells);
    }
    Ok(())
}

/// Three digits or so, with their unit.
fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ..1e3 => (nanoseconds, "ns"),
        ..1e6 => (nanoseconds / 1e3, "µs"),
        _ => (nanoseconds / 1e6, "ms"),
    };
    let digits = if value < 10.0 { 1 } else { 0 };
    format!("{value:.digits$} {unit}")
}
