//! What the tool gets of what the model sends.

use serde_json::{Map, Value, json};
use turnstate::schema::ArgumentsSchema;

use super::{check, problems};

/// Each row: the schema of `x`, what the model sends for it, what the tool gets (`None`: refused).
#[track_caller]
fn assert_table(rows: Vec<(Value, Value, Option<Value>)>) {
    for (schema, sent, wanted) in rows {
        let whole = json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] });
        let got = check(&whole, &json!({ "x": sent }));
        let got = got.ok().map(|got| got["x"].clone());
        // Compared as text: `Value` equality would do, but the text also shows `3.0` and `3` apart in every version.
        let text = |value: &Option<Value>| value.as_ref().map(ToString::to_string);
        assert_eq!(text(&got), text(&wanted), "{sent} for {schema}");
    }
}

fn typed(name: &str, sent: Value, wanted: impl Into<Option<Value>>) -> (Value, Value, Option<Value>) {
    (json!({ "type": name }), sent, wanted.into())
}

#[test]
fn c105_scalar_coercion_table() {
    assert_table(vec![
        typed("number", json!(" 42 "), json!(42)),
        typed("number", json!("\u{feff}42\n"), json!(42)),
        typed("number", json!("1e3"), json!(1000)),
        typed("number", json!("0x10"), json!(16)),
        typed("number", json!("0b101"), json!(5)),
        typed("number", json!("0O17"), json!(15)),
        typed("number", json!("-1.5"), json!(-1.5)),
        typed("number", json!(".5"), json!(0.5)),
        typed("number", json!("5."), json!(5)),
        typed("number", json!("+7"), json!(7)),
        typed("number", json!("-0"), json!(0)),
        typed("number", json!(true), json!(1)),
        typed("number", json!(3.0), json!(3.0)),
        typed("number", json!("18446744073709551615"), json!(u64::MAX)),
        typed("number", json!("-9223372036854775808"), json!(i64::MIN)),
        typed("number", json!("1e400"), None),
        typed("number", json!("nan"), None),
        typed("number", json!("inf"), None),
        typed("number", json!("Infinity"), None),
        typed("number", json!("-infinity"), None),
        typed("number", json!(""), None),
        typed("number", json!("  "), None),
        typed("number", json!("1_000"), None),
        typed("number", json!("1,5"), None),
        typed("number", json!("0x"), None),
        typed("number", json!("0x+1"), None),
        typed("number", json!("-0x10"), None),
        typed("number", json!("e5"), None),
        typed("number", json!("1 2"), None),
        typed("number", json!("é"), None),
        typed("number", json!([1]), None),
        typed("integer", json!("42"), json!(42)),
        typed("integer", json!("3.0"), json!(3)),
        typed("integer", json!(3.0), json!(3)),
        typed("integer", json!(-0.0), json!(0)),
        typed("integer", json!("1e3"), json!(1000)),
        typed("integer", json!(false), json!(0)),
        typed("integer", json!("9007199254740993"), json!(9_007_199_254_740_993_i64)),
        typed("integer", json!(1e300), json!(1e300)),
        typed("integer", json!("18446744073709551616"), None),
        typed("integer", json!("3.5"), None),
        typed("integer", json!(3.5), None),
        typed("integer", json!(""), None),
        typed("boolean", json!("true"), json!(true)),
        typed("boolean", json!("false"), json!(false)),
        typed("boolean", json!(1), json!(true)),
        typed("boolean", json!(0), json!(false)),
        typed("boolean", json!(1.0), json!(true)),
        typed("boolean", json!("True"), None),
        typed("boolean", json!(" true"), None),
        typed("boolean", json!("yes"), None),
        typed("boolean", json!("1"), None),
        typed("boolean", json!(2), None),
        typed("string", json!(5), json!("5")),
        typed("string", json!(5.0), json!("5")),
        typed("string", json!(-0.0), json!("0")),
        typed("string", json!(0.1), json!("0.1")),
        typed("string", json!(1e20), json!("100000000000000000000")),
        typed("string", json!(1e21), json!("1e+21")),
        typed("string", json!(1.5e-7), json!("1.5e-7")),
        typed("string", json!(u64::MAX), json!("18446744073709551615")),
        typed("string", json!(true), json!("true")),
        typed("string", json!({ "a": 1 }), None),
        typed("string", json!(["a"]), None),
        typed("null", json!(""), None),
        typed("array", json!("a"), None),
    ]);
}

