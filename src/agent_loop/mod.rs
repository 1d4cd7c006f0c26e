//! The loop: a [`Stream`](futures_core::Stream) that drives the [machine](crate::machine) with a model, tools and hooks.

mod config;
mod effect;
mod executor;
pub(crate) mod foreign;
mod outcome;
mod poll;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use pin_project::pin_project;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use crate::hooks::{BoxedHooks, Hooks, RequestPlan};
use crate::machine::{AwaitingSteering, ExecutingTools, Streaming};
use crate::message::{AgentMessage, AssistantMessage, Message, Transcript};
use crate::queue::{Lease, RunId, RunTicket};
use crate::stream_fn::{BoxedStream, BoxedStreamFn, StreamFn};
use crate::tool::BoxFuture;

pub use config::{Clock, Grace, LoopConfig, Start, StartError, system_clock};
pub use effect::NextStep;
pub use outcome::{ListenerError, Outcome, RunError};

use effect::{Effect, Env, Step, perform};
use executor::Executor;
use foreign::Time;

/// A run: a stream of its events, that ends behind `AgentEnd`.
///
/// ```text
///              +-------- silent phases: hooks are asked <-------+
///              v                                                |
///   Step --> Effect --> Step --> Streaming --> Step --> ExecutingTools --> Step --> ... --> Over
/// ```
///
/// It has to be pinned to be polled: by [`std::pin::pin!`], or in a box.
///
/// Polling it is all that drives it: it spawns nothing, has no timer and runs on any executor. Every event is handed
/// out before anything that comes after it is done, so what the consumer does meanwhile (steer, abort) counts.
///
/// It is made by [`agent_loop`] and [`agent_loop_continue`], with the types of its model and hooks, or by
/// [`BoxedAgentLoop::boxed`], without. [`Agent`](crate::Agent) adds state, queues and listeners.
///
/// # Cancel safety
/// Polling may stop at any time and go on later. Dropping the loop cancels the token that model, tools and hooks were
/// given; messages it took from the queues but has not told are queued again.
#[pin_project]
#[must_use = "a run does nothing unless it is polled"]
pub struct AgentLoop<M: AgentMessage, H, S: StreamFn, F> {
    /// Cancels what the loop gave out when it is dropped; first, so that what is dropped with it can see that.
    _guard: DropGuard,
    #[pin]
    work: Work<M, S::Stream, F>,
    #[pin]
    cancelled: WaitForCancellationFutureOwned,
    executor: Executor<M, H, S>,
    ctl: Control<M, H, S, F>,
}

