//! Schemas as they are found in the wild.

use serde_json::{Value, json};
use turnstate::schema::ArgumentsSchema;

use super::check;

/// A schema, arguments it accepts (and what they become), arguments it refuses.
type Row = (Value, Vec<(Value, Value)>, Vec<Value>);

#[track_caller]
fn assert_table(rows: Vec<Row>) {
    for (schema, accepted, refused) in rows {
        assert_eq!(ArgumentsSchema::compile(&schema).error(), None, "{schema}");
        for (sent, wanted) in accepted {
            // As text, which tells `3.0` from `3` and shows the order of the keys.
            let got = check(&schema, &sent).map(|got| got.to_string());
            assert_eq!(got, Ok(wanted.to_string()), "{sent} for {schema}");
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

/// The schema of an object whose `x` is a `schema`.
fn x(schema: &Value) -> Value {
    json!({ "properties": { "x": schema } })
}

#[test]
fn unknown_types_formats_and_dialects_are_ignored() {
    assert_table(vec![
        (
            x(&json!({ "type": "file" })),
            vec![same(json!({ "x": "5" })), same(json!({ "x": [1] }))],
            vec![],
        ),
        (
            x(&json!({ "type": ["any", "string"] })),
            vec![same(json!({ "x": 5 }))],
            vec![],
        ),
        (
            x(&json!({ "type": "string", "format": "int64" })),
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
            x(&json!({ "format": "email" })),
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
                &json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true }),
            ),
            vec![same(json!({ "x": 2 })), (json!({ "x": "2" }), json!({ "x": 2 }))],
            vec![json!({ "x": 1 }), json!({ "x": 3 }), json!({ "x": "3" })],
        ),
        (
            x(&json!({ "minimum": 1, "exclusiveMinimum": false, "exclusiveMaximum": true })),
            vec![same(json!({ "x": 1 })), same(json!({ "x": 1000 }))],
            vec![json!({ "x": 0 })],
        ),
        (
            x(&json!({ "exclusiveMinimum": 1 })),
            vec![same(json!({ "x": 2 }))],
            vec![json!({ "x": 1 })],
        ),
    ]);
}

#[test]
fn dependencies_of_older_drafts_hold() {
    let exclusive = json!({ "minimum": 1, "exclusiveMinimum": true });
    assert_table(vec![(
        json!({ "dependencies": { "a": ["b"], "c": { "properties": { "d": exclusive } } } }),
        vec![same(json!({ "a": 1, "b": 1 })), same(json!({ "c": 1, "d": 2 }))],
        vec![json!({ "a": 1 }), json!({ "c": 1, "d": 1 })],
    )]);
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
    let full = json!({ "a": "1", "b": 2, "c": 3, "d": 4, "e": "x", "f": { "z": 1 }, "g": [1], "h": [1] });
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
            same(json!({ "data": { "$ref": "http://127.0.0.1:9/x", "$id": "%%", "type": "file", "items": [1] } })),
        ],
        vec![json!({ "data": { "$id": "%%" } }), json!({ "$ref": "x" })],
    )]);
}

#[test]
fn references_within_the_document_are_followed() {
    let integer = json!({ "type": "integer" });
    let exclusive = json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true });
    let rows = [
        ("#/$defs/N", json!({ "$defs": { "N": integer } })),
        (
            "#/definitions/L%3Ca%20b%3E",
            json!({ "definitions": { "L<a b>": integer } }),
        ),
        (
            "#/definitions/L%3ca%20b%3e",
            json!({ "definitions": { "L<a b>": integer } }),
        ),
        ("#/definitions/L<é b>", json!({ "definitions": { "L<é b>": integer } })),
        ("#/components/N", json!({ "components": { "N": exclusive } })),
        // Names that mean something elsewhere.
        (
            "#/components/items/1",
            json!({ "components": { "items": [true, integer] } }),
        ),
        (
            "#/$defs/additionalItems",
            json!({ "$defs": { "additionalItems": integer } }),
        ),
        ("#n", json!({ "$defs": { "N": { "$anchor": "n", "type": "integer" } } })),
        (
            "#n",
            json!({ "definitions": { "N": { "$id": "#n", "type": "integer" } } }),
        ),
        ("urn:s#/$defs/N", json!({ "$id": "urn:s", "$defs": { "N": integer } })),
        ("urn:s#/$defs/N", json!({ "id": "urn:s#", "$defs": { "N": integer } })),
        (
            "#/$defs/A",
            json!({ "$defs": { "A": { "$ref": "#/$defs/B" }, "B": { "$ref": "#/$defs/C" }, "C": integer } }),
        ),
        ("#/$defs/T/items", json!({ "$defs": { "T": { "items": integer } } })),
        (
            "#/$defs/T/items/1",
            json!({ "$defs": { "T": { "items": [true, integer] } } }),
        ),
        (
            "#/$defs/T/additionalItems",
            json!({ "$defs": { "T": { "items": [true], "additionalItems": integer } } }),
        ),
    ];
    for (reference, rest) in rows {
        // What stands beside a reference counts too.
        let mut schema = x(&json!({ "$ref": reference, "maximum": 5 }));
        for (keyword, value) in rest.as_object().unwrap() {
            schema[keyword] = value.clone();
        }
        assert_table(vec![(
            schema,
            vec![(json!({ "x": "5" }), json!({ "x": 5 }))],
            vec![json!({ "x": "a" }), json!({ "x": 6 }), json!({ "x": "6" })],
        )]);
    }
    let schema = json!({ "components": { "N": exclusive }, "$ref": "#/components/N" });
    assert!(
        check(&schema, &json!(1)).is_err(),
        "what a reference alone leads to is normalised too"
    );
}

#[test]
fn recursive_types_are_coerced_at_every_level() {
    let integer = json!({ "type": "integer" });
    assert_table(vec![
        (
            json!({ "$ref": "#/$defs/Node", "$defs": { "Node": {
                "properties": {
                    "n": integer,
                    "next": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
                },
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
            vec![(json!({ "next": { "n": "2" } }), json!({ "next": { "n": 2 } }))],
            vec![json!({ "next": { "n": "two" } })],
        ),
        (
            json!({ "properties": { "n": integer, "next": { "$recursiveRef": "#" } } }),
            vec![(json!({ "next": { "n": "2" } }), json!({ "next": { "n": 2 } }))],
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
        let error = check(&schema, &json!({ "n": 5, "bad": 1 })).unwrap_err().to_string();
        let wanted = format!("  - bad: the schema's $ref {} leads nowhere\n", json!(reference));
        assert!(error.contains(&wanted), "{error}");
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
        let schema = x(&json!({ "type": "string", "pattern": pattern }));
        assert_eq!(
            check(&schema, &json!({ "x": text })).is_ok(),
            wanted,
            "{pattern} on {text}"
        );
    }
}
