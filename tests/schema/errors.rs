//! What the model is told.

use serde_json::{Map, Value, json};
use turnstate::schema::ArgumentsSchema;

use super::{check, problems};

#[test]
fn c112_error_text() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a/b": { "type": "integer" },
            "c~d": { "type": "integer" },
            "edits": { "type": "array", "items": { "properties": { "x": { "type": "integer" } }, "required": ["y"] } },
        },
        "required": ["path", "mode"],
        "additionalProperties": false,
    });
    let sent = json!({ "zz": "1", "edits": [{ "x": "one" }], "c~d": {}, "a/b": "?" });
    let error = check(&schema, &sent).unwrap_err();
    let text = error.to_string();
    let (bullets, received) = text
        .strip_prefix("Validation failed for tool \"t\":\n")
        .and_then(|rest| rest.split_once("\n\nReceived arguments:\n"))
        .unwrap_or_else(|| panic!("{text}"));
    let mut bullets: Vec<_> = bullets.lines().collect();
    bullets.sort_unstable();
    assert_eq!(
        bullets,
        [
            r#"  - a/b: "?" is not of type "integer""#,
            r#"  - c~d: {} is not of type "integer""#,
            r#"  - edits.0.x: "one" is not of type "integer""#,
            r#"  - edits.0.y: "y" is a required property"#,
            r#"  - mode: "mode" is a required property"#,
            r#"  - path: "path" is a required property"#,
            "  - root: Additional properties are not allowed ('zz' was unexpected)",
        ]
    );
    // As the model sent them: its order, nothing coerced.
    assert_eq!(received, serde_json::to_string_pretty(&sent).unwrap());
    assert!(received.starts_with("{\n  \"zz\": \"1\",\n"), "{received}");
}

/// What is coerced and still refused is refused as what it was coerced to: `"3"` was no fault.
#[test]
fn c112_error_text_of_what_was_coerced() {
    let schema = json!({ "properties": { "n": { "type": "integer", "minimum": 5 } } });
    assert_eq!(
        problems(&schema, &json!({ "n": "3" })),
        ["n: 3 is less than the minimum of 5"]
    );
}

#[test]
fn c112_error_text_of_unions() {
    let branches = json!([{ "type": "integer" }, { "type": "number" }, { "type": "null" }]);
    let schema = json!({
        "properties": {
            "any": { "anyOf": branches },
            "one": { "$ref": "#/$defs/One<a b>~1~0" },
            "no": { "not": { "anyOf": branches } },
            "list": { "items": { "anyOf": [{ "$ref": "#/properties/any" }, { "type": "boolean" }] } },
        },
        "$defs": { "One<a b>/~": { "oneOf": branches } },
    });
    let (long, huge) = ("x".repeat(200), "x".repeat(1000));
    for (sent, wanted) in [
        // Only what is wrong is told, also of a union within another keyword.
        (
            json!({ "one": null, "any": "x" }),
            r#"any: "x" matches none of the 3 alternatives"#,
        ),
        (
            json!({ "any": 1, "no": "x", "one": [] }),
            "one: [] matches none of the 3 alternatives",
        ),
        (
            json!({ "no": 1.5 }),
            r#"no: {"anyOf":[{"type":"integer"},{"type":"number"},{"type":"null"}]} is not allowed for 1.5"#,
        ),
        (json!({ "any": "x" }), r#"any: "x" matches none of the 3 alternatives"#),
        (
            json!({ "one": 1 }),
            "one: 1 matches 2 of the 3 alternatives, not exactly one",
        ),
        (json!({ "one": [] }), "one: [] matches none of the 3 alternatives"),
        (
            json!({ "one": long }),
            "one: the value matches none of the 3 alternatives",
        ),
        (
            json!({ "one": huge }),
            "one: the value matches none of the 3 alternatives",
        ),
        (
            json!({ "list": [1, null, "x"] }),
            r#"list.2: "x" matches none of the 2 alternatives"#,
        ),
    ] {
        assert_eq!(problems(&schema, &sent), [wanted]);
    }
}

#[test]
fn c112_error_text_quotes_the_models_arguments_not_the_prepared_ones() {
    let schema = ArgumentsSchema::compile(&json!({ "required": ["a"], "properties": { "b": { "type": "integer" } } }));
    let original = json!({ "B": "1" });
    let error = schema
        .check("t", original.as_object().unwrap(), json!({ "b": "1" }))
        .unwrap_err();
    assert!(
        error.to_string().ends_with("Received arguments:\n{\n  \"B\": \"1\"\n}"),
        "{error}"
    );
}

#[test]
fn c112_error_text_is_bounded() {
    let schema = json!({ "additionalProperties": { "type": "integer" } });
    let huge = "é".repeat(100_000);
    let text = problems(&schema, &json!({ "a": huge }));
    assert_eq!(text, [r#"a: the value is not of type "integer""#]);

    let many: Map<_, _> = (0..50).map(|i| (format!("k{i}"), json!("x"))).collect();
    let error = check(&schema, &Value::Object(many)).unwrap_err().to_string();
    assert_eq!(error.matches("is not of type").count(), 20, "{error}");
    assert!(error.contains("\n  … and 30 more\n\nReceived"), "{error}");

    let closed = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    assert_eq!(
        problems(&closed, &json!({ "a": 1, "b": 2 })),
        ["root: Additional properties are not allowed ('a', 'b' were unexpected)"]
    );
    let names: Map<_, _> = (0..50).map(|i| ("é".repeat(100 + i), json!(1))).collect();
    let text = problems(&json!({ "additionalProperties": false }), &Value::Object(names));
    assert!(text[0].len() < 320 && text[0].ends_with('…'), "{text:?}");
}

#[test]
fn c115_any_shape_from_preparation_is_checked() {
    let schema = ArgumentsSchema::compile(&json!({ "type": "object" }));
    for prepared in [json!([1]), json!("text"), json!(7), json!(true)] {
        let error = schema
            .check("t", &Map::new(), prepared.clone())
            .unwrap_err()
            .to_string();
        assert!(error.contains("  - root: "), "{error}");
        assert!(error.ends_with("Received arguments:\n{}"), "{error}");
    }
}
