//! What a tool is told about its call, and by which it reports.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::BoxError;
use super::updates::{UpdateSink, Updates};
use crate::message::{ToolCall, ToolResult};
use crate::schema::ValidatedArguments;

/// A running call, seen by its tool. A cheap handle, for any thread or task the tool works on.
///
/// It may outlive the call: updates that come after the tool gave its result are ignored.
///
/// ```
/// use turnstate::{BoxError, ToolCall, ToolContext, ToolResult};
///
/// async fn count(lines: &[&str], cx: &ToolContext) -> Result<ToolResult, BoxError> {
///     for (done, _line) in lines.iter().enumerate() {
///         if cx.is_cancelled() {
///             return Err("stopped".into());
///         }
///         cx.progress(format!("{done} of {}", lines.len()));
///     }
///     Ok(ToolResult::text(lines.len().to_string()))
/// }
///
/// // A tool is tested without an agent like this:
/// use futures_util::FutureExt;
/// let (cx, updates) = ToolContext::detached(ToolCall::default());
/// let result = count(&["a", "b"], &cx).now_or_never().unwrap()?;
/// assert_eq!(result, ToolResult::text("2"));
/// assert_eq!(updates.take(), [ToolResult::text("0 of 2"), ToolResult::text("1 of 2")]);
///
/// cx.cancellation_token().cancel();
/// assert!(count(&["a", "b"], &cx).now_or_never().unwrap().is_err());
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ToolContext {
    call: Arc<ToolCall>,
    cancel: CancellationToken,
    updates: UpdateSink,
}

impl ToolContext {
    pub(crate) fn new(call: Arc<ToolCall>, cancel: CancellationToken, updates: UpdateSink) -> Self {
        Self { call, cancel, updates }
    }

    /// A context of `call` without an agent, for tests of tools; and what the tool reports through it.
    pub fn detached(call: ToolCall) -> (Self, ToolUpdates) {
        let updates = Updates::new();
        let cx = Self::new(Arc::new(call), CancellationToken::new(), updates.sink(0));
        (cx, ToolUpdates(updates))
    }

    /// The call, with the arguments as the model wrote them.
    pub fn call(&self) -> &Arc<ToolCall> {
        &self.call
    }

    /// The id the model's provider gave the call. It may be empty and need not be unique.
    pub fn call_id(&self) -> &str {
        &self.call.id
    }

    /// Cancelled when the run is aborted or dropped. Await it beside work that should stop then.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Whether the run was aborted or dropped.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Reports a line of text, with empty details.
    pub fn progress(&self, text: impl Into<String>) {
        self.update(ToolResult::text(text));
    }

    /// Reports the result so far. Updates are told in the order reported, all of them before the call's end.
    pub fn update(&self, result: ToolResult) {
        self.updates.push(result);
    }

    /// The arguments as an `A`. Function tools of typed arguments get theirs by this.
    ///
    /// # Errors
    ///
    /// What serde says about them, as a text for the model: the same form as that of a
    /// [`ValidationError`](crate::schema::ValidationError).
    pub fn deserialize<A: DeserializeOwned>(&self, arguments: ValidatedArguments) -> Result<A, BoxError> {
        serde_json::from_value(arguments.into_value()).map_err(|error| {
            let call = Arc::clone(&self.call);
            BoxError::from(Mismatch { call, error })
        })
    }
}

/// What a tool reported through a [detached](ToolContext::detached) context.
#[derive(Debug)]
pub struct ToolUpdates(Updates);

impl ToolUpdates {
    /// The updates that were not taken yet, in the order reported.
    pub fn take(&self) -> Vec<ToolResult> {
        let taken = self.0.take().into_iter();
        taken.map(|(_, update)| update).collect()
    }

    /// Ignores what is reported from now on, as an agent does when the tool gave its result.
    pub fn close(&self) {
        self.0.close(0);
    }
}

/// Arguments that the schema took, but not the type.
#[derive(Debug)]
struct Mismatch {
    call: Arc<ToolCall>,
    error: serde_json::Error,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, error } = self;
        // Where the error is, serde does not say.
        writeln!(f, "Validation failed for tool \"{}\":\n  - {error}\n", call.name)?;
        let received = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
        write!(f, "Received arguments:\n{received}")
    }
}

impl std::error::Error for Mismatch {}
