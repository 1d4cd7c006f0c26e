//! The reference's client, and its agent, against the server of this crate.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;
use turnstate::{
    AssistantContent, AssistantEvent, AssistantMessage, CancellationToken, Cost, DoneReason, ErrorReason, Message,
    Model, PartialMessage, Request, Response, ScriptedModel, StopReason, StreamFn, ThinkingLevel, Usage,
};

use crate::http::{serve, watched};
use crate::node::{LIMIT, client, references};

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"name": "weather", "description": "The weather in a city", "parameters": parameters}])
}

fn job(scope: &str, url: &str) -> Value {
    let model = Model::new("scripted-1").with_provider("scripted", "scripted-api");
    json!({
        "scope": scope,
        "url": url,
        "token": "secret",
        "model": model,
        "context": {
            "systemPrompt": "Be brief.",
            "messages": [{"role": "user", "content": "Umbrella?", "timestamp": 1}],
            "tools": tools(),
        },
        "options": {"temperature": 0.5, "maxTokens": 64, "reasoning": "low", "sessionId": "s-1"},
    })
}

/// The events and the final message that the reference's client makes of `model`.
async fn streamed(scope: &str, model: impl StreamFn) -> (Vec<Value>, AssistantMessage) {
    let mut told = client(job(scope, &serve(model).await)).await;
    let last = told.pop().unwrap();
    (told, serde_json::from_value(last["final"].clone()).unwrap())
}

