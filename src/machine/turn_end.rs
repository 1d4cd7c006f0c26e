//! The phase at the end of a turn.

use std::sync::Arc;

use crate::event::AgentEvent;
use crate::message::{AgentMessage, Messages, Model};

use super::awaiting_steering::NextTurn;
use super::core::Core;
use super::{AwaitingSteering, Ended, RunEnd, tells_events};

/// A turn that is over. Whether the run shall stop here is the driver's to say.
///
/// ```text
///           +--> AwaitingSteering  go on
/// TurnEnd --+--> AtLimit           no further turn may begin; is anything queued?
///           +--> Ended             stop, fail, abort, or no further turn may begin though tool results wait
/// ```
#[derive(Debug, Clone)]
pub struct TurnEnd<M> {
    core: Box<Core<M>>,
    message: Arc<M>,
    tool_results: Vec<Arc<M>>,
    terminated: bool,
}

/// Where [`TurnEnd::handle_stop`] leads.
#[derive(Debug)]
pub enum AfterTurn<M> {
    /// The run goes on.
    AwaitingSteering(AwaitingSteering<M>),
    /// It may not have another turn.
    AtLimit(AtLimit<M>),
    /// It is over.
    Ended(Ended<M>),
}

tells_events!(TurnEnd);

impl<M: AgentMessage> TurnEnd<M> {
    pub(super) fn new(mut core: Box<Core<M>>, message: Arc<M>, tool_results: Vec<Arc<M>>, terminated: bool) -> Self {
        core.tell(AgentEvent::TurnEnd {
            message: Arc::clone(&message),
            tool_results: tool_results.clone(),
        });
        Self {
            core,
            message,
            tool_results,
            terminated,
        }
    }

    /// The assistant message of the turn.
    pub fn message(&self) -> &Arc<M> {
        &self.message
    }

    /// The results of its tool calls, in call order.
    pub fn tool_results(&self) -> &[Arc<M>] {
        &self.tool_results
    }

    /// What the run added so far.
    pub fn new_messages(&self) -> &Messages<M> {
        self.core.added()
    }

    /// Goes on, or stops if `stop` (then no queue is looked at).
    pub fn handle_stop(mut self, stop: bool) -> AfterTurn<M> {
        self.core.settle();
        if stop {
            return AfterTurn::Ended(self.core.end(RunEnd::Stopped));
        }
        let answer = !self.tool_results.is_empty() && !self.terminated;
        match (self.core.at_limit(), answer) {
            (true, true) => AfterTurn::Ended(self.core.end(RunEnd::Limit)),
            (true, false) => AfterTurn::AtLimit(AtLimit {
                core: self.core,
                terminated: self.terminated,
            }),
            (false, true) => AfterTurn::AwaitingSteering(AwaitingSteering {
                core: self.core,
                next: NextTurn::Answer,
            }),
            (false, false) => AfterTurn::AwaitingSteering(AwaitingSteering {
                core: self.core,
                next: NextTurn::Nothing {
                    terminated: self.terminated,
                },
            }),
        }
    }

    /// Ends the run because it could not be found out whether to stop.
    pub fn fail(self, model: &Model, error: String, now: u64) -> Ended<M> {
        self.core.fail(model, error, now)
    }

    /// Ends the run because it was aborted.
    pub fn abort(self, model: &Model, now: u64) -> Ended<M> {
        self.core.abort(model, now)
    }
}

/// A run that has had all its turns and is complete, unless something is queued.
#[derive(Debug, Clone)]
pub struct AtLimit<M> {
    core: Box<Core<M>>,
    terminated: bool,
}

tells_events!(AtLimit);

impl<M: AgentMessage> AtLimit<M> {
    /// Ends the run: at its limit if anything is `queued` for it (and stays so), else complete.
    pub fn handle_queued(self, queued: bool) -> Ended<M> {
        self.core.end(if queued {
            RunEnd::Limit
        } else {
            RunEnd::complete(self.terminated)
        })
    }

    /// Ends the run because it was aborted.
    pub fn abort(self, model: &Model, now: u64) -> Ended<M> {
        self.core.abort(model, now)
    }
}