/// The loop's present work.
#[pin_project(project = WorkProj, project_replace = WorkOwned)]
enum Work<M: AgentMessage, T, F> {
    /// A phase has something to tell, or to decide. None: the run is over.
    Step(Option<Step<M, T>>),
    /// A hook is asked; the phase travels inside.
    Effect(#[pin] F),
    /// The model answers.
    Streaming {
        state: Streaming<M>,
        /// None once it has ended: a stream is dropped at once.
        #[pin]
        stream: Option<T>,
    },
    /// Tools run.
    ExecutingTools {
        state: ExecutingTools<M>,
        /// Since the abort of the run: tools are polled until it resolves.
        grace: Option<BoxFuture<'static, ()>>,
    },
}

/// Everything but the work.
struct Control<M: AgentMessage, H, S, F> {
    env: Arc<Env<H, S>>,
    perform: fn(Effect<M>, Arc<Env<H, S>>) -> F,
    plan: RequestPlan<M>,
    max_concurrent_tools: Option<NonZeroUsize>,
    grace: Option<Grace>,
    ticket: RunTicket<M>,
    lease: Option<Lease<M>>,
    finished: Option<(Transcript<M>, Outcome<M>)>,
    /// The loop is being dropped: no foreign future is polled any more.
    closing: bool,
}

/// Runs a prompt: `messages` enter the transcript of `config` and a model answers.
///
/// # Errors
/// [`StartError::EmptyPrompt`] without messages.
///
/// ```
/// use futures_util::StreamExt;
/// use turnstate::{AgentEvent, LoopConfig, Message, ScriptedModel, agent_loop};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let model = ScriptedModel::new().text("Hello!");
/// let prompt = vec![Message::user("hi").into()];
/// let mut run = std::pin::pin!(agent_loop(prompt, LoopConfig::new("scripted-1"), model, ())?);
/// let mut kinds = Vec::new();
/// while let Some(event) = run.next().await {
///     kinds.push(event.kind());
/// }
/// assert_eq!((kinds[0], *kinds.last().unwrap()), ("agent_start", "agent_end"));
/// assert_eq!(run.outcome().unwrap().text(), "Hello!");
/// # Ok::<(), turnstate::StartError>(())
/// # }).unwrap();
/// ```
#[expect(clippy::type_complexity, reason = "the effect's type has no name")]
pub fn agent_loop<M: AgentMessage, S: StreamFn, H: Hooks<M>>(
    messages: Vec<Arc<M>>,
    config: LoopConfig<M>,
    stream_fn: S,
    hooks: H,
) -> Result<AgentLoop<M, H, S, impl Future<Output = NextStep<M, S::Stream>> + Send>, StartError> {
    agent_loop_from(Start::Prompt(messages), config, stream_fn, hooks)
}

/// Answers what the transcript of `config` ends with: for a retry, or after tool results.
///
/// # Errors
/// [`StartError`] if the transcript is empty or ends with an assistant message.
#[expect(clippy::type_complexity, reason = "the effect's type has no name")]
pub fn agent_loop_continue<M: AgentMessage, S: StreamFn, H: Hooks<M>>(
    config: LoopConfig<M>,
    stream_fn: S,
    hooks: H,
) -> Result<AgentLoop<M, H, S, impl Future<Output = NextStep<M, S::Stream>> + Send>, StartError> {
    agent_loop_from(Start::Continue, config, stream_fn, hooks)
}

/// Runs from any [`Start`].
///
/// # Errors
/// [`StartError`] if there is nothing to begin with.
#[expect(clippy::type_complexity, reason = "the effect's type has no name")]
pub fn agent_loop_from<M: AgentMessage, S: StreamFn, H: Hooks<M>>(
    start: Start<M>,
    config: LoopConfig<M>,
    stream_fn: S,
    hooks: H,
) -> Result<AgentLoop<M, H, S, impl Future<Output = NextStep<M, S::Stream>> + Send>, StartError> {
    AgentLoop::start(start, config, stream_fn, hooks, perform::<M, H, S>)
}

/// A loop whose type says nothing of its model and hooks: one box per effect, none per delta.
pub type BoxedAgentLoop<M = Message> =
    AgentLoop<M, BoxedHooks<M>, BoxedStreamFn, BoxFuture<'static, NextStep<M, BoxedStream>>>;

impl<M: AgentMessage> BoxedAgentLoop<M> {
    /// Runs from `start`.
    ///
    /// # Errors
    /// [`StartError`] if there is nothing to begin with.
    pub fn boxed(
        start: Start<M>,
        config: LoopConfig<M>,
        stream_fn: impl StreamFn,
        hooks: impl Hooks<M>,
    ) -> Result<Self, StartError> {
        Self::with_boxed_effects(start, config, stream_fn.boxed(), BoxedHooks::new(hooks))
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: StreamFn> AgentLoop<M, H, S, BoxFuture<'static, NextStep<M, S::Stream>>> {
    pub(crate) fn with_boxed_effects(
        start: Start<M>,
        config: LoopConfig<M>,
        stream_fn: S,
        hooks: H,
    ) -> Result<Self, StartError> {
        Self::start(start, config, stream_fn, hooks, |effect, env| {
            Box::pin(perform(effect, env))
        })
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: StreamFn, F> AgentLoop<M, H, S, F> {
    fn start(
        start: Start<M>,
        config: LoopConfig<M>,
        stream_fn: S,
        hooks: H,
        perform: fn(Effect<M>, Arc<Env<H, S>>) -> F,
    ) -> Result<Self, StartError> {
        let transcript = config.plan.transcript.clone();
        start.check(&transcript)?;
        let (state, lease) = match start {
            Start::Prompt(messages) => (AwaitingSteering::prompt(transcript, messages, config.limits), None),
            Start::Continue => (AwaitingSteering::resume(transcript, config.limits), None),
            Start::Queued(lease) => {
                let messages = lease.messages();
                (
                    AwaitingSteering::queued(transcript, messages, lease.kind(), config.limits),
                    Some(lease),
                )
            }
        };
        let cancel = config.cancel.child_token();
        Ok(Self {
            _guard: cancel.clone().drop_guard(),
            work: Work::Step(Some(Step::AwaitingSteering(state))),
            cancelled: cancel.clone().cancelled_owned(),
            executor: Executor::new(),
            ctl: Control {
                perform,
                plan: config.plan,
                max_concurrent_tools: config.max_concurrent_tools,
                grace: config.grace,
                ticket: config.queues.open_run(),
                lease,
                finished: None,
                closing: false,
                env: Arc::new(Env {
                    hooks,
                    stream_fn,
                    cancel,
                    clock: Time(config.clock),
                }),
            },
        })
    }

    /// The assistant message that streams, from its `MessageStart` to before its `MessageEnd`.
    pub fn partial(&self) -> Option<&AssistantMessage> {
        match &self.work {
            Work::Streaming { state, .. } => state.partial(),
            _ => None,
        }
    }

    /// The token that stream function, hooks and tools of this run are given. Cancelling it aborts the run.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.ctl.env.cancel
    }

    /// Names the run to its queues.
    pub fn run_id(&self) -> RunId {
        self.ctl.ticket.id()
    }

    /// How the run came out, from its `AgentEnd` on.
    pub fn outcome(&self) -> Option<&Outcome<M>> {
        self.ctl.finished.as_ref().map(|(_, outcome)| outcome)
    }

    /// The transcript of the loop, from its `AgentEnd` on.
    pub fn transcript(&self) -> Option<&Transcript<M>> {
        self.ctl.finished.as_ref().map(|(transcript, _)| transcript)
    }
}

impl<M: AgentMessage, H, S: StreamFn, F> fmt::Debug for AgentLoop<M, H, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match &self.work {
            Work::Step(Some(step)) => step.name(),
            Work::Step(None) => "over",
            Work::Effect(_) => "asking a hook",
            Work::Streaming { .. } => "streaming",
            Work::ExecutingTools { .. } => "executing tools",
        };
        f.debug_struct("AgentLoop").field("work", &work).finish_non_exhaustive()
    }
}