#[test]
fn c105_coercion_reaches_every_part() {
    let integer = json!({ "type": "integer" });
    let defs = json!({ "n": integer, "deep": { "properties": { "a/b ~%": integer } } });
    assert_table(vec![
        (
            json!({ "type": "array", "items": integer }),
            json!(["1", 2]),
            Some(json!([1, 2])),
        ),
        (
            json!({ "items": { "items": integer } }),
            json!([[3.0]]),
            Some(json!([[3]])),
        ),
        (
            json!({ "prefixItems": [{ "type": "string" }, integer], "items": { "type": "boolean" } }),
            json!([1, "2", "true"]),
            Some(json!(["1", 2, true])),
        ),
        (
            json!({ "items": [{ "type": "string" }, integer], "additionalItems": { "type": "boolean" } }),
            json!([1, "2", "true"]),
            Some(json!(["1", 2, true])),
        ),
        (
            json!({ "properties": { "n": integer }, "additionalProperties": { "type": "string" } }),
            json!({ "n": "1", "m": 1 }),
            Some(json!({ "n": 1, "m": "1" })),
        ),
        (
            json!({ "patternProperties": { "^n": integer }, "additionalProperties": { "type": "string" } }),
            json!({ "n1": "1", "m": 1 }),
            Some(json!({ "n1": 1, "m": "1" })),
        ),
        (
            json!({ "allOf": [{ "properties": { "a": integer } }, { "properties": { "b": integer } }] }),
            json!({ "a": "1", "b": "2" }),
            Some(json!({ "a": 1, "b": 2 })),
        ),
        (
            json!({ "$defs": defs, "$ref": "#/properties/x/$defs/n" }),
            json!("1"),
            Some(json!(1)),
        ),
        (
            json!({ "definitions": defs, "$ref": "#/properties/x/definitions/deep" }),
            json!({ "a/b ~%": "1" }),
            Some(json!({ "a/b ~%": 1 })),
        ),
        (
            json!({ "$defs": defs, "$ref": "#/properties/x/$defs/deep/properties/a~1b%20~0%25" }),
            json!("1"),
            Some(json!(1)),
        ),
        // Not only what was invalid by itself: a schema without `type` still has properties.
        (
            json!({ "properties": { "n": integer } }),
            json!({ "n": "1" }),
            Some(json!({ "n": 1 })),
        ),
        // A coerced value must still satisfy the rest.
        (json!({ "type": "integer", "minimum": 5 }), json!("7"), Some(json!(7))),
        (json!({ "type": "integer", "minimum": 5 }), json!("3"), None),
        (
            json!({ "type": "string", "enum": ["1", "2"] }),
            json!(1),
            Some(json!("1")),
        ),
    ]);
}

/// Whatever else in the arguments has to be coerced.
#[test]
fn c105_what_is_of_an_allowed_type_stays() {
    let rows = [
        ("boolean", "string", json!(true)),
        ("boolean", "integer", json!(true)),
        ("integer", "string", json!(5)),
        ("number", "string", json!(1.5)),
        ("number", "boolean", json!(1)),
        ("string", "number", json!("5")),
        ("string", "boolean", json!("true")),
        ("null", "string", json!(null)),
        ("array", "string", json!([])),
        ("object", "string", json!({})),
    ];
    for (own, other, value) in rows {
        for types in [[own, other], [other, own]] {
            let schema = json!({ "prefixItems": [{ "type": types }, { "type": "integer" }] });
            assert_table(vec![(schema, json!([value, "1"]), Some(json!([value, 1])))]);
        }
    }
}

#[test]
fn c105_unions_keep_what_a_branch_accepts_then_coerce_for_the_first_that_can() {
    let any = |branches: Value| json!({ "anyOf": branches });
    let one = |branches: Value| json!({ "oneOf": branches });
    let (string, number, integer, boolean) = (
        json!({ "type": "string" }),
        json!({ "type": "number" }),
        json!({ "type": "integer" }),
        json!({ "type": "boolean" }),
    );
    assert_table(vec![
        (any(json!([number, string])), json!("5"), Some(json!("5"))),
        (any(json!([string, number])), json!(5), Some(json!(5))),
        (any(json!([number, boolean])), json!("5"), Some(json!(5))),
        (any(json!([number, boolean])), json!("true"), Some(json!(true))),
        (any(json!([boolean, number])), json!("x"), None),
        (
            any(json!([{ "type": "integer", "minimum": 10 }, boolean])),
            json!("1"),
            None,
        ),
        (
            any(json!([{ "type": "integer", "minimum": 10 }, number])),
            json!("1"),
            Some(json!(1)),
        ),
        (
            any(json!([integer, { "type": "null" }])),
            json!(null),
            Some(json!(null)),
        ),
        (any(json!([integer, { "type": "null" }])), json!("4"), Some(json!(4))),
        (any(json!([integer, string])), json!(3.0), Some(json!(3))),
        (any(json!([number, integer])), json!(3.0), Some(json!(3.0))),
        (one(json!([integer, boolean])), json!("7"), Some(json!(7))),
        (json!({ "type": ["integer", "boolean"] }), json!("7"), Some(json!(7))),
        (
            json!({ "type": ["integer", "boolean"] }),
            json!("true"),
            Some(json!(true)),
        ),
        (
            json!({ "type": ["boolean", "string"] }),
            json!("true"),
            Some(json!("true")),
        ),
        (json!({ "type": ["integer", "null"] }), json!(""), None),
        (json!({ "type": ["integer", "string"] }), json!(3.0), Some(json!(3))),
        (json!({ "type": ["integer", "number"] }), json!(3.0), Some(json!(3.0))),
        // Objects told apart by a constant, coerced inside the branch that fits.
        (
            one(json!([
                { "properties": { "k": { "const": "a" }, "v": boolean }, "required": ["k"] },
                { "properties": { "k": { "const": "b" }, "v": integer }, "required": ["k"] },
            ])),
            json!({ "k": "b", "v": "1" }),
            Some(json!({ "k": "b", "v": 1 })),
        ),
        // A union in a union, and siblings that are valid stay as they are.
        (
            any(json!([
                boolean,
                any(json!([integer, { "type": "array", "items": any(json!([number, string])) }]))
            ])),
            json!(["1", 2, true]),
            Some(json!(["1", 2, 1])),
        ),
    ]);
}

