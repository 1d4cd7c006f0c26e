//! What "equal" and "trimmed" mean for the recorded JSON.

use std::fmt::Display;

use serde_json::{Map, Number, Value, json};

/// The place where two values differ, as a JSON pointer; `None` if they are equal.
///
/// Numbers compare by value, the order of keys does not matter, an absent key is not `null`.
pub(crate) fn difference(expected: &Value, got: &Value) -> Option<String> {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => object_difference(expected, got),
        (Value::Array(expected), Value::Array(got)) => {
            (0..expected.len().max(got.len())).find_map(|i| member_difference(i, expected.get(i), got.get(i)))
        }
        (Value::Number(expected), Value::Number(got)) if same_number(expected, got) => None,
        _ if expected == got => None,
        _ => Some(String::new()),
    }
}

/// Whether [`difference`] finds none.
pub(crate) fn same(expected: &Value, got: &Value) -> bool {
    difference(expected, got).is_none()
}

fn object_difference(expected: &Map<String, Value>, got: &Map<String, Value>) -> Option<String> {
    let unexpected = || got.keys().find(|key| !expected.contains_key(*key));
    expected
        .iter()
        .find_map(|(key, value)| member_difference(key, Some(value), got.get(key)))
        .or_else(|| Some(format!("/{}", unexpected()?)))
}

fn member_difference(key: impl Display, expected: Option<&Value>, got: Option<&Value>) -> Option<String> {
    let below = match (expected, got) {
        (Some(expected), Some(got)) => difference(expected, got)?,
        _ => String::new(),
    };
    Some(format!("/{key}{below}"))
}

/// Integers compare as integers, because a float cannot tell large neighbours apart.
fn same_number(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

/// Removes what differs from run to run: times, and the wording of a validation error.
///
/// Trimming a trimmed value changes nothing, so that both sides of a comparison go through it.
pub(crate) fn trim(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.shift_remove("durationMs");
            for (key, member) in members {
                if key == "timestamp" && member.is_number() {
                    *member = json!(0);
                } else {
                    trim(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(trim),
        Value::String(text) if text.starts_with("Validation failed for tool") => {
            text.truncate(text.find('\n').unwrap_or(text.len()));
        }
        _ => {}
    }
}

/// An agent event as the fixtures have it: [`trim`]med, a `message_update` without its message.
pub(crate) fn trim_event(mut event: Value) -> Value {
    trim(&mut event);
    if event["type"] == "message_update" && event.get("message").is_some() {
        let content = &event["message"]["content"];
        return message_update(&event["assistantMessageEvent"], content);
    }
    event
}

/// The trimmed `message_update` for a model event, given the content of the partial message right after it.
pub(crate) fn message_update(model_event: &Value, content: &Value) -> Value {
    let kept = kept_members(model_event, &["type", "contentIndex", "delta"]);
    json!({ "type": "message_update", "assistantMessageEvent": kept, "content": content })
}

/// The object reduced to the members in `keys`.
pub(crate) fn kept_members(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let member = |key: &&str| Some(((*key).to_owned(), object.get(*key)?.clone()));
    keys.iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_value() {
        assert!(same(&json!({ "n": 0 }), &json!({ "n": 0.0 })));
        assert!(same(&json!([1e3]), &json!([1000])));
        assert!(!same(&json!(u64::MAX), &json!(u64::MAX - 1)));
        assert!(!same(&json!(1), &json!("1")));
    }

    #[test]
    fn absent_is_not_null_and_key_order_is_free() {
        assert!(same(&json!({ "a": 1, "b": 2 }), &json!({ "b": 2, "a": 1 })));
        assert_eq!(
            difference(&json!({ "a": [{}] }), &json!({ "a": [{ "b": null }] })),
            Some("/a/0/b".to_owned())
        );
        assert_eq!(difference(&json!([1, 2]), &json!([1])), Some("/1".to_owned()));
    }

    #[test]
    fn times_and_validation_details_are_trimmed() {
        let mut value = json!({
            "timestamp": 17, "durationMs": 5,
            "content": [{ "text": "Validation failed for tool \"t\":\n  - a: missing" }, { "text": "a\nb" }],
        });
        trim(&mut value);
        let trimmed = json!({
            "timestamp": 0,
            "content": [{ "text": "Validation failed for tool \"t\":" }, { "text": "a\nb" }],
        });
        assert_eq!(value, trimmed);
    }

    #[test]
    fn an_update_keeps_the_delta_and_the_content_after_it() {
        let content = json!([{ "type": "text", "text": "ab" }]);
        let trimmed = trim_event(json!({
            "type": "message_update",
            "message": { "role": "assistant", "content": content, "timestamp": 3 },
            "assistantMessageEvent": { "type": "text_delta", "contentIndex": 0, "delta": "b", "partial": {} },
        }));
        let expected = json!({
            "type": "message_update",
            "assistantMessageEvent": { "type": "text_delta", "contentIndex": 0, "delta": "b" },
            "content": content,
        });
        assert_eq!(trimmed, expected);
        assert_eq!(trim_event(trimmed), expected);
    }
}
