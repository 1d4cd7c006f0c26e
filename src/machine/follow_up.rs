//! The phase in which a run would end.

use std::sync::Arc;

use crate::message::{AgentMessage, Model};

use super::core::Core;
use super::{Ended, Requesting, RunEnd, tells_events};

/// A run with nothing left to do, unless more is queued. The look at the queues and the decision to end are one
/// critical section of [`Queues`](crate::Queues) (I4).
///
/// ```text
///            +--> Requesting  messages
/// FollowUp --|
///            +--> Ended       none
/// ```
#[derive(Debug, Clone)]
pub struct FollowUp<M> {
    pub(super) core: Box<Core<M>>,
    pub(super) terminated: bool,
}

/// Where [`FollowUp::handle_messages`] leads.
#[derive(Debug)]
pub enum AfterFollowUp<M> {
    /// A turn is open and wants its request.
    Requesting(Requesting<M>),
    /// The run is over.
    Ended(Ended<M>),
}

tells_events!(FollowUp);

impl<M: AgentMessage> FollowUp<M> {
    /// Goes on with what was queued, or ends the run.
    pub fn handle_messages(mut self, messages: Vec<Arc<M>>) -> AfterFollowUp<M> {
        if messages.is_empty() {
            return AfterFollowUp::Ended(self.core.end(RunEnd::complete(self.terminated)));
        }
        self.core.begin_turn(messages);
        AfterFollowUp::Requesting(Requesting { core: self.core })
    }

    /// Ends the run because it was aborted.
    pub fn abort(self, model: &Model, now: u64) -> Ended<M> {
        self.core.abort(model, now)
    }
}
