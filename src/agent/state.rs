//! The pure reducer: folding a run's events gives the agent's state (I5).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::AgentEvent;
use crate::message::{AgentMessage, AssistantMessage, Message, PartialMessage, ToolCall, Transcript};

/// What an agent is in the middle of: its transcript, the message that streams, the calls that run, the last error.
///
/// [`apply`](Self::apply) is all there is to it: it needs no loop and no agent, so a program that forwards events to
/// another place can keep the same state there. Only what happens between runs no event tells: a
/// [`retry`](crate::Agent::retry) drops the failed message, and the transcript may be replaced
/// ([`set_transcript`](Self::set_transcript)).
///
/// ```
/// use turnstate::{AgentEvent, AgentState, Message};
/// let mut state = AgentState::<Message>::default();
/// let message = std::sync::Arc::new(Message::user("hi"));
/// state.apply(&AgentEvent::MessageEnd { message });
/// assert_eq!(state.transcript().len(), 1);
/// ```
#[derive(Debug, Clone)]
pub struct AgentState<M = Message> {
    transcript: Transcript<M>,
    current: Option<Current<M>>,
    pending: BTreeMap<usize, Arc<ToolCall>>,
    error: Option<String>,
}

/// A message that has begun but not ended.
#[derive(Debug, Clone)]
enum Current<M> {
    /// It is complete already.
    Whole(Arc<M>),
    /// It streams.
    Partial(Box<PartialMessage>),
}

impl<M: AgentMessage> AgentState<M> {
    /// A state with this transcript.
    pub fn new(transcript: Transcript<M>) -> Self {
        Self {
            transcript,
            current: None,
            pending: BTreeMap::new(),
            error: None,
        }
    }

    /// Folds one event in. Costs what the event costs: a delta its length (I8).
    pub fn apply(&mut self, event: &AgentEvent<M>) {
        match event {
            AgentEvent::AgentStart => {
                self.error = None;
                self.settle();
            }
            AgentEvent::AgentEnd { .. } => self.settle(),
            AgentEvent::MessageStart { message, folded } => {
                let partial = folded.clone().or_else(|| {
                    let answer = message.as_message().and_then(Message::as_assistant)?;
                    Some(Box::new(PartialMessage::resume(answer.clone())))
                });
                self.current = Some(partial.map_or_else(|| Current::Whole(Arc::clone(message)), Current::Partial));
            }
            AgentEvent::MessageUpdate { event } => {
                if let Some(Current::Partial(partial)) = &mut self.current {
                    // The machine has checked the event against the same fold.
                    let _ = partial.apply(event);
                }
            }
            AgentEvent::MessageEnd { message } => {
                self.current = None;
                self.transcript.push(Arc::clone(message));
            }
            AgentEvent::ToolExecutionStart { index, call } => {
                self.pending.insert(*index, Arc::clone(call));
            }
            AgentEvent::ToolExecutionEnd { index, .. } => {
                self.pending.remove(index);
            }
            AgentEvent::TurnEnd { message, .. } => {
                if let Some(error) = failure(message).and_then(|answer| answer.error_message.as_ref()) {
                    self.error = Some(error.clone());
                }
            }
            AgentEvent::TurnStart | AgentEvent::ToolExecutionUpdate { .. } => {}
        }
    }

    /// Nothing is under way any more.
    pub(super) fn settle(&mut self) {
        self.current = None;
        self.pending.clear();
    }

    /// The messages.
    pub fn transcript(&self) -> &Transcript<M> {
        &self.transcript
    }

    /// The assistant message that streams, as far as it is known.
    pub fn partial(&self) -> Option<&AssistantMessage> {
        match self.current.as_ref()? {
            Current::Partial(partial) => Some(partial.message()),
            Current::Whole(_) => None,
        }
    }

    /// The message that has begun but not ended, of whatever role. A streaming one is copied for it.
    pub fn streaming_message(&self) -> Option<Arc<M>> {
        match self.current.as_ref()? {
            Current::Whole(message) => Some(Arc::clone(message)),
            Current::Partial(partial) => Some(Arc::new(M::from(partial.message().clone().into()))),
        }
    }

    /// The calls that were taken up but not answered yet, by position within their message.
    pub fn pending_tool_calls(&self) -> impl Iterator<Item = (usize, &Arc<ToolCall>)> {
        self.pending.iter().map(|(index, call)| (*index, call))
    }

    /// What went wrong in the last failed or aborted turn, until the next run begins.
    pub fn error_message(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Replaces the transcript, between runs; gives back the one before.
    pub fn set_transcript(&mut self, transcript: Transcript<M>) -> Transcript<M> {
        std::mem::replace(&mut self.transcript, transcript)
    }
}

/// The message as an answer that failed or was aborted, if it is one.
fn failure<M: AgentMessage>(message: &Arc<M>) -> Option<&AssistantMessage> {
    let answer = message.as_message().and_then(Message::as_assistant)?;
    answer.stop_reason.is_failure().then_some(answer)
}

impl<M: AgentMessage> Default for AgentState<M> {
    fn default() -> Self {
        Self::new(Transcript::new())
    }
}
