//! A panic of foreign code is its own failure: it never crosses a poll or a drop, and spoils nothing.
//!
//! Each test plants one panic, in one place, drives a run through it, and then another that must work.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod robust_support;

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use robust_support::drive::{Task, drive};
use robust_support::watch::Watch;
use serde_json::json;
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AgentBuilder, AssistantEvent, BoxError, BoxedStream, CancellationToken, Decision, FnTool, HookFns, Message,
    Outcome, Request, Response, ResultPatch, ScriptedModel, StreamFn, json_tool,
};

/// Blows once.
#[derive(Clone)]
struct Fuse(Arc<AtomicBool>);

impl Fuse {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn blow(&self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "boom");
    }

    fn blew(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// A future or stream whose drop is the panic.
struct Dropped<F>(F, Fuse);

impl<F> Drop for Dropped<F> {
    fn drop(&mut self) {
        self.1.blow();
    }
}

impl<F: Future + Unpin> Future for Dropped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.poll_unpin(cx)
    }
}

impl<F: Stream + Unpin> Stream for Dropped<F> {
    type Item = F::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Item>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

/// An error that cannot say what it is.
#[derive(Debug)]
struct Unspeakable(Fuse);

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.blow();
        Ok(())
    }
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fuse")
    }
}

impl std::error::Error for Unspeakable {}

/// When a run that waits for what was planted is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// By itself.
    Done,
    /// By an abort.
    Aborted,
    /// By its drop.
    Dropped,
}

/// A model that calls `t`, then says "done"; and "ok" to whatever is asked later.
fn script() -> ScriptedModel {
    ScriptedModel::new()
        .call("t", json!({}))
        .text("done")
        .fallback(|_| "ok")
}

fn tool_t() -> FnTool {
    tool_of(|| async { "fine" }.boxed())
}

fn tool_of(run: impl Fn() -> BoxFuture<'static, &'static str> + Send + Sync + 'static) -> FnTool {
    json_tool("t", "t", json!({"type": "object"}), move |_, _| run())
}

/// Polls a run of this agent until it waits or is over; then has it ended.
fn run_to(agent: &Agent, ending: Ending) -> Option<Outcome> {
    let mut run = Task::new(IntoFuture::into_future(agent.prompt("go").unwrap()));
    let mut outcome = run.run();
    match ending {
        Ending::Done => {}
        Ending::Aborted => {
            agent.abort();
            outcome = outcome.or_else(|| run.run());
        }
        Ending::Dropped => drop(run),
    }
    outcome
}

/// The first run blows the fuse and comes out, whatever it comes out as; a second works. Gives the first's outcome.
#[track_caller]
fn survives(agent: &Agent, fuse: &Fuse, ending: Ending) -> Option<Outcome> {
    let watch = Watch::new(agent);
    let outcome = run_to(agent, ending);
    assert!(fuse.blew(), "the panic was not reached");
    assert_eq!(outcome.is_some(), ending != Ending::Dropped);
    assert!(!agent.is_streaming());
    watch.check(agent, 1);
    let next = drive(agent.prompt("again").unwrap());
    assert_eq!(
        (next.end, next.listener_errors.len()),
        (RunEnd::Completed, 0),
        "{:?}",
        next.error
    );
    watch.check(agent, 2);
    outcome
}

/// The text of the only tool result of an outcome.
#[track_caller]
fn result(outcome: &Outcome) -> String {
    let mut results = outcome.messages.iter().filter_map(|message| message.as_tool_result());
    let result = results.next().expect("a result");
    assert!(results.next().is_none(), "one result");
    assert!(result.is_error);
    result.text()
}

/// Builds an agent with `t` and the script.
fn agent(build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    build(Agent::builder("m", script())).tool(tool_t()).build()
}

/// Hooks of which the `n`th is made of `foreign`, which wraps the future that gives its answer.
fn hook_of<W>(n: usize, wrap: W) -> HookFns
where
    W: Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Clone + Send + Sync + 'static,
{
    macro_rules! hook {
        ($cx:ident => $answer:expr) => {
            move |$cx| {
                let before = wrap(async {}.boxed());
                async move {
                    before.await;
                    $answer
                }
            }
        };
    }
    let hooks = HookFns::<Message>::new();
    match n {
        0 => hooks.prepare_request(hook!(request => request.plan)),
        1 => hooks.transform_context(hook!(cx => cx.transcript)),
        2 => hooks.convert_to_llm(hook!(cx => cx.transcript.request())),
        3 => hooks.api_key(hook!(_provider => None)),
        4 => hooks.should_stop_after_turn(hook!(_turn => false)),
        5 => hooks.before_tool_call(hook!(_cx => Decision::Allow)),
        _ => hooks.after_tool_call(hook!(_outcome => ResultPatch::keep())),
    }
}

