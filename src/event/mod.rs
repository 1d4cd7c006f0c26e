//! What a run tells: [`AgentEvent`], and its JSON.

mod json;

use std::sync::Arc;

use crate::message::{AssistantEvent, Message, Messages, PartialMessage, ToolCall, ToolResult};

pub use json::JsonEvent;

/// One event of a run (I1): `AgentStart` first, `AgentEnd` last, once each; turns, messages and tool executions pair
/// and nest between them.
///
/// Events carry what is new, not copies: messages, calls and results are shared pointers, and an update carries the
/// model's delta. The message so far is lent by whoever runs the loop
/// ([`AgentLoop::partial`](crate::AgentLoop::partial), [`Run::partial`](crate::Run::partial)). Pi's JSON of an event,
/// with that message in it, is made on demand by [`json`](Self::json).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AgentEvent<M = Message> {
    /// The run begins.
    AgentStart,
    /// The run is over.
    AgentEnd {
        /// All messages the run added, its prompts included.
        messages: Messages<M>,
    },
    /// A turn begins.
    TurnStart,
    /// A turn is over.
    TurnEnd {
        /// The assistant message.
        message: Arc<M>,
        /// The results of its tool calls, in call order.
        tool_results: Vec<Arc<M>>,
    },
    /// A message begins. Only an assistant message is not complete here.
    MessageStart {
        /// The message, or what is known of it.
        message: Arc<M>,
        /// What was folded before, when the model announced its message only after its first blocks.
        folded: Option<Box<PartialMessage>>,
    },
    /// The assistant message that streams grew.
    MessageUpdate {
        /// By what.
        event: AssistantEvent,
    },
    /// A message is complete, and in the transcript.
    MessageEnd {
        /// The message.
        message: Arc<M>,
    },
    /// A tool call is taken up.
    ToolExecutionStart {
        /// Its position among the calls of its message; ids need not be unique.
        index: usize,
        /// The call, with the model's original arguments.
        call: Arc<ToolCall>,
    },
    /// A tool reports progress.
    ToolExecutionUpdate {
        /// The position of the call.
        index: usize,
        /// The call.
        call: Arc<ToolCall>,
        /// The result so far.
        partial_result: Box<ToolResult>,
    },
    /// A tool call is answered.
    ToolExecutionEnd {
        /// The position of the call.
        index: usize,
        /// The call.
        call: Arc<ToolCall>,
        /// The answer.
        result: Arc<ToolResult>,
    },
}

impl<M> AgentEvent<M> {
    /// A message that is complete as it begins.
    pub(crate) fn message_start(message: &Arc<M>) -> Self {
        Self::MessageStart {
            message: Arc::clone(message),
            folded: None,
        }
    }

    /// Its name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AgentStart => "agent_start",
            Self::AgentEnd { .. } => "agent_end",
            Self::TurnStart => "turn_start",
            Self::TurnEnd { .. } => "turn_end",
            Self::MessageStart { .. } => "message_start",
            Self::MessageUpdate { .. } => "message_update",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolExecutionStart { .. } => "tool_execution_start",
            Self::ToolExecutionUpdate { .. } => "tool_execution_update",
            Self::ToolExecutionEnd { .. } => "tool_execution_end",
        }
    }
}
