//! Whole runs of an agent, through client and server over a loopback socket.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;
use turnstate::proxy::ProxyModel;
use turnstate::{
    Agent, AgentEvent, AssistantEvent, Message, Response, ScriptedModel, StopReason, StreamFn, StreamOptions,
    ThinkingLevel, Usage, json_tool,
};

use crate::http::{serve, watched};

/// Nothing here takes long; a test that hangs shall say so.
const LIMIT: Duration = Duration::from_mins(1);

/// Two turns with tools and one without.
fn script() -> ScriptedModel {
    let usage = Usage {
        input: 10,
        output: 5,
        total_tokens: 15,
        ..Usage::default()
    };
    ScriptedModel::new()
        .reply(
            Response::new()
                .thinking("Two cities: two calls.")
                .text("Let me\nlook – «there».")
                .call("weather", json!({"city": "Oslo"}))
                .call("weather", json!({"city": ""}))
                .usage(usage),
        )
        .call("missing", json!({}))
        .reply(Response::new().text("Take an umbrella.").usage(usage))
}

fn agent(model: impl StreamFn) -> Agent {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let weather =
        json_tool("weather", "The weather in a city", parameters, async |arguments, _| {
            match arguments.as_value()["city"].as_str() {
                Some("") | None => Err("which city?"),
                Some(city) => Ok(format!("{city}: 4 °C, rain")),
            }
        });
    let mut options = StreamOptions::default();
    options.max_tokens = Some(100);
    options.session_id = Some("s-1".into());
    Agent::builder("scripted-1", model)
        .system_prompt("Be brief.")
        .tool(weather)
        .thinking_level(ThinkingLevel::Low)
        .options(options)
        .clock(|| 0)
        .build()
}

/// The events of a run, and what the agent then holds.
async fn run(agent: &Agent) -> (Vec<AgentEvent>, Vec<Message>) {
    let run = agent.prompt("Do I need an umbrella?").unwrap();
    let events = timeout(LIMIT, run.collect()).await.unwrap();
    let messages = agent
        .transcript()
        .messages()
        .iter()
        .map(|message| (**message).clone())
        .collect();
    (events, messages)
}

/// The proxy changes nothing: what the agent sees and what the model is asked are the same with it and without.
#[tokio::test]
async fn a_run_through_the_proxy_is_the_run_without_it() {
    let (direct, behind) = (script(), script());
    let url = serve(behind.clone()).await;
    let expected = run(&agent(direct.clone())).await;
    let got = run(&agent(ProxyModel::new(url, "secret").unwrap())).await;
    assert_eq!(got.0, expected.0);
    assert_eq!(got.1, expected.1);
    assert_eq!(got.1.len(), 7);

    let (asked, expected) = (behind.requests(), direct.requests());
    assert_eq!((asked.len(), expected.len()), (3, 3));
    for (asked, expected) in asked.iter().zip(&expected) {
        assert_eq!(asked.model, expected.model);
        assert_eq!(asked.system_prompt, expected.system_prompt);
        assert_eq!(asked.messages, expected.messages);
        assert_eq!(asked.thinking_level, expected.thinking_level);
        assert_eq!(asked.options, expected.options);
        assert_eq!(json!(asked.tools), json!(expected.tools));
    }
}

#[tokio::test]
async fn abort_at_the_client_reaches_the_model() {
    let (model, mut dropped) = watched(ScriptedModel::new().reply(Response::new().text("Hel").silence()));
    let agent = agent(ProxyModel::new(serve(model).await, "secret").unwrap());
    let mut run = agent.prompt("hi").unwrap();
    while let Some(event) = timeout(LIMIT, run.next()).await.unwrap() {
        if let AgentEvent::MessageUpdate {
            event: AssistantEvent::TextDelta { .. },
        } = event
        {
            agent.abort();
        }
    }
    let last = agent.transcript().messages().last().cloned().unwrap();
    let last = last.as_assistant().unwrap();
    assert_eq!((last.stop_reason, last.text().as_str()), (StopReason::Aborted, "Hel"));
    assert_eq!(timeout(LIMIT, dropped.recv()).await.unwrap(), Some(true));
}

#[tokio::test]
async fn dropping_the_run_reaches_the_model() {
    let (model, mut dropped) = watched(ScriptedModel::new().reply(Response::new().text("Hel").silence()));
    let agent = agent(ProxyModel::new(serve(model).await, "secret").unwrap());
    let mut run = agent.prompt("hi").unwrap();
    loop {
        let event = timeout(LIMIT, run.next()).await.unwrap().unwrap();
        if let AgentEvent::MessageUpdate { .. } = event {
            break;
        }
    }
    drop(run);
    assert_eq!(timeout(LIMIT, dropped.recv()).await.unwrap(), Some(true));
}

/// The model is done with at its terminal event, and not cancelled.
#[tokio::test]
async fn a_complete_answer_is_not_cancelled() {
    let (model, mut dropped) = watched(ScriptedModel::new().text("Hello."));
    let agent = agent(ProxyModel::new(serve(model).await, "secret").unwrap());
    run(&agent).await;
    assert_eq!(timeout(LIMIT, dropped.recv()).await.unwrap(), Some(false));
}

#[tokio::test]
async fn a_refusal_is_the_error_of_the_run() {
    let model = ScriptedModel::new().text("Hello.");
    let agent = agent(ProxyModel::new(serve(model.clone()).await, "other").unwrap());
    run(&agent).await;
    assert_eq!(agent.error_message().as_deref(), Some("Proxy error: unknown token"));
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_panic_of_the_model_is_the_error_of_the_run() {
    let model = ScriptedModel::new().reply(Response::new().text("Hel").panic("secret of the server"));
    let agent = agent(ProxyModel::new(serve(model).await, "secret").unwrap());
    let (_, messages) = run(&agent).await;
    assert_eq!(agent.error_message().as_deref(), Some("the model's answer panicked"));
    assert_eq!(messages[1].text(), "Hel");
}
