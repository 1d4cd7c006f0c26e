//! yoagent, through `agent_loop`.
//!
//! The model pushes into the loop's unbounded channel: a start, a delta per word, the end with the message. It gives way
//! after each burst, so that the loop takes what is queued; never to do so is allowed, and slower. For a turn of calls the
//! message alone is enough. The consumer is the other end of the loop's channel of events.

use std::sync::Arc;

use futures::future::join;
use peers::{BURST, Clock, NOOP, Ran, Reply, Role, Script, WORD, arguments, measure, schema};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use yoagent::agent_loop::{AgentLoopConfig, agent_loop};
use yoagent::provider::{ProviderError, StreamConfig, StreamEvent, StreamProvider};
use yoagent::{
    AgentContext, AgentMessage, AgentTool, Content, Message, StopReason, ToolContext, ToolError, ToolResult, Usage,
};

struct Model(Script);

fn answer(content: Vec<Content>, reason: StopReason) -> Message {
    Message::assistant(content, reason, "m", "p", Usage::default())
}

#[async_trait::async_trait]
impl StreamProvider for Model {
    async fn stream(
        &self,
        _: StreamConfig,
        events: UnboundedSender<StreamEvent>,
        _: CancellationToken,
    ) -> Result<Message, ProviderError> {
        // The loop has hung up if it fails, and needs nothing more.
        let _ = events.send(StreamEvent::Start);
        let message = match self.0.reply() {
            Reply::Words(n) => {
                for i in 1..=n {
                    let _ = events.send(StreamEvent::TextDelta { content_index: 0, delta: WORD.to_owned() });
                    if i % BURST == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                answer(vec![Content::Text { text: WORD.repeat(n) }], StopReason::Stop)
            }
            Reply::Calls(numbers) => {
                let calls = numbers.map(|number| Content::tool_call(number.to_string(), NOOP, arguments()));
                answer(calls.collect(), StopReason::ToolUse)
            }
        };
        let _ = events.send(StreamEvent::Done { message: message.clone() });
        Ok(message)
    }
}

struct Noop(Script);

#[async_trait::async_trait]
impl AgentTool for Noop {
    fn name(&self) -> &str {
        NOOP
    }

    fn label(&self) -> &str {
        NOOP
    }

    fn description(&self) -> &str {
        ""
    }

    fn parameters_schema(&self) -> Value {
        schema()
    }

    async fn execute(&self, _: Value, _: ToolContext) -> Result<ToolResult, ToolError> {
        self.0.called();
        Ok(ToolResult { content: vec![Content::Text { text: "ok".to_owned() }], details: Value::Null })
    }
}

async fn run(script: Script) -> Ran {
    let messages = script.backlog().map(|(role, text)| {
        AgentMessage::Llm(match role {
            Role::User => Message::user(text),
            Role::Assistant => answer(vec![Content::Text { text }], StopReason::Stop),
        })
    });
    let mut context = AgentContext {
        system_prompt: String::new(),
        messages: messages.collect(),
        tools: vec![Box::new(Noop(script.clone()))],
    };
    let prompt = vec![AgentMessage::Llm(Message::user("hi"))];
    let config = AgentLoopConfig::new(Arc::new(Model(script)), "m");
    let (sender, mut receiver) = unbounded_channel();
    let mut events = 0;
    let clock = Clock::start();
    let count = async {
        while receiver.recv().await.is_some() {
            events += 1;
        }
    };
    let (added, ()) = join(agent_loop(prompt, &mut context, &config, sender, CancellationToken::new()), count).await;
    let elapsed = clock.stop();
    let answer = match added.last() {
        Some(AgentMessage::Llm(Message::Assistant { content, .. })) => match content.first() {
            Some(Content::Text { text }) => text.len(),
            _ => 0,
        },
        _ => 0,
    };
    Ran { elapsed, events, answer }
}

fn main() {
    measure("yoagent", run);
}
