//! An agent in whose runs everything foreign passes the same gate.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use serde_json::json;
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AgentBuilder, AssistantEvent, CancellationToken, Decision, FnTool, HookFns, Message, QueueKind, QueueMode,
    Request, Response, ResultPatch, ScriptedModel, ScriptedStream, StreamFn, json_tool,
};

use super::drive::drive;
use super::gate::{Gate, Life, Pass};
use super::rules::{pairing, sendable};
use super::watch::Watch;

/// How a world differs from another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kind {
    pub(crate) mode: ExecutionMode,
    /// Whether hooks are set, all of them.
    pub(crate) hooks: bool,
    /// Whether an async listener is subscribed, between the two watches.
    pub(crate) listener: bool,
    pub(crate) queues: QueueMode,
}

/// The kinds that differ in what they run through.
pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        mode: ExecutionMode::Parallel,
        hooks: true,
        listener: false,
        queues: QueueMode::OneAtATime,
    },
    Kind {
        mode: ExecutionMode::Sequential,
        hooks: true,
        listener: false,
        queues: QueueMode::All,
    },
    Kind {
        mode: ExecutionMode::Parallel,
        hooks: false,
        listener: true,
        queues: QueueMode::All,
    },
    Kind {
        mode: ExecutionMode::Sequential,
        hooks: false,
        listener: false,
        queues: QueueMode::OneAtATime,
    },
];

/// What is queued in each world, per queue.
const STEERING: [&str; 2] = ["s1", "s2"];
const FOLLOW_UPS: [&str; 2] = ["f1", "f2"];

/// An agent whose run has a turn with two tool calls and at least one behind it, and two messages in either queue.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) model: ScriptedModel,
    pub(crate) gate: Gate,
    pub(crate) watch: Watch,
    /// The tokens that tools were given.
    tokens: Arc<Mutex<Vec<CancellationToken>>>,
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::after(kind, Vec::new())
    }

    /// The same with a transcript to begin with.
    pub(crate) fn after(kind: Kind, transcript: Vec<Message>) -> Self {
        let gate = Gate::default();
        let tokens = Arc::default();
        let model = ScriptedModel::new()
            .reply(
                Response::new()
                    .thinking("hm")
                    .text("let me")
                    .call("a", json!({}))
                    .call("b", json!({})),
            )
            .fallback(|_| "ok");
        let mut builder = Agent::builder("scripted-1", GatedModel(model.clone(), gate.clone()))
            .clock(|| 7)
            .transcript(transcript)
            .execution_mode(kind.mode)
            .steering_mode(kind.queues)
            .follow_up_mode(kind.queues)
            .tool(gated_tool("a", &gate, &tokens))
            .tool(gated_tool("b", &gate, &tokens));
        if kind.hooks {
            builder = with_hooks(builder, &gate);
        }
        let agent = builder.build();
        let watch = Watch::new(&agent);
        if kind.listener {
            let gate = gate.clone();
            agent.subscribe_async(move |_, _| {
                let (life, pass) = (gate.life(), gate.pass());
                async move {
                    pass.await;
                    drop(life);
                }
            });
        }
        for text in STEERING {
            agent.steer(text);
        }
        for text in FOLLOW_UPS {
            agent.follow_up(text);
        }
        Self {
            agent,
            model,
            gate,
            watch,
            tokens,
        }
    }

    /// After `runs` runs, of which the last may have been aborted or dropped at any point.
    #[track_caller]
    pub(crate) fn check_settled(&self, runs: usize) {
        let Self { agent, watch, gate, .. } = self;
        watch.check(agent, runs);
        assert!(!agent.is_streaming(), "still streaming");
        assert_eq!(drive(agent.wait_for_idle()), Ok(()));
        assert!(agent.streaming_message().is_none(), "a message streams");
        assert!(agent.pending_tool_calls().is_empty(), "a call is pending");
        assert_eq!(gate.alive(), 0, "a foreign future lives");
        let transcript = agent.transcript();
        assert_eq!(pairing(transcript.iter().map(|message| &**message)), Ok(()), "I3");
        let last = transcript.last().map(|last| last.role());
        assert!(last.is_none_or(|role| role == "assistant"), "it ends with {last:?}");
        self.check_queues();
    }

    /// I4: each message is in the transcript or still queued, once, in order.
    #[track_caller]
    pub(crate) fn check_queues(&self) {
        for (kind, queued) in [(QueueKind::Steering, STEERING), (QueueKind::FollowUp, FOLLOW_UPS)] {
            let transcript = self.agent.transcript();
            let told = transcript.iter().map(|message| message.text());
            let mut found: Vec<_> = told.filter(|text| queued.contains(&text.as_str())).collect();
            let mode = self.agent.queue_mode(kind);
            self.agent.set_queue_mode(kind, QueueMode::All);
            found.extend(self.agent.peek(kind).iter().map(|message| message.text()));
            self.agent.set_queue_mode(kind, mode);
            assert_eq!(found, queued, "I4: {kind:?}");
        }
    }

    /// The tools' tokens are all cancelled.
    #[track_caller]
    pub(crate) fn check_cancelled(&self) {
        let tokens = self.tokens.lock().unwrap();
        assert!(
            tokens.iter().all(CancellationToken::is_cancelled),
            "a token is not cancelled"
        );
    }

    /// The next prompt works, and what it sends satisfies I3. `runs` counts it.
    #[track_caller]
    pub(crate) fn check_next_prompt(&self, runs: usize) {
        self.gate.set(super::gate::Mode::Open);
        let asked = self.model.requests().len();
        let outcome = drive(self.agent.prompt("again").expect("idle"));
        assert_eq!(outcome.end, RunEnd::Completed, "{:?}", outcome.error);
        let requests = self.model.requests();
        assert!(requests.len() > asked, "nothing was sent");
        for request in &requests {
            assert_eq!(sendable(request.messages.iter().map(|message| &**message)), Ok(()));
        }
        assert!(!self.agent.has_queued(), "I4: stuck in a queue");
        self.check_settled(runs);
    }
}

