//! What a model streams.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::assistant::{AssistantMessage, StopReason, Usage};

/// Why an answer is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DoneReason {
    /// It is complete.
    #[default]
    Stop,
    /// The output limit cut it.
    Length,
    /// The model waits for tool results.
    ToolUse,
}

impl From<DoneReason> for StopReason {
    fn from(reason: DoneReason) -> Self {
        match reason {
            DoneReason::Stop => Self::Stop,
            DoneReason::Length => Self::Length,
            DoneReason::ToolUse => Self::ToolUse,
        }
    }
}

/// Why an answer broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorReason {
    /// It failed.
    Error,
    /// It was aborted.
    Aborted,
}

impl From<ErrorReason> for StopReason {
    fn from(reason: ErrorReason) -> Self {
        match reason {
            ErrorReason::Error => Self::Error,
            ErrorReason::Aborted => Self::Aborted,
        }
    }
}

/// What the start of a response may say of itself; what is absent comes from the request's model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResponseHead {
    /// See [`AssistantMessage::api`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// See [`AssistantMessage::provider`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// See [`AssistantMessage::model`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// See [`AssistantMessage::response_model`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// See [`AssistantMessage::response_id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// A start without any of the fields of a head has none, so that it is [`AssistantEvent::start`].
fn head_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<ResponseHead>>, D::Error> {
    let head = ResponseHead::deserialize(deserializer)?;
    Ok((head != ResponseHead::default()).then(|| Box::new(head)))
}

/// What the provider knows of a call at its end. What is present replaces what was folded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolCallPatch {
    /// The id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The arguments. They replace the streamed ones, and whatever could not be read of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// Opaque provider data that must be sent back with the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Why the arguments could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_error: Option<String>,
}

/// Why a request has no answer, as far as whoever may ask again has to know. It stands beside Pi's JSON, and is absent
/// where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Failure {
    /// The provider was not reached.
    Connect,
    /// The provider refused.
    Status {
        /// The HTTP status.
        status: u16,
        /// How long the provider asks to wait before the next request, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

impl Failure {
    /// Whether the same request may succeed later: the provider was not reached, or its status is 408, 429 or 5xx.
    ///
    /// ```
    /// use turnstate::Failure;
    /// let status = |status| Failure::Status { status, retry_after_ms: None };
    /// assert!(Failure::Connect.is_transient() && status(429).is_transient() && status(529).is_transient());
    /// assert!(!status(401).is_transient());
    /// ```
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
        }
    }

    /// How long the provider asks to wait.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Connect => None,
            Self::Status { retry_after_ms, .. } => retry_after_ms.map(Duration::from_millis),
        }
    }
}

/// One event of a model's answer: what a stream function yields, and what a proxy sends as JSON.
///
/// A good stream is `Start`, then for each block its start, deltas and end, then `Done` or `Error`. Blocks are told
/// apart by their content index and may interleave. What other orders do is described at
/// [`PartialMessage`](super::PartialMessage).
///
/// ```
/// use turnstate::AssistantEvent;
/// let event: AssistantEvent =
///     serde_json::from_str(r#"{"type":"text_delta","contentIndex":0,"delta":"hi"}"#).unwrap();
/// assert_eq!(event, AssistantEvent::text_delta(0, "hi"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AssistantEvent {
    /// The response begins.
    Start {
        /// What it says of itself.
        #[serde(flatten, deserialize_with = "head_if_any")]
        head: Option<Box<ResponseHead>>,
    },
    /// A text block begins.
    TextStart {
        /// The block.
        content_index: usize,
    },
    /// More of a text block.
    TextDelta {
        /// The block.
        content_index: usize,
        /// The text to append.
        delta: String,
    },
    /// A text block is complete.
    TextEnd {
        /// The block.
        content_index: usize,
        /// Becomes [`TextContent::text_signature`](super::TextContent::text_signature).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content_signature: Option<String>,
    },
    /// A thinking block begins.
    ThinkingStart {
        /// The block.
        content_index: usize,
    },
    /// More of a thinking block.
    ThinkingDelta {
        /// The block.
        content_index: usize,
        /// The text to append.
        delta: String,
    },
    /// A thinking block is complete.
    ThinkingEnd {
        /// The block.
        content_index: usize,
        /// Becomes [`ThinkingContent::thinking_signature`](super::ThinkingContent::thinking_signature).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content_signature: Option<String>,
    },
    /// A tool call begins.
    #[serde(rename = "toolcall_start")]
    ToolCallStart {
        /// The block.
        content_index: usize,
        /// The provider's id of the call.
        #[serde(default)]
        id: String,
        /// The name of the tool.
        #[serde(default)]
        tool_name: String,
    },
    /// More of the text of a call's arguments.
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta {
        /// The block.
        content_index: usize,
        /// The text to append: a piece of a JSON object.
        delta: String,
    },
    /// A tool call is complete.
    #[serde(rename = "toolcall_end")]
    ToolCallEnd {
        /// The block.
        content_index: usize,
        /// What the provider knows better than the fold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call: Option<Box<ToolCallPatch>>,
    },
    /// The response is complete. Nothing after it counts.
    Done {
        /// Why.
        reason: DoneReason,
        /// What it cost.
        #[serde(default)]
        usage: Box<Usage>,
        /// The whole message, which then replaces the fold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Box<AssistantMessage>>,
    },
    /// The response broke off. Nothing after it counts.
    Error {
        /// Why.
        reason: ErrorReason,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// What it cost.
        #[serde(default)]
        usage: Box<Usage>,
        /// The whole message, which then replaces the fold.
        #[serde(default, alias = "error", skip_serializing_if = "Option::is_none")]
        message: Option<Box<AssistantMessage>>,
        /// What [`Retry`](crate::Retry) has to know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Box<Failure>>,
    },
}

