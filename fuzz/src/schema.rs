//! Coercion and validation: never panics, gives what is valid, is idempotent, leaves a valid value as it is.

use serde_json::{Map, Value, json};
use turnstate::schema::ArgumentsSchema;

use super::integral::integral;
use super::tape::Tape;

/// A JSON text `[schema, arguments]`, or else a tape by which both are made.
pub fn schema(data: &[u8]) {
    if let Ok((schema, value)) = serde_json::from_slice::<(Value, Value)>(data) {
        check(&schema, &value);
        return;
    }
    let mut tape = Tape(data);
    let (schema, value) = (whole(&mut tape), any_value(&mut tape, 4));
    let compiled = check(&schema, &value);
    assert!(compiled.error().is_none(), "{schema}: {:?}", compiled.error());
    let checked = compiled.check("t", &Map::new(), value.clone());
    if !value.is_null() && jsonschema::is_valid(&schema, &value) {
        let checked = checked.as_ref().map(|checked| integral(checked.as_value()).to_string());
        assert_eq!(checked, Ok(integral(&value).to_string()), "valid by {schema}");
    }
    if let Ok(checked) = checked {
        let checked = checked.as_value();
        assert!(
            jsonschema::is_valid(&schema, checked),
            "{value} became {checked} by {schema}"
        );
    }
}

fn check(schema: &Value, value: &Value) -> ArgumentsSchema {
    let compiled = ArgumentsSchema::compile(schema);
    let first = compiled.check("t", &Map::new(), value.clone());
    assert!(compiled.error().is_none() || first.is_err());
    match first {
        Ok(first) => {
            let first = first.into_value();
            let second = compiled.check("t", &Map::new(), first.clone());
            let second = second.map(|second| second.as_value().to_string());
            assert_eq!(second, Ok(first.to_string()), "{value} by {schema}");
        }
        Err(_) if compiled.error().is_some() => {}
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("Validation failed for tool \"t\":\n  - "), "{text}");
        }
    }
    compiled
}

const SCALARS: &[&str] = &[
    "null",
    "true",
    "0",
    "1",
    "3.0",
    "-0.0",
    "2.5",
    "1e300",
    "18446744073709551615",
    "\"true\"",
    "\"5\"",
    "\"3.0\"",
    "\" 7 \"",
    "\"x\"",
    "\"\"",
    "\"nan\"",
    "\"0x1f\"",
    "false",
    "-1",
];
const NAMES: &[&str] = &["a", "b", "c/~d"];
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "null", "object", "array"];

fn any_value(tape: &mut Tape<'_>, depth: u8) -> Value {
    match tape.below(4) {
        2 if depth > 0 => (0..tape.below(4)).map(|_| any_value(tape, depth - 1)).collect(),
        3 if depth > 0 => entries(tape, |tape| any_value(tape, depth - 1)),
        _ => serde_json::from_str(tape.pick(SCALARS)).expect("it is JSON"),
    }
}

fn entries(tape: &mut Tape<'_>, mut value: impl FnMut(&mut Tape<'_>) -> Value) -> Value {
    let entries = (0..tape.below(4)).map(|_| (tape.pick(NAMES).to_owned(), value(tape)));
    Value::Object(entries.collect())
}

/// A well-formed schema, whose definitions refer to each other and to the whole.
fn whole(tape: &mut Tape<'_>) -> Value {
    let (a, b, whole) = (part(tape, 3), part(tape, 3), part(tape, 3));
    let mut whole = if whole.is_object() { whole } else { json!({}) };
    whole["$defs"] = json!({ "a": a, "b": b });
    whole
}

fn part(tape: &mut Tape<'_>, depth: u8) -> Value {
    if depth == 0 || tape.once_in(3) {
        return match tape.below(6) {
            0 | 1 => json!({ "type": tape.pick(TYPES) }),
            2 => json!({ "$ref": tape.pick(&["#/$defs/a", "#/$defs/b", "#"]) }),
            3 => json!({ "enum": [any_value(tape, 0), 1, "5"] }),
            4 => json!({ "type": ["integer", "string"], "minimum": 2 }),
            _ => Value::from(tape.once_in(2)),
        };
    }
    let depth = depth - 1;
    match tape.below(8) {
        0 | 1 => json!({
            "type": "object", "properties": entries(tape, |tape| part(tape, depth)),
            "required": [tape.pick(NAMES)], "additionalProperties": part(tape, depth),
        }),
        2 => json!({ "patternProperties": { "^[ab]$": part(tape, depth) } }),
        3 => json!({ "type": "array", "items": part(tape, depth) }),
        4 => json!({ "anyOf": [part(tape, depth), part(tape, depth)] }),
        5 => json!({ "oneOf": [part(tape, depth), part(tape, depth)] }),
        6 => json!({ "allOf": [part(tape, depth), part(tape, depth)] }),
        _ => json!({ "prefixItems": [part(tape, depth)], "items": part(tape, depth), "not": part(tape, depth) }),
    }
}
