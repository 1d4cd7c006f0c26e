//! The JSON of messages and of the events they are folded from: read, written and read again it is the same.

use serde_json::Value;
use turnstate::{AssistantEvent, Message, Model, PartialMessage, StopReason};

/// Lines of JSON: messages, or events, which are folded one after the other.
pub fn message(data: &[u8]) {
    let mut partial = PartialMessage::new(&Model::new("m"), 0);
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(message) = serde_json::from_slice::<Message>(line) {
            check_message(&message);
        }
        if let Ok(event) = serde_json::from_slice::<AssistantEvent>(line) {
            let json = serde_json::to_value(&event).expect("an event is JSON");
            let again: AssistantEvent = serde_json::from_value(json).expect("its JSON is an event");
            assert_eq!(again, event);
            fold(&mut partial, event);
        }
    }
}

fn check_message(message: &Message) {
    let json = serde_json::to_value(message).expect("a message is JSON");
    let again: Message = serde_json::from_value(json.clone()).expect("its JSON is a message");
    assert_eq!(&again, message);
    // As text, too: there every float is read anew.
    let text = serde_json::to_string(message).expect("a message is JSON");
    let read: Value = serde_json::from_str(&text).expect("its text is JSON");
    assert!(same(&read, &json), "{text}");
}

fn fold(partial: &mut PartialMessage, event: AssistantEvent) {
    let before = partial.clone();
    if partial.apply(&event).is_err() {
        assert_eq!(*partial, before, "I7: a misfit changes nothing");
    }
    check_message(&partial.message().clone().into());
    let folded = partial.clone();
    match event {
        AssistantEvent::Done { reason, usage, message } => {
            let whole = message.is_some();
            let done = folded.done(reason, *usage, message.map(|message| *message));
            assert!(whole || done.stop_reason == StopReason::from(reason));
            check_message(&done.into());
        }
        AssistantEvent::Error {
            reason,
            error_message,
            usage,
            message,
            failure: _,
        } => {
            let broken = folded.broken(reason, error_message, *usage, message.map(|message| *message));
            assert!(broken.stop_reason.is_failure());
            check_message(&broken.into());
        }
        _ => {}
    }
}

/// Equal but for the last bits of a float that was read again.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (x, y) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a == b || (x - y).abs() <= x.abs() * 1e-12
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        (a, b) => a == b,
    }
}
