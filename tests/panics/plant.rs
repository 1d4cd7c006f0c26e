//! What is planted, and what holds after it went off.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use turnstate::machine::RunEnd;
use turnstate::{Agent, AgentBuilder, FnTool, Outcome, ScriptedModel, json_tool};

use super::robust_support::drive::{Task, drive};
use super::robust_support::watch::Watch;

/// Blows once.
#[derive(Clone)]
pub(crate) struct Fuse(Arc<AtomicBool>);

impl Fuse {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// One that does not.
    pub(crate) fn spent() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn blow(&self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "boom");
    }

    pub(crate) fn blew(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// A future or stream whose drop is the panic.
pub(crate) struct Dropped<F>(pub(crate) F, pub(crate) Fuse);

impl<F> Drop for Dropped<F> {
    fn drop(&mut self) {
        self.1.blow();
    }
}

impl<F: Future + Unpin> Future for Dropped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.poll_unpin(cx)
    }
}

impl<F: Stream + Unpin> Stream for Dropped<F> {
    type Item = F::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Item>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

/// An error that cannot say what it is.
#[derive(Debug)]
pub(crate) struct Unspeakable(pub(crate) Fuse);

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.blow();
        Ok(())
    }
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fuse")
    }
}

impl std::error::Error for Unspeakable {}

/// When a run that waits for what was planted is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Done,
    /// By an abort.
    Aborted,
    /// By its drop.
    Dropped,
}

/// A model that calls `t`, then says "done"; and "ok" to whatever is asked later.
pub(crate) fn script() -> ScriptedModel {
    ScriptedModel::new()
        .call("t", json!({}))
        .text("done")
        .fallback(|_| "ok")
}

pub(crate) fn tool_t() -> FnTool {
    tool_of(|| async { "fine" }.boxed())
}

pub(crate) fn tool_of(run: impl Fn() -> BoxFuture<'static, &'static str> + Send + Sync + 'static) -> FnTool {
    json_tool("t", "t", json!({"type": "object"}), move |_, _| run())
}

/// Polls a run of this agent until it waits or is over; then has it ended.
pub(crate) fn run_to(agent: &Agent, ending: Ending) -> Option<Outcome> {
    let mut run = Task::new(IntoFuture::into_future(agent.prompt("go").unwrap()));
    let mut outcome = run.run();
    match ending {
        Ending::Done => {}
        Ending::Aborted => {
            agent.abort();
            outcome = outcome.or_else(|| run.run());
        }
        Ending::Dropped => drop(run),
    }
    outcome
}

/// The first run blows the fuse and comes out, whatever it comes out as; a second works. Gives the first's outcome.
#[track_caller]
pub(crate) fn survives(agent: &Agent, fuse: &Fuse, ending: Ending) -> Option<Outcome> {
    let watch = Watch::new(agent);
    let outcome = run_to(agent, ending);
    assert!(fuse.blew(), "the panic was not reached");
    assert_eq!(outcome.is_some(), ending != Ending::Dropped);
    assert!(!agent.is_streaming());
    watch.check(agent, 1);
    let next = drive(agent.prompt("again").unwrap());
    assert_eq!(
        (next.end, next.listener_errors.len()),
        (RunEnd::Completed, 0),
        "{:?}",
        next.error
    );
    watch.check(agent, 2);
    outcome
}

/// The text of the only tool result of an outcome.
#[track_caller]
pub(crate) fn result(outcome: &Outcome) -> String {
    let mut results = outcome.messages.iter().filter_map(|message| message.as_tool_result());
    let result = results.next().expect("a result");
    assert!(results.next().is_none(), "one result");
    assert!(result.is_error);
    result.text()
}

/// Builds an agent with `t` and the script.
pub(crate) fn agent(build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    build(Agent::builder("m", script())).tool(tool_t()).build()
}
