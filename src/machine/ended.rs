//! The end of a run.

use crate::message::{AgentMessage, Messages, Transcript};

use super::core::Core;
use super::tells_events;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunEnd {
    /// There was nothing left to do.
    Completed,
    /// The stop hook, or a request to stop after the turn, ended it.
    Stopped,
    /// Its last tool results asked for the end.
    Terminated,
    /// It would have gone on, but had all its turns.
    Limit,
    /// The model, a hook or a conversion failed.
    Failed,
    /// It was aborted.
    Aborted,
}

impl RunEnd {
    pub(super) fn complete(terminated: bool) -> Self {
        if terminated { Self::Terminated } else { Self::Completed }
    }
}

/// A run that is over; only its last events are yet to be told.
#[derive(Debug, Clone)]
pub struct Ended<M> {
    pub(super) core: Box<Core<M>>,
    pub(super) end: RunEnd,
}

tells_events!(Ended);

impl<M: AgentMessage> Ended<M> {
    /// How it ended.
    pub fn end(&self) -> RunEnd {
        self.end
    }

    /// The whole transcript, and what the run added to it.
    pub fn into_parts(mut self) -> (Transcript<M>, Messages<M>) {
        self.core.settle();
        self.core.into_parts()
    }
}
