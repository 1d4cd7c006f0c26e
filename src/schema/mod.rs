//! What a tool is called with: its parameters schema, compiled once, and the check every call goes through.
//!
//! [`ArgumentsSchema::check`] is the only maker of [`ValidatedArguments`], so holding one proves that the arguments
//! passed. Models write `"42"` where a number is meant, and `null` for what they leave out; the check forgives that:
//!
//! 1. Arguments that validate are kept as they are. This costs one validation and copies nothing.
//! 2. Else the value is *coerced*: scalars are turned into the type the schema asks for, and an optional `null` that
//!    the schema refuses is dropped. Nothing that validates on its own is touched.
//! 3. What is still invalid is an error whose text tells the model what to mend.
//! 4. Integral floats are handed to the tool as integers (`3.0` as `3`): JSON Schema takes both for integers, but
//!    deserialising into an `i64` does not.
//!
//! Coercion walks schema and value side by side, through `properties`, `patternProperties`, `additionalProperties`,
//! `prefixItems`, `items`, `allOf`, `anyOf`, `oneOf` and local `$ref`s. Most steps need no validator: where a value
//! validates, its parts validate too, and a scalar of the right type is left alone. Only unions and `null`s have to
//! ask whether a *part* of the schema accepts a value; such a part is compiled the first time a call needs it. A walk
//! is bounded in depth and in work, so cyclic references and ambiguous unions end; what is left is then an ordinary
//! validation error.
//!
//! Checking is idempotent: a result checked again comes out unchanged.
//!
//! Without the feature `jsonschema` arguments only have to be an object; the types stay the same.
//!
//! ```
//! # #[cfg(feature = "jsonschema")] {
//! use serde_json::json;
//! use turnstate::schema::ArgumentsSchema;
//!
//! let schema = ArgumentsSchema::compile(&json!({
//!     "type": "object",
//!     "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
//!     "required": ["city"],
//! }));
//! let call = json!({ "city": "Oslo", "days": "3" });
//! let original = call.as_object().unwrap();
//!
//! let arguments = schema.check("weather", original, call.clone()).unwrap();
//! assert_eq!(arguments.as_value(), &json!({ "city": "Oslo", "days": 3 }));
//! # }
//! ```

mod error;

#[cfg(feature = "jsonschema")]
mod coerce;
#[cfg(feature = "jsonschema")]
mod normalise;
#[cfg(feature = "jsonschema")]
mod parts;
#[cfg(feature = "jsonschema")]
mod pointer;
#[cfg(feature = "jsonschema")]
mod report;
#[cfg(feature = "jsonschema")]
mod rules;
#[cfg(feature = "jsonschema")]
mod scalar;
#[cfg(feature = "jsonschema")]
mod union;

#[cfg(not(feature = "jsonschema"))]
#[path = "rules_object.rs"]
mod rules;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::error::{Problem, SchemaError, ValidationError};
use self::{error::Problems, rules::Rules};

/// How deep schemas and arguments may nest.
///
/// Nothing that `serde_json` parses is deeper. A value built in code could be, and would overflow the stack of the
/// recursive functions it meets.
const MAX_DEPTH: usize = 128;

/// A tool's parameters schema, compiled once.
///
/// It is `Send + Sync`; share it in an `Arc`.
#[derive(Debug)]
pub struct ArgumentsSchema {
    rules: Result<Rules, SchemaError>,
}

