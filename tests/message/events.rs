//! The JSON of model events and of agent events.

use std::sync::Arc;

use serde_json::json;
use turnstate::{
    AgentEvent, AssistantEvent, AssistantMessage, DoneReason, ErrorReason, Message, Model, PartialMessage,
    ResponseHead, ToolCall, ToolCallPatch, ToolResult, Usage,
};

use crate::{assert_same, message};

fn head(response_id: &str) -> AssistantEvent {
    AssistantEvent::Start {
        head: Some(Box::new(ResponseHead {
            response_id: Some(response_id.into()),
            ..ResponseHead::default()
        })),
    }
}

fn error(error_message: Option<&str>, message: Option<AssistantMessage>) -> AssistantEvent {
    AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: error_message.map(str::to_owned),
        usage: Box::default(),
        message: message.map(Box::new),
        failure: None,
    }
}

/// The wire form of every kind of model event: what is read from it, and that it is what is written again.
#[test]
fn model_events() {
    let usage = serde_json::to_value(Usage::default()).expect("JSON");
    let text_end = |content_signature: Option<&str>| AssistantEvent::TextEnd {
        content_index: 0,
        content_signature: content_signature.map(str::to_owned),
    };
    let call_end = |tool_call| AssistantEvent::ToolCallEnd {
        content_index: 2,
        tool_call,
    };
    let table = [
        (json!({ "type": "start" }), AssistantEvent::start()),
        (json!({ "type": "start", "responseId": "r" }), head("r")),
        (
            json!({ "type": "start", "api": "a", "provider": "p", "model": "m", "responseModel": "n", "responseId": "r" }),
            AssistantEvent::Start {
                head: Some(Box::new(ResponseHead {
                    api: Some("a".into()),
                    provider: Some("p".into()),
                    model: Some("m".into()),
                    response_model: Some("n".into()),
                    response_id: Some("r".into()),
                })),
            },
        ),
        (
            json!({ "type": "text_start", "contentIndex": 0 }),
            AssistantEvent::TextStart { content_index: 0 },
        ),
        (
            json!({ "type": "text_delta", "contentIndex": 0, "delta": "x" }),
            AssistantEvent::text_delta(0, "x"),
        ),
        (json!({ "type": "text_end", "contentIndex": 0 }), text_end(None)),
        (
            json!({ "type": "text_end", "contentIndex": 0, "contentSignature": "s" }),
            text_end(Some("s")),
        ),
        (
            json!({ "type": "thinking_start", "contentIndex": 1 }),
            AssistantEvent::ThinkingStart { content_index: 1 },
        ),
        (
            json!({ "type": "thinking_delta", "contentIndex": 1, "delta": "x" }),
            AssistantEvent::thinking_delta(1, "x"),
        ),
        (
            json!({ "type": "thinking_end", "contentIndex": 1, "contentSignature": "s" }),
            AssistantEvent::ThinkingEnd {
                content_index: 1,
                content_signature: Some("s".into()),
            },
        ),
        (
            json!({ "type": "toolcall_start", "contentIndex": 2, "id": "a", "toolName": "t" }),
            AssistantEvent::tool_call_start(2, "a", "t"),
        ),
        (
            json!({ "type": "toolcall_delta", "contentIndex": 2, "delta": "{" }),
            AssistantEvent::tool_call_delta(2, "{"),
        ),
        (json!({ "type": "toolcall_end", "contentIndex": 2 }), call_end(None)),
        (
            json!({ "type": "toolcall_end", "contentIndex": 2, "toolCall": { "thoughtSignature": "s" } }),
            call_end(Some(Box::new(ToolCallPatch {
                thought_signature: Some("s".into()),
                ..ToolCallPatch::default()
            }))),
        ),
        (
            json!({ "type": "done", "reason": "toolUse", "usage": usage }),
            AssistantEvent::done(DoneReason::ToolUse),
        ),
        (
            json!({ "type": "error", "reason": "aborted", "errorMessage": "e", "usage": usage }),
            error(Some("e"), None),
        ),
    ];
    for (json, event) in table {
        let read: AssistantEvent = serde_json::from_value(json.clone()).expect("an event");
        assert_eq!(read, event, "{json}");
        assert_eq!(json["type"], event.kind());
        assert_same(&serde_json::to_value(&event).expect("JSON"), &json);
    }
}

/// What other senders leave out, add or name differently.
#[test]
fn model_events_of_other_senders() {
    let whole = AssistantMessage::default();
    let done = |message: Option<AssistantMessage>| AssistantEvent::Done {
        reason: DoneReason::Stop,
        usage: Box::default(),
        message: message.map(Box::new),
    };
    let partial = json!({ "role": "assistant", "content": [] });
    for (json, event) in [
        (json!({ "type": "start", "partial": partial }), AssistantEvent::start()),
        (
            json!({ "type": "text_end", "contentIndex": 0, "content": "x", "partial": partial }),
            AssistantEvent::TextEnd {
                content_index: 0,
                content_signature: None,
            },
        ),
        (
            json!({ "type": "toolcall_start", "contentIndex": 0, "partial": partial }),
            AssistantEvent::tool_call_start(0, "", ""),
        ),
        (json!({ "type": "done", "reason": "stop" }), done(None)),
        (
            json!({ "type": "done", "reason": "stop", "message": partial }),
            done(Some(whole.clone())),
        ),
        (json!({ "type": "error", "reason": "aborted" }), error(None, None)),
        (
            json!({ "type": "error", "reason": "aborted", "error": partial }),
            error(None, Some(whole)),
        ),
    ] {
        assert_eq!(
            serde_json::from_value::<AssistantEvent>(json.clone()).expect("an event"),
            event,
            "{json}"
        );
    }
    assert!(serde_json::from_value::<AssistantEvent>(json!({ "type": "weird" })).is_err());
    assert!(serde_json::from_value::<AssistantEvent>(json!({ "type": "done", "reason": "error" })).is_err());
}

