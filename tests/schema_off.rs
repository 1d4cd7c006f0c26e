//! Without the feature `jsonschema` arguments only have to be an object.
#![cfg(not(feature = "jsonschema"))]

use serde_json::{Map, Value, json};
use turnstate::schema::{ArgumentsSchema, SchemaError};

#[test]
fn arguments_are_an_object_and_nothing_else_is_checked() {
    let schema = ArgumentsSchema::compile(
        &json!({ "required": ["a"], "properties": { "b": { "type": "integer" } } }),
    );
    let check = |arguments| schema.check("t", &Map::new(), arguments);
    for (sent, wanted) in [
        (Value::Null, json!({})),
        (json!({ "b": "5" }), json!({ "b": "5" })),
    ] {
        assert_eq!(check(sent).unwrap().into_value(), wanted);
    }
    let error = check(json!([])).unwrap_err().to_string();
    assert_eq!(
        error,
        "Validation failed for tool \"t\":\n  - root: the arguments are not an object\n\nReceived arguments:\n{}"
    );
    assert_eq!(
        ArgumentsSchema::compile(&json!(7)).error(),
        Some(&SchemaError::NotASchema)
    );
}
