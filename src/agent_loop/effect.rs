//! The effects of the silent phases: what has to be awaited before the machine can go on.
//!
//! The typestate travels inside the effect and comes out as the next step, so that there is one future in one slot,
//! and no answer can meet the wrong phase.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::event::AgentEvent;
use crate::hooks::{CallContext, Hooks, PrepareRequest, RequestContext, RequestPlan, TurnSummary};
use crate::machine::{
    ABORTED_CALL, AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AnswerEnd, AtLimit, AwaitingSteering, Ended,
    ExecutingTools, FollowUp, PreflightCall, Requesting, Streaming, TurnEnd,
};
use crate::message::{AgentMessage, Model, ToolResult};
use crate::schema::ValidatedArguments;
use crate::stream_fn::{Request, StreamFn};
use crate::tool::ToolSet;

use super::foreign::{Stopped, Time, ask, catch};

/// What effects and tools need of the loop.
#[derive(Debug)]
pub(super) struct Env<H, S> {
    pub(super) hooks: H,
    pub(super) stream_fn: S,
    pub(super) cancel: CancellationToken,
    pub(super) clock: Time,
}

/// Something to be awaited.
#[derive(Debug)]
pub(super) enum Effect<M> {
    /// Make the request and call the model.
    Request(Requesting<M>, RequestPlan<M>),
    /// Check a tool call.
    Preflight(ExecutingTools<M>, PreflightCall, ToolSet),
    /// Ask whether to stop.
    Stop(TurnEnd<M>, Arc<Model>),
}

/// What an effect resolves to. Opaque: it stands in the type of a loop whose hooks are not boxed.
pub struct NextStep<M, T>(pub(super) Step<M, T>);

impl<M, T> fmt::Debug for NextStep<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextStep(..)")
    }
}

/// Where the loop stands between effects.
pub(super) enum Step<M, T> {
    AwaitingSteering(AwaitingSteering<M>),
    Requesting(Requesting<M>),
    /// The model was called.
    Streaming(Streaming<M>, T, RequestPlan<M>),
    /// The answer has tool calls.
    ToolCalls(ExecutingTools<M>),
    /// A tool call was checked.
    ExecutingTools(ExecutingTools<M>),
    TurnEnd(TurnEnd<M>),
    AtLimit(AtLimit<M>),
    FollowUp(FollowUp<M>),
    Ended(Ended<M>),
}

impl<M, T> Step<M, T> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::AwaitingSteering(_) => "awaiting steering",
            Self::Requesting(_) => "requesting",
            Self::Streaming(..) => "streaming",
            Self::ToolCalls(_) | Self::ExecutingTools(_) => "executing tools",
            Self::TurnEnd(_) | Self::AtLimit(_) => "turn end",
            Self::FollowUp(_) => "follow-up",
            Self::Ended(_) => "ended",
        }
    }

    /// Whether an abort takes back what the phase has not told: messages that came from a queue.
    pub(super) fn is_revocable(&self) -> bool {
        matches!(self, Self::AwaitingSteering(_) | Self::Requesting(_))
    }
}

impl<M: AgentMessage, T> Step<M, T> {
    /// The next event the phase has to tell.
    pub(super) fn poll_event(&mut self) -> Option<AgentEvent<M>> {
        match self {
            Self::AwaitingSteering(state) => state.poll_event(),
            Self::Requesting(state) => state.poll_event(),
            Self::Streaming(state, ..) => state.poll_event(),
            Self::ToolCalls(state) | Self::ExecutingTools(state) => state.poll_event(),
            Self::TurnEnd(state) => state.poll_event(),
            Self::AtLimit(state) => state.poll_event(),
            Self::FollowUp(state) => state.poll_event(),
            Self::Ended(state) => state.poll_event(),
        }
    }
}

impl<M, T> From<AfterSteering<M>> for Step<M, T> {
    fn from(after: AfterSteering<M>) -> Self {
        match after {
            AfterSteering::Requesting(state) => Self::Requesting(state),
            AfterSteering::FollowUp(state) => Self::FollowUp(state),
        }
    }
}

impl<M, T> From<AfterFollowUp<M>> for Step<M, T> {
    fn from(after: AfterFollowUp<M>) -> Self {
        match after {
            AfterFollowUp::Requesting(state) => Self::Requesting(state),
            AfterFollowUp::Ended(state) => Self::Ended(state),
        }
    }
}

impl<M, T> From<AfterTurn<M>> for Step<M, T> {
    fn from(after: AfterTurn<M>) -> Self {
        match after {
            AfterTurn::AwaitingSteering(state) => Self::AwaitingSteering(state),
            AfterTurn::AtLimit(state) => Self::AtLimit(state),
            AfterTurn::Ended(state) => Self::Ended(state),
        }
    }
}

impl<M, T> From<AfterAnswer<M>> for Step<M, T> {
    fn from(after: AfterAnswer<M>) -> Self {
        match after {
            AfterAnswer::ExecutingTools(state) => Self::ToolCalls(state),
            AfterAnswer::TurnEnd(state) => Self::TurnEnd(state),
            AfterAnswer::Ended(state) => Self::Ended(state),
        }
    }
}

