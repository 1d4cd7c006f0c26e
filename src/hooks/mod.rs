//! Hooks: where an app decides.
//!
//! [`Hooks`] is the trait; [`HookFns`] makes hooks of closures; [`BoxedHooks`] is any of them.

mod closures;
mod context;

use std::fmt;
use std::sync::Arc;

use crate::message::{AgentMessage, ApiKey, Message, Messages, Transcript};
use crate::tool::{BoxError, BoxFuture};

pub use closures::{HookFns, IntoHookResult};
pub use context::{
    CallContext, CallOutcome, Decision, PrepareRequest, RequestContext, RequestPlan, ResultPatch, TurnSummary,
};

/// What an app decides in a run. Write only what is needed; `()` decides nothing.
///
/// For each request: [`prepare_request`](Self::prepare_request), [`transform_context`](Self::transform_context),
/// [`convert_to_llm`](Self::convert_to_llm), [`api_key`](Self::api_key). For each tool call:
/// [`before_tool_call`](Self::before_tool_call), and if it ran [`after_tool_call`](Self::after_tool_call). After each
/// turn: [`should_stop_after_turn`](Self::should_stop_after_turn), unless it failed or was aborted.
///
/// An error, or a panic, of a tool hook is the error result of that call; of any other hook it ends the run with an
/// assistant message that carries its text. When the run is aborted the engine does not wait for a hook: its future
/// is dropped.
///
/// Bodies may be written as `async fn`; they must be `Send`.
///
/// ```
/// use turnstate::{BoxError, CallContext, Decision, Hooks};
///
/// struct ReadOnly;
/// impl Hooks for ReadOnly {
///     async fn before_tool_call(&self, cx: CallContext) -> Result<Decision, BoxError> {
///         Ok(if cx.name() == "write" { Decision::block("this session is read-only") } else { Decision::Allow })
///     }
/// }
/// # let _ = turnstate::BoxedHooks::new(ReadOnly);
/// ```
pub trait Hooks<M: AgentMessage = Message>: Send + Sync + 'static {
    /// Replaces what this and later requests of the run are made of.
    fn prepare_request(
        &self,
        request: PrepareRequest<M>,
    ) -> impl Future<Output = Result<RequestPlan<M>, BoxError>> + Send {
        async { Ok(request.plan) }
    }

    /// Replaces the transcript for this request only: to prune it, or to add to it.
    fn transform_context(&self, cx: RequestContext<M>) -> impl Future<Output = Result<Transcript<M>, BoxError>> + Send {
        async { Ok(cx.transcript) }
    }

    /// Makes what is sent of the transcript. By default [`Transcript::request`].
    fn convert_to_llm(
        &self,
        cx: RequestContext<M>,
    ) -> impl Future<Output = Result<Messages<Message>, BoxError>> + Send {
        async move { Ok(cx.transcript.request()) }
    }

    /// The key for a request to this provider; none means the one in the options.
    fn api_key(&self, provider: String) -> impl Future<Output = Result<Option<ApiKey>, BoxError>> + Send {
        let _ = provider;
        async { Ok(None) }
    }

    /// Whether a call may run, once its arguments are valid.
    fn before_tool_call(&self, cx: CallContext<M>) -> impl Future<Output = Result<Decision, BoxError>> + Send {
        let _ = cx;
        async { Ok(Decision::Allow) }
    }

    /// What of the result of a call that ran is replaced.
    fn after_tool_call(&self, outcome: CallOutcome<M>) -> impl Future<Output = Result<ResultPatch, BoxError>> + Send {
        let _ = outcome;
        async { Ok(ResultPatch::keep()) }
    }

    /// Whether the run ends here, before any queue is looked at.
    fn should_stop_after_turn(&self, turn: TurnSummary<M>) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = turn;
        async { Ok(false) }
    }
}

impl<M: AgentMessage> Hooks<M> for () {}