#[test]
fn c103_null_for_an_optional_parameter_is_absent() {
    for (name, nullable) in [("number", false), ("string", false), ("boolean", false), ("null", true)] {
        let property = json!({ "type": name });
        let optional = json!({ "type": "object", "properties": { "x": property, "y": {} } });
        let sent = json!({ "x": null, "y": null });
        let wanted = if nullable { sent.clone() } else { json!({ "y": null }) };
        assert_eq!(check(&optional, &sent).unwrap(), wanted, "{name}");

        let mut required = optional.clone();
        required["required"] = json!(["x"]);
        assert_eq!(check(&required, &sent).is_ok(), nullable, "{name}");
    }
    let required = json!({ "properties": { "n": { "type": "number" } }, "required": ["n"] });
    assert_eq!(
        problems(&required, &json!({ "n": null })),
        [r#"n: null is not of type "number""#]
    );
}

#[test]
fn c103_null_is_dropped_wherever_the_schema_describes_the_property() {
    let string = json!({ "type": "string" });
    let rows = [
        (json!({ "additionalProperties": string }), json!({})),
        (json!({ "patternProperties": { "^x": string } }), json!({})),
        (
            json!({ "properties": { "x": { "$ref": "#/$defs/s" } }, "$defs": { "s": string } }),
            json!({}),
        ),
        (
            json!({ "properties": { "x": { "anyOf": [string, { "type": "integer" }] } } }),
            json!({}),
        ),
        (
            json!({ "anyOf": [{ "type": "string" }, { "properties": { "x": string } }] }),
            json!({}),
        ),
        (
            json!({ "properties": { "x": { "type": ["string", "null"] } } }),
            json!({ "x": null }),
        ),
        (
            json!({ "properties": { "x": { "enum": ["a", null] } } }),
            json!({ "x": null }),
        ),
    ];
    for (schema, wanted) in rows {
        assert_eq!(check(&schema, &json!({ "x": null })).unwrap(), wanted, "{schema}");
    }
    // Not described: a null is no excuse for a name the schema does not know, nor in a list.
    let closed = json!({ "additionalProperties": false });
    assert_eq!(
        problems(&closed, &json!({ "x": null })),
        ["root: Additional properties are not allowed ('x' was unexpected)"]
    );
    assert_eq!(
        problems(
            &json!({ "properties": { "x": { "items": string } } }),
            &json!({ "x": [null] })
        ),
        [r#"x.0: null is not of type "string""#]
    );
}

#[test]
fn c107_json_text_is_not_parsed() {
    let schema = json!({ "properties": {
        "queries": { "type": "array", "items": { "type": "string" } },
        "o": { "type": "object" },
        "a": { "type": ["array", "object"] },
    } });
    assert_eq!(
        problems(&schema, &json!({ "queries": "[\"x\"]", "o": "{\"k\":1}", "a": "x" })),
        [
            r#"queries: "[\"x\"]" is not of type "array""#,
            r#"o: "{\"k\":1}" is not of type "object""#,
            r#"a: "x" is not of types "array", "object""#,
        ]
    );
}

#[test]
fn c108_null_arguments_are_none() {
    for schema in [
        json!({}),
        json!(true),
        json!({ "type": "object" }),
        json!({ "properties": { "a": {} } }),
    ] {
        assert_eq!(check(&schema, &Value::Null).unwrap(), json!({}), "{schema}");
    }
    let required = json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] });
    assert_eq!(problems(&required, &Value::Null), [r#"a: "a" is a required property"#]);
}

#[test]
fn c116_the_tool_gets_coerced_arguments_in_the_models_order() {
    let schema =
        json!({ "properties": { "a": { "type": "integer" }, "b": { "type": "string" }, "c": { "type": "integer" } } });
    let sent = json!({ "c": "5", "extra": [], "b": null, "a": "1" });
    let got = check(&schema, &sent).unwrap();
    assert_eq!(got.to_string(), r#"{"c":5,"extra":[],"a":1}"#);
}

#[test]
fn what_passed_is_an_object_unless_the_schema_takes_something_else() {
    let schema = ArgumentsSchema::compile(&json!({ "properties": { "a": { "type": "integer" } } }));
    for (sent, wanted) in [(json!({ "a": "1" }), json!({ "a": 1 })), (json!(["a"]), json!(["a"]))] {
        let got = schema.check("t", &Map::new(), sent).unwrap();
        assert_eq!((got.as_value(), got.as_object()), (&wanted, wanted.as_object()));
    }
}
