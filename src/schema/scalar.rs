//! Turning one scalar into another, as JavaScript's `Number()` and `String()` do, but never into a wrong value.

use serde_json::{Number, Value};

/// `value` turned into a `wanted` of JSON Schema's types, if it can be read as one.
pub(super) fn convert(value: &Value, wanted: &str) -> Option<Value> {
    match wanted {
        "number" => number(value).map(Value::Number),
        "integer" => number(value).filter(|number| !number.is_f64()).map(Value::Number),
        "boolean" => boolean(value).map(Value::Bool),
        "string" => string(value).map(Value::String),
        _ => None,
    }
}

/// Whether `value` is of the type `wanted` already; no for a type that [`convert`] does not make.
pub(super) fn is_already(value: &Value, wanted: &str) -> bool {
    match wanted {
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => match value {
            Value::Number(number) => number.as_f64().is_some_and(|float| float.fract() == 0.0),
            _ => false,
        },
        "string" => value.is_string(),
        _ => false,
    }
}

/// The integer that `number` equals, if it is written as a float.
pub(super) fn integral_float(number: &Number) -> Option<Number> {
    number.as_f64().filter(|_| number.is_f64()).and_then(integer)
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(flag) => Some(Number::from(u8::from(*flag))),
        Value::String(text) => parse(text),
        _ => None,
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::String(text) => text.parse().ok(), // exactly `true` or `false`
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

fn string(value: &Value) -> Option<String> {
    match value {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(print(number)),
        _ => None,
    }
}

/// Reads a number as JavaScript does. Integers keep all their digits up to `u64` and `i64`.
///
/// `f64::from_str` alone would take `nan`, `inf` and their kin.
fn parse(text: &str) -> Option<Number> {
    // JavaScript's white space has the byte order mark and lacks the next-line control.
    let text = text.trim_matches(|c: char| c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}'));
    if let Some((radix, digits)) = prefixed(text) {
        let digits = Some(digits).filter(|digits| !digits.starts_with('+'))?;
        return u64::from_str_radix(digits, radix).ok().map(Number::from);
    }
    if !text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
    {
        return None;
    }
    if let Some(number) = decimal_integer(text) {
        return Some(number);
    }
    let float: f64 = text.parse().ok()?;
    integer(float).or_else(|| Number::from_f64(float))
}

fn prefixed(text: &str) -> Option<(u32, &str)> {
    let (prefix, digits) = text.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" => Some((16, digits)),
        "0o" | "0O" => Some((8, digits)),
        "0b" | "0B" => Some((2, digits)),
        _ => None,
    }
}

fn decimal_integer(text: &str) -> Option<Number> {
    let unsigned = text.parse::<u64>().ok().map(Number::from);
    unsigned.or_else(|| text.parse::<i64>().ok().map(Number::from))
}

/// The integer equal to `float`, if there is one that fits.
fn integer(float: f64) -> Option<Number> {
    if float.fract() != 0.0 {
        return None;
    }
    decimal_integer(&format!("{float:.0}"))
}

/// Writes a number as JavaScript does: no `.0`, and exponents only for the very large and the very small.
fn print(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let magnitude = float.abs();
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&magnitude) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}
