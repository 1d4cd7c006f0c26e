//! What a tool gives back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::assistant::Usage;
use super::content::Content;
use super::serde_util::{null_is_default, present};

/// A tool's result, final or so far. In Pi's JSON, where only what is set is written.
///
/// ```
/// use turnstate::ToolResult;
/// let result = ToolResult::text("done").with_terminate(true);
/// assert_eq!(
///     serde_json::to_string(&result).unwrap(),
///     r#"{"content":[{"type":"text","text":"done"}],"details":{},"terminate":true}"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// What the model is told.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<Content>,
    /// Structured data for logs and UIs; the model does not see it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Asks that the run end after this batch. It does if every result of the batch asks so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate: Option<bool>,
    /// Whether the call failed. Events and messages carry it beside the result, so it is not written here.
    #[serde(default, skip_serializing)]
    pub is_error: bool,
    /// What the tool itself spent on models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl ToolResult {
    /// A result of one text block, with empty details.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::text(text)],
            details: Some(Value::Object(Map::new())),
            ..Self::default()
        }
    }

    /// An error result of one text block, with empty details.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Value>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// Sets the wish to end the run after this batch.
    #[must_use]
    pub fn with_terminate(mut self, terminate: bool) -> Self {
        self.terminate = Some(terminate);
        self
    }
}

impl From<&str> for ToolResult {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for ToolResult {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}
