//! Schemas as they are found in the wild, and hostile ones: each is tolerated or refused, none panics, hangs or
//! fetches anything.
//!
//! The `cNNN` in a test's name is the case it covers.
#![cfg(feature = "jsonschema")]

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use turnstate::schema::{ArgumentsSchema, SchemaError, ValidationError};

fn check(schema: &Value, arguments: &Value) -> Result<Value, ValidationError> {
    ArgumentsSchema::compile(schema)
        .check("t", &Map::new(), arguments.clone())
        .map(|valid| valid.into_value())
}

/// Each row: a schema, arguments it accepts (and what they become), arguments it refuses.
#[track_caller]
fn assert_table(rows: Vec<(Value, Vec<(Value, Value)>, Vec<Value>)>) {
    for (schema, accepted, refused) in rows {
        if let Some(error) = ArgumentsSchema::compile(&schema).error() {
            panic!("{error}: {schema}");
        }
        for (sent, wanted) in accepted {
            let got = check(&schema, &sent).unwrap_or_else(|error| panic!("{schema}: {error}"));
            assert_eq!(got.to_string(), wanted.to_string(), "{schema}");
        }
        for sent in refused {
            assert!(check(&schema, &sent).is_err(), "{sent} for {schema}");
        }
    }
}

/// Arguments that come out as they went in.
fn same(arguments: Value) -> (Value, Value) {
    (arguments.clone(), arguments)
}

fn x(schema: Value) -> Value {
    json!({ "properties": { "x": schema } })
}

#[test]
fn unknown_types_formats_and_dialects_are_ignored() {
    assert_table(vec![
        (
            x(json!({ "type": "file" })),
            vec![same(json!({ "x": "5" })), same(json!({ "x": [1] }))],
            vec![],
        ),
        (
            x(json!({ "type": ["any", "string"] })),
            vec![same(json!({ "x": 5 }))],
            vec![],
        ),
        (
            x(json!({ "type": "string", "format": "int64" })),
            vec![same(json!({ "x": "a" }))],
            vec![],
        ),
        (
            json!({ "$schema": "https://example.com/unknown", "properties": { "x": { "type": "integer" } } }),
            vec![(json!({ "x": "5" }), json!({ "x": 5 }))],
            vec![json!({ "x": "a" })],
        ),
        (
            json!({ "$schema": "http://json-schema.org/draft-04/schema#", "id": "urn:x", "properties": { "x": { "type": "integer" } } }),
            vec![(json!({ "x": 3.0 }), json!({ "x": 3 }))],
            vec![json!({ "x": 3.5 })],
        ),
        (
            json!({ "$id": "::not a uri::", "properties": { "x": { "$id": "%%", "$schema": 7, "type": "integer" } } }),
            vec![(json!({ "x": "5" }), json!({ "x": 5 }))],
            vec![json!({ "x": "a" })],
        ),
        (
            x(json!({ "format": "email" })),
            vec![same(json!({ "x": "a@b.example" }))],
            vec![json!({ "x": "a" })],
        ),
    ]);
}

#[test]
fn draft_4_exclusive_bounds_are_mapped() {
    assert_table(vec![
        (
            x(
                json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true }),
            ),
            vec![
                same(json!({ "x": 2 })),
                (json!({ "x": "2" }), json!({ "x": 2 })),
            ],
            vec![json!({ "x": 1 }), json!({ "x": 3 }), json!({ "x": "3" })],
        ),
        (
            x(json!({ "minimum": 1, "exclusiveMinimum": false, "exclusiveMaximum": true })),
            vec![same(json!({ "x": 1 })), same(json!({ "x": 1000 }))],
            vec![json!({ "x": 0 })],
        ),
        (
            x(json!({ "exclusiveMinimum": 1 })),
            vec![same(json!({ "x": 2 }))],
            vec![json!({ "x": 1 })],
        ),
    ]);
}