/// The hooks whose failure is the run's, and those whose failure is the call's.
const RUN_HOOKS: std::ops::Range<usize> = 0..5;
const CALL_HOOKS: std::ops::Range<usize> = 5..7;

#[test]
fn of_a_hook() {
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        for at_call in [true, false] {
            let fuse = Fuse::new();
            let planted = fuse.clone();
            let hooks = hook_of(n, move |before| {
                if at_call {
                    planted.blow();
                }
                let planted = planted.clone();
                before.inspect(move |()| planted.blow()).boxed()
            });
            let outcome = survives(&agent(|builder| builder.hooks(hooks)), &fuse, Ending::Done).unwrap();
            if CALL_HOOKS.contains(&n) {
                assert_eq!(outcome.end, RunEnd::Completed);
                assert!(result(&outcome).ends_with("panicked: boom"), "{}", result(&outcome));
            } else {
                assert_eq!(outcome.end, RunEnd::Failed);
                assert_eq!(outcome.error.as_deref(), Some("panicked: boom"));
            }
        }
    }
}

#[test]
fn of_the_drop_of_a_hook() {
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
            let fuse = Fuse::new();
            let hooks = HookOfDrop {
                n,
                fuse: fuse.clone(),
                pends: ending != Ending::Done,
            };
            let outcome = survives(&agent(|builder| builder.hooks(hooks)), &fuse, ending);
            if ending == Ending::Done {
                // An agent's hooks are wrapped, and the wrapper's poll drops them: it is still the hook that panics.
                let outcome = outcome.unwrap();
                let end = if RUN_HOOKS.contains(&n) {
                    RunEnd::Failed
                } else {
                    RunEnd::Completed
                };
                assert_eq!(outcome.end, end, "hook {n}");
            }
        }
    }
}

/// Hooks of which the `n`th gives a future whose drop panics, once.
struct HookOfDrop {
    n: usize,
    fuse: Fuse,
    pends: bool,
}

impl HookOfDrop {
    fn answer<T: Send + 'static>(
        &self,
        n: usize,
        answer: T,
    ) -> impl Future<Output = Result<T, BoxError>> + Send + use<T> {
        let planted = n == self.n && !self.fuse.blew();
        let pends = planted && self.pends;
        let answered: BoxFuture<'static, _> = async move {
            if pends {
                std::future::pending::<()>().await;
            }
            Ok(answer)
        }
        .boxed();
        let fuse = if planted {
            self.fuse.clone()
        } else {
            {
                let spent = Fuse::new();
                spent.0.store(false, Ordering::SeqCst);
                spent
            }
        };
        Dropped(answered, fuse)
    }
}

impl turnstate::Hooks for HookOfDrop {
    fn prepare_request(
        &self,
        request: turnstate::PrepareRequest,
    ) -> impl Future<Output = Result<turnstate::RequestPlan<Message>, BoxError>> + Send {
        self.answer(0, request.plan)
    }

    fn transform_context(
        &self,
        cx: turnstate::RequestContext,
    ) -> impl Future<Output = Result<turnstate::Transcript<Message>, BoxError>> + Send {
        self.answer(1, cx.transcript)
    }

    fn convert_to_llm(
        &self,
        cx: turnstate::RequestContext,
    ) -> impl Future<Output = Result<turnstate::Messages<Message>, BoxError>> + Send {
        self.answer(2, cx.transcript.request())
    }

    fn api_key(&self, _: String) -> impl Future<Output = Result<Option<turnstate::ApiKey>, BoxError>> + Send {
        self.answer(3, None)
    }

    fn should_stop_after_turn(&self, _: turnstate::TurnSummary) -> impl Future<Output = Result<bool, BoxError>> + Send {
        self.answer(4, false)
    }

    fn before_tool_call(&self, _: turnstate::CallContext) -> impl Future<Output = Result<Decision, BoxError>> + Send {
        self.answer(5, Decision::Allow)
    }

