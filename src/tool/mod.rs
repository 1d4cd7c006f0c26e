//! Tools: what a model can call.

use std::sync::Arc;

use serde_json::Value;

/// An error of foreign code: a tool, a hook.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A set of tools.
#[derive(Debug, Clone, Default)]
pub struct ToolSet(Arc<[Value]>);
