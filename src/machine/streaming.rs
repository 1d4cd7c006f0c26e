//! The phase in which the model answers.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::event::AgentEvent;
use crate::message::{
    AgentMessage, AssistantEvent, AssistantMessage, DoneReason, ErrorReason, PartialMessage, StopReason, Usage,
};

use super::core::Core;
use super::{ABORTED_REQUEST, Ended, ExecutingTools, RunEnd, TurnEnd, tells_events};

/// A model's answer while it streams.
///
/// ```text
///    handle
///     +--+
///     |  v                    +--> ExecutingTools  the answer has tool calls
///   Streaming ---- finish ----+--> TurnEnd         it has none
///                             +--> Ended           it failed or was aborted
/// ```
///
/// [`handle`](Self::handle) folds one event of the model in and costs O(its length) (I8). An end cannot be made up or
/// forgotten: [`finish`](Self::finish) wants an [`AnswerEnd`], and a terminal event gives one.
#[derive(Debug, Clone)]
pub struct Streaming<M> {
    pub(super) core: Box<Core<M>>,
    pub(super) partial: Box<PartialMessage>,
    pub(super) started: bool,
}

/// How an answer ended.
#[derive(Debug)]
pub struct AnswerEnd(End);

#[derive(Debug)]
enum End {
    Done(DoneReason, Box<Usage>, Option<Box<AssistantMessage>>),
    Broken(ErrorReason, Option<String>, Box<Usage>, Option<Box<AssistantMessage>>),
}

impl AnswerEnd {
    /// It was aborted here, whatever the model does.
    pub fn aborted() -> Self {
        Self::broken(ErrorReason::Aborted, ABORTED_REQUEST.to_owned())
    }

    /// It failed.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::broken(ErrorReason::Error, error.into())
    }

    /// The stream ended without saying how: a failure.
    pub fn cut() -> Self {
        Self::failed("the model's stream ended before its answer was complete")
    }

    /// The same end where the run was aborted meanwhile: what failed then was aborted.
    #[must_use]
    pub fn under_abort(self) -> Self {
        match self.0 {
            End::Broken(ErrorReason::Error, ..) => Self::aborted(),
            _ => self,
        }
    }

    fn broken(reason: ErrorReason, error: String) -> Self {
        Self(End::Broken(reason, Some(error), Box::default(), None))
    }
}

/// Where [`Streaming::finish`] leads.
#[derive(Debug)]
pub enum AfterAnswer<M> {
    /// The answer has tool calls.
    ExecutingTools(ExecutingTools<M>),
    /// It has none.
    TurnEnd(TurnEnd<M>),
    /// It failed or was aborted: the run is over.
    Ended(Ended<M>),
}

tells_events!(Streaming);

impl<M: AgentMessage> Streaming<M> {
    /// The message so far, once it was announced.
    pub fn partial(&self) -> Option<&AssistantMessage> {
        self.started.then(|| self.partial.message())
    }

    /// Takes in the model's next event. Continues with the event this is for the run, or breaks with the answer's
    /// end, which belongs into [`finish`](Self::finish). An event that does not fit the message ends it as failed.
    ///
    /// Blocks that come before the model's `start` are folded silently; a second `start` is ignored. While there are
    /// events to [tell](Self::poll_event), new ones queue behind them (I1).
    pub fn handle(&mut self, event: AssistantEvent) -> ControlFlow<AnswerEnd, Option<AgentEvent<M>>> {
        if self.fold_delta(&event) {
            return ControlFlow::Continue(Some(AgentEvent::MessageUpdate { event }));
        }
        let event = match event {
            AssistantEvent::Done { reason, usage, message } => {
                return ControlFlow::Break(AnswerEnd(End::Done(reason, usage, message)));
            }
            AssistantEvent::Error {
                reason,
                error_message,
                usage,
                message,
                failure: _,
            } => return ControlFlow::Break(AnswerEnd(End::Broken(reason, error_message, usage, message))),
            AssistantEvent::Start { .. } if self.started => None,
            event => match self.partial.apply(&event) {
                Err(error) => return ControlFlow::Break(AnswerEnd::failed(error.to_string())),
                Ok(()) if matches!(event, AssistantEvent::Start { .. }) => Some(self.announce()),
                Ok(()) => self.started.then_some(AgentEvent::MessageUpdate { event }),
            },
        };
        if let Some(event) = event {
            if self.core.is_told() {
                return ControlFlow::Continue(Some(event));
            }
            self.core.tell(event);
        }
        ControlFlow::Continue(None)
    }

    /// [`handle`](Self::handle) for what there is most of, which it need not move: whether `event` is a delta of a message
    /// that was announced. It is folded then, and is to be told as it is.
    pub(crate) fn fold_delta(&mut self, event: &AssistantEvent) -> bool {
        let is_delta = matches!(
            event,
            AssistantEvent::TextDelta { .. }
                | AssistantEvent::ThinkingDelta { .. }
                | AssistantEvent::ToolCallDelta { .. }
        );
        is_delta && self.started && self.core.is_told() && self.partial.apply(event).is_ok()
    }

    fn announce(&mut self) -> AgentEvent<M> {
        self.started = true;
        let message = self.partial.message();
        AgentEvent::MessageStart {
            message: Arc::new(M::from(message.clone().into())),
            folded: (!message.content.is_empty()).then(|| self.partial.clone()),
        }
    }

    /// Ends the answer at `now` (milliseconds since the Unix epoch). What the message is from here on, it stays (I7).
    pub fn finish(mut self, end: AnswerEnd, now: u64) -> AfterAnswer<M> {
        self.core.settle();
        let began = self.partial.message().timestamp;
        let mut message = match end.0 {
            End::Done(reason, usage, whole) => self.partial.done(reason, *usage, whole.map(|whole| *whole)),
            End::Broken(reason, error, usage, whole) => {
                self.partial.broken(reason, error, *usage, whole.map(|whole| *whole))
            }
        };
        message.duration_ms.get_or_insert(now.saturating_sub(began));
        // Read before the message becomes one of the app's, which may not show what is in it.
        let stop_reason = message.stop_reason;
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        let message = Arc::new(M::from(message.into()));
        if self.started {
            self.core.tell(AgentEvent::MessageEnd {
                message: Arc::clone(&message),
            });
        } else {
            self.core.tell_message(Arc::clone(&message));
        }
        if stop_reason.is_failure() {
            let end = match stop_reason {
                StopReason::Aborted => RunEnd::Aborted,
                _ => RunEnd::Failed,
            };
            self.core.tell(AgentEvent::TurnEnd {
                message,
                tool_results: Vec::new(),
            });
            return AfterAnswer::Ended(self.core.end(end));
        }
        if calls.is_empty() {
            return AfterAnswer::TurnEnd(TurnEnd::new(self.core, message, Vec::new(), false));
        }
        let mut batch = ExecutingTools::new(self.core, message, calls);
        if stop_reason == StopReason::Length {
            batch.refuse_truncated(now);
        }
        AfterAnswer::ExecutingTools(batch)
    }
}