    fn after_tool_call(&self, _: turnstate::CallOutcome) -> impl Future<Output = Result<ResultPatch, BoxError>> + Send {
        self.answer(6, ResultPatch::keep())
    }
}

#[test]
fn of_a_tool() {
    let at_call = |fuse: Fuse| {
        tool_of(move || {
            fuse.blow();
            async { "fine" }.boxed()
        })
    };
    let in_poll = |fuse: Fuse| {
        tool_of(move || {
            let fuse = fuse.clone();
            async move {
                fuse.blow();
                "fine"
            }
            .boxed()
        })
    };
    let prepare = |fuse: Fuse| {
        tool_t().with_prepare(move |arguments| {
            fuse.blow();
            Ok(arguments.into())
        })
    };
    for make in [&at_call as &dyn Fn(Fuse) -> FnTool, &in_poll, &prepare] {
        let fuse = Fuse::new();
        let agent = agent(|builder| builder.tool(make(fuse.clone())));
        let outcome = survives(&agent, &fuse, Ending::Done).unwrap();
        assert_eq!(outcome.end, RunEnd::Completed);
        assert_eq!(result(&outcome), "Tool t panicked: boom");
    }
}

#[test]
fn of_the_drop_of_a_tool() {
    for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let tool = DropTool {
            parameters: json!({"type": "object"}),
            fuse: planted,
            pends: ending != Ending::Done,
        };
        let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, ending);
        if ending == Ending::Done {
            let outcome = outcome.unwrap();
            assert_eq!(outcome.end, RunEnd::Completed);
            assert!(
                outcome.messages.iter().any(|message| message.text() == "fine"),
                "its result counts"
            );
        }
    }
}

/// A tool whose future's drop panics.
struct DropTool {
    parameters: serde_json::Value,
    fuse: Fuse,
    pends: bool,
}

impl turnstate::Tool for DropTool {
    fn name(&self) -> &'static str {
        "t"
    }

    fn description(&self) -> &'static str {
        "t"
    }

    fn parameters(&self) -> &serde_json::Value {
        &self.parameters
    }

    fn execute(
        self: Arc<Self>,
        _: turnstate::schema::ValidatedArguments,
        _: turnstate::ToolContext,
    ) -> BoxFuture<'static, Result<turnstate::ToolResult, BoxError>> {
        let pends = self.pends;
        let run = async move {
            if pends {
                std::future::pending::<()>().await;
            }
            Ok("fine".into())
        };
        Box::pin(Dropped(run.boxed(), self.fuse.clone()))
    }
}

#[test]
fn of_a_model() {
    let fuse = Fuse::new();
    let (planted, model) = (fuse.clone(), script());
    let at_call = move |request: Request, cancel: CancellationToken| {
        planted.blow();
        model.stream(request, cancel)
    };
    let outcome = survives(
        &Agent::builder("m", at_call).tool(tool_t()).build(),
        &fuse,
        Ending::Done,
    )
    .unwrap();
    assert_eq!(outcome.error.as_deref(), Some("stream function panicked: boom"));

    let model = ScriptedModel::new()
        .reply(Response::new().text("so far").panic("boom"))
        .fallback(|_| "ok");
    let fuse = Fuse::new();
    let _ = std::panic::catch_unwind(|| fuse.blow());
    let outcome = survives(&Agent::builder("m", model).build(), &fuse, Ending::Done).unwrap();
    assert_eq!(outcome.error.as_deref(), Some("model stream panicked: boom"));
    assert_eq!(outcome.text(), "so far");
}

#[test]
fn of_the_drop_of_a_model() {
    for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let model = script();
        let model = move |request: Request, cancel: CancellationToken| -> BoxedStream {
            let inner = model.stream(request, cancel);
            if planted.blew() {
                return Box::pin(inner);
            }
            let inner: BoxedStream = match ending {
                Ending::Done => Box::pin(inner),
                _ => Box::pin(futures_util::stream::pending::<AssistantEvent>()),
            };
            Box::pin(Dropped(inner, planted.clone()))
        };
        let outcome = survives(&Agent::builder("m", model).tool(tool_t()).build(), &fuse, ending);
        if ending == Ending::Done {
            assert_eq!(outcome.unwrap().end, RunEnd::Completed);
        }
    }
}

