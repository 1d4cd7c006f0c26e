//! The JSON of messages, of model events and of agent events: Pi's, there and back.

mod events;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use turnstate::{AssistantEvent, Content, CustomMessage, CustomRole, Message, Usage, UserContent};

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
