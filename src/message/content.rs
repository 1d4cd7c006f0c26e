//! Content blocks, in Pi's JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::serde_util::{null_is_default, text_or_blocks};

/// A block of text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text", rename_all = "camelCase")]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Opaque provider data that must be sent back with the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
}

/// A block of the model's reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "thinking", rename_all = "camelCase")]
pub struct ThinkingContent {
    /// The reasoning, as far as the provider shows it.
    pub thinking: String,
    /// Opaque provider data that must be sent back with the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// The provider withheld the text; what it needs back is in the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "image", rename_all = "camelCase")]
pub struct ImageContent {
    /// The image file, in base64.
    pub data: String,
    /// Its media type, such as `image/png`.
    pub mime_type: String,
}

/// The model's request to run a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "toolCall", rename_all = "camelCase")]
pub struct ToolCall {
    /// The provider's id of the call. It may be empty and need not be unique: calls are told apart by position.
    #[serde(default)]
    pub id: String,
    /// The name of the tool.
    #[serde(default)]
    pub name: String,
    /// The arguments as the model wrote them, in its key order; what the tool gets may be coerced from them.
    #[serde(default, deserialize_with = "null_is_default")]
    pub arguments: Map<String, Value>,
    /// Opaque provider data that must be sent back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Why the arguments could not be read, quoting what the model wrote. Such a call is answered, never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_error: Option<String>,
}

impl ToolCall {
    /// A call of `name` with `arguments`.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments,
            ..Self::default()
        }
    }
}

/// A block of a user message or of a tool result.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(ImageContent),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent {
            text: text.into(),
            text_signature: None,
        })
    }

    /// An image block: `data` is base64, `mime_type` such as `image/png`.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image(ImageContent {
            data: data.into(),
            mime_type: mime_type.into(),
        })
    }

    /// The text, if it is a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            Self::Image(_) => None,
        }
    }
}

// Each block writes its own `type`, so that it has it also where it stands alone; hence no derive.
impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Image(image) => image.serialize(serializer),
        }
    }
}

impl From<ImageContent> for Content {
    fn from(image: ImageContent) -> Self {
        Self::Image(image)
    }
}

impl From<TextContent> for Content {
    fn from(text: TextContent) -> Self {
        Self::Text(text)
    }
}

/// What a user says: plain text, or blocks. Both forms of Pi's JSON are kept as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserContent {
    /// A bare string.
    Text(String),
    /// Text and images.
    Blocks(Vec<Content>),
}

impl UserContent {
    /// All text, blocks joined by line ends.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => join_text(blocks.iter().filter_map(Content::as_text)),
        }
    }
}

impl Serialize for UserContent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for UserContent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_blocks(deserializer)
    }
}

/// A block of an assistant message.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum AssistantContent {
    /// Text for the user.
    Text(TextContent),
    /// Reasoning.
    Thinking(ThinkingContent),
    /// A tool call; shared, because events, hooks and the transcript all hold it.
    ToolCall(Arc<ToolCall>),
}

impl AssistantContent {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent {
            text: text.into(),
            text_signature: None,
        })
    }

    /// The call, if it is one.
    pub fn as_tool_call(&self) -> Option<&Arc<ToolCall>> {
        match self {
            Self::ToolCall(call) => Some(call),
            Self::Text(_) | Self::Thinking(_) => None,
        }
    }
}

impl Serialize for AssistantContent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Thinking(thinking) => thinking.serialize(serializer),
            Self::ToolCall(call) => call.serialize(serializer),
        }
    }
}

/// Joins texts by line ends.
pub(crate) fn join_text<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.fold(String::new(), |mut all, text| {
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(text);
        all
    })
}
