//! The client of this crate, in an agent, against a server made of the reference.

use serde_json::{Value, json};
use tokio::time::timeout;
use turnstate::proxy::ProxyModel;
use turnstate::{
    Agent, AgentEvent, AssistantContent, AssistantEvent, AssistantMessage, Message, Model, StopReason, StreamOptions,
    ThinkingLevel, json_tool,
};

use crate::node::{LIMIT, Server, references};

fn agent(url: &str, token: &str) -> Agent {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let weather = json_tool("weather", "The weather in a city", parameters, async |arguments, _| {
        format!("asked with {}", arguments.as_value())
    });
    let model = Model::new("scripted-1").with_provider("scripted", "scripted-api");
    let mut options = StreamOptions::default();
    options.max_tokens = Some(64);
    Agent::builder(model, ProxyModel::new(url, token).unwrap())
        .system_prompt("Be brief.")
        .tool(weather)
        .thinking_level(ThinkingLevel::Low)
        .options(options)
        .api_key("the app's own key")
        .clock(|| 7)
        .build()
}

/// Prompts, and gives the messages that the agent then has.
async fn prompted(agent: &Agent) -> Vec<Message> {
    timeout(LIMIT, agent.prompt("Umbrella?").unwrap()).await.unwrap();
    agent
        .transcript()
        .messages()
        .iter()
        .map(|message| (**message).clone())
        .collect()
}

/// The last message of a run against `responses`.
async fn answered(scope: &str, responses: Value) -> AssistantMessage {
    let server = Server::start(scope, responses, None).await;
    let messages = prompted(&agent(&server.url, "secret")).await;
    messages.last().unwrap().as_assistant().unwrap().clone()
}

/// Two turns: thinking, text, two calls, usage. And what is sent for them.
#[tokio::test(flavor = "multi_thread")]
async fn agent_runs() {
    let arguments = json!({"city": "Oslo", "more": {"deep": [true, null, "x\n\"y\""], "n": -1.5}});
    let responses = json!([
        {"stopReason": "toolUse", "content": [
            {"type": "thinking", "thinking": "Hm.\nTwo calls of a tool, one after the other."},
            {"type": "text", "text": "Let me look – «there» \u{1F327} \u{2028}."},
            {"type": "toolCall", "id": "c1", "name": "weather", "arguments": arguments},
            {"type": "toolCall", "id": "c2", "name": "weather", "arguments": {}},
        ]},
        {"content": "Take one."},
    ]);
    for scope in references("agent_runs") {
        let mut server = Server::start(scope, responses.clone(), None).await;
        let messages = prompted(&agent(&server.url, "secret")).await;
        let roles: Vec<_> = messages.iter().map(Message::role).collect();
        assert_eq!(
            roles,
            ["user", "assistant", "toolResult", "toolResult", "assistant"],
            "{scope}"
        );

        let first = messages[1].as_assistant().unwrap();
        let content: Vec<AssistantContent> = serde_json::from_value(responses[0]["content"].clone()).unwrap();
        assert_eq!(
            (&first.content, first.stop_reason),
            (&content, StopReason::ToolUse),
            "{scope}"
        );
        assert_eq!(
            (first.api.as_str(), first.model.as_str()),
            ("scripted-api", "scripted-1"),
            "{scope}"
        );
        assert!(
            first.usage.output > 0 && first.usage.total_tokens > first.usage.output,
            "{scope}"
        );
        assert_eq!(messages[2].text(), format!("asked with {arguments}"), "{scope}");
        assert_eq!(messages[4].text(), "Take one.", "{scope}");

        for sent in [1, 4] {
            let request = server.told("request").await;
            assert_eq!(
                (&request["method"], &request["url"]),
                (&json!("POST"), &json!("/api/stream")),
                "{scope}"
            );
            assert_eq!(request["authorization"], "Bearer secret", "{scope}");
            assert_eq!(request["contentType"], "application/json", "{scope}");
            let body = &request["body"];
            assert_eq!(body["model"]["id"], "scripted-1", "{scope}");
            assert_eq!(body["context"]["systemPrompt"], "Be brief.", "{scope}");
            assert_eq!(body["context"]["tools"][0]["name"], "weather", "{scope}");
            let messages: Vec<Message> = messages[..sent].to_vec();
            let got: Vec<Message> = serde_json::from_value(body["context"]["messages"].clone()).unwrap();
            assert_eq!(got, messages, "{scope}");
            assert_eq!(body["options"], json!({"maxTokens": 64, "reasoning": "low"}), "{scope}");
            assert!(!body.to_string().contains("the app's own key"), "{scope}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures() {
    for scope in references("failures") {
        for (reason, stop_reason) in [("error", StopReason::Error), ("aborted", StopReason::Aborted)] {
            let response = json!([{"content": "Hel", "stopReason": reason, "errorMessage": "overloaded"}]);
            let last = answered(scope, response).await;
            assert_eq!(
                (last.text().as_str(), last.stop_reason),
                ("Hel", stop_reason),
                "{scope}"
            );
            assert_eq!(last.error_message.as_deref(), Some("overloaded"), "{scope}");
        }
        let last = answered(scope, json!([{"content": "Hel", "stopReason": "length"}])).await;
        assert_eq!(
            (last.text().as_str(), last.stop_reason),
            ("Hel", StopReason::Length),
            "{scope}"
        );
        let last = answered(scope, json!([])).await;
        assert_eq!(
            last.error_message.as_deref(),
            Some("No more faux responses queued"),
            "{scope}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals() {
    for scope in references("refusals") {
        let server = Server::start(scope, json!([{"content": "Hello."}]), None).await;
        let agent = agent(&server.url, "other");
        prompted(&agent).await;
        assert_eq!(
            agent.error_message().as_deref(),
            Some("Proxy error: Unauthorized"),
            "{scope}"
        );
    }
}

/// An abort closes the connection, and keeps what has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn aborts() {
    for scope in references("aborts") {
        let mut server = Server::start(scope, json!([{"content": "Hel"}]), Some("text_delta")).await;
        let agent = agent(&server.url, "secret");
        let mut run = agent.prompt("Umbrella?").unwrap();
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
        assert_eq!(
            (last.text().as_str(), last.stop_reason),
            ("Hel", StopReason::Aborted),
            "{scope}"
        );
        server.told("request").await;
        server.told("left").await;
    }
}
