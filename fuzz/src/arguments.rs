//! The strict parse of a call's arguments: what it accepts, and what it makes of it.

use serde_json::{Map, Value, json};
use turnstate::partial_json::{ArgumentsError, PartialArguments, parse_arguments, quote_arguments};

/// The first byte says where the text is cut off for a second look; the rest is the text.
pub fn arguments(data: &[u8]) {
    let Some((cut, text)) = data.split_first() else { return };
    let text = &*String::from_utf8_lossy(text);
    let strict = parse_arguments(text);
    assert_eq!(strict, expected(text, &strict), "of {text:?}");
    match &strict {
        Ok(strict) => {
            // What runs is what was shown. (The display may have another order, where a key came twice.)
            assert_eq!(strict, &displayed(text), "of {text:?}");
            // A prefix of a command is a different command.
            let cut = text.floor_char_boundary(usize::from(*cut));
            let (head, tail) = text.split_at(cut);
            if !tail.trim().is_empty() && !is_blank(head) {
                assert!(parse_arguments(head).is_err(), "{head:?} of {text:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(quote_arguments(text).chars().count() <= 2_000 + 40);
}

/// What `serde_json` makes of it; and where `serde_json` refuses it, of the text without what stands in its strings,
/// which is all that is repaired.
fn expected(
    text: &str,
    strict: &Result<Map<String, Value>, ArgumentsError>,
) -> Result<Map<String, Value>, ArgumentsError> {
    if is_blank(text) {
        return Ok(Map::new());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => {
            // In the same order, too.
            let strict = strict.as_ref().map(|strict| json!(strict).to_string());
            assert_eq!(strict, Ok(json!(object).to_string()), "the order of {text:?}");
            Ok(object)
        }
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => {
            assert!(matches!(strict, Err(ArgumentsError::NotAnObject { .. })), "of {text:?}");
            strict.clone()
        }
        Err(_) => {
            let is_json = serde_json::from_str::<Value>(&without_strings(text)).is_ok();
            let refused = matches!(strict, Err(ArgumentsError::NotJson { .. }));
            assert_eq!(refused, !is_json, "{strict:?} of {text:?}");
            strict.clone()
        }
    }
}

/// Whether it says nothing. A byte order mark may stand before it, but not two.
fn is_blank(text: &str) -> bool {
    text.strip_prefix('\u{feff}').unwrap_or(text).trim().is_empty()
}

/// The text with all its strings empty; an open one stays open.
fn without_strings(text: &str) -> String {
    let mut skeleton = String::new();
    let (mut in_string, mut escaped) = (false, false);
    for char in text.chars() {
        if !in_string || (char == '"' && !escaped) {
            skeleton.push(char);
        }
        in_string ^= char == '"' && !escaped;
        escaped = in_string && char == '\\' && !escaped;
    }
    skeleton
}

fn displayed(text: &str) -> Map<String, Value> {
    let mut shown = Map::new();
    PartialArguments::new().push(text, &mut shown);
    shown
}
