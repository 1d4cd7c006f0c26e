//! The model, the tools and the hooks of a script.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use serde_json::{Map, Value, json};
use turnstate::machine::ExecutionMode;
use turnstate::schema::ValidatedArguments;
use turnstate::{
    ApiKey, AssistantEvent, AssistantMessage, BoxError, BoxFuture, CallContext, CallOutcome, CancellationToken,
    Decision, DoneReason, ErrorReason, Hooks, Message, Messages, PrepareRequest, Request, RequestContext, RequestPlan,
    ResultPatch, StreamFn, Tool, ToolCallPatch, ToolContext, ToolResult, Transcript, TurnSummary,
};

use super::world::{Life, Pause, World, planted};

/// A model whose answers are of all kinds.
pub(super) struct Model(pub(super) World);

impl StreamFn for Model {
    type Stream = Answer;

    fn stream(&self, request: Request, _cancel: CancellationToken) -> Answer {
        let world = &self.0;
        world.begin("a request");
        let wrong = {
            let mut inner = world.lock();
            inner.requests += 1;
            inner.watch.request(&request)
        };
        if let Some(wrong) = wrong {
            world.wrong(wrong);
        }
        let events = answer(world);
        Answer {
            events,
            is_over: false,
            pause: world.pause(),
            _life: world.life(),
            world: world.clone(),
        }
    }
}

/// What a model does next: an event, or a panic.
type Said = Option<AssistantEvent>;

/// An answer. By a tape that has ended it is a text.
fn answer(world: &World) -> VecDeque<Said> {
    match world.below(8) {
        0 | 1 => VecDeque::from([
            Some(AssistantEvent::start()),
            Some(AssistantEvent::text_start(0)),
            Some(AssistantEvent::text_delta(0, "hi")),
            Some(AssistantEvent::done(DoneReason::Stop)),
        ]),
        2..=5 => {
            let mut events = VecDeque::from([Some(AssistantEvent::start())]);
            for index in 0..=usize::from(world.below(3)) {
                events.extend(call(world, index).into_iter().map(Some));
            }
            let reason = world.pick(&[
                DoneReason::ToolUse,
                DoneReason::ToolUse,
                DoneReason::Stop,
                DoneReason::Length,
            ]);
            events.push_back(Some(AssistantEvent::done(reason)));
            events
        }
        6 => VecDeque::from([Some(AssistantEvent::done(DoneReason::Stop))]),
        // Anything in any order; it may end without a terminal event.
        _ => (0..world.below(12)).map(|_| anything(world)).collect(),
    }
}

fn call(world: &World, index: usize) -> Vec<AssistantEvent> {
    let (id, name) = (world.pick(&["1", "2", ""]), world.pick(&["side", "alone", "none"]));
    let arguments = world.pick(&["{\"n\":1}", "{\"n\":\"2\"}", "", "{\"n\":", "{\"n\":\"x\"}", "[]"]);
    let (head, tail) = arguments.split_at(arguments.len() / 2);
    let mut events = vec![AssistantEvent::tool_call_start(index, id, name)];
    events.extend([head, tail].map(|delta| AssistantEvent::tool_call_delta(index, delta)));
    if world.once_in(2) {
        events.push(AssistantEvent::tool_call_end(index));
    }
    events
}

fn anything(world: &World) -> Said {
    let index = usize::from(world.below(3));
    Some(match world.below(18) {
        0 | 1 => AssistantEvent::start(),
        2 => AssistantEvent::text_start(index),
        3 => AssistantEvent::text_delta(index, "x"),
        4 => AssistantEvent::text_end(index),
        5 => AssistantEvent::thinking_start(index),
        6 => AssistantEvent::thinking_delta(index, "hm"),
        7 => AssistantEvent::thinking_end(index),
        8 | 9 => AssistantEvent::tool_call_start(index, "1", "side"),
        10 => AssistantEvent::tool_call_delta(index, "{\"n\":1}"),
        11 => AssistantEvent::tool_call_end(index),
        12 => AssistantEvent::ToolCallEnd {
            content_index: index,
            tool_call: Some(Box::new(ToolCallPatch {
                name: Some("alone".into()),
                arguments: Some(Map::new()),
                ..ToolCallPatch::default()
            })),
        },
        13 => AssistantEvent::done(DoneReason::ToolUse),
        14 => AssistantEvent::Done {
            reason: DoneReason::Stop,
            usage: Box::default(),
            message: Some(Box::new(AssistantMessage::default())),
        },
        15 => AssistantEvent::error("failed"),
        16 => AssistantEvent::Error {
            reason: ErrorReason::Aborted,
            error_message: None,
            usage: Box::default(),
            message: None,
            failure: None,
        },
        _ => return None,
    })
}

/// An answer on its way. It may pause before each event, and at its end.
pub(super) struct Answer {
    events: VecDeque<Said>,
    is_over: bool,
    pause: Pause,
    _life: Life,
    world: World,
}