#[test]
fn of_a_listener() {
    let sync = |agent: &Agent, fuse: Fuse| {
        agent.subscribe(move |_, _| fuse.blow());
    };
    let at_call = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            fuse.blow();
            async {}
        });
    };
    let in_poll = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            let fuse = fuse.clone();
            async move { fuse.blow() }
        });
    };
    let unspeakable = |agent: &Agent, fuse: Fuse| {
        agent.subscribe(move |_, _| {
            if fuse.blew() {
                Ok(())
            } else {
                Err(Unspeakable(fuse.clone()))
            }
        });
    };
    let unspeakable_later = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            let fuse = fuse.clone();
            async move { if fuse.blew() { Ok(()) } else { Err(Unspeakable(fuse)) } }
        });
    };
    let subscribes: [&dyn Fn(&Agent, Fuse); 5] = [&sync, &at_call, &in_poll, &unspeakable, &unspeakable_later];
    for subscribe in subscribes {
        let fuse = Fuse::new();
        // Of the callback, too.
        let agent = agent(|builder| builder.on_listener_error(|_| panic!("of the callback")));
        subscribe(&agent, fuse.clone());
        let outcome = survives(&agent, &fuse, Ending::Done).unwrap();
        assert_eq!((outcome.end, outcome.text().as_str()), (RunEnd::Completed, "done"));
        let [error] = &*outcome.listener_errors else {
            panic!("{:?}", outcome.listener_errors)
        };
        assert_eq!((error.event, error.message.as_str()), ("agent_start", "panicked: boom"));
    }
}

#[test]
fn of_the_drop_of_a_listener() {
    for ending in [Ending::Done, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let agent = agent(|builder| builder);
        agent.subscribe_async(move |_, _| {
            let planted = planted.clone();
            // The wrapper of the engine drops what it has awaited; this one is dropped with its locals.
            async move {
                let blown = planted.blew();
                let _held = (!blown).then(|| Dropped((), planted));
                if ending == Ending::Dropped && !blown {
                    std::future::pending::<()>().await;
                }
            }
        });
        survives(&agent, &fuse, ending);
    }
}

