//! Without the feature `jsonschema` arguments only have to be an object.

use serde_json::{Value, json};
use turnstate::schema::{ArgumentsSchema, SchemaError};

use super::{check, problems};

#[test]
fn arguments_are_an_object_and_nothing_else_is_checked() {
    let schema = json!({ "required": ["a"], "properties": { "b": { "type": "integer" } } });
    for (sent, wanted) in [(Value::Null, json!({})), (json!({ "b": "5" }), json!({ "b": "5" }))] {
        assert_eq!(check(&schema, &sent), Ok(wanted));
    }
    assert_eq!(problems(&schema, &json!([])), ["root: the arguments are not an object"]);
    let error = ArgumentsSchema::compile(&json!(7)).error().cloned();
    assert_eq!(error, Some(SchemaError::NotASchema));
}