/// Awaits an effect. It resolves as soon as the run is aborted, whatever hooks do.
pub(super) async fn perform<M, H, S>(effect: Effect<M>, env: Arc<Env<H, S>>) -> NextStep<M, S::Stream>
where
    M: AgentMessage,
    H: Hooks<M>,
    S: StreamFn,
{
    NextStep(match effect {
        Effect::Request(state, plan) => request(state, plan, &env).await,
        Effect::Preflight(mut state, call, tools) => {
            match preflight(&state, &call, &tools, &env).await {
                Ok(arguments) => state.allow(call, arguments),
                Err(result) => state.reject(call, *result, env.clock.now()),
            }
            Step::ExecutingTools(state)
        }
        Effect::Stop(state, model) => {
            let summary = TurnSummary::new(&state, env.cancel.clone());
            match ask(&env.cancel, || env.hooks.should_stop_after_turn(summary)).await {
                Ok(stop) => state.handle_stop(stop).into(),
                Err(Stopped::Aborted) => Step::Ended(state.abort(&model, env.clock.now())),
                Err(Stopped::Failed(error)) => Step::Ended(state.fail(&model, error, env.clock.now())),
            }
        }
    })
}

async fn request<M, H, S>(mut state: Requesting<M>, plan: RequestPlan<M>, env: &Env<H, S>) -> Step<M, S::Stream>
where
    M: AgentMessage,
    H: Hooks<M>,
    S: StreamFn,
{
    let mut model = Arc::clone(&plan.model);
    match make_request(&mut state, plan, &mut model, env).await {
        Ok((request, plan)) => {
            let state = state.stream(&model, env.clock.now());
            match catch(|| env.stream_fn.stream(request, env.cancel.clone())) {
                Ok(stream) => Step::Streaming(state, stream, plan),
                Err(panic) => {
                    let aborted = env.cancel.is_cancelled();
                    let end = AnswerEnd::failed(format!("stream function {panic}"));
                    let end = if aborted { end.under_abort() } else { end };
                    state.finish(end, env.clock.now()).into()
                }
            }
        }
        Err(Stopped::Aborted) => Step::Ended(state.abort(&model, env.clock.now())),
        Err(Stopped::Failed(error)) => Step::Ended(state.fail(&model, error, env.clock.now())),
    }
}

/// Asks the hooks that make a request (§2, step 3). `model` follows the plan, for the message that says it failed.
async fn make_request<M, H, S>(
    state: &mut Requesting<M>,
    plan: RequestPlan<M>,
    model: &mut Arc<Model>,
    env: &Env<H, S>,
) -> Result<(Request, RequestPlan<M>), Stopped>
where
    M: AgentMessage,
    H: Hooks<M>,
{
    let Env { hooks, cancel, .. } = env;
    let plan = RequestPlan {
        transcript: state.transcript().clone(),
        ..plan
    };
    let request = PrepareRequest::new(plan, cancel.clone());
    let plan = ask(cancel, || hooks.prepare_request(request)).await?;
    model.clone_from(&plan.model);
    state.replace_transcript(plan.transcript.clone());
    let context = |transcript| RequestContext::new(transcript, cancel.clone());
    let transcript = ask(cancel, || hooks.transform_context(context(plan.transcript.clone()))).await?;
    let messages = ask(cancel, || hooks.convert_to_llm(context(transcript))).await?;
    let key = ask(cancel, || hooks.api_key(model.provider.clone())).await?;
    let request = Request {
        model: Arc::clone(&plan.model),
        system_prompt: Arc::clone(&plan.system_prompt),
        messages,
        tools: plan.tools.clone(),
        thinking_level: plan.thinking_level,
        options: Arc::clone(&plan.options),
        api_key: key.or_else(|| plan.options.api_key.clone()),
    };
    Ok((request, plan))
}

/// Checks a call (§4.4): find the tool, prepare and validate the arguments, ask the hook. An error is its result.
async fn preflight<M, H, S>(
    state: &ExecutingTools<M>,
    preflight: &PreflightCall,
    tools: &ToolSet,
    env: &Env<H, S>,
) -> Result<ValidatedArguments, Box<ToolResult>>
where
    M: AgentMessage,
    H: Hooks<M>,
{
    let call = preflight.call();
    let (tool, arguments) = tools.check(call)?;
    let cancel = env.cancel.clone();
    let context = CallContext::new(state, preflight.index(), call, arguments.clone(), tool, cancel);
    match ask(&env.cancel, || env.hooks.before_tool_call(context)).await {
        Ok(decision) => decision.apply(tool, call, arguments),
        Err(Stopped::Aborted) => Err(Box::new(ToolResult::error(ABORTED_CALL))),
        Err(Stopped::Failed(error)) => Err(Box::new(ToolResult::error(error))),
    }
}
