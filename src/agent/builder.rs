//! How an agent is made.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use crate::agent_loop::{Clock, ListenerError};
use crate::hooks::BoxedHooks;
use crate::hooks::{
    CallContext, CallOutcome, Decision, HookFns, Hooks, IntoHookResult, PrepareRequest, RequestContext, RequestPlan,
    ResultPatch, TurnSummary,
};
use crate::machine::ExecutionMode;
use crate::message::{AgentMessage, ApiKey, Message, Messages, Model, StreamOptions, ThinkingLevel, Transcript};
use crate::queue::{QueueKind, QueueMode, Queues};
use crate::stream_fn::StreamFn;
use crate::tool::{BoxFuture, Tool};

use super::settings::{Fixed, Settings};
use super::shared::Shared;
use super::{Agent, AgentState};

/// Makes an [`Agent`]. Begun by [`Agent::builder`], or by [`new`](Self::new) for messages of the app's own.
#[must_use = "an agent is made by build"]
pub struct AgentBuilder<M: AgentMessage = Message> {
    settings: Settings<M>,
    fixed: Fixed,
    queues: Queues<M>,
    transcript: Transcript<M>,
    tools: Vec<Arc<dyn Tool>>,
    hooks: HookFns<M>,
}

impl<M: AgentMessage> AgentBuilder<M> {
    /// An agent that calls `model` by `stream_fn`.
    pub fn new(model: impl Into<Model>, stream_fn: impl StreamFn) -> Self {
        Self {
            settings: Settings::new(model.into(), stream_fn.boxed()),
            fixed: Fixed::default(),
            queues: Queues::new(),
            transcript: Transcript::new(),
            tools: Vec::new(),
            hooks: HookFns::new(),
        }
    }

    /// The agent.
    pub fn build(mut self) -> Agent<M> {
        self.settings.tools = self.tools.into_iter().collect();
        self.settings.hooks = BoxedHooks::new(self.hooks);
        let state = AgentState::new(self.transcript);
        Agent::from_shared(Arc::new(Shared::new(state, self.settings, self.queues, self.fixed)))
    }

    /// The system prompt. By default there is none.
    pub fn system_prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.settings.system_prompt = prompt.into();
        self
    }

    /// Adds a tool. Of several with the same name the first counts.
    ///
    /// A tool, a hook or a stream function that holds a copy of its own agent keeps the agent alive for ever: nothing
    /// breaks the cycle.
    pub fn tool(self, tool: impl Tool) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a tool that others have, too.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The transcript to begin with.
    pub fn transcript(mut self, transcript: impl Into<Transcript<M>>) -> Self {
        self.transcript = transcript.into();
        self
    }

    /// How much the model shall think. By default not at all.
    pub fn thinking_level(mut self, level: ThinkingLevel) -> Self {
        self.settings.thinking_level = level;
        self
    }

    /// What every request says beside the context. Replaces what was set before, the key included.
    pub fn options(mut self, options: StreamOptions) -> Self {
        self.settings.options = Arc::new(options);
        self
    }

    /// The key for every request for which no hook gives one.
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        Arc::make_mut(&mut self.settings.options).api_key = Some(key.into());
        self
    }

    /// How the calls of a message are run. By default side by side.
    pub fn execution_mode(mut self, mode: ExecutionMode) -> Self {
        self.settings.execution_mode = mode;
        self
    }

    /// How many tool calls run at once at most. By default all of a message.
    pub fn max_concurrent_tools(mut self, max: NonZeroUsize) -> Self {
        self.fixed.max_concurrent_tools = Some(max);
        self
    }

    /// How many turns a run may have, such as `8.try_into()?`. By default any number. A run that would go on beyond ends
    /// with [`RunEnd::Limit`](crate::RunEnd::Limit), which is no error.
    pub fn max_turns(mut self, max: NonZeroU32) -> Self {
        self.fixed.limits.max_turns = Some(max);
        self
    }

    /// How long tools that run when the run is aborted are still polled: until the future that this makes resolves.
    /// By default they are polled once.
    pub fn grace<Fut>(mut self, grace: impl Fn() -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.fixed.grace = Some(Arc::new(move || Box::pin(grace()) as BoxFuture<'static, ()>));
        self
    }

    /// Where timestamps and durations come from. By default the system's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.fixed.clock = clock;
        self
    }

    /// How many steering messages a look takes. By default one.
    pub fn steering_mode(self, mode: QueueMode) -> Self {
        self.queues.set_mode(QueueKind::Steering, mode);
        self
    }

    /// How many follow-up messages a look takes. By default one.
    pub fn follow_up_mode(self, mode: QueueMode) -> Self {
        self.queues.set_mode(QueueKind::FollowUp, mode);
        self
    }

    /// Called with each failure of a listener.
    pub fn on_listener_error(mut self, report: impl Fn(&ListenerError) + Send + Sync + 'static) -> Self {
        self.fixed.on_listener_error = Some(Arc::new(report));
        self
    }

    /// Hooks, which decide where no closure is set.
    pub fn hooks(mut self, hooks: impl Hooks<M>) -> Self {
        self.hooks = self.hooks.with_base(hooks);
        self
    }
}

macro_rules! hook_setters {
    ($($(#[$doc:meta])* $name:ident => $hook:ident: $context:ty => $answer:ty;)*) => {
        impl<M: AgentMessage> AgentBuilder<M> {
            $(
                $(#[$doc])*
                pub fn $name<F, Fut>(mut self, hook: F) -> Self
                where
                    F: Fn($context) -> Fut + Send + Sync + 'static,
                    Fut: Future<Output: IntoHookResult<$answer>> + Send + 'static,
                {
                    self.hooks = self.hooks.$hook(hook);
                    self
                }
            )*
        }
    };
}

hook_setters! {
    /// Sets [`Hooks::prepare_request`] by a closure.
    prepare_request => prepare_request: PrepareRequest<M> => RequestPlan<M>;
    /// Sets [`Hooks::transform_context`] by a closure.
    transform_context => transform_context: RequestContext<M> => Transcript<M>;
    /// Sets [`Hooks::convert_to_llm`] by a closure.
    convert_to_llm => convert_to_llm: RequestContext<M> => Messages<Message>;
    /// Sets [`Hooks::api_key`] by a closure, which is given the provider's name.
    resolve_api_key => api_key: String => Option<ApiKey>;
    /// Sets [`Hooks::before_tool_call`] by a closure.
    before_tool_call => before_tool_call: CallContext<M> => Decision;
    /// Sets [`Hooks::after_tool_call`] by a closure.
    after_tool_call => after_tool_call: CallOutcome<M> => ResultPatch;
    /// Sets [`Hooks::should_stop_after_turn`] by a closure.
    should_stop_after_turn => should_stop_after_turn: TurnSummary<M> => bool;
}

impl<M: AgentMessage> fmt::Debug for AgentBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("model", &self.settings.model.id)
            .finish_non_exhaustive()
    }
}