#[test]
fn malformed_keywords_are_ignored_and_the_others_hold() {
    let odd = json!({
        "type": "object",
        "title": 7,
        "properties": {
            "a": { "type": "integer", "required": true, "minLength": "3", "description": null, "enum": "x" },
            "b": "string",
            "c": null,
            "d": { "anyOf": [] },
            "e": { "anyOf": [{ "type": "integer" }, 5], "maxItems": -1 },
            "f": { "properties": [], "type": "object" },
            "g": { "items": null },
            "h": { "items": [], "type": "array" },
        },
        "required": ["a", "a", 5, "b", 6],
        "additionalProperties": false,
    });
    let full =
        json!({ "a": "1", "b": 2, "c": 3, "d": 4, "e": "x", "f": { "z": 1 }, "g": [1], "h": [1] });
    let mut wanted = full.clone();
    wanted["a"] = json!(1);
    assert_table(vec![
        (
            odd,
            vec![(full, wanted)],
            vec![
                json!({ "a": "one", "b": 2 }),
                json!({ "a": 1 }),
                json!({ "b": 1 }),
                json!({ "a": 1, "b": 1, "z": 1 }),
                json!({ "a": 1, "b": 1, "f": 1 }),
            ],
        ),
        (
            json!({ "properties": { "a": { "const": "x", "properties": 5 } } }),
            vec![same(json!({ "a": "x" }))],
            vec![json!({ "a": "y" })],
        ),
    ]);
}

#[test]
fn names_that_look_like_keywords_are_names() {
    let names = json!({ "properties": {
        "$schema": { "type": "string" }, "$id": { "type": "integer" }, "$ref": { "type": "integer" },
        "items": { "type": "integer" }, "exclusiveMinimum": { "type": "boolean" }, "properties": { "type": "integer" },
        "data": { "const": { "$ref": "http://127.0.0.1:9/x", "$id": "%%", "type": "file", "items": [1] } },
    } });
    assert_table(vec![(
        names,
        vec![
            (
                json!({ "$schema": 1, "$id": "2", "$ref": "3", "items": "4", "exclusiveMinimum": 1, "properties": "5" }),
                json!({ "$schema": "1", "$id": 2, "$ref": 3, "items": 4, "exclusiveMinimum": true, "properties": 5 }),
            ),
            same(
                json!({ "data": { "$ref": "http://127.0.0.1:9/x", "$id": "%%", "type": "file", "items": [1] } }),
            ),
        ],
        vec![json!({ "data": { "$id": "%%" } }), json!({ "$ref": "x" })],
    )]);
}

