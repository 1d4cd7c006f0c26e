//! What holds of every schema and every value.
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use turnstate::schema::{ArgumentsSchema, ValidatedArguments};

use crate::integral::integral;

/// Few names, so that values have the properties that schemas speak of.
const NAMES: [&str; 3] = ["a", "b", "c/~d"];

/// The types of JSON Schema, scalars first.
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "null", "object", "array"];
/// Values that some keyword takes, and others do not.
const TEXTS: [&str; 9] = [
    "#",
    "#/properties/a",
    "#/items",
    "integer",
    "string",
    "(",
    "^a",
    "http://127.0.0.1:9/",
    "%",
];

fn scalar() -> impl Strategy<Value = Value> {
    let chosen = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(3.0),
        json!(-0.0),
        json!(2.5),
        json!(1e300),
        json!(u64::MAX),
        json!("true"),
        json!("5"),
        json!("3.0"),
        json!(" 7 "),
        json!("x"),
        json!(""),
        json!("nan"),
        json!("0x1f"),
    ];
    prop_oneof![4 => select(chosen), 1 => any::<f64>().prop_map(|f| json!(f)), 1 => any::<String>().prop_map(Value::from)]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(&NAMES[..]), inner), 0..4).prop_map(object),
        ]
    })
}

fn object(members: Vec<(&str, Value)>) -> Value {
    Value::Object(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// A well-formed schema, whose definitions `a` and `b` refer to each other and to the whole.
fn schema() -> impl Strategy<Value = Value> {
    vec(subschema(), 3).prop_map(|mut parts| {
        let (a, b) = (parts.pop(), parts.pop());
        let mut whole = parts.pop().filter(Value::is_object).unwrap_or(json!({}));
        whole["$defs"] = json!({ "a": a, "b": b });
        whole
    })
}

fn subschema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => select(TYPES.as_slice()).prop_map(|name| json!({ "type": name })),
        2 => vec(select(&TYPES[..4]), 2..4).prop_map(|mut names| {
            names.sort_unstable();
            names.dedup();
            json!({ "type": names })
        }),
        2 => select(vec!["#/$defs/a", "#/$defs/b", "#"]).prop_map(|target| json!({ "$ref": target })),
        1 => scalar().prop_map(|value| json!({ "enum": [value, 1, "5"] })),
        1 => Just(json!({ "type": "integer", "minimum": 2 })),
        1 => any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let properties = vec((select(&NAMES[..]), inner.clone()), 0..4).prop_map(object);
        let required = vec(select(&NAMES[..]), 0..2).prop_map(|mut names| {
            names.dedup();
            names
        });
        prop_oneof![
            4 => (properties, required, inner.clone()).prop_map(|(properties, required, rest)| json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": rest,
            })),
            1 => inner.clone().prop_map(|part| json!({ "patternProperties": { "^[ab]$": part } })),
            2 => inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            1 => vec(inner.clone(), 2).prop_map(|items| json!({ "prefixItems": items, "items": { "type": "integer" } })),
            2 => vec(inner.clone(), 1..4).prop_map(|branches| json!({ "anyOf": branches })),
            2 => vec(inner.clone(), 1..4).prop_map(|branches| json!({ "oneOf": branches })),
            1 => vec(inner.clone(), 1..3).prop_map(|parts| json!({ "allOf": parts })),
            1 => inner.prop_map(|part| json!({ "not": part })),
        ]
    })
}

/// Anything that may stand where a schema is expected: keywords with values of every kind.
fn garbage() -> impl Strategy<Value = Value> {
    let keywords = vec![
        "type",
        "properties",
        "items",
        "prefixItems",
        "anyOf",
        "allOf",
        "$ref",
        "$id",
        "$schema",
        "$anchor",
        "required",
        "enum",
        "const",
        "pattern",
        "patternProperties",
        "minimum",
        "exclusiveMinimum",
        "additionalProperties",
        "$defs",
        "format",
        "$dynamicRef",
        "dependencies",
        "not",
        "if",
        "then",
        "uniqueItems",
        "multipleOf",
        "minLength",
        "a",
    ];
    let leaf = prop_oneof![3 => select(TEXTS.as_slice()).prop_map(Value::from), 2 => scalar()];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => vec((select(keywords.clone()), inner), 0..5).prop_map(object),
        ]
    })
}

fn holds_integral_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|f| f.fract() == 0.0),
        Value::Array(items) => items.iter().any(holds_integral_float),
        Value::Object(members) => members.values().any(holds_integral_float),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_result_is_valid_and_checking_it_again_changes_nothing(schema in schema(), value in value()) {
        let compiled = ArgumentsSchema::compile(&schema);
        prop_assert!(compiled.error().is_none(), "{:?}", compiled.error());
        if let Ok(first) = compiled.check("t", &Map::new(), value) {
            let first = first.into_value();
            prop_assert!(jsonschema::is_valid(&schema, &first), "{first}");
            let second = compiled.check("t", &Map::new(), first.clone());
            let second = second.map(|second| second.as_value().to_string());
            prop_assert_eq!(second, Ok(first.to_string()));
        }
    }

    #[test]
    fn a_valid_value_is_unchanged(schema in schema(), value in value()) {
        let oracle = jsonschema::is_valid(&schema, &value);
        let result = ArgumentsSchema::compile(&schema).check("t", &Map::new(), value.clone());
        if oracle && !value.is_null() {
            let got = result.map(ValidatedArguments::into_value);
            prop_assert!(got.is_ok(), "{got:?}");
            let got = got.unwrap();
            prop_assert_eq!(integral(&got).to_string(), integral(&value).to_string());
            if !holds_integral_float(&value) {
                prop_assert_eq!(got.to_string(), value.to_string());
            }
        }
    }

    #[test]
    fn every_refusal_has_a_bounded_reason(schema in schema(), value in value()) {
        let checked = super::hostile::returned(move || ArgumentsSchema::compile(&schema).check("t", &Map::new(), value));
        if let Err(error) = checked {
            let text = error.to_string();
            prop_assert!(text.starts_with("Validation failed for tool \"t\":\n  - "), "{text}");
            prop_assert!(text.ends_with("\n\nReceived arguments:\n{}"), "{text}");
            prop_assert!(text.len() < 10_000, "{text}");
        }
    }

    #[test]
    fn no_schema_panics(schema in garbage(), value in value()) {
        let compiled = ArgumentsSchema::compile(&schema);
        let checked = compiled.check("t", &Map::new(), value);
        prop_assert!(compiled.error().is_none() || checked.is_err());
    }
}
