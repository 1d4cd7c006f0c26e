//! Partial JSON: total, independent of the cuts, growing, linear.

use serde_json::{Map, Value, json};
use turnstate::partial_json::PartialArguments;

/// The first byte says how long the pieces are; the rest is the text.
pub fn partial_json(data: &[u8]) {
    let Some((size, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);

    let (mut by_char, mut shown) = (PartialArguments::new(), Map::new());
    for (at, char) in text.char_indices() {
        let before = shown.clone();
        by_char.push(char.encode_utf8(&mut [0; 4]), &mut shown);
        let may_begin = before_value(&text[..at]);
        assert!(
            grew_object(&before, &shown, may_begin),
            "{} became {} by {char:?} of {text:?}",
            json!(before),
            json!(shown)
        );
    }
    // The levels that are walked at each delta, and what an unfinished number costs.
    let bound = (depth(&json!(shown)) + 40) * text.len() as u64 + 8_192;
    assert!(by_char.steps() <= bound, "{} steps for {text:?}", by_char.steps());

    let whole = displayed([&*text]);
    let pieces = displayed(pieces(&text, usize::from(*size) + 1));
    // As text, for the order of keys counts.
    assert_eq!(json!(shown).to_string(), whole, "char by char, of {text:?}");
    assert_eq!(pieces, whole, "in pieces of {size}, of {text:?}");
}

fn displayed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let (mut arguments, mut shown) = (PartialArguments::new(), Map::new());
    for piece in pieces {
        arguments.push(piece, &mut shown);
    }
    json!(shown).to_string()
}

fn pieces(mut text: &str, size: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.ceil_char_boundary(size));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Whether a value of an object may begin behind `text`.
fn before_value(text: &str) -> bool {
    let text = text.strip_suffix('-').unwrap_or(text);
    text.trim_end_matches([' ', '\t', '\n', '\r']).ends_with(':')
}

/// Whether `new` is what `old` may have become by one more character: nothing that was shown goes away, strings and
/// containers only get longer. Except that a key may come again: then its value begins anew, as the last one.
fn grew_object(old: &Map<String, Value>, new: &Map<String, Value>, may_begin: bool) -> bool {
    let grew_entry = |(key, old): (&String, &Value)| {
        let is_last = new.keys().next_back() == Some(key);
        let begins_anew = |new| may_begin && is_last && has_just_begun(new);
        new.get(key)
            .is_some_and(|new| grew(old, new, may_begin) || begins_anew(new))
    };
    (old.len()..=old.len() + 1).contains(&new.len()) && old.iter().all(grew_entry)
}

fn grew(old: &Value, new: &Value, may_begin: bool) -> bool {
    match (old, new) {
        (Value::String(old), Value::String(new)) => new.starts_with(old.as_str()),
        (Value::Object(old), Value::Object(new)) => grew_object(old, new, may_begin),
        (Value::Array(old), Value::Array(new)) => {
            (old.len()..=old.len() + 1).contains(&new.len())
                && old.iter().zip(new).all(|(old, new)| grew(old, new, may_begin))
        }
        // More digits.
        (Value::Number(_), Value::Number(_)) => true,
        (old, new) => old == new,
    }
}

fn has_just_begun(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() < 10.0),
        Value::Bool(_) | Value::Null => true,
    }
}

/// Containers within one another.
fn depth(value: &Value) -> u64 {
    let deepest = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(entries) => entries.values().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}
