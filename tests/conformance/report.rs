//! What a failed comparison prints.

use serde_json::Value;

use crate::json::difference;

/// How many entries around a mismatch are shown.
const CONTEXT: usize = 3;

/// How many characters of an entry around a mismatch are shown.
const SHORT: usize = 140;

/// The report of two values that differ, `None` if they are equal.
pub(crate) fn value_mismatch(what: &str, expected: &Value, got: &Value) -> Option<String> {
    let place = difference(expected, got)?;
    Some(format!(
        "{what} differs at `{place}`\n  expected {expected}\n  got      {got}"
    ))
}

/// The report of two lists that differ first at `index`.
pub(crate) fn list_mismatch(what: &str, index: usize, expected: &[Value], got: &[Value]) -> String {
    let (one, other) = (expected.get(index), got.get(index));
    let place = match (one, other) {
        (Some(one), Some(other)) => difference(one, other),
        _ => None,
    };
    let place = place.map_or_else(String::new, |place| format!(" at `{place}`"));
    let mut lines = vec![
        format!(
            "{what}[{index}] differs{place} ({} expected, {} got)",
            expected.len(),
            got.len()
        ),
        format!("  expected {}", entry(one)),
        format!("  got      {}", entry(other)),
    ];
    for (title, list) in [("expected", expected), ("got", got)] {
        lines.push(format!("  around it, {title}:"));
        let from = index.saturating_sub(CONTEXT);
        let around = list.iter().enumerate().skip(from).take(2 * CONTEXT + 1);
        lines.extend(around.map(|(i, value)| {
            let mark = if i == index { '>' } else { ' ' };
            format!("  {mark} {i:4} {}", shortened(value))
        }));
    }
    lines.join("\n")
}

fn entry(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