/// What the reference's client should tell of an event.
fn shown(event: &AssistantEvent) -> Value {
    let event = serde_json::to_value(event).unwrap();
    let keep = ["type", "contentIndex", "delta"];
    let kept = event
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| keep.contains(&key.as_str()));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Text, thinking, calls, usage: each event arrives, and the reference folds them as this crate does.
#[tokio::test(flavor = "multi_thread")]
async fn whole_answers() {
    let usage = Usage {
        input: 10,
        output: 5,
        cache_read: 2,
        cache_write: 1,
        total_tokens: 18,
        cost: Cost {
            input: 0.5,
            total: 0.75,
            ..Cost::default()
        },
    };
    let response = || {
        Response::new()
            .thinking("Hm.\nTwo calls.")
            .text("Let me look – «there» \u{1F327} \u{2028}.")
            .call(
                "weather",
                json!({"city": "Oslo", "more": {"deep": [true, null, "x\n\"y\""], "n": -1.5}}),
            )
            .call("weather", json!({}))
            .usage(usage)
    };
    let model = Model::new("scripted-1").with_provider("scripted", "scripted-api");
    let direct = ScriptedModel::new().reply(response());
    let events: Vec<_> = direct
        .stream(Request::new("m"), CancellationToken::new())
        .collect()
        .await;
    let mut folded = PartialMessage::new(&model, 0);
    for event in &events {
        folded.apply(event).unwrap();
    }
    let expected = folded.done(DoneReason::ToolUse, usage, None);

    for scope in references("whole_answers") {
        let behind = ScriptedModel::new().reply(response());
        let (told, message) = streamed(scope, behind.clone()).await;
        assert_eq!(told, events.iter().map(shown).collect::<Vec<_>>(), "{scope}");
        assert_eq!(message.content, expected.content, "{scope}");
        assert_eq!(
            (message.usage, message.stop_reason),
            (usage, StopReason::ToolUse),
            "{scope}"
        );

        let asked = &behind.requests()[0];
        assert_eq!(*asked.model, model, "{scope}");
        assert_eq!(&*asked.system_prompt, "Be brief.", "{scope}");
        assert_eq!(json!(asked.tools), tools(), "{scope}");
        assert_eq!(asked.messages.len(), 1, "{scope}");
        assert_eq!(asked.messages[0].text(), "Umbrella?", "{scope}");
        assert_eq!(asked.thinking_level, ThinkingLevel::Low, "{scope}");
        let options = json!({"temperature": 0.5, "maxTokens": 64, "sessionId": "s-1"});
        assert_eq!(json!(*asked.options), options, "{scope}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures() {
    let aborted = AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: Some("by the provider".into()),
        usage: Box::default(),
        message: None,
        failure: None,
    };
    let hel = || Response::new().text("Hel");
    for scope in references("failures") {
        for (response, stop_reason, error) in [
            (hel().fail("overloaded"), StopReason::Error, "overloaded"),
            (
                hel().end_early().event(aborted.clone()),
                StopReason::Aborted,
                "by the provider",
            ),
            (hel().panic("secret"), StopReason::Error, "the model's answer panicked"),
            (
                hel().end_early(),
                StopReason::Error,
                "the model's answer ended before it was complete",
            ),
        ] {
            let (told, message) = streamed(scope, ScriptedModel::new().reply(response)).await;
            assert_eq!(told.last().unwrap()["type"], "error", "{scope}");
            assert_eq!(message.content, [AssistantContent::text("Hel")], "{scope}");
            assert_eq!(
                (message.stop_reason, message.error_message.as_deref()),
                (stop_reason, Some(error)),
                "{scope}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals() {
    for scope in references("refusals") {
        let model = ScriptedModel::new().text("Hello.");
        let mut job = job(scope, &serve(model.clone()).await);
        job["token"] = json!("other");
        let told = client(job).await;
        assert_eq!(
            told.last().unwrap()["final"]["errorMessage"],
            "Proxy error: unknown token",
            "{scope}"
        );
        assert_eq!(model.requests().len(), 0, "{scope}");
    }
}

/// An abort at the reference's client cancels the model behind the server.
#[tokio::test(flavor = "multi_thread")]
async fn aborts() {
    for scope in references("aborts") {
        let (model, mut dropped) = watched(ScriptedModel::new().reply(Response::new().text("Hel").silence()));
        let mut job = job(scope, &serve(model).await);
        job["abortAt"] = json!("text_delta");
        let told = client(job).await;
        let last = &told.last().unwrap()["final"];
        assert_eq!(
            (&last["stopReason"], &last["content"][0]["text"]),
            (&json!("aborted"), &json!("Hel")),
            "{scope}"
        );
        assert_eq!(timeout(LIMIT, dropped.recv()).await.unwrap(), Some(true), "{scope}");
    }
}

/// A whole run of the reference's agent: two turns, a tool.
#[tokio::test(flavor = "multi_thread")]
async fn agent_runs() {
    for scope in references("agent_runs") {
        let model = ScriptedModel::new()
            .call("weather", json!({"city": "Oslo"}))
            .text("Take one.");
        let mut job = job(scope, &serve(model.clone()).await);
        job["prompt"] = json!("Umbrella in Oslo?");
        let told = client(job).await;
        let messages = told[0]["messages"].as_array().unwrap().iter();
        // Newer references keep prompt and tools in a message of their own.
        let messages = messages.filter(|message| message["role"] != "system");
        let messages: Vec<Message> = messages
            .map(|message| serde_json::from_value(message.clone()).unwrap())
            .collect();
        let roles: Vec<_> = messages.iter().map(Message::role).collect();
        assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"], "{scope}");
        assert_eq!(messages[2].text(), r#"{"city":"Oslo"}"#, "{scope}");
        assert_eq!(messages[3].text(), "Take one.", "{scope}");

        let asked = model.requests();
        assert_eq!(asked.len(), 2, "{scope}");
        for asked in &asked {
            assert_eq!(&*asked.system_prompt, "Be brief.", "{scope}");
            assert_eq!(json!(asked.tools), tools(), "{scope}");
        }
        let sent: Vec<_> = asked[1].messages.iter().map(|message| message.text()).collect();
        assert_eq!(sent, ["Umbrella in Oslo?", "", r#"{"city":"Oslo"}"#], "{scope}");
    }
}