/// The object-safe twin of [`Hooks`].
trait DynHooks<M: AgentMessage>: Send + Sync {
    fn prepare_request(&self, request: PrepareRequest<M>) -> BoxFuture<'_, Result<RequestPlan<M>, BoxError>>;
    fn transform_context(&self, cx: RequestContext<M>) -> BoxFuture<'_, Result<Transcript<M>, BoxError>>;
    fn convert_to_llm(&self, cx: RequestContext<M>) -> BoxFuture<'_, Result<Messages<Message>, BoxError>>;
    fn api_key(&self, provider: String) -> BoxFuture<'_, Result<Option<ApiKey>, BoxError>>;
    fn before_tool_call(&self, cx: CallContext<M>) -> BoxFuture<'_, Result<Decision, BoxError>>;
    fn after_tool_call(&self, outcome: CallOutcome<M>) -> BoxFuture<'_, Result<ResultPatch, BoxError>>;
    fn should_stop_after_turn(&self, turn: TurnSummary<M>) -> BoxFuture<'_, Result<bool, BoxError>>;
}

impl<M: AgentMessage, H: Hooks<M>> DynHooks<M> for H {
    fn prepare_request(&self, request: PrepareRequest<M>) -> BoxFuture<'_, Result<RequestPlan<M>, BoxError>> {
        Box::pin(Hooks::prepare_request(self, request))
    }

    fn transform_context(&self, cx: RequestContext<M>) -> BoxFuture<'_, Result<Transcript<M>, BoxError>> {
        Box::pin(Hooks::transform_context(self, cx))
    }

    fn convert_to_llm(&self, cx: RequestContext<M>) -> BoxFuture<'_, Result<Messages<Message>, BoxError>> {
        Box::pin(Hooks::convert_to_llm(self, cx))
    }

    fn api_key(&self, provider: String) -> BoxFuture<'_, Result<Option<ApiKey>, BoxError>> {
        Box::pin(Hooks::api_key(self, provider))
    }

    fn before_tool_call(&self, cx: CallContext<M>) -> BoxFuture<'_, Result<Decision, BoxError>> {
        Box::pin(Hooks::before_tool_call(self, cx))
    }

    fn after_tool_call(&self, outcome: CallOutcome<M>) -> BoxFuture<'_, Result<ResultPatch, BoxError>> {
        Box::pin(Hooks::after_tool_call(self, outcome))
    }

    fn should_stop_after_turn(&self, turn: TurnSummary<M>) -> BoxFuture<'_, Result<bool, BoxError>> {
        Box::pin(Hooks::should_stop_after_turn(self, turn))
    }
}

/// Any hooks; a cheap handle. One box per hook asked.
pub struct BoxedHooks<M = Message>(Arc<dyn DynHooks<M>>);

impl<M: AgentMessage> BoxedHooks<M> {
    /// Erases the type of `hooks`.
    pub fn new(hooks: impl Hooks<M>) -> Self {
        Self(Arc::new(hooks))
    }
}

impl<M> Clone for BoxedHooks<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for BoxedHooks<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxedHooks(..)")
    }
}

impl<M: AgentMessage> Hooks<M> for BoxedHooks<M> {
    async fn prepare_request(&self, request: PrepareRequest<M>) -> Result<RequestPlan<M>, BoxError> {
        self.0.prepare_request(request).await
    }

    async fn transform_context(&self, cx: RequestContext<M>) -> Result<Transcript<M>, BoxError> {
        self.0.transform_context(cx).await
    }

    async fn convert_to_llm(&self, cx: RequestContext<M>) -> Result<Messages<Message>, BoxError> {
        self.0.convert_to_llm(cx).await
    }

    async fn api_key(&self, provider: String) -> Result<Option<ApiKey>, BoxError> {
        self.0.api_key(provider).await
    }

    async fn before_tool_call(&self, cx: CallContext<M>) -> Result<Decision, BoxError> {
        self.0.before_tool_call(cx).await
    }

    async fn after_tool_call(&self, outcome: CallOutcome<M>) -> Result<ResultPatch, BoxError> {
        self.0.after_tool_call(outcome).await
    }

    async fn should_stop_after_turn(&self, turn: TurnSummary<M>) -> Result<bool, BoxError> {
        self.0.should_stop_after_turn(turn).await
    }
}