/// Pi's JSON of the ten kinds of event.
#[test]
fn agent_events() {
    let user = json!({ "role": "user", "content": [{ "type": "text", "text": "go" }], "timestamp": 0 });
    let shared = Arc::new(message(&user));
    let call = Arc::new(ToolCall::new(
        "a",
        "t",
        json!({ "z": 1 }).as_object().cloned().unwrap_or_default(),
    ));
    let content = json!([{ "type": "text", "text": "x" }]);
    let table = [
        (AgentEvent::AgentStart, json!({ "type": "agent_start" })),
        (
            AgentEvent::AgentEnd {
                messages: vec![Arc::clone(&shared)].into(),
            },
            json!({ "type": "agent_end", "messages": [user] }),
        ),
        (AgentEvent::TurnStart, json!({ "type": "turn_start" })),
        (
            AgentEvent::TurnEnd {
                message: Arc::clone(&shared),
                tool_results: vec![Arc::clone(&shared)],
            },
            json!({ "type": "turn_end", "message": user, "toolResults": [user] }),
        ),
        (
            AgentEvent::MessageStart {
                message: Arc::clone(&shared),
                folded: Some(Box::new(PartialMessage::new(&Model::new("m"), 0))),
            },
            json!({ "type": "message_start", "message": user }),
        ),
        (
            AgentEvent::MessageEnd {
                message: Arc::clone(&shared),
            },
            json!({ "type": "message_end", "message": user }),
        ),
        (
            AgentEvent::ToolExecutionStart {
                index: 3,
                call: Arc::clone(&call),
            },
            json!({ "type": "tool_execution_start", "toolCallId": "a", "toolName": "t", "args": { "z": 1 } }),
        ),
        (
            AgentEvent::ToolExecutionUpdate {
                index: 3,
                call: Arc::clone(&call),
                partial_result: Box::new("x".into()),
            },
            json!({
                "type": "tool_execution_update", "toolCallId": "a", "toolName": "t", "args": { "z": 1 },
                "partialResult": { "content": content, "details": {} },
            }),
        ),
        (
            AgentEvent::ToolExecutionEnd {
                index: 3,
                call,
                result: Arc::new(ToolResult::error("x").with_terminate(false)),
            },
            json!({
                "type": "tool_execution_end", "toolCallId": "a", "toolName": "t",
                "result": { "content": content, "details": {}, "terminate": false }, "isError": true,
            }),
        ),
    ];
    for (event, json) in table {
        assert_eq!(json["type"], event.kind());
        assert_same(&serde_json::to_value(event.json(None)).expect("JSON"), &json);
    }
}

/// The tenth kind, `message_update`, with the message so far in it: Pi's in-process form of each model event.
#[test]
fn message_updates() {
    let call_start = AssistantEvent::tool_call_start(2, "a", "t");
    let steps = [
        (
            AssistantEvent::ThinkingStart { content_index: 0 },
            json!({ "type": "thinking_start", "contentIndex": 0 }),
        ),
        (
            AssistantEvent::thinking_delta(0, "hm"),
            json!({ "type": "thinking_delta", "contentIndex": 0, "delta": "hm" }),
        ),
        (
            AssistantEvent::ThinkingEnd {
                content_index: 0,
                content_signature: Some("s".into()),
            },
            json!({ "type": "thinking_end", "contentIndex": 0, "content": "hm" }),
        ),
        (
            AssistantEvent::TextStart { content_index: 1 },
            json!({ "type": "text_start", "contentIndex": 1 }),
        ),
        (
            AssistantEvent::text_delta(1, "x"),
            json!({ "type": "text_delta", "contentIndex": 1, "delta": "x" }),
        ),
        (
            AssistantEvent::TextEnd {
                content_index: 1,
                content_signature: None,
            },
            json!({ "type": "text_end", "contentIndex": 1, "content": "x" }),
        ),
        (call_start, json!({ "type": "toolcall_start", "contentIndex": 2 })),
        (
            AssistantEvent::tool_call_delta(2, r#"{"n":1"#),
            json!({ "type": "toolcall_delta", "contentIndex": 2, "delta": r#"{"n":1"# }),
        ),
        (
            AssistantEvent::tool_call_delta(2, "}"),
            json!({ "type": "toolcall_delta", "contentIndex": 2, "delta": "}" }),
        ),
        (
            AssistantEvent::ToolCallEnd {
                content_index: 2,
                tool_call: None,
            },
            json!({
                "type": "toolcall_end", "contentIndex": 2,
                "toolCall": { "type": "toolCall", "id": "a", "name": "t", "arguments": { "n": 1 } },
            }),
        ),
    ];
    let mut partial = PartialMessage::new(&Model::new("m").with_provider("p", "x"), 9);
    for (event, mut expected) in steps {
        partial.apply(&event).expect("it fits");
        let so_far = serde_json::to_value(partial.message()).expect("JSON");
        expected["partial"] = so_far.clone();
        let update = AgentEvent::<Message>::MessageUpdate { event };
        let json = serde_json::to_value(update.json(Some(partial.message()))).expect("JSON");
        let expected = json!({ "type": "message_update", "message": so_far, "assistantMessageEvent": expected });
        assert_same(&json, &expected);
    }
    assert_same(
        &serde_json::to_value(partial.message()).expect("JSON")["content"],
        &json!([
            { "type": "thinking", "thinking": "hm", "thinkingSignature": "s" },
            { "type": "text", "text": "x" },
            { "type": "toolCall", "id": "a", "name": "t", "arguments": { "n": 1 } },
        ]),
    );
}