/// A tool that passes the gate, reports, passes it again, and answers.
fn gated_tool(name: &str, gate: &Gate, tokens: &Arc<Mutex<Vec<CancellationToken>>>) -> FnTool {
    let (gate, tokens) = (gate.clone(), Arc::clone(tokens));
    json_tool(name, name, json!({"type": "object"}), move |_, cx| {
        tokens.lock().unwrap().push(cx.cancellation_token().clone());
        let (gate, life) = (gate.clone(), gate.life());
        async move {
            gate.pass().await;
            cx.progress("half");
            gate.pass().await;
            drop(life);
            format!("{} ok", cx.call().name)
        }
    })
}

/// Sets all hooks; they change nothing.
fn with_hooks(builder: AgentBuilder, gate: &Gate) -> AgentBuilder {
    macro_rules! gated {
        ($answer:expr) => {{
            let gate = gate.clone();
            move |cx| {
                let (life, pass) = (gate.life(), gate.pass());
                async move {
                    pass.await;
                    drop(life);
                    #[allow(clippy::redundant_closure_call, reason = "a pattern of the macro")]
                    ($answer)(cx)
                }
            }
        }};
    }
    let hooks = HookFns::<Message>::new()
        .prepare_request(gated!(|request: turnstate::PrepareRequest| request.plan))
        .transform_context(gated!(|cx: turnstate::RequestContext| cx.transcript))
        .convert_to_llm(gated!(|cx: turnstate::RequestContext| cx.transcript.request()))
        .api_key(gated!(|_: String| None::<turnstate::ApiKey>))
        .before_tool_call(gated!(|_: turnstate::CallContext| Decision::Allow))
        .after_tool_call(gated!(|_: turnstate::CallOutcome| ResultPatch::keep()))
        .should_stop_after_turn(gated!(|_: turnstate::TurnSummary| false));
    builder.hooks(hooks)
}

/// A scripted model whose stream passes the gate before each event.
struct GatedModel(ScriptedModel, Gate);

/// Its stream.
struct GatedStream {
    inner: ScriptedStream,
    pass: Pass,
    gate: Gate,
    _life: Life,
}

impl StreamFn for GatedModel {
    type Stream = GatedStream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> GatedStream {
        GatedStream {
            inner: self.0.stream(request, cancel),
            pass: self.1.pass(),
            gate: self.1.clone(),
            _life: self.1.life(),
        }
    }
}

impl Stream for GatedStream {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = &mut *self;
        ready!(Pin::new(&mut this.pass).poll(cx));
        this.pass = this.gate.pass();
        Pin::new(&mut this.inner).poll_next(cx)
    }
}
