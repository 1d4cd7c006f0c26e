//! The JSON of messages, of model events and of agent events: Pi's, there and back.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use turnstate::{
    AgentEvent, AssistantEvent, AssistantMessage, Content, CustomMessage, CustomRole, DoneReason, ErrorReason, Message,
    Model, PartialMessage, ResponseHead, ToolCall, ToolCallPatch, ToolResult, Usage, UserContent,
};

/// Equal but for the spelling of numbers (0 is 0.0) and the order of keys.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

#[track_caller]
fn assert_same(got: &Value, expected: &Value) {
    assert!(same(got, expected), "\n     got: {got}\nexpected: {expected}");
}

fn message(json: &Value) -> Message {
    serde_json::from_value(json.clone()).unwrap_or_else(|error| unreachable!("{error}: {json}"))
}

/// The message of a tool call with these arguments, in JSON text.
fn call_of(arguments: &str) -> String {
    format!(r#"{{"role":"assistant","content":[{{"type":"toolCall","id":"a","name":"t","arguments":{arguments}}}]}}"#)
}

/// Collects what looks like a message, wherever it stands.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            let role = members.get("role").and_then(Value::as_str);
            if let Some("user" | "assistant" | "toolResult") = role
                && members.contains_key("timestamp")
            {
                found.push(value);
            }
            members.values().for_each(|member| collect(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

#[test]
fn every_recorded_message_goes_there_and_back() {
    let (mut count, mut roles) = (0, [0; 3]);
    for kind in ["loop", "proxy"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/conformance/fixtures")
            .join(kind);
        for file in fs::read_dir(folder).expect("the fixtures are there") {
            let text = fs::read_to_string(file.expect("a file").path()).expect("it can be read");
            let fixture: Value = serde_json::from_str(&text).expect("it is JSON");
            let mut found = Vec::new();
            collect(&fixture, &mut found);
            for json in found {
                let read = message(json);
                assert_same(&serde_json::to_value(&read).expect("a message is JSON"), json);
                count += 1;
                roles[["user", "assistant", "toolResult"]
                    .iter()
                    .position(|role| *role == read.role())
                    .expect("a role")] += 1;
            }
        }
    }
    assert!(
        count > 1_000 && roles.iter().all(|count| *count > 100),
        "{count} messages, by role {roles:?}"
    );
}

/// All fields Pi knows, in its order; it goes there and back byte by byte.
#[test]
fn a_full_message_goes_there_and_back() {
    for text in [
        r#"{"role":"user","content":"hi","timestamp":1}"#,
        r#"{"role":"user","content":[{"type":"text","text":"hi","textSignature":"s"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"timestamp":1}"#,
        concat!(
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s","redacted":true},"#,
            r#"{"type":"text","text":"hi"},{"type":"toolCall","id":"a","name":"t","arguments":{"b":1,"a":[2]},"#,
            r#""thoughtSignature":"s","argumentsError":"e"}],"api":"x","provider":"p","model":"m","responseModel":"n","#,
            r#""responseId":"r","diagnostics":[{"k":1}],"usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"#,
            r#""totalTokens":10,"cost":{"input":0.5,"output":0.25,"cacheRead":0.0,"cacheWrite":0.0,"total":0.75}},"#,
            r#""stopReason":"toolUse","errorMessage":"e","timestamp":1,"durationMs":2}"#
        ),
        concat!(
            r#"{"role":"toolResult","toolCallId":"a","toolName":"t","content":[{"type":"text","text":"x"}],"details":null,"#,
            r#""isError":true,"usage":{"input":1,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":1,"#,
            r#""cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.0}},"timestamp":1}"#
        ),
    ] {
        let message: Message = serde_json::from_str(text).expect("a message");
        assert_eq!(serde_json::to_string(&message).expect("JSON"), text);
    }
}

/// C074: what is missing or `null` has its default; what is unknown is ignored.
#[test]
fn incomplete_and_unknown_fields() {
    let zero = serde_json::to_value(Usage::default()).expect("JSON");
    let assistant = json!({
        "role": "assistant", "content": [], "api": "", "provider": "", "model": "", "usage": zero,
        "stopReason": "stop", "timestamp": 0,
    });
    let result = json!({
        "role": "toolResult", "toolCallId": "a", "toolName": "t", "content": [], "isError": false, "timestamp": 0,
    });
    for (json, expected) in [
        (json!({ "role": "assistant" }), &assistant),
        (
            json!({ "role": "assistant", "content": null, "errorMessage": null, "usage": { "input": 0 } }),
            &assistant,
        ),
        (
            json!({ "role": "assistant", "content": [], "future": { "role": "user" } }),
            &assistant,
        ),
        (
            json!({ "role": "toolResult", "toolCallId": "a", "toolName": "t" }),
            &result,
        ),
        (
            json!({ "role": "toolResult", "toolCallId": "a", "toolName": "t", "content": null, "x": 1 }),
            &result,
        ),
    ] {
        assert_same(&serde_json::to_value(message(&json)).expect("JSON"), expected);
    }
    let call: Message = serde_json::from_str(&call_of("null")).expect("a message");
    assert!(
        call.as_assistant()
            .and_then(|answer| answer.tool_calls().next())
            .expect("a call")
            .arguments
            .is_empty()
    );
    let text = json!({ "role": "user", "content": [{ "type": "text", "text": "x", "future": 1 }] });
    assert_eq!(message(&text), Message::user("x"));
}

#[test]
fn what_is_no_message_is_refused() {
    for (json, reason) in [
        (json!({ "role": "system", "content": "x" }), "unknown variant `system`"),
        (json!({ "content": "x" }), "missing field `role`"),
        (
            json!({ "role": "user", "content": 1 }),
            "a string or a list of content blocks",
        ),
        (
            json!({ "role": "user", "content": [{ "type": "video" }] }),
            "unknown variant `video`",
        ),
        (
            json!({ "role": "assistant", "stopReason": "tired" }),
            "unknown variant `tired`",
        ),
    ] {
        let error = serde_json::from_value::<Message>(json)
            .expect_err("it is no message")
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn user_content_keeps_its_form() {
    let content = |json: Value| match message(&json!({ "role": "user", "content": json })) {
        Message::User(user) => user.content,
        other => panic!("not a user message: {other:?}"),
    };
    assert_eq!(content(json!("hi")), UserContent::Text("hi".into()));
    let block = json!([{ "type": "text", "text": "hi" }]);
    assert_eq!(content(block), UserContent::Blocks(vec![Content::text("hi")]));
    assert_eq!(content(json!([])), UserContent::Blocks(vec![]));
}

/// C116: key order and all digits of the model's arguments survive.
#[test]
fn arguments_are_kept_as_the_model_wrote_them() {
    let arguments = r#"{"z":18446744073709551615,"a":-9223372036854775808,"m":{"y":1,"b":2.5},"é":"\u0000"}"#;
    let message: Message = serde_json::from_str(&call_of(arguments)).expect("a message");
    let text = serde_json::to_string(&message).expect("JSON");
    assert!(text.contains(arguments), "{text}");

    let patch = format!(r#"{{"type":"toolcall_end","contentIndex":0,"toolCall":{{"arguments":{arguments}}}}}"#);
    let event: AssistantEvent = serde_json::from_str(&patch).expect("an event");
    assert_eq!(serde_json::to_string(&event).expect("JSON"), patch);
}

#[test]
fn a_custom_message_is_its_inside() {
    #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
    #[serde(tag = "role", rename_all = "camelCase")]
    enum Own {
        Notice { text: String },
    }
    impl CustomRole for Own {
        fn role(&self) -> &'static str {
            "notice"
        }
    }
    let text = r#"[{"role":"notice","text":"saved"},{"role":"user","content":"hi","timestamp":0}]"#;
    let messages: Vec<CustomMessage<Own>> = serde_json::from_str(text).expect("two messages");
    assert_eq!(messages[0], CustomMessage::Custom(Own::Notice { text: "saved".into() }));
    assert!(matches!(messages[1], CustomMessage::Llm(_)));
    assert_eq!(serde_json::to_string(&messages).expect("JSON"), text);
}

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
