//! rpi-agent, through `run_agent_loop`.
//!
//! The model is a task that pushes into the crate's own event stream. Each event has to carry the message so far; the
//! crate's providers copy it for each delta, and so does this one (`rpi-agent`). Beside it, what the loop costs by itself:
//! events that all carry the same empty message, which the contract does not allow (`rpi-agent, shared partial`). For a turn
//! of calls the start and the end with the message are enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, FutureExt, ready};
use peers::{Clock, NOOP, Ran, Reply, Role, Script, WORD, arguments, measure, schema};
use rpi_agent::hooks::{default_convert_to_llm_fn, default_convert_to_llm_incremental_fn};
use rpi_agent::{
    AgentContext, AgentEmitter, AgentError, AgentEvent, AgentLoopConfig, AgentMessage, AgentTool, AgentToolResult,
    StreamFn, ToolExecutionMode, ToolResultPartial, run_agent_loop, stream_fn,
};
use rpi_ai::event_stream::create_assistant_message_event_stream;
use rpi_ai::{
    Api, AssistantMessage, AssistantMessageEvent as Event, CacheRetention, Content, DoneReason, Model, Schema,
    StopReason, ThinkingLevel, Tool, UserMessage,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

fn message(content: Vec<Content>, reason: StopReason) -> AssistantMessage {
    let mut message = AssistantMessage::empty(Api::Faux, "p", "m", 0);
    message.content = content;
    message.stop_reason = reason;
    message
}

fn model(script: Script, copies: bool) -> StreamFn {
    stream_fn(move |_, _, _| {
        let (mut events, stream) = create_assistant_message_event_stream();
        let script = script.clone();
        tokio::spawn(async move {
            let empty = Arc::new(message(Vec::new(), StopReason::Stop));
            let partial = |text: &str| match copies {
                true => Arc::new(message(vec![Content::text(text)], StopReason::Stop)),
                false => Arc::clone(&empty),
            };
            events.push(Event::Start { partial: Arc::clone(&empty) }).await;
            match script.reply() {
                Reply::Words(n) => {
                    let mut said = String::new();
                    events.push(Event::TextStart { content_index: 0, partial: partial(&said) }).await;
                    for _ in 0..n {
                        said.push_str(WORD);
                        let (delta, partial) = (WORD.to_owned(), partial(&said));
                        events.push(Event::TextDelta { content_index: 0, delta, partial }).await;
                    }
                    let (content, partial) = (said.clone(), partial(&said));
                    events.push(Event::TextEnd { content_index: 0, content, partial }).await;
                    let message = message(vec![Content::text(said)], StopReason::Stop);
                    events.push(Event::Done { reason: DoneReason::Stop, message }).await;
                }
                Reply::Calls(numbers) => {
                    let calls = numbers.map(|number| Content::tool_call(number.to_string(), NOOP, arguments()));
                    let message = message(calls.collect(), StopReason::ToolUse);
                    events.push(Event::Done { reason: DoneReason::ToolUse, message }).await;
                }
            }
        });
        stream
    })
}

struct Noop {
    tool: Tool,
    script: Script,
}

#[async_trait::async_trait]
impl AgentTool for Noop {
    fn schema(&self) -> &Tool {
        &self.tool
    }

    fn label(&self) -> &str {
        NOOP
    }

    async fn execute(
        &self,
        _: &str,
        _: Value,
        _: CancellationToken,
        _: Arc<dyn Fn(ToolResultPartial) + Send + Sync>,
    ) -> Result<AgentToolResult, AgentError> {
        self.script.called();
        Ok(AgentToolResult::text("ok"))
    }
}

/// Counts events.
#[derive(Default)]
struct Count(AtomicUsize);

impl AgentEmitter for Count {
    fn emit(&self, event: AgentEvent) -> BoxFuture<'static, ()> {
        self.try_emit(event);
        ready(()).boxed()
    }

    fn try_emit(&self, _: AgentEvent) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What `Agent` would use by default.
fn config() -> AgentLoopConfig {
    AgentLoopConfig {
        model: Model::new("m", "m", Api::Faux, "p", ""),
        convert_to_llm: default_convert_to_llm_fn(),
        convert_to_llm_incremental: Some(default_convert_to_llm_incremental_fn()),
        transform_context: None,
        get_api_key: None,
        should_stop_after_turn: None,
        prepare_next_turn: None,
        after_tool_results: None,
        get_steering_messages: None,
        get_follow_up_messages: None,
        before_tool_call: None,
        after_tool_call: None,
        tool_execution: ToolExecutionMode::Parallel,
        thinking_level: ThinkingLevel::Off,
        api_key: None,
        timeout: None,
        stream_idle_timeout: None,
        max_retries: None,
        max_retry_delay: None,
        cache_retention: CacheRetention::default(),
        session_id: None,
        signal: CancellationToken::new(),
    }
}

async fn run(script: Script, copies: bool) -> Ran {
    let messages = script.backlog().map(|(role, text)| match role {
        Role::User => AgentMessage::User(UserMessage::new(text, 0)),
        Role::Assistant => message(vec![Content::text(text)], StopReason::Stop).into(),
    });
    let mut context = AgentContext::new(messages.collect());
    context.tools.push(Arc::new(Noop {
        tool: Tool {
            name: NOOP.into(),
            description: String::new(),
            parameters: Schema::new(schema()),
            constrained_sampling: None,
        },
        script: script.clone(),
    }));
    let prompt = vec![AgentMessage::User(UserMessage::new("hi", 0))];
    let (config, model) = (config(), model(script, copies));
    let count = Arc::new(Count::default());
    let emitter: Arc<dyn AgentEmitter> = count.clone();
    let clock = Clock::start();
    let added = run_agent_loop(prompt, context, config, emitter, model).await.expect("a run");
    let elapsed = clock.stop();
    let last = added.last().and_then(AgentMessage::as_assistant);
    let answer = last.map_or(0, |message| Content::text_only(&message.content, "").len());
    Ran { elapsed, events: count.0.load(Ordering::Relaxed), answer }
}

fn main() {
    measure("rpi-agent", |script| run(script, true));
    measure("rpi-agent, shared partial", |script| run(script, false));
}
