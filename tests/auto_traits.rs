//! Which public types are `Send`, `Sync` and `Unpin`: part of the contract, though nobody writes it.
//!
//! Everything is `Send`. What can be shared is `Sync`; what is driven by one holder need not be.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AllowedCall, AnswerEnd, AtLimit, AwaitingSteering, Ended,
    ExecutingTools, ExecutionMode, FollowUp, Limits, PreflightCall, Requesting, RunEnd, RunningCall, Streaming,
    ToolAction, TurnEnd,
};
use turnstate::partial_json::{ArgumentsError, PartialArguments};
use turnstate::schema::{ArgumentsSchema, Problem, SchemaError, ValidatedArguments, ValidationError};
use turnstate::*;

/// Types that own what they hold, and may be sent and shared: most of them.
macro_rules! plain {
    ($($type:ty),* $(,)?) => {
        $(assert_impl_all!($type: Send, Sync, Unpin);)*
        $(const _: fn() = || is_static::<$type>();)*
    };
}

fn is_static<T: 'static>() {}

/// A message type of an app's own.
#[derive(Clone)]
struct Notice;

impl CustomRole for Notice {
    fn role(&self) -> &'static str {
        "notice"
    }
}

type Own = CustomMessage<Notice>;

// Data.
plain!(
    Message,
    UserMessage,
    AssistantMessage,
    ToolResultMessage,
    Own,
    Content,
    UserContent,
    AssistantContent,
    TextContent,
    ThinkingContent,
    ImageContent,
    ToolCall,
    ToolResult,
    ToolCallPatch,
    ResponseHead,
    StopReason,
    DoneReason,
    ErrorReason,
    Usage,
    Cost,
    Model,
    ModelCost,
    InputKind,
    ThinkingLevel,
    ThinkingBudgets,
    StreamOptions,
    Transport,
    CacheRetention,
    ApiKey,
    AssistantEvent,
    AgentEvent,
    AgentEvent<Own>,
    PartialMessage,
    FoldError,
    PartialArguments,
    ArgumentsError,
    Messages<Message>,
    Messages<Own>,
    Transcript<Message>,
    Transcript<Own>,
    AgentState,
    AgentState<Own>,
);
assert_impl_all!(message::Iter<'static, Message>: Send, Sync, Unpin);
assert_impl_all!(JsonEvent<'static, Message>: Send, Sync, Unpin);

// A list is as sendable and shareable as what it holds, and no more.
assert_not_impl_any!(Messages<std::cell::Cell<u8>>: Send, Sync);
assert_not_impl_any!(Messages<std::rc::Rc<u8>>: Send, Sync);
assert_impl_all!(Messages<std::marker::PhantomPinned>: Unpin);

// Schema.
plain!(
    ArgumentsSchema,
    ValidatedArguments,
    SchemaError,
    ValidationError,
    Problem
);

// The machine: plain values, in all its phases.
plain!(
    AwaitingSteering<Message>,
    Requesting<Message>,
    Streaming<Message>,
    ExecutingTools<Message>,
    TurnEnd<Message>,
    AtLimit<Message>,
    FollowUp<Message>,
    Ended<Message>,
    AfterSteering<Message>,
    AfterAnswer<Message>,
    AfterTurn<Message>,
    AfterFollowUp<Message>,
    AnswerEnd,
    ToolAction,
    PreflightCall,
    AllowedCall,
    RunningCall,
    ExecutionMode,
    Limits,
    RunEnd,
);

// Queues.
plain!(
    Queues<Message>,
    RunTicket<Message>,
    Lease<Message>,
    Queued,
    QueueId,
    RunId,
    QueueKind,
    QueueMode,
    Delivery,
);

// Tools, hooks, models.
plain!(
    ToolSet,
    RegisteredTool,
    FnTool,
    ToolContext,
    ToolUpdates,
    BoxedHooks,
    HookFns,
    RequestPlan<Message>,
    PrepareRequest,
    RequestContext,
    CallContext,
    CallOutcome,
    TurnSummary,
    Decision,
    ResultPatch,
    Request,
    BoxedStreamFn,
    ScriptedModel,
    Response,
    CancellationToken,
);
// A model's stream is polled by one.
assert_impl_all!(BoxedStream: Send, Unpin);
assert_not_impl_any!(BoxedStream: Sync);
assert_impl_all!(ScriptedStream: Send, Unpin);
assert_not_impl_any!(BoxError: Clone);
assert_impl_all!(BoxError: Send, Sync, Unpin);

// The loop.
plain!(
    LoopConfig,
    LoopConfig<Own>,
    Start,
    StartError,
    Outcome,
    RunError,
    ListenerError
);
assert_impl_all!(BoxedAgentLoop: Send);
assert_impl_all!(BoxedAgentLoop<Own>: Send);
// It waits for its token in place: whoever polls it has to pin it.
assert_not_impl_any!(BoxedAgentLoop: Sync, Unpin);

// The agent.
plain!(
    Agent,
    Agent<Own>,
    AgentBuilder,
    AgentBuilder<Own>,
    Subscription,
    Subscription<Own>,
    AsyncListenerContext,
    WaitInsideListener,
);
assert_impl_all!(ListenerContext<'static>: Send, Sync, Unpin);
// A run goes from task to task and is polled by one at a time, unpinned.
assert_impl_all!(Run: Send, Unpin);
assert_impl_all!(Run<Own>: Send, Unpin);
assert_not_impl_any!(Run: Sync, Clone, Future);
assert_impl_all!(RunFuture: Send, Unpin, Future);
assert_impl_all!(RunFuture<Own>: Send, Unpin);
assert_not_impl_any!(RunFuture: Sync);
const _: fn() = is_static::<Run>;
const _: fn() = is_static::<RunFuture>;
const _: fn() = is_static::<BoxedAgentLoop>;

fn sendable<T: Send + 'static>(value: T) -> T {
    value
}

/// The types without a name.
#[test]
fn futures_and_static_loops_go_to_other_threads() {
    let prompt = || vec![Message::user("go").into()];
    let config = LoopConfig::<Message>::new("m");
    drop(sendable(
        agent_loop(prompt(), config.clone(), ScriptedModel::new(), ()).unwrap(),
    ));
    drop(sendable(
        agent_loop(prompt(), config.clone(), ScriptedModel::new().boxed(), HookFns::new()).unwrap(),
    ));
    drop(sendable(
        agent_loop_from(Start::Prompt(prompt()), config.clone(), ScriptedModel::new(), ()).unwrap(),
    ));
    assert!(
        agent_loop_continue(config, ScriptedModel::new(), ())
            .map(sendable)
            .is_err()
    );

    let agent = Agent::builder("m", ScriptedModel::new()).build();
    drop(sendable(agent.wait_for_idle()));
    drop(sendable(Hooks::<Message>::api_key(&(), String::new())));
}