impl AssistantEvent {
    /// A start that says nothing of itself.
    pub fn start() -> Self {
        Self::Start { head: None }
    }

    /// The start of a text block.
    pub fn text_start(content_index: usize) -> Self {
        Self::TextStart { content_index }
    }

    /// The end of a text block, without a signature.
    pub fn text_end(content_index: usize) -> Self {
        Self::TextEnd {
            content_index,
            content_signature: None,
        }
    }

    /// The start of a thinking block.
    pub fn thinking_start(content_index: usize) -> Self {
        Self::ThinkingStart { content_index }
    }

    /// The end of a thinking block, without a signature.
    pub fn thinking_end(content_index: usize) -> Self {
        Self::ThinkingEnd {
            content_index,
            content_signature: None,
        }
    }

    /// The end of a tool call of which the provider knows nothing better than what it streamed.
    pub fn tool_call_end(content_index: usize) -> Self {
        Self::ToolCallEnd {
            content_index,
            tool_call: None,
        }
    }

    /// A piece of text.
    pub fn text_delta(content_index: usize, delta: impl Into<String>) -> Self {
        Self::TextDelta {
            content_index,
            delta: delta.into(),
        }
    }

    /// A piece of reasoning.
    pub fn thinking_delta(content_index: usize, delta: impl Into<String>) -> Self {
        Self::ThinkingDelta {
            content_index,
            delta: delta.into(),
        }
    }

    /// The start of a tool call.
    pub fn tool_call_start(content_index: usize, id: impl Into<String>, tool_name: impl Into<String>) -> Self {
        Self::ToolCallStart {
            content_index,
            id: id.into(),
            tool_name: tool_name.into(),
        }
    }

    /// A piece of a call's arguments.
    pub fn tool_call_delta(content_index: usize, delta: impl Into<String>) -> Self {
        Self::ToolCallDelta {
            content_index,
            delta: delta.into(),
        }
    }

    /// The end of an answer, without usage.
    pub fn done(reason: DoneReason) -> Self {
        Self::Done {
            reason,
            usage: Box::default(),
            message: None,
        }
    }

    /// A failure.
    pub fn error(message: impl Into<String>) -> Self {
        Self::broken(ErrorReason::Error, message)
    }

    /// What is told of a request that was aborted.
    pub fn aborted(message: impl Into<String>) -> Self {
        Self::broken(ErrorReason::Aborted, message)
    }

    fn broken(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self::Error {
            reason,
            error_message: Some(message.into()),
            usage: Box::default(),
            message: None,
            failure: None,
        }
    }

    /// The same failure, with what is known of it. Other events stay as they are.
    #[must_use]
    pub fn with_failure(mut self, known: Failure) -> Self {
        if let Self::Error { failure, .. } = &mut self {
            *failure = Some(Box::new(known));
        }
        self
    }

    /// Whether nothing counts after it.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Error { .. })
    }

    /// Its name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::TextStart { .. } => "text_start",
            Self::TextDelta { .. } => "text_delta",
            Self::TextEnd { .. } => "text_end",
            Self::ThinkingStart { .. } => "thinking_start",
            Self::ThinkingDelta { .. } => "thinking_delta",
            Self::ThinkingEnd { .. } => "thinking_end",
            Self::ToolCallStart { .. } => "toolcall_start",
            Self::ToolCallDelta { .. } => "toolcall_delta",
            Self::ToolCallEnd { .. } => "toolcall_end",
            Self::Done { .. } => "done",
            Self::Error { .. } => "error",
        }
    }

    /// The block it is about.
    pub fn content_index(&self) -> Option<usize> {
        match self {
            Self::TextStart { content_index }
            | Self::TextDelta { content_index, .. }
            | Self::TextEnd { content_index, .. }
            | Self::ThinkingStart { content_index }
            | Self::ThinkingDelta { content_index, .. }
            | Self::ThinkingEnd { content_index, .. }
            | Self::ToolCallStart { content_index, .. }
            | Self::ToolCallDelta { content_index, .. }
            | Self::ToolCallEnd { content_index, .. } => Some(*content_index),
            Self::Start { .. } | Self::Done { .. } | Self::Error { .. } => None,
        }
    }
}
