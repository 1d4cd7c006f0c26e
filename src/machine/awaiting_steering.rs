//! The phase between turns: what the user said meanwhile goes first.

use std::sync::Arc;

use crate::message::{AgentMessage, Model, Transcript};
use crate::queue::QueueKind;

use super::core::Core;
use super::{Ended, FollowUp, Limits, Requesting, tells_events};

/// A run that is about to look for steering messages: it has just begun, or a turn is over.
///
/// ```text
/// prompt ----+                        +--> Requesting   messages, or results to answer, or first turn
/// resume ----+--> AwaitingSteering ---|
/// queued ----+                        +--> FollowUp     nothing to do
/// ```
#[derive(Debug, Clone)]
pub struct AwaitingSteering<M> {
    pub(super) core: Box<Core<M>>,
    pub(super) next: NextTurn,
}

/// What a turn would begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextTurn {
    /// The turn has begun already: it is the run's first.
    First {
        /// `continue` took the first steering messages itself.
        steered: bool,
    },
    /// Tool results wait for an answer.
    Answer,
    /// Nothing waits.
    Nothing {
        /// Because the tools ended the run.
        terminated: bool,
    },
}

/// Where [`AwaitingSteering::handle_steering`] leads.
#[derive(Debug)]
pub enum AfterSteering<M> {
    /// A turn is open and wants its request.
    Requesting(Requesting<M>),
    /// The run would end.
    FollowUp(FollowUp<M>),
}

tells_events!(AwaitingSteering);

impl<M: AgentMessage> AwaitingSteering<M> {
    /// Begins a run with the messages of a prompt.
    pub fn prompt(transcript: Transcript<M>, messages: Vec<Arc<M>>, limits: Limits) -> Self {
        let mut run = Self::resume(transcript, limits);
        for message in messages {
            run.core.tell_message(message);
        }
        run
    }

    /// Begins a run that answers what the transcript ends with.
    pub fn resume(transcript: Transcript<M>, limits: Limits) -> Self {
        Self {
            core: Box::new(Core::new(transcript, limits.max_turns)),
            next: NextTurn::First { steered: false },
        }
    }

    /// Begins a run with messages that were queued, and go back there if the run is aborted before they are told.
    /// Steering messages stand for the first poll.
    pub fn queued(transcript: Transcript<M>, messages: Vec<Arc<M>>, from: QueueKind, limits: Limits) -> Self {
        let mut run = Self::resume(transcript, limits);
        run.core.tell_queued(messages);
        run.next = NextTurn::First {
            steered: from == QueueKind::Steering,
        };
        run
    }

    /// Whether the run wants steering messages now. If not, [`handle_steering`](Self::handle_steering) is given none.
    pub fn wants_steering(&self) -> bool {
        self.next != NextTurn::First { steered: true }
    }

    /// Goes on with the steering messages that were queued.
    pub fn handle_steering(mut self, messages: Vec<Arc<M>>) -> AfterSteering<M> {
        match self.next {
            NextTurn::First { .. } => {
                self.core.settle();
                self.core.tell_queued(messages);
            }
            NextTurn::Nothing { terminated } if messages.is_empty() => {
                return AfterSteering::FollowUp(FollowUp {
                    core: self.core,
                    terminated,
                });
            }
            NextTurn::Answer | NextTurn::Nothing { .. } => self.core.begin_turn(messages),
        }
        AfterSteering::Requesting(Requesting { core: self.core })
    }

    /// Ends the run because it was aborted.
    pub fn abort(self, model: &Model, now: u64) -> Ended<M> {
        self.core.abort(model, now)
    }
}
