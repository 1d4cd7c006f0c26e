//! How a run came out.

use std::fmt;

use crate::machine::RunEnd;
use crate::message::{AgentMessage, AssistantMessage, Message, Messages, Usage};

/// How a run came out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Outcome<M = Message> {
    /// How it ended.
    pub end: RunEnd,
    /// The messages it added, its prompts included.
    pub messages: Messages<M>,
    /// What its requests cost, together.
    pub usage: Usage,
    /// What went wrong, if it failed or was aborted.
    pub error: Option<String>,
    /// What listeners failed with. The run was not affected.
    pub listener_errors: Vec<ListenerError>,
}

impl<M: AgentMessage> Outcome<M> {
    pub(crate) fn new(end: RunEnd, messages: Messages<M>) -> Self {
        let mut usage = Usage::default();
        answers(&messages).for_each(|answer| usage += &answer.usage);
        let failure = matches!(end, RunEnd::Failed | RunEnd::Aborted);
        let last = answers(&messages)
            .last()
            .filter(|last| failure && last.stop_reason.is_failure());
        Self {
            end,
            usage,
            error: last.and_then(|last| last.error_message.clone()),
            messages,
            listener_errors: Vec::new(),
        }
    }

    /// The text of the last assistant message; empty if there is none.
    pub fn text(&self) -> String {
        answers(&self.messages)
            .last()
            .map(AssistantMessage::text)
            .unwrap_or_default()
    }

    /// The outcome, unless the run failed or was aborted. A run that was stopped, or came to its limit, did neither; its
    /// last message may then be without text.
    ///
    /// # Errors
    /// [`RunError`] if it did; the outcome is in it.
    pub fn into_result(self) -> Result<Self, RunError<M>> {
        match self.end {
            RunEnd::Failed => Err(RunError::Failed(Box::new(self))),
            RunEnd::Aborted => Err(RunError::Aborted(Box::new(self))),
            _ => Ok(self),
        }
    }
}

fn answers<M: AgentMessage>(messages: &Messages<M>) -> impl Iterator<Item = &AssistantMessage> {
    messages
        .iter()
        .filter_map(|message| message.as_message().and_then(Message::as_assistant))
}

/// A run that failed or was aborted.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<M = Message> {
    /// The model, a hook or a conversion failed.
    #[error("the run failed: {}", .0.error.as_deref().unwrap_or("no reason given"))]
    Failed(Box<Outcome<M>>),
    /// It was aborted.
    #[error("the run was aborted")]
    Aborted(Box<Outcome<M>>),
}

impl<M> RunError<M> {
    /// How the run came out.
    pub fn outcome(&self) -> &Outcome<M> {
        match self {
            Self::Failed(outcome) | Self::Aborted(outcome) => outcome,
        }
    }
}

// Without `M: Debug`, so that `?` and `unwrap` work for any message.
impl<M> fmt::Debug for RunError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome();
        f.debug_struct("RunError")
            .field("end", &outcome.end)
            .field("error", &outcome.error)
            .finish_non_exhaustive()
    }
}

/// A listener that failed or panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("listener failed at {event}: {message}")]
#[non_exhaustive]
pub struct ListenerError {
    /// The name of the event it failed at.
    pub event: &'static str,
    /// Its own text.
    pub message: String,
}