#[test]
fn of_an_error_that_cannot_be_told() {
    let fuse = Fuse::new();
    let planted = fuse.clone();
    let tool = json_tool("t", "t", json!({"type": "object"}), move |_, _| {
        std::future::ready(Err::<String, _>(Unspeakable(planted.clone())))
    });
    let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let prepare = tool_t().with_prepare(move |_| Err(Unspeakable(planted.clone()).into()));
    let outcome = survives(&agent(|builder| builder.tool(prepare)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let hook = move |cx: turnstate::RequestContext| {
        let answer = if planted.blew() {
            Ok(cx.transcript)
        } else {
            Err(Unspeakable(planted.clone()))
        };
        std::future::ready(answer)
    };
    let outcome = survives(&agent(|builder| builder.transform_context(hook)), &fuse, Ending::Done).unwrap();
    assert_eq!(outcome.error.as_deref(), Some("panicked: boom"));

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let hook = move |_: turnstate::CallOutcome| std::future::ready(Err::<ResultPatch, _>(Unspeakable(planted.clone())));
    let outcome = survives(&agent(|builder| builder.after_tool_call(hook)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");
}

#[test]
fn of_the_payload_of_a_panic() {
    let fuse = Fuse::new();
    let planted = fuse.clone();
    let tool = tool_of(move || {
        if !planted.blew() {
            std::panic::panic_any(Dropped((), planted.clone()));
        }
        async { "fine" }.boxed()
    });
    let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "Tool t panicked: no message");
}

#[test]
fn of_a_grace() {
    for at in 0..3 {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let deaf = tool_of(|| std::future::pending().boxed());
        let agent = agent(|builder| {
            builder.tool(deaf).grace(move || {
                if at == 0 {
                    planted.blow();
                }
                let fuse = planted.clone();
                let grace = async move {
                    if at == 1 {
                        fuse.blow();
                    }
                };
                let spent = Fuse::new();
                spent.0.store(false, Ordering::SeqCst);
                Dropped(grace.boxed(), if at == 2 { planted.clone() } else { spent })
            })
        });
        let outcome = survives(&agent, &fuse, Ending::Aborted).unwrap();
        assert_eq!(
            (outcome.end, result(&outcome).as_str()),
            (RunEnd::Aborted, "Operation aborted")
        );
    }
}

thread_local! {
    /// How often the clock is read before it panics.
    static READS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A clock of which one reading panics.
fn clock() -> u64 {
    match READS.get() {
        Some(0) => {
            READS.set(None);
            panic!("boom");
        }
        left => {
            READS.set(left.map(|left| left - 1));
            7
        }
    }
}

#[test]
fn of_the_clock() {
    for reads in 0.. {
        let agent = agent(|builder| builder.clock(clock));
        let watch = Watch::new(&agent);
        let prompt = Message::user("go");
        let run = agent.prompt(prompt).unwrap();
        READS.set(Some(reads));
        let outcome = drive(run);
        let unreached = READS.take().is_some();
        assert_eq!((outcome.end, outcome.text().as_str()), (RunEnd::Completed, "done"));
        watch.check(&agent, 1);
        if unreached {
            assert!(reads > 3, "read {reads} times");
            break;
        }
    }
}

#[test]
fn of_a_hook_of_a_static_loop() {
    use futures_util::StreamExt;

    // Here nothing wraps them: once a hook has answered, its answer counts.
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        let hooks = HookOfDrop {
            n,
            fuse: Fuse::new(),
            pends: false,
        };
        let fuse = hooks.fuse.clone();
        let mut config = turnstate::LoopConfig::new("m");
        config.plan.tools = [tool_t()].into();
        let prompt = vec![Message::user("go").into()];
        let mut run = Box::pin(turnstate::agent_loop(prompt, config, script(), hooks).unwrap());
        let _: Vec<_> = drive(run.by_ref().collect());
        let outcome = run.outcome().unwrap();
        assert!(fuse.blew());
        assert_eq!(
            (outcome.end, outcome.text().as_str()),
            (RunEnd::Completed, "done"),
            "hook {n}"
        );
    }

    /// Panics where the future is made, outside of any poll of it.
    struct Early(Fuse);
    impl turnstate::Hooks for Early {
        fn api_key(&self, _: String) -> impl Future<Output = Result<Option<turnstate::ApiKey>, BoxError>> + Send {
            self.0.blow();
            std::future::ready(Ok(None))
        }
    }
    let config = turnstate::LoopConfig::new("m");
    let prompt = vec![Message::user("go").into()];
    let mut run = Box::pin(turnstate::agent_loop(prompt, config, script(), Early(Fuse::new())).unwrap());
    let events: Vec<_> = drive(run.by_ref().collect());
    assert_eq!(events.last().unwrap().kind(), "agent_end");
    assert_eq!(run.outcome().unwrap().error.as_deref(), Some("panicked: boom"));
}

/// A message whose look at itself panics, once.
#[derive(Clone)]
struct Touchy(Message);

thread_local! {
    /// How often a [`Touchy`] is looked at before it panics.
    static LOOKS: Cell<Option<usize>> = const { Cell::new(None) };
}

impl From<Message> for Touchy {
    fn from(message: Message) -> Self {
        Self(message)
    }
}

impl turnstate::AgentMessage for Touchy {
    fn role(&self) -> &str {
        self.0.role()
    }

    fn as_message(&self) -> Option<&Message> {
        if LOOKS.get() == Some(0) {
            LOOKS.set(None);
            panic!("boom");
        }
        LOOKS.set(LOOKS.get().map(|left| left - 1));
        Some(&self.0)
    }

    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>> {
        Some(Arc::new(this.0.clone()))
    }
}

#[test]
fn of_a_message_type_is_the_holders_but_no_more() {
    // It is not caught: the engine cannot go on. But it must not end the process, nor leave the agent busy.
    for looks in 0.. {
        let agent: Agent<Touchy> = AgentBuilder::new("m", script()).tool(tool_t()).build();
        let run = agent.prompt(Touchy(Message::user("go"))).unwrap();
        LOOKS.set(Some(looks));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(run)));
        let unreached = LOOKS.take().is_some();
        assert_eq!(ended.is_ok(), unreached, "look {looks}");
        assert!(!agent.is_streaming());
        assert!(agent.streaming_message().is_none());
        assert!(agent.pending_tool_calls().is_empty());
        let next = drive(agent.prompt("again").unwrap());
        assert_eq!(next.end, RunEnd::Completed);
        if unreached {
            assert!(looks > 5, "looked at {looks} times");
            break;
        }
    }
}