impl ArgumentsSchema {
    /// Compiles `schema`. This never fails: a schema that cannot be compiled makes every [`check`](Self::check) an
    /// error, so a tool with a broken schema harms nobody but its own calls.
    ///
    /// Schemas in the wild are tolerated. Malformed and unknown keywords, types and formats are ignored; older drafts
    /// are read as 2020-12; a `$ref` that leads nowhere, or out of the document, refuses only what reaches it. Nothing
    /// is ever fetched.
    ///
    /// ```
    /// # #[cfg(feature = "jsonschema")] {
    /// use serde_json::json;
    /// use turnstate::schema::ArgumentsSchema;
    ///
    /// let odd = json!({ "properties": { "log": { "type": "file" }, "n": { "minimum": 0, "exclusiveMinimum": true } } });
    /// assert!(ArgumentsSchema::compile(&odd).error().is_none());
    /// let broken = json!({ "properties": { "name": { "pattern": "(" } } });
    /// assert!(ArgumentsSchema::compile(&broken).error().is_some());
    /// # }
    /// ```
    pub fn compile(schema: &Value) -> Self {
        Self {
            rules: Rules::compile(schema),
        }
    }

    /// Why the schema could not be compiled, if it could not.
    pub fn error(&self) -> Option<&SchemaError> {
        self.rules.as_ref().err()
    }

    /// Checks `arguments`, coercing them where they do not validate as they are.
    ///
    /// `arguments` are what the tool made of the model's arguments before they are validated; they need not even be an
    /// object. `null` counts as `{}`. `original` are the model's own arguments, which the error text quotes.
    ///
    /// # Errors
    ///
    /// [`ValidationError`], whose text is meant to be the tool's result: the model reads it and calls again.
    ///
    /// ```
    /// # #[cfg(feature = "jsonschema")] {
    /// use serde_json::json;
    /// use turnstate::schema::ArgumentsSchema;
    ///
    /// let schema = ArgumentsSchema::compile(&json!({ "properties": { "days": { "type": "integer" } } }));
    /// let call = json!({ "days": "some" });
    /// let error = schema.check("weather", call.as_object().unwrap(), call.clone()).unwrap_err();
    /// assert_eq!(error.to_string(), r#"Validation failed for tool "weather":
    ///   - days: "some" is not of type "integer"
    ///
    /// Received arguments:
    /// {
    ///   "days": "some"
    /// }"#);
    /// # }
    /// ```
    pub fn check(
        &self,
        tool: &str,
        original: &Map<String, Value>,
        arguments: Value,
    ) -> Result<ValidatedArguments, ValidationError> {
        let rules = self
            .rules
            .as_ref()
            .map_err(|error| ValidationError::schema(tool, error))?;
        let arguments = match arguments {
            Value::Null => Value::Object(Map::new()),
            arguments => arguments,
        };
        let checked = if deeper_than(&arguments, MAX_DEPTH) {
            Err(Problems::one(format!("nested more than {MAX_DEPTH} levels deep")))
        } else {
            rules.apply(arguments)
        };
        checked
            .map(|value| ValidatedArguments(Arc::new(value)))
            .map_err(|problems| ValidationError::arguments(tool, problems, original))
    }
}

/// Arguments that passed their tool's schema. Only [`ArgumentsSchema::check`] makes them.
///
/// Cheap to clone: they are shared between the tool and the hooks around it.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedArguments(Arc<Value>);

impl ValidatedArguments {
    /// The arguments. An object, unless the tool's schema and preparation allow something else.
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// The arguments as an object, if they are one.
    pub fn as_object(&self) -> Option<&Map<String, Value>> {
        self.0.as_object()
    }

    /// The arguments, no longer known to be valid.
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }
}

/// Whether objects and arrays nest more than `levels` deep. Recurses no deeper than that itself.
fn deeper_than(value: &Value, levels: usize) -> bool {
    let nested = |value: &Value| deeper_than(value, levels - 1);
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(nested),
        Value::Object(members) => levels == 0 || members.values().any(nested),
        _ => false,
    }
}

/// Refuses what is no schema at all.
fn well_formed(schema: &Value) -> Result<(), SchemaError> {
    if !(schema.is_object() || schema.is_boolean()) {
        return Err(SchemaError::NotASchema);
    }
    if deeper_than(schema, MAX_DEPTH) {
        return Err(SchemaError::TooDeep { limit: MAX_DEPTH });
    }
    Ok(())
}
