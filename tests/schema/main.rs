//! What tool arguments become on their way to the tool, and what the model is told when they are refused.
//!
//! The `cNNN` in a test's name is the case it covers.

#[cfg(feature = "jsonschema")]
mod coercion;
#[cfg(feature = "jsonschema")]
mod errors;
#[cfg(feature = "jsonschema")]
mod hostile;
#[cfg(feature = "jsonschema")]
mod integral;
#[cfg(not(feature = "jsonschema"))]
mod off;
#[cfg(feature = "jsonschema")]
mod properties;
#[cfg(feature = "jsonschema")]
mod wild;

use serde_json::Value;
use turnstate::schema::{ArgumentsSchema, ValidatedArguments, ValidationError};

/// Checks `arguments` as the model's own.
fn check(schema: &Value, arguments: &Value) -> Result<Value, ValidationError> {
    let original = arguments.as_object().cloned().unwrap_or_default();
    ArgumentsSchema::compile(schema)
        .check("t", &original, arguments.clone())
        .map(ValidatedArguments::into_value)
}

/// The problems found, one line each; none if the arguments pass.
fn problems(schema: &Value, arguments: &Value) -> Vec<String> {
    match check(schema, arguments) {
        Ok(_) => Vec::new(),
        Err(ValidationError::Arguments { problems, .. }) => problems.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    }
}

#[test]
fn debug_shows_the_schema_or_why_there_is_none() {
    let shown = format!("{:?}", ArgumentsSchema::compile(&serde_json::json!({ "minimum": 42 })));
    assert_eq!(shown.contains("42"), cfg!(feature = "jsonschema"), "{shown}");
    let shown = format!("{:?}", ArgumentsSchema::compile(&Value::Null));
    assert!(shown.contains("NotASchema"), "{shown}");
}

#[test]
fn a_schema_is_shared_between_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<ArgumentsSchema>();
    shared::<ValidatedArguments>();
    shared::<ValidationError>();
}