#[test]
fn references_within_the_document_are_followed() {
    let integer = json!({ "type": "integer" });
    let five = || vec![(json!({ "x": "5" }), json!({ "x": 5 }))];
    let bad = || vec![json!({ "x": "a" })];
    let by = |reference: &str, more: Value| {
        let mut schema = x(json!({ "$ref": reference }));
        schema
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap());
        schema
    };
    assert_table(vec![
        (
            by("#/$defs/N", json!({ "$defs": { "N": integer } })),
            five(),
            bad(),
        ),
        (
            by(
                "#/definitions/List%3Ca%20b%3E",
                json!({ "definitions": { "List<a b>": integer } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/definitions/List<é b>",
                json!({ "definitions": { "List<é b>": integer } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/components/schemas/N",
                json!({ "components": { "schemas": { "N": { "type": "integer", "minimum": 1, "exclusiveMinimum": true } } } }),
            ),
            five(),
            vec![json!({ "x": 1 })],
        ),
        (
            by(
                "#n",
                json!({ "$defs": { "N": { "$anchor": "n", "type": "integer" } } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#n",
                json!({ "definitions": { "N": { "$id": "#n", "type": "integer" } } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "https://e.example/s.json#/$defs/N",
                json!({ "$id": "https://e.example/s.json", "$defs": { "N": integer } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/$defs/A",
                json!({ "$defs": { "A": { "$ref": "#/$defs/B" }, "B": { "$ref": "#/$defs/C" }, "C": integer } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/$defs/T/items/1",
                json!({ "$defs": { "T": { "items": [true, integer] } } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/$defs/T/items",
                json!({ "$defs": { "T": { "items": integer } } }),
            ),
            five(),
            bad(),
        ),
        (
            by(
                "#/$defs/T/additionalItems",
                json!({ "$defs": { "T": { "items": [true], "additionalItems": integer } } }),
            ),
            five(),
            bad(),
        ),
        // What stands beside a reference counts.
        (
            json!({ "properties": { "x": { "$ref": "#/$defs/N", "maximum": 5 } }, "$defs": { "N": integer } }),
            five(),
            vec![json!({ "x": 6 }), json!({ "x": "6" })],
        ),
        // A recursive type.
        (
            json!({ "$ref": "#/$defs/Node", "$defs": { "Node": {
                "properties": { "n": integer, "next": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] } },
                "required": ["n"],
            } } }),
            vec![(
                json!({ "n": "1", "next": { "n": "2", "next": null } }),
                json!({ "n": 1, "next": { "n": 2, "next": null } }),
            )],
            vec![json!({ "n": 1, "next": {} })],
        ),
        (
            json!({ "$dynamicAnchor": "node", "properties": { "n": integer, "next": { "$dynamicRef": "#node" } } }),
            vec![(
                json!({ "next": { "n": "2" } }),
                json!({ "next": { "n": 2 } }),
            )],
            vec![json!({ "next": { "n": "two" } })],
        ),
        (
            json!({ "properties": { "n": integer, "next": { "$recursiveRef": "#" } } }),
            vec![(
                json!({ "next": { "n": "2" } }),
                json!({ "next": { "n": 2 } }),
            )],
            vec![json!({ "next": { "n": "two" } })],
        ),
    ]);
}

#[test]
fn a_dangling_reference_refuses_only_what_reaches_it() {
    // Port 9 discards: a request would hang or fail, but there must be none.
    for reference in [
        "#/$defs/Gone",
        "#gone",
        "#/properties/n/type",
        "other.json",
        "http://127.0.0.1:9/s.json",
        "file:///etc/passwd",
        "::%%",
        "#/%",
        "",
    ] {
        let schema = json!({
            "properties": { "n": { "type": "integer" }, "bad": { "$ref": reference }, "list": { "items": { "$ref": reference } } },
            "anyOf": [{ "required": ["n"] }, { "$ref": reference }],
        });
        let got = check(&schema, &json!({ "n": "5", "list": [] }));
        assert_eq!(got.unwrap(), json!({ "n": 5, "list": [] }), "{reference}");
        if reference.is_empty() {
            continue; // the whole schema, which is no dangling reference
        }
        let error = check(&schema, &json!({ "n": 5, "bad": 1 }))
            .unwrap_err()
            .to_string();
        let wanted = format!(
            "  - bad: the schema's $ref {} leads nowhere\n",
            json!(reference)
        );
        assert!(error.contains(&wanted), "{error}");
    }
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
        let schema = ArgumentsSchema::compile(&schema);
        for arguments in [
            json!({ "n": "5" }),
            json!({ "n": {} }),
            json!({ "n": null }),
            json!(3.0),
        ] {
            let _ = schema.check("t", &Map::new(), arguments); // it returns
        }
    }
}

#[test]
fn c110_patterns_are_ecmascript() {
    let matches = [
        (r"^[\w\-\.\+]+$", "CC-BY-4.0", true),
        (r"^[\w\-\.\+]+$", "a b", false),
        (r"^(?!x)", "y", true),
        (r"^(?!x)", "xy", false),
        (r"(?<=a)b", "ab", true),
        (r"^(a|b)\1$", "aa", true),
        (r"^(a|b)\1$", "ab", false),
        (r"^\d+$", "42", true),
        (r"^\d+$", "٤٢", false),
        (r"^\w$", "é", false),
        (r"^(?=.)\d$", "4", true),
        (r"^(?=.)\d$", "٤", false),
        (r"^(?=.)[\d\-]$", "٤", false),
        (r"^(?=.)\w$", "é", false),
        (r"^(?=.)\W$", "é", true),
        (r"^(?=.)\D$", "٤", true),
        (r"^(?=.)\\d$", r"\d", true),
        (r"^\/tmp\/.*$", "/tmp/x", true),
        (r"^\u00e9$", "é", true),
        (r"^\p{L}+$", "é", true),
        (r"b", "abc", true),
        ("^.{2}$", "é😀", true),
    ];
    for (pattern, text, wanted) in matches {
        let schema = x(json!({ "type": "string", "pattern": pattern }));
        assert_eq!(
            check(&schema, &json!({ "x": text })).is_ok(),
            wanted,
            "{pattern} on {text}"
        );
    }
}

#[test]
fn c110_an_invalid_pattern_makes_calls_errors() {
    for schema in [
        x(json!({ "pattern": "(" })),
        json!({ "patternProperties": { "(": true } }),
        json!({ "$defs": { "n": { "pattern": "[" } }, "properties": { "x": { "$ref": "#/$defs/n" } } }),
        x(json!({ "pattern": "(a{1000}){1000}{1000}" })),
    ] {
        let error = check(&schema, &json!({ "x": "a" })).unwrap_err();
        assert!(matches!(error, ValidationError::Schema { .. }), "{error}");
    }
    let error = check(&x(json!({ "pattern": "(" })), &json!({})).unwrap_err();
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
            x(json!({ "type": "string", "pattern": pattern })),
            x(json!({ "anyOf": [{ "pattern": pattern }, { "type": "integer" }] })),
            x(
                json!({ "patternProperties": { pattern: { "type": "integer" } }, "additionalProperties": false }),
            ),
        ] {
            let start = Instant::now();
            for arguments in [json!({ "x": long }), json!({ "x": { long.as_str(): "1" } })] {
                let _ = check(&schema, &arguments);
            }
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{schema}: {:?}",
                start.elapsed()
            );
        }
    }
    let exceeded = x(json!({ "type": "string", "pattern": r"^(?=(a+)+$)" }));
    assert!(check(&exceeded, &json!({ "x": long })).is_err());
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
    let start = Instant::now();
    assert!(check(&schema, &value).is_err());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn long_lists_are_coerced_to_the_end() {
    let schema = x(json!({ "items": { "anyOf": [{ "type": "integer" }, { "type": "boolean" }] } }));
    let sent: Vec<_> = (0..20_000).map(|i| json!(i.to_string())).collect();
    let wanted: Vec<_> = (0..20_000).map(|i| json!(i)).collect();
    assert_eq!(
        check(&schema, &json!({ "x": sent })).unwrap(),
        json!({ "x": wanted })
    );
}

#[test]
fn depth_is_bounded() {
    fn nested(levels: usize, leaf: Value) -> Value {
        (0..levels).fold(leaf, |inner, _| json!({ "n": inner }))
    }
    let any = ArgumentsSchema::compile(&json!({}));
    let recursive = ArgumentsSchema::compile(&json!({ "$ref": "#/$defs/n", "$defs": {
        "n": { "allOf": [{ "anyOf": [{ "type": "integer" }, { "$ref": "#/$defs/o" }] }] },
        "o": { "properties": { "n": { "$ref": "#/$defs/n" } }, "type": "object" },
    } }));
    // Within the depth that parsing allows, the leaf is reached.
    let deepest = nested(80, json!("5"));
    let coerced = recursive.check("t", &Map::new(), deepest).unwrap();
    assert_eq!(coerced.into_value(), nested(80, json!(5)));
    for (levels, fits) in [(128, true), (129, false), (300, false)] {
        assert_eq!(
            any.check("t", &Map::new(), nested(levels, json!(1)))
                .is_ok(),
            fits,
            "{levels}"
        );
        let _ = recursive.check("t", &Map::new(), nested(levels, json!("x"))); // it returns
    }
    let original = nested(300, json!(1));
    let error = any
        .check("t", original.as_object().unwrap(), original.clone())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("root: nested more than 128 levels deep"),
        "{error}"
    );

    let deep = (0..60).fold(
        json!({ "type": "integer" }),
        |inner, _| json!({ "properties": { "n": inner } }),
    );
    assert_eq!(
        check(&deep, &nested(60, json!("5"))).unwrap(),
        nested(60, json!(5))
    );
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
