//! What every peer is made to do, and how it is timed.
//!
//! A peer is a program: its arguments are workloads, and for each it prints one [`Sample`] per run as a line of JSON. It
//! has a scripted model, which does the least that the contract of the crate allows, and a tool that does nothing. The
//! head of each file under `bin/` says what that least is.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a model streams.
pub const WORD: &str = "word ";
/// How many deltas a model that pushes may queue before it lets the loop run.
pub const BURST: usize = 64;
/// The name of the tool.
pub const NOOP: &str = "noop";
/// Timed runs of each workload, behind one that is not. One that takes more than a minute in all is cut short.
const RUNS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// One run of a loop, from one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// An answer of so many deltas.
    Text(usize),
    /// So many turns of one tool call, and a last answer.
    Turns(usize),
    /// One turn of so many tool calls, side by side where the crate can, and a last answer.
    Calls(usize),
    /// A short answer behind so many messages of 1 KiB.
    Transcript(usize),
}

impl Work {
    /// What its time is divided by, and the name of that.
    pub fn units(self) -> (usize, &'static str) {
        match self {
            Self::Text(n) => (n, "delta"),
            Self::Turns(n) => (n, "turn"),
            Self::Calls(n) => (n, "call"),
            Self::Transcript(_) => (1, "turn"),
        }
    }

    /// How often the model is asked.
    fn requests(self) -> usize {
        match self {
            Self::Text(_) | Self::Transcript(_) => 1,
            Self::Turns(n) => n + 1,
            Self::Calls(_) => 2,
        }
    }

    fn calls(self) -> usize {
        match self {
            Self::Text(_) | Self::Transcript(_) => 0,
            Self::Turns(n) | Self::Calls(n) => n,
        }
    }

    /// Deltas of the last answer.
    fn words(self) -> usize {
        match self {
            Self::Text(n) => n,
            Self::Turns(_) | Self::Calls(_) => 1,
            Self::Transcript(_) => 10,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(n) => write!(f, "text:{n}"),
            Self::Turns(n) => write!(f, "turns:{n}"),
            Self::Calls(n) => write!(f, "calls:{n}"),
            Self::Transcript(n) => write!(f, "transcript:{n}"),
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, size) = text.split_once(':').ok_or("a workload is `kind:size`")?;
        let size = size.parse().map_err(|error| format!("{text}: {error}"))?;
        match kind {
            "text" => Ok(Self::Text(size)),
            "turns" => Ok(Self::Turns(size)),
            "calls" => Ok(Self::Calls(size)),
            "transcript" => Ok(Self::Transcript(size)),
            _ => Err(format!("{text}: a kind is text, turns, calls or transcript")),
        }
    }
}

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Streams so many [`WORD`]s.
    Words(usize),
    /// Calls the tool, once for each number, which makes its id.
    Calls(Range<usize>),
}

/// The script of one run. Copies share their counts, by which it is known that a peer did the work.
#[derive(Debug, Clone)]
pub struct Script(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    work: Work,
    asked: AtomicUsize,
    called: AtomicUsize,
}

impl Script {
    fn new(work: Work) -> Self {
        Self(Arc::new(Counts { work, asked: AtomicUsize::new(0), called: AtomicUsize::new(0) }))
    }

    /// The model was asked: what it does.
    pub fn reply(&self) -> Reply {
        let turn = self.0.asked.fetch_add(1, Ordering::Relaxed);
        match self.0.work {
            Work::Turns(n) if turn < n => Reply::Calls(turn..turn + 1),
            Work::Calls(n) if turn == 0 => Reply::Calls(0..n),
            work => Reply::Words(work.words()),
        }
    }

    /// The tool was called.
    pub fn called(&self) {
        self.0.called.fetch_add(1, Ordering::Relaxed);
    }

    /// The texts that are in the transcript before: the user's and the assistant's in turn.
    pub fn backlog(&self) -> impl Iterator<Item = (Role, String)> {
        let n = if let Work::Transcript(n) = self.0.work { n } else { 0 };
        (0..n).map(|i| {
            let role = if i % 2 == 0 { Role::User } else { Role::Assistant };
            (role, "x".repeat(1024))
        })
    }

    /// For peers that want to know how many turns at most.
    pub fn max_turns(&self) -> usize {
        self.0.work.requests()
    }

    /// For peers that want to know how many calls at once at most.
    pub fn width(&self) -> usize {
        if let Work::Calls(n) = self.0.work { n } else { 1 }
    }

    /// Panics if the peer did something else.
    fn check(&self, ran: &Ran) {
        let Counts { work, asked, called } = &*self.0;
        assert_eq!(asked.load(Ordering::Relaxed), work.requests(), "{work}: requests");
        assert_eq!(called.load(Ordering::Relaxed), work.calls(), "{work}: tool calls");
        assert_eq!(ran.answer, work.words() * WORD.len(), "{work}: bytes of the last answer");
        assert!(ran.events >= work.words(), "{work}: {} events", ran.events);
    }
}

/// Whose message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

/// The JSON Schema of the tool.
pub fn schema() -> Value {
    json!({ "type": "object", "properties": { "value": { "type": "string" } }, "required": ["value"] })
}

/// What the tool is called with.
pub fn arguments() -> Value {
    json!({ "value": "x" })
}

/// How a run went.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// How long the loop took. Nothing else: not what was made for it before, nor the drop of what it gave.
    pub elapsed: Duration,
    /// Events the consumer was given.
    pub events: usize,
    /// Bytes of the last answer, as the loop gave it.
    pub answer: usize,
}

/// A clock that is started when all is made.
#[derive(Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts it.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Stops it.
    pub fn stop(self) -> Duration {
        self.0.elapsed()
    }
}

/// A line of a peer's output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Who.
    pub peer: String,
    /// The workload.
    pub work: String,
    /// Nanoseconds of one run.
    pub nanoseconds: u64,
}

/// Measures a peer by the workloads that the program's arguments name.
pub fn measure<F: Future<Output = Ran>>(peer: &str, run: impl Fn(Script) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for work in std::env::args().skip(1) {
        let work: Work = work.parse().unwrap_or_else(|error| panic!("{error}"));
        let begun = Instant::now();
        for i in 0..=RUNS {
            let script = Script::new(work);
            let ran = runtime.block_on(run(script.clone()));
            script.check(&ran);
            if i == 0 {
                continue;
            }
            let sample = Sample {
                peer: peer.to_owned(),
                work: work.to_string(),
                nanoseconds: ran.elapsed.as_nanos().try_into().expect("less than centuries"),
            };
            println!("{}", serde_json::to_string(&sample).expect("JSON"));
            if begun.elapsed() > PATIENCE {
                break;
            }
        }
    }
}
