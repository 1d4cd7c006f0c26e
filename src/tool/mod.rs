//! Tools: what a model can call.
//!
//! Most tools are functions: `tool` (feature `schemars`) takes its arguments' JSON Schema from their type,
//! [`json_tool`] is given one (from a file, from an MCP server). A [`Tool`] can also be implemented by hand. The tools
//! of an agent form a [`ToolSet`].
//!
//! A call takes these steps, and a failure or a panic at any of them is an error result of this call alone:
//!
//! 1. the tool is [looked up](ToolSet::find) by the name the model gave,
//! 2. [`Tool::prepare_arguments`] may mend what the model wrote,
//! 3. the [schema](RegisteredTool::schema) checks and coerces it,
//! 4. [`Tool::execute`] runs, and reports on the way through its [`ToolContext`].
//!
//! The first three are [`ToolSet::check`].

mod context;
pub(crate) mod foreign;
mod function;
mod set;
mod updates;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::machine::ExecutionMode;
use crate::message::ToolResult;
use crate::schema::ValidatedArguments;

pub use context::{ToolContext, ToolUpdates};
pub use function::{FnTool, IntoToolResult, json_tool, json_tool_with};
#[cfg(feature = "schemars")]
pub use function::{tool, tool_with};
pub use futures_core::future::BoxFuture;
#[cfg(feature = "schemars")]
pub use schemars;
pub use set::{RegisteredTool, ToolSet};

pub(crate) use updates::{UpdateSink, Updates};

/// An error of foreign code: a tool, a hook. Its text is what the model, or the user, is told.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Something a model can call.
///
/// `tool` and [`json_tool`] make one of a function; implement it by hand for a tool that is a type of its own.
///
/// What the getters say is read once, when the tool enters a [`ToolSet`]; a panic of theirs is the caller's who made
/// the set. Every other panic is caught, and is the error result of the call it happened in.
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::FutureExt;
/// use serde_json::{Value, json};
/// use turnstate::schema::ValidatedArguments;
/// use turnstate::{BoxError, BoxFuture, Tool, ToolCall, ToolContext, ToolResult, ToolSet};
///
/// struct Shout {
///     parameters: Value,
/// }
///
/// impl Tool for Shout {
///     fn name(&self) -> &str {
///         "shout"
///     }
///
///     fn description(&self) -> &str {
///         "Says it louder"
///     }
///
///     fn parameters(&self) -> &Value {
///         &self.parameters
///     }
///
///     fn execute(
///         self: Arc<Self>,
///         arguments: ValidatedArguments,
///         _cx: ToolContext,
///     ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
///         Box::pin(async move {
///             let text = arguments.as_value()["text"].as_str().ok_or("what?")?;
///             Ok(ToolResult::text(text.to_uppercase()))
///         })
///     }
/// }
///
/// let parameters = json!({
///     "type": "object",
///     "properties": { "text": { "type": "string" } },
///     "required": ["text"],
/// });
/// let tools = ToolSet::new().with(Shout { parameters });
///
/// // What an agent does with it, but for hooks:
/// let call = ToolCall::new("1", "shout", json!({ "text": "hey" }).as_object().unwrap().clone());
/// let (shout, arguments) = tools.check(&call).unwrap();
/// let (cx, _updates) = ToolContext::detached(call);
/// let result = Arc::clone(shout.tool()).execute(arguments, cx).now_or_never().unwrap()?;
/// assert_eq!(result, ToolResult::text("HEY"));
/// # Ok::<_, BoxError>(())
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The name by which the model calls it.
    fn name(&self) -> &str;

    /// A name for people.
    fn label(&self) -> &str {
        self.name()
    }

    /// What the model is told about it.
    fn description(&self) -> &str;

    /// The JSON Schema of its arguments. The model is sent it as it is.
    fn parameters(&self) -> &Value;

    /// [`Sequential`](ExecutionMode::Sequential) if no other call may run beside it; the whole batch of calls then runs
    /// one by one. `None` leaves it to the agent.
    fn execution_mode(&self) -> Option<ExecutionMode> {
        None
    }

    /// Mends the model's arguments before they are validated, say to take an older form of them.
    ///
    /// The transcript keeps what the model wrote.
    ///
    /// # Errors
    ///
    /// An error is the call's result.
    fn prepare_arguments(&self, arguments: Map<String, Value>) -> Result<Value, BoxError> {
        Ok(Value::Object(arguments))
    }

    /// Runs a call.
    ///
    /// An error is told to the model as an error result; a tool that wants one with details returns a [`ToolResult`]
    /// that [is an error](ToolResult::is_error).
    ///
    /// # Cancel safety
    ///
    /// When the run is aborted, the [token](ToolContext::cancellation_token) is cancelled, the future is polled once
    /// more, so that it may still give a result, and then it is dropped. It is also dropped, at any await point, with
    /// the run itself.
    fn execute(
        self: Arc<Self>,
        arguments: ValidatedArguments,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>>;
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn label(&self) -> &str {
        (**self).label()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn parameters(&self) -> &Value {
        (**self).parameters()
    }

    fn execution_mode(&self) -> Option<ExecutionMode> {
        (**self).execution_mode()
    }

    fn prepare_arguments(&self, arguments: Map<String, Value>) -> Result<Value, BoxError> {
        (**self).prepare_arguments(arguments)
    }

    fn execute(
        self: Arc<Self>,
        arguments: ValidatedArguments,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
        Arc::clone(&*self).execute(arguments, cx)
    }
}
