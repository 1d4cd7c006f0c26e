//! turnstate: through `agent_loop`, and through `Agent` with a listener.
//!
//! The model is a stream that makes each event when it is polled. A call comes as its start, one delta with the arguments,
//! and its end.

use std::pin::pin;
use std::sync::Arc;

use futures::{StreamExt, stream};
use peers::{Clock, NOOP, Ran, Reply, Role, Script, WORD, arguments, measure, schema};
use turnstate::{
    Agent, AssistantContent, AssistantEvent, AssistantMessage, BoxedStream, CancellationToken, DoneReason, FnTool,
    LoopConfig, Message, Request, Transcript, agent_loop, json_tool,
};

fn model(script: Script) -> impl Fn(Request, CancellationToken) -> BoxedStream + Send + Sync {
    move |_, _| match script.reply() {
        Reply::Words(n) => {
            let words = (0..n).map(|_| AssistantEvent::text_delta(0, WORD));
            let begin = [AssistantEvent::start(), AssistantEvent::text_start(0)];
            let end = [AssistantEvent::text_end(0), AssistantEvent::done(DoneReason::Stop)];
            stream::iter(begin.into_iter().chain(words).chain(end)).boxed()
        }
        Reply::Calls(numbers) => {
            let calls = numbers.enumerate().flat_map(|(index, number)| {
                [
                    AssistantEvent::tool_call_start(index, number.to_string(), NOOP),
                    AssistantEvent::tool_call_delta(index, arguments().to_string()),
                    AssistantEvent::tool_call_end(index),
                ]
            });
            let end = [AssistantEvent::done(DoneReason::ToolUse)];
            stream::iter([AssistantEvent::start()].into_iter().chain(calls).chain(end)).boxed()
        }
    }
}

fn tool(script: &Script) -> FnTool {
    let script = script.clone();
    json_tool(NOOP, "", schema(), move |_, _| {
        script.called();
        std::future::ready("ok")
    })
}

fn transcript(script: &Script) -> Transcript<Message> {
    let messages = script.backlog().map(|(role, text)| match role {
        Role::User => Message::user(text),
        Role::Assistant => Message::from(AssistantMessage {
            content: vec![AssistantContent::text(text)],
            ..AssistantMessage::default()
        }),
    });
    messages.collect::<Vec<_>>().into()
}

async fn static_loop(script: Script) -> Ran {
    let mut config = LoopConfig::new("m");
    config.plan.tools = [tool(&script)].into_iter().collect();
    config.plan.transcript = transcript(&script);
    let prompt = vec![Arc::new(Message::user("hi"))];
    let mut events = 0;
    let clock = Clock::start();
    let mut run = pin!(agent_loop(prompt, config, model(script), ()).expect("a prompt"));
    while let Some(event) = run.next().await {
        drop(event);
        events += 1;
    }
    let elapsed = clock.stop();
    let answer = run.outcome().expect("it is over").text().len();
    Ran { elapsed, events, answer }
}

async fn agent(script: Script) -> Ran {
    let agent = Agent::builder("m", model(script.clone())).tool(tool(&script)).transcript(transcript(&script)).build();
    agent.subscribe(|event, _| {
        std::hint::black_box(event);
    });
    let mut events = 0;
    let clock = Clock::start();
    let mut run = agent.prompt("hi").expect("an idle agent");
    while let Some(event) = run.next().await {
        drop(event);
        events += 1;
    }
    let elapsed = clock.stop();
    let answer = run.await.text().len();
    Ran { elapsed, events, answer }
}

fn main() {
    measure("turnstate", static_loop);
    measure("turnstate, Agent", agent);
}
