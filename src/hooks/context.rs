//! What hooks are given, and what they give back. All of it is owned and cheap to clone.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::machine::{ExecutingTools, ExecutionMode, TurnEnd};
use crate::message::{
    AgentMessage, Content, Message, Messages, Model, StreamOptions, ThinkingLevel, ToolCall, ToolResult, Transcript,
};
use crate::schema::ValidatedArguments;
use crate::tool::{RegisteredTool, Tool, ToolSet};

/// The result of a call that was blocked without a reason.
const BLOCKED: &str = "Tool execution was blocked";

/// What a request is made of. A hook may replace any of it, for this and later requests of the run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestPlan<M> {
    /// The model to ask.
    pub model: Arc<Model>,
    /// How much it shall think.
    pub thinking_level: ThinkingLevel,
    /// The system prompt; empty if there is none.
    pub system_prompt: Arc<str>,
    /// The tools it may call. The calls of its answer are looked up in them.
    pub tools: ToolSet,
    /// How the calls of its answer are run.
    pub execution_mode: ExecutionMode,
    /// Everything else the provider may be told.
    pub options: Arc<StreamOptions>,
    /// The transcript it sees. What the run adds is added to it; the agent's own transcript is not replaced.
    pub transcript: Transcript<M>,
}

impl<M: AgentMessage> RequestPlan<M> {
    /// A plan with a model and nothing else.
    pub fn new(model: impl Into<Model>) -> Self {
        Self {
            model: Arc::new(model.into()),
            thinking_level: ThinkingLevel::default(),
            system_prompt: "".into(),
            tools: ToolSet::default(),
            execution_mode: ExecutionMode::default(),
            options: Arc::default(),
            transcript: Transcript::new(),
        }
    }
}

/// What [`Hooks::prepare_request`](super::Hooks::prepare_request) is given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PrepareRequest<M = Message> {
    /// The plan so far; the hook returns it, changed or not.
    pub plan: RequestPlan<M>,
    /// Cancelled when the run is aborted.
    pub cancel: CancellationToken,
}

impl<M> PrepareRequest<M> {
    /// A request that is about to be made, for whoever asks hooks without the loop.
    pub fn new(plan: RequestPlan<M>, cancel: CancellationToken) -> Self {
        Self { plan, cancel }
    }
}

/// What [`Hooks::transform_context`](super::Hooks::transform_context) and
/// [`Hooks::convert_to_llm`](super::Hooks::convert_to_llm) are given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestContext<M = Message> {
    /// The transcript: whole for the first, transformed for the second.
    pub transcript: Transcript<M>,
    /// Cancelled when the run is aborted.
    pub cancel: CancellationToken,
}

impl<M> RequestContext<M> {
    /// A request that is made of this transcript, for whoever asks hooks without the loop.
    pub fn new(transcript: Transcript<M>, cancel: CancellationToken) -> Self {
        Self { transcript, cancel }
    }
}

/// A tool call that hooks look at: what both tool hooks are given.
#[derive(Clone)]
#[non_exhaustive]
pub struct CallContext<M = Message> {
    /// The position of the call among the calls of its message.
    pub index: usize,
    /// The call, with the model's original arguments.
    pub call: Arc<ToolCall>,
    /// The arguments the tool gets: validated, coerced where needed.
    pub arguments: ValidatedArguments,
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// The assistant message with the call.
    pub message: Arc<M>,
    /// The transcript with that message last; results of the same batch are not in it.
    pub transcript: Transcript<M>,
    /// Cancelled when the run is aborted.
    pub cancel: CancellationToken,
}

impl<M: AgentMessage> CallContext<M> {
    /// The call at `index` of a batch, whose `arguments` for `tool` are valid; for whoever asks hooks without the loop.
    pub fn new(
        batch: &ExecutingTools<M>,
        index: usize,
        call: &Arc<ToolCall>,
        arguments: ValidatedArguments,
        tool: &RegisteredTool,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            index,
            call: Arc::clone(call),
            arguments,
            tool: Arc::clone(tool.tool()),
            message: Arc::clone(batch.message()),
            transcript: batch.context().clone(),
            cancel,
        }
    }
}

impl<M> CallContext<M> {
    /// The name of the tool.
    pub fn name(&self) -> &str {
        &self.call.name
    }
}