impl Stream for Answer {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = &mut *self;
        this.world
            .check(!this.is_over, || "a stream is polled behind its end".to_owned());
        ready!(Pin::new(&mut this.pause).poll(cx));
        this.pause = this.world.pause();
        let said = match this.events.pop_front() {
            None => None,
            Some(None) => planted(),
            Some(event) => event,
        };
        this.is_over = said.as_ref().is_none_or(AssistantEvent::is_terminal);
        Poll::Ready(said)
    }
}

/// A tool that does what it likes.
pub(super) struct ScriptTool {
    world: World,
    name: &'static str,
    mode: Option<ExecutionMode>,
    parameters: Value,
}

impl ScriptTool {
    /// A tool that runs side by side with others.
    pub(super) fn side(world: &World) -> Self {
        Self {
            world: world.clone(),
            name: "side",
            mode: None,
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        }
    }

    /// A tool beside which no other runs.
    pub(super) fn alone(world: &World) -> Self {
        Self {
            name: "alone",
            mode: Some(ExecutionMode::Sequential),
            ..Self::side(world)
        }
    }
}

impl Tool for ScriptTool {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        self.name
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn execution_mode(&self) -> Option<ExecutionMode> {
        self.mode
    }

    fn execute(
        self: Arc<Self>,
        arguments: ValidatedArguments,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
        let world = self.world.clone();
        world.begin("a tool");
        let n = arguments.as_value().get("n");
        world.check(n.is_none_or(|n| n.is_i64() || n.is_null()), || {
            format!("a tool was given {n:?}, which is not valid")
        });
        if world.once_in(32) {
            planted();
        }
        let life = world.life();
        Box::pin(async move {
            world.begin("the work of a tool");
            let _life = life;
            world.pause().await;
            for _ in 0..world.below(3) {
                cx.progress("half");
                world.pause().await;
            }
            if world.once_in(8) {
                // Somebody else reports for it from here on, even when it is done.
                world.lock().reporters.push(cx);
            }
            match world.below(8) {
                4 => Err("failed".into()),
                5 => Ok(ToolResult::error("no")),
                6 => Ok(ToolResult::text("enough").with_terminate(true)),
                7 => planted(),
                _ => Ok(ToolResult::text("done")),
            }
        })
    }
}

/// Hooks that do what they like.
pub(super) struct ScriptHooks(pub(super) World);

impl ScriptHooks {
    /// A hook that decides only as long as the run is not aborted.
    async fn ask(&self, what: &str) -> Result<(), BoxError> {
        self.0.begin(what);
        let _life = self.0.life();
        self.0.misbehave(|| ()).await
    }
}

impl Hooks for ScriptHooks {
    async fn prepare_request(&self, request: PrepareRequest) -> Result<RequestPlan<Message>, BoxError> {
        self.ask("prepare_request").await?;
        let mut plan = request.plan;
        match self.0.below(16) {
            14 => plan.transcript = plan.transcript.iter().skip(2).cloned().collect(),
            15 => plan.execution_mode = self.0.pick(&[ExecutionMode::Parallel, ExecutionMode::Sequential]),
            _ => {}
        }
        Ok(plan)
    }

    async fn transform_context(&self, cx: RequestContext) -> Result<Transcript<Message>, BoxError> {
        self.ask("transform_context").await?;
        let skipped = self.0.below(16).saturating_sub(12);
        Ok(cx.transcript.iter().skip(skipped.into()).cloned().collect())
    }

    async fn convert_to_llm(&self, cx: RequestContext) -> Result<Messages<Message>, BoxError> {
        self.ask("convert_to_llm").await?;
        Ok(cx.transcript.request())
    }

    async fn api_key(&self, _provider: String) -> Result<Option<ApiKey>, BoxError> {
        self.ask("api_key").await?;
        Ok(None)
    }

    async fn before_tool_call(&self, _cx: CallContext) -> Result<Decision, BoxError> {
        self.ask("before_tool_call").await?;
        Ok(match self.0.below(8) {
            4 => Decision::Replace(json!({"n": 3})),
            5 => Decision::Replace(json!({"n": []})),
            6 => Decision::block("no"),
            7 => Decision::Block {
                reason: None,
                terminate: Some(true),
            },
            _ => Decision::Allow,
        })
    }

    async fn after_tool_call(&self, _outcome: CallOutcome) -> Result<ResultPatch, BoxError> {
        // Asked once more for a tool that ends by the abort.
        let _life = self.0.life();
        self.0.misbehave(|| ()).await?;
        Ok(match self.0.below(8) {
            6 => ResultPatch::keep().is_error(true),
            7 => ResultPatch::keep().terminate(true),
            _ => ResultPatch::keep(),
        })
    }

    async fn should_stop_after_turn(&self, _turn: TurnSummary) -> Result<bool, BoxError> {
        self.ask("should_stop_after_turn").await?;
        Ok(self.0.once_in(8))
    }
}
