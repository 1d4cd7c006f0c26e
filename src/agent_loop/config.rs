//! What a loop is run with.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use crate::hooks::RequestPlan;
use crate::machine::Limits;
use crate::message::{AgentMessage, Message, Model, Transcript};
use crate::queue::{Lease, Queues};
use crate::tool::BoxFuture;

/// Tells the time in milliseconds since the Unix epoch.
pub type Clock = fn() -> u64;

/// The system's clock.
pub fn system_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Makes the future that bounds how long aborted tools are still polled; see [`LoopConfig::grace`].
pub type Grace = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What a loop is run with. Made by [`new`](Self::new), then changed field by field.
///
/// ```
/// use turnstate::{LoopConfig, Message};
/// let mut config = LoopConfig::<Message>::new("scripted-1");
/// config.plan.system_prompt = "Be brief.".into();
/// config.limits = turnstate::machine::Limits::max_turns(8.try_into().unwrap());
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct LoopConfig<M = Message> {
    /// Model, system prompt, transcript, tools and options to begin with.
    pub plan: RequestPlan<M>,
    /// Where steering and follow-up messages come from. By default queues nobody else has.
    pub queues: Queues<M>,
    /// Aborts the run when it is cancelled. Stream function, hooks and tools get a child of it.
    pub cancel: CancellationToken,
    /// What bounds the run.
    pub limits: Limits,
    /// How many tool calls run at once at most.
    pub max_concurrent_tools: Option<NonZeroUsize>,
    /// How long tools that run when the run is aborted are still polled: until this future resolves. Without it they
    /// are polled once. For tools that must wait for a child process, say.
    pub grace: Option<Grace>,
    /// Where timestamps and durations come from.
    pub clock: Clock,
}

impl<M: AgentMessage> LoopConfig<M> {
    /// The default configuration with this model.
    pub fn new(model: impl Into<Model>) -> Self {
        Self {
            plan: RequestPlan::new(model),
            queues: Queues::new(),
            cancel: CancellationToken::new(),
            limits: Limits::default(),
            max_concurrent_tools: None,
            grace: None,
            clock: system_clock,
        }
    }
}

impl<M: AgentMessage + fmt::Debug> fmt::Debug for LoopConfig<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopConfig")
            .field("plan", &self.plan)
            .field("queues", &self.queues)
            .field("limits", &self.limits)
            .field("max_concurrent_tools", &self.max_concurrent_tools)
            .field("grace", &self.grace.is_some())
            .finish_non_exhaustive()
    }
}

/// What a run begins with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Start<M = Message> {
    /// These messages.
    Prompt(Vec<Arc<M>>),
    /// What the transcript ends with: a user message or a tool result.
    Continue,
    /// Messages that were queued; they return to their queue if the run is aborted before they are told.
    Queued(Lease<M>),
}

/// Why a run was not begun. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A run is active.
    #[error("a run is active; queue the message, or wait until the agent is idle")]
    Busy,
    /// A prompt without messages. (An empty text is a message.)
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The transcript is empty.
    #[error("there is nothing to continue: the transcript is empty")]
    EmptyTranscript,
    /// The last message is the assistant's, and nothing is queued.
    #[error("there is nothing to continue: the last message is the assistant's and nothing is queued")]
    NothingToContinue,
    /// The last message is not a failed or aborted assistant message.
    #[error("there is nothing to retry: the last message did not fail")]
    NothingToRetry,
}

impl<M: AgentMessage> Start<M> {
    pub(super) fn check(&self, transcript: &Transcript<M>) -> Result<(), StartError> {
        match self {
            Self::Prompt(messages) if messages.is_empty() => Err(StartError::EmptyPrompt),
            Self::Queued(lease) if lease.is_empty() => Err(StartError::EmptyPrompt),
            Self::Prompt(_) | Self::Queued(_) => Ok(()),
            Self::Continue => match transcript.last() {
                None => Err(StartError::EmptyTranscript),
                Some(last) if last.role() == "assistant" => Err(StartError::NothingToContinue),
                Some(_) => Ok(()),
            },
        }
    }
}