impl<M> fmt::Debug for CallContext<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("index", &self.index)
            .field("call", &self.call)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// What [`Hooks::after_tool_call`](super::Hooks::after_tool_call) is given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallOutcome<M = Message> {
    /// The call.
    pub cx: CallContext<M>,
    /// The result of the tool.
    pub result: Arc<ToolResult>,
}

impl<M> CallOutcome<M> {
    /// A call that ran, and its result; for whoever asks hooks without the loop.
    pub fn new(cx: CallContext<M>, result: Arc<ToolResult>) -> Self {
        Self { cx, result }
    }

    /// The name of the tool.
    pub fn name(&self) -> &str {
        self.cx.name()
    }
}

/// What [`Hooks::should_stop_after_turn`](super::Hooks::should_stop_after_turn) is given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TurnSummary<M = Message> {
    /// The assistant message of the turn.
    pub message: Arc<M>,
    /// The results of its tool calls, in call order.
    pub tool_results: Vec<Arc<M>>,
    /// The transcript.
    pub transcript: Transcript<M>,
    /// What the run added so far.
    pub new_messages: Messages<M>,
    /// Cancelled when the run is aborted.
    pub cancel: CancellationToken,
}

impl<M: AgentMessage> TurnSummary<M> {
    /// A turn that is over, for whoever asks hooks without the loop.
    pub fn new(turn: &TurnEnd<M>, cancel: CancellationToken) -> Self {
        Self {
            message: Arc::clone(turn.message()),
            tool_results: turn.tool_results().to_vec(),
            transcript: turn.transcript().clone(),
            new_messages: turn.new_messages().clone(),
            cancel,
        }
    }
}

/// Whether a tool call may run.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Decision {
    /// It may.
    #[default]
    Allow,
    /// It may, with these arguments, which are validated like the model's.
    Replace(Value),
    /// It may not: the model gets an error result.
    Block {
        /// The text of the result; without one it says that the call was blocked.
        reason: Option<String>,
        /// See [`ToolResult::terminate`].
        terminate: Option<bool>,
    },
}

impl Decision {
    /// Blocks the call for a reason, which the model reads.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block {
            reason: Some(reason.into()),
            terminate: None,
        }
    }

    /// What the decision makes of a call of `tool` with these arguments: the arguments it runs with.
    ///
    /// # Errors
    /// The error result that answers the call: it is blocked, or what replaces its arguments is not valid.
    pub fn apply(
        self,
        tool: &RegisteredTool,
        call: &ToolCall,
        arguments: ValidatedArguments,
    ) -> Result<ValidatedArguments, Box<ToolResult>> {
        match self {
            Self::Allow => Ok(arguments),
            Self::Replace(replaced) => tool.validate(call, replaced),
            Self::Block { reason, terminate } => Err(Box::new(ToolResult {
                terminate,
                ..ToolResult::error(reason.unwrap_or_else(|| BLOCKED.to_owned()))
            })),
        }
    }
}

/// What of a result is replaced: whole fields, what is absent stays.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ResultPatch {
    /// See [`ToolResult::content`].
    pub content: Option<Vec<Content>>,
    /// See [`ToolResult::details`].
    pub details: Option<Value>,
    /// See [`ToolResult::is_error`].
    pub is_error: Option<bool>,
    /// See [`ToolResult::terminate`].
    pub terminate: Option<bool>,
}

impl ResultPatch {
    /// Replaces nothing.
    pub fn keep() -> Self {
        Self::default()
    }

    /// Replaces the content.
    #[must_use]
    pub fn content(mut self, content: Vec<Content>) -> Self {
        self.content = Some(content);
        self
    }

    /// Replaces the details.
    #[must_use]
    pub fn details(mut self, details: impl Into<Value>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// Replaces the error flag.
    #[must_use]
    pub fn is_error(mut self, is_error: bool) -> Self {
        self.is_error = Some(is_error);
        self
    }

    /// Replaces the wish to end the run after this batch.
    #[must_use]
    pub fn terminate(mut self, terminate: bool) -> Self {
        self.terminate = Some(terminate);
        self
    }

    /// The result with the patch on it.
    pub fn apply(self, mut result: ToolResult) -> ToolResult {
        if let Some(content) = self.content {
            result.content = content;
        }
        if self.details.is_some() {
            result.details = self.details;
        }
        if let Some(is_error) = self.is_error {
            result.is_error = is_error;
        }
        if self.terminate.is_some() {
            result.terminate = self.terminate;
        }
        result
    }
}
