//! Schemas and values that are broken or made to hurt: they are refused, none panics or hangs.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};
use turnstate::schema::{ArgumentsSchema, SchemaError, ValidationError};

use super::check;

/// What `work` gives, which has to come at all: taking for ever fails the test instead of hanging it.
pub(crate) fn returned<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (give, given) = mpsc::channel();
    thread::spawn(move || give.send(work()));
    given.recv_timeout(Duration::from_secs(10)).expect("it returns")
}

/// The schema of an object whose `x` is a `schema`.
fn x(schema: &Value) -> Value {
    json!({ "properties": { "x": schema } })
}

#[test]
fn c110_an_invalid_pattern_makes_calls_errors() {
    for schema in [
        x(&json!({ "pattern": "(" })),
        json!({ "patternProperties": { "(": true } }),
        json!({ "$defs": { "n": { "pattern": "[" } }, "properties": { "x": { "$ref": "#/$defs/n" } } }),
        x(&json!({ "pattern": "(a{1000}){1000}{1000}" })),
    ] {
        let error = check(&schema, &json!({ "x": "a" })).unwrap_err();
        assert!(matches!(error, ValidationError::Schema { .. }), "{error}");
    }
    let error = check(&x(&json!({ "pattern": "(" })), &json!({})).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Invalid schema for tool "t": properties.x.pattern: "(" is not a "regex""#
    );
}

#[test]
fn c110_catastrophic_patterns_are_bounded() {
    let long = "a".repeat(60) + "!";
    for pattern in [
        "(a+)+$",
        "^(?=(a+)+$)",
        r"^(a+)+\1$",
        "^(?:(?=a)a*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ] {
        for schema in [
            x(&json!({ "type": "string", "pattern": pattern })),
            x(&json!({ "anyOf": [{ "pattern": pattern }, { "type": "integer" }] })),
            x(&json!({ "patternProperties": { pattern: { "type": "integer" } }, "additionalProperties": false })),
        ] {
            for arguments in [json!({ "x": long }), json!({ "x": { long.as_str(): "1" } })] {
                let schema = schema.clone();
                let _ = returned(move || check(&schema, &arguments));
            }
        }
    }
    let exceeded = x(&json!({ "type": "string", "pattern": r"^(?=(a+)+$)" }));
    assert!(check(&exceeded, &json!({ "x": long })).is_err());
}

#[test]
fn cycles_of_references_end() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }], "properties": { "n": { "type": "integer" } } }),
        json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#" }], "properties": { "n": { "type": "integer" } } }),
        json!({ "oneOf": [{ "$ref": "#" }] }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "properties": { "n": { "$ref": "#/properties/n" } } }),
        json!({ "not": { "$ref": "#" } }),
        json!({ "additionalProperties": { "$ref": "#" }, "type": ["object", "integer"] }),
    ] {
        returned(move || {
            let schema = ArgumentsSchema::compile(&schema);
            for arguments in [
                json!({ "n": "5" }),
                json!({ "n": {} }),
                json!({ "n": null }),
                json!(3.0),
            ] {
                let _ = schema.check("t", &Map::new(), arguments);
            }
        });
    }
}

#[test]
fn ambiguous_unions_do_not_take_exponential_time() {
    // Two branches that differ in what they say of the leaf only: each level doubles the ways to coerce.
    let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "anyOf": [
        { "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } }, "required": ["a"] },
        { "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } }, "required": ["b"] },
        { "type": "integer" },
    ] } } });
    let mut value = json!("x");
    for _ in 0..100 {
        value = json!({ "n": value, "a": 1, "b": 1 });
    }
    assert!(returned(move || check(&schema, &value)).is_err());
}

#[test]
fn long_lists_are_coerced_to_the_end() {
    let schema = x(&json!({ "items": { "anyOf": [{ "type": "integer" }, { "type": "boolean" }] } }));
    let sent: Vec<_> = (0..20_000).map(|i| json!(i.to_string())).collect();
    let wanted: Vec<_> = (0..20_000).map(|i| json!(i)).collect();
    assert_eq!(check(&schema, &json!({ "x": sent })).unwrap(), json!({ "x": wanted }));
}

#[test]
fn depth_is_bounded() {
    fn nested(levels: usize, leaf: Value) -> Value {
        (0..levels).fold(leaf, |inner, _| json!({ "n": inner }))
    }
    let any = ArgumentsSchema::compile(&json!({}));
    let list = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let recursive = ArgumentsSchema::compile(&json!({ "$ref": "#/$defs/n", "$defs": {
        "n": { "allOf": [{ "anyOf": [{ "type": "integer" }, { "$ref": "#/$defs/o" }] }] },
        "o": { "properties": { "n": { "$ref": "#/$defs/n" } }, "type": "object" },
    } }));
    // Within the depth that parsing allows, the leaf is reached.
    let deepest = nested(80, json!("5"));
    let coerced = recursive.check("t", &Map::new(), deepest).unwrap();
    assert_eq!(coerced.into_value(), nested(80, json!(5)));
    for (levels, fits) in [(128, true), (129, false), (300, false)] {
        for arguments in [nested(levels, json!(1)), list(levels)] {
            assert_eq!(any.check("t", &Map::new(), arguments).is_ok(), fits, "{levels}");
        }
        let _ = recursive.check("t", &Map::new(), nested(levels, json!("x"))); // it returns
    }
    let original = nested(300, json!(1));
    let error = any
        .check("t", original.as_object().unwrap(), original.clone())
        .unwrap_err();
    assert!(
        error.to_string().contains("root: nested more than 128 levels deep"),
        "{error}"
    );

    let deep = (0..60).fold(
        json!({ "type": "integer" }),
        |inner, _| json!({ "properties": { "n": inner } }),
    );
    assert_eq!(check(&deep, &nested(60, json!("5"))).unwrap(), nested(60, json!(5)));
    let too_deep = (0..1000).fold(json!({}), |inner, _| json!({ "not": inner }));
    assert_eq!(
        ArgumentsSchema::compile(&too_deep).error(),
        Some(&SchemaError::TooDeep { limit: 128 })
    );
}

#[test]
fn what_is_no_schema_makes_calls_errors() {
    for schema in [json!(null), json!("object"), json!([]), json!(1)] {
        let error = check(&schema, &json!({})).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"Invalid schema for tool "t": a JSON Schema is an object or a boolean"#
        );
    }
    assert!(check(&json!(false), &json!({})).is_err());
}
