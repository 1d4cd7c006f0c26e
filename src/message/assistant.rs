//! The assistant's message, its usage and why it stopped.

use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{AssistantContent, ToolCall, join_text};
use super::model::Model;
use super::serde_util::null_is_default;

/// Why an assistant message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is complete.
    #[default]
    Stop,
    /// The output limit cut it.
    Length,
    /// The model waits for tool results.
    ToolUse,
    /// The request failed.
    Error,
    /// The request was aborted.
    Aborted,
}

impl StopReason {
    /// Whether the message failed: `Error` or `Aborted`. Such a message ends its run and is not sent again.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Aborted)
    }
}

/// What a request cost, in the currency of the model's price list (US dollars in Pi's).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Of the input tokens.
    pub input: f64,
    /// Of the output tokens.
    pub output: f64,
    /// Of the tokens read from the provider's cache.
    pub cache_read: f64,
    /// Of the tokens written to the provider's cache.
    pub cache_write: f64,
    /// In all.
    pub total: f64,
}

/// Tokens of one request, and their cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Input tokens that were not in the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// All of them.
    pub total_tokens: u64,
    /// What they cost.
    pub cost: Cost,
}

impl AddAssign<&Usage> for Usage {
    fn add_assign(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
        self.cost.input += other.cost.input;
        self.cost.output += other.cost.output;
        self.cost.cache_read += other.cost.cache_read;
        self.cost.cache_write += other.cost.cache_write;
        self.cost.total += other.cost.total;
    }
}

/// A message of the model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "role", rename = "assistant", rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Text, reasoning and tool calls, in order.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<AssistantContent>,
    /// The API it came through, such as `anthropic-messages`.
    #[serde(default)]
    pub api: String,
    /// The provider, such as `anthropic`.
    #[serde(default)]
    pub provider: String,
    /// The id of the model that was asked.
    #[serde(default)]
    pub model: String,
    /// The model that answered, where the provider names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// The provider's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Notes of the provider layer, kept as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Vec<Value>>,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// Why it ended.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// What went wrong, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// When it began: milliseconds since the Unix epoch.
    #[serde(default)]
    pub timestamp: u64,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

impl AssistantMessage {
    /// An empty message of `model`, begun at `timestamp` (milliseconds since the Unix epoch).
    pub fn new(model: &Model, timestamp: u64) -> Self {
        Self {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            timestamp,
            ..Self::default()
        }
    }

    /// The message by which the engine itself closes a run: one empty text block, no request made.
    pub(crate) fn local(model: &Model, stop_reason: StopReason, error: String, timestamp: u64) -> Self {
        Self {
            content: vec![AssistantContent::text("")],
            stop_reason,
            error_message: Some(error),
            ..Self::new(model, timestamp)
        }
    }

    /// All text, blocks joined by line ends.
    pub fn text(&self) -> String {
        join_text(self.content.iter().filter_map(|block| match block {
            AssistantContent::Text(text) => Some(text.text.as_str()),
            _ => None,
        }))
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &Arc<ToolCall>> {
        self.content.iter().filter_map(AssistantContent::as_tool_call)
    }
}
