//! The phase in which a turn is open and its request is made.

use crate::message::{AgentMessage, Model, PartialMessage, Transcript};

use super::core::Core;
use super::{Ended, Streaming, tells_events};

/// A turn that wants a model's answer: its request is made of [`transcript`](Self::transcript), once all was told.
///
/// ```text
///             +--> Streaming  stream
/// Requesting -|
///             +--> Ended      fail, abort: an assistant message that says so closes the turn
/// ```
#[derive(Debug, Clone)]
pub struct Requesting<M> {
    pub(super) core: Box<Core<M>>,
}

tells_events!(Requesting);

impl<M: AgentMessage> Requesting<M> {
    /// Replaces what this and later requests are made of. What the run adds still counts from its events.
    pub fn replace_transcript(&mut self, transcript: Transcript<M>) {
        self.core.settle();
        self.core.transcript = transcript;
    }

    /// The request was sent to `model` at `now` (milliseconds since the Unix epoch): its answer comes next.
    pub fn stream(mut self, model: &Model, now: u64) -> Streaming<M> {
        self.core.settle();
        Streaming {
            core: self.core,
            partial: Box::new(PartialMessage::new(model, now)),
            started: false,
        }
    }

    /// Ends the run because the request could not be made.
    pub fn fail(self, model: &Model, error: String, now: u64) -> Ended<M> {
        self.core.fail(model, error, now)
    }

    /// Ends the run because it was aborted.
    pub fn abort(self, model: &Model, now: u64) -> Ended<M> {
        self.core.abort(model, now)
    }
}
