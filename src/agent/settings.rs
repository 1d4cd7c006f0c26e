//! An agent's configuration, and how a run follows it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::agent_loop::{Clock, Grace, ListenerError, system_clock};
use crate::hooks::{
    BoxedHooks, CallContext, CallOutcome, Decision, Hooks, PrepareRequest, RequestContext, RequestPlan, ResultPatch,
    TurnSummary,
};
use crate::machine::{ExecutionMode, Limits};
use crate::message::{AgentMessage, ApiKey, Message, Messages, Model, StreamOptions, ThinkingLevel, Transcript};
use crate::stream_fn::{BoxedStream, BoxedStreamFn, Request, StreamFn};
use crate::sync::Mutex;
use crate::tool::{BoxError, ToolSet};

use super::shared::{Active, Shared, lock};

/// Called with each failure of a listener.
pub(super) type OnListenerError = Arc<dyn Fn(&ListenerError) + Send + Sync>;

/// What can be set at any time, and takes effect at the next turn.
#[derive(Clone)]
pub(super) struct Settings<M> {
    pub(super) model: Arc<Model>,
    pub(super) thinking_level: ThinkingLevel,
    pub(super) system_prompt: Arc<str>,
    pub(super) tools: ToolSet,
    pub(super) execution_mode: ExecutionMode,
    pub(super) options: Arc<StreamOptions>,
    pub(super) stream_fn: BoxedStreamFn,
    pub(super) hooks: BoxedHooks<M>,
}

/// What is fixed when the agent is built.
#[derive(Clone)]
pub(super) struct Fixed {
    pub(super) limits: Limits,
    pub(super) max_concurrent_tools: Option<NonZeroUsize>,
    pub(super) grace: Option<Grace>,
    pub(super) clock: Clock,
    pub(super) on_listener_error: Option<OnListenerError>,
}

impl Default for Fixed {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            max_concurrent_tools: None,
            grace: None,
            clock: system_clock,
            on_listener_error: None,
        }
    }
}

impl<M: AgentMessage> Settings<M> {
    pub(super) fn new(model: Model, stream_fn: BoxedStreamFn) -> Self {
        let RequestPlan {
            model,
            thinking_level,
            system_prompt,
            tools,
            execution_mode,
            options,
            ..
        } = RequestPlan::<M>::new(model);
        Self {
            model,
            thinking_level,
            system_prompt,
            tools,
            execution_mode,
            options,
            stream_fn,
            hooks: BoxedHooks::new(()),
        }
    }

    /// The plan of a run that begins with this transcript.
    pub(super) fn plan(&self, transcript: Transcript<M>) -> RequestPlan<M> {
        let mut plan = RequestPlan::new(Model::default());
        plan.transcript = transcript;
        self.changed(None, &mut plan);
        plan
    }

    /// Puts into `plan` what was set since `before`, so that what a hook replaced stays otherwise.
    fn changed(&self, before: Option<&Self>, plan: &mut RequestPlan<M>) {
        if before.is_none_or(|before| !Arc::ptr_eq(&before.model, &self.model)) {
            plan.model = Arc::clone(&self.model);
        }
        if before.is_none_or(|before| before.thinking_level != self.thinking_level) {
            plan.thinking_level = self.thinking_level;
        }
        if before.is_none_or(|before| !Arc::ptr_eq(&before.system_prompt, &self.system_prompt)) {
            plan.system_prompt = Arc::clone(&self.system_prompt);
        }
        if before.is_none_or(|before| !before.tools.ptr_eq(&self.tools)) {
            plan.tools = self.tools.clone();
        }
        if before.is_none_or(|before| before.execution_mode != self.execution_mode) {
            plan.execution_mode = self.execution_mode;
        }
        if before.is_none_or(|before| !Arc::ptr_eq(&before.options, &self.options)) {
            plan.options = Arc::clone(&self.options);
        }
    }
}

/// The hooks and the stream function of one run: those that were set when the turn's request was made.
pub(super) struct Following<M: AgentMessage> {
    shared: Arc<Shared<M>>,
    active: Arc<Active>,
    /// As of the present turn.
    turn: Mutex<Arc<Settings<M>>>,
}

impl<M: AgentMessage> Following<M> {
    pub(super) fn new(shared: Arc<Shared<M>>, active: Arc<Active>, begun: Arc<Settings<M>>) -> Self {
        Self {
            shared,
            active,
            turn: Mutex::new(begun),
        }
    }

    fn hooks(&self) -> BoxedHooks<M> {
        lock(&self.turn).hooks.clone()
    }
}

impl<M: AgentMessage> fmt::Debug for Following<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Following(..)")
    }
}

/// [`Following`] as hooks.
#[derive(Debug)]
pub(super) struct RunHooks<M: AgentMessage>(pub(super) Arc<Following<M>>);

impl<M: AgentMessage> Hooks<M> for RunHooks<M> {
    async fn prepare_request(&self, mut request: PrepareRequest<M>) -> Result<RequestPlan<M>, BoxError> {
        let now = self.0.shared.settings();
        let before = std::mem::replace(&mut *lock(&self.0.turn), Arc::clone(&now));
        if !Arc::ptr_eq(&before, &now) {
            now.changed(Some(&before), &mut request.plan);
        }
        now.hooks.prepare_request(request).await
    }

    async fn transform_context(&self, cx: RequestContext<M>) -> Result<Transcript<M>, BoxError> {
        self.0.hooks().transform_context(cx).await
    }

    async fn convert_to_llm(&self, cx: RequestContext<M>) -> Result<Messages<Message>, BoxError> {
        self.0.hooks().convert_to_llm(cx).await
    }

    async fn api_key(&self, provider: String) -> Result<Option<ApiKey>, BoxError> {
        self.0.hooks().api_key(provider).await
    }

    async fn before_tool_call(&self, cx: CallContext<M>) -> Result<Decision, BoxError> {
        self.0.hooks().before_tool_call(cx).await
    }

    async fn after_tool_call(&self, outcome: CallOutcome<M>) -> Result<ResultPatch, BoxError> {
        self.0.hooks().after_tool_call(outcome).await
    }

    async fn should_stop_after_turn(&self, turn: TurnSummary<M>) -> Result<bool, BoxError> {
        if self.0.active.stops_after_turn() {
            return Ok(true);
        }
        Ok(self.0.hooks().should_stop_after_turn(turn).await? || self.0.active.stops_after_turn())
    }
}

/// [`Following`] as a stream function.
#[derive(Debug)]
pub(super) struct RunStreamFn<M: AgentMessage>(pub(super) Arc<Following<M>>);

impl<M: AgentMessage> StreamFn for RunStreamFn<M> {
    type Stream = BoxedStream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> BoxedStream {
        let stream_fn = lock(&self.0.turn).stream_fn.clone();
        stream_fn.stream(request, cancel)
    }
}
