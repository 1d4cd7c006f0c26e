//! The data model: messages and what they are made of, in Pi's JSON.
//!
//! - [`Message`] is what a model is sent and answers: [`UserMessage`], [`AssistantMessage`], [`ToolResultMessage`].
//! - [`AgentMessage`] is what a transcript holds: a [`Message`], or a message of the app's own
//!   (see [`CustomMessage`]).
//! - [`AssistantEvent`] is what a model streams, [`PartialMessage`] the message while it streams.
//! - [`Messages`] is a shared list of messages, [`Transcript`] one that also knows its request form.
//!
//! Pure data: no futures, no clock.

mod agent_message;
mod assistant;
mod content;
mod event;
mod list;
mod model;
mod partial;
mod serde_util;
mod tool_result;
mod transcript;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use agent_message::{AgentMessage, CustomMessage, CustomRole};
pub use assistant::{AssistantMessage, Cost, StopReason, Usage};
pub use content::{AssistantContent, Content, ImageContent, TextContent, ThinkingContent, ToolCall, UserContent};
pub use event::{AssistantEvent, DoneReason, ErrorReason, Failure, ResponseHead, ToolCallPatch};
pub use list::{Iter, Messages};
pub use model::{
    ApiKey, CacheRetention, InputKind, Model, ModelCost, StreamOptions, ThinkingBudgets, ThinkingLevel, Transport,
};
#[cfg(feature = "proxy")]
pub(crate) use partial::MAX_CONTENT_INDEX;
pub use partial::{FoldError, PartialMessage};
pub use tool_result::ToolResult;
pub use transcript::Transcript;

use serde_util::{null_is_default, present};

/// What the user says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "user", rename_all = "camelCase")]
pub struct UserMessage {
    /// The text, or text and images.
    pub content: UserContent,
    /// When it was said: milliseconds since the Unix epoch.
    #[serde(default)]
    pub timestamp: u64,
}

impl UserMessage {
    /// A message of one text block, said at time 0.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: UserContent::Blocks(vec![Content::text(text)]),
            timestamp: 0,
        }
    }
}

/// The answer to one tool call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "role", rename = "toolResult", rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// The id of the call.
    pub tool_call_id: String,
    /// The name the call gave.
    pub tool_name: String,
    /// What the model is told.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<Content>,
    /// Structured data for logs and UIs.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether the call failed.
    #[serde(default)]
    pub is_error: bool,
    /// What the tool itself spent on models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When it was given: milliseconds since the Unix epoch.
    #[serde(default)]
    pub timestamp: u64,
}

impl ToolResultMessage {
    /// The message that answers `call` with `result`.
    pub fn new(call: &ToolCall, result: &ToolResult, timestamp: u64) -> Self {
        Self {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: result.content.clone(),
            details: result.details.clone(),
            is_error: result.is_error,
            usage: result.usage,
            timestamp,
        }
    }

    /// All text, blocks joined by line ends.
    pub fn text(&self) -> String {
        content::join_text(self.content.iter().filter_map(Content::as_text))
    }
}

/// A message as models know it.
///
/// ```
/// use turnstate::Message;
/// let json = r#"{"role":"user","content":"hi","timestamp":0}"#;
/// let message: Message = serde_json::from_str(json).unwrap();
/// assert_eq!(message.role(), "user");
/// assert_eq!(serde_json::to_string(&message).unwrap(), json);
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// From the user.
    User(UserMessage),
    /// From the model.
    Assistant(AssistantMessage),
    /// From a tool.
    ToolResult(ToolResultMessage),
}

impl Message {
    /// A user message of one text block, said at time 0.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(UserMessage::text(text))
    }

    /// `user`, `assistant` or `toolResult`.
    pub fn role(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::ToolResult(_) => "toolResult",
        }
    }

    /// All text, blocks joined by line ends.
    pub fn text(&self) -> String {
        match self {
            Self::User(user) => user.content.text(),
            Self::Assistant(assistant) => assistant.text(),
            Self::ToolResult(result) => result.text(),
        }
    }

    /// The assistant message, if it is one.
    pub fn as_assistant(&self) -> Option<&AssistantMessage> {
        match self {
            Self::Assistant(message) => Some(message),
            Self::User(_) | Self::ToolResult(_) => None,
        }
    }

    /// The tool result, if it is one.
    pub fn as_tool_result(&self) -> Option<&ToolResultMessage> {
        match self {
            Self::ToolResult(message) => Some(message),
            Self::User(_) | Self::Assistant(_) => None,
        }
    }
}

// Each message writes its own `role`, so that it has it also where it stands alone; hence no derive.
impl Serialize for Message {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::User(message) => message.serialize(serializer),
            Self::Assistant(message) => message.serialize(serializer),
            Self::ToolResult(message) => message.serialize(serializer),
        }
    }
}

impl From<UserMessage> for Message {
    fn from(message: UserMessage) -> Self {
        Self::User(message)
    }
}

impl From<AssistantMessage> for Message {
    fn from(message: AssistantMessage) -> Self {
        Self::Assistant(message)
    }
}

impl From<ToolResultMessage> for Message {
    fn from(message: ToolResultMessage) -> Self {
        Self::ToolResult(message)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}
