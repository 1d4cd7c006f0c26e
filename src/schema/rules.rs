//! A schema compiled by the `jsonschema` crate: the validator of the whole, and those of parts when they are asked for.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use jsonschema::{
    Draft, Keyword, PatternOptions, Registry, ValidationError, ValidationOptions, Validator, paths::Location,
};
use serde_json::{Map, Value, json};

use super::{
    coerce::coerce,
    error::{Problems, SchemaError},
    normalise::{UNRESOLVED, normalise},
    pointer, report, scalar, well_formed,
};

/// Steps a regular expression with look-around or back-references may take; other expressions need none.
const BACKTRACK_LIMIT: usize = 100_000;
/// The name under which a part refers to the whole schema.
const WHOLE: &str = "turnstate:///arguments";

pub(super) struct Rules {
    /// The schema in its normal form, which the coercion walks.
    schema: Value,
    validator: Validator,
    /// Whether the schema asks for an integer anywhere.
    integers: bool,
    /// Validators of parts; `None` for those that cannot be compiled.
    parts: Mutex<HashMap<String, Option<Arc<Validator>>>>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.schema).finish()
    }
}

impl Rules {
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        well_formed(schema)?;
        let schema = normalise(schema);
        let validator = options().build(&schema).map_err(|error| report::schema_error(&error))?;
        Ok(Self {
            integers: asks_for_integers(&schema),
            schema,
            validator,
            parts: Mutex::default(),
        })
    }

    pub(super) fn apply(&self, mut arguments: Value) -> Result<Value, Problems> {
        if !self.validator.is_valid(&arguments) {
            coerce(self, &mut arguments);
            if !self.validator.is_valid(&arguments) {
                return Err(report::problems(self.validator.iter_errors(&arguments)));
            }
        }
        if self.integers && holds_integral_float(&arguments) {
            // In a valid value this rewrites integral floats and nothing else; JSON Schema compares numbers by value,
            // so what was valid stays so.
            coerce(self, &mut arguments);
        }
        Ok(arguments)
    }

    /// The schema, in its normal form.
    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether the part of the schema at `pointer` accepts `value`; `None` if that cannot be told.
    pub(super) fn part_accepts(&self, pointer: &str, value: &Value) -> Option<bool> {
        let part = self.part(
            pointer,
            || json!({ "$ref": format!("{WHOLE}{}", pointer::to_fragment(pointer)) }),
        )?;
        Some(part.is_valid(value))
    }

    /// Whether `key` matches the regular expression of a `patternProperties`.
    pub(super) fn key_matches(&self, pattern: &str, key: &str) -> bool {
        // No JSON pointer begins like this.
        self.part(&format!("pattern {pattern}"), || json!({ "pattern": pattern }))
            .is_some_and(|part| part.is_valid(&Value::from(key)))
    }

    fn part(&self, name: &str, schema: impl FnOnce() -> Value) -> Option<Arc<Validator>> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.get(name) {
            return part.clone();
        }
        let part = self.compile_part(&schema());
        parts.insert(name.to_owned(), part.clone());
        part
    }

    fn compile_part(&self, schema: &Value) -> Option<Arc<Validator>> {
        let registry = Registry::new()
            .draft(Draft::Draft202012)
            .retrieve_known_draft_meta_schemas(false)
            .add(WHOLE, &self.schema)
            .and_then(jsonschema::RegistryBuilder::prepare)
            .ok()?;
        let part = options().with_registry(&registry).build(schema);
        part.ok().map(Arc::new)
    }
}

/// The one way in which schemas are compiled.
fn options<'a>() -> ValidationOptions<'a> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
        .with_keyword(UNRESOLVED, unresolved)
}

/// Compiles the keyword that [`normalise`] puts in the place of a `$ref` which leads nowhere.
#[allow(clippy::unnecessary_wraps)] // the signature of a keyword factory
fn unresolved<'a>(
    _: &'a Map<String, Value>,
    reference: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Unresolved(format!(
        "the schema's $ref {reference} leads nowhere"
    ))))
}

struct Unresolved(String);

impl<'i> Keyword<'i> for Unresolved {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        Err(ValidationError::custom(self.0.as_str()))
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        false
    }
}

/// Whether `"integer"` stands anywhere in the schema. May say yes too often, which only costs time.
fn asks_for_integers(schema: &Value) -> bool {
    match schema {
        Value::String(text) => text == "integer",
        Value::Array(items) => items.iter().any(asks_for_integers),
        Value::Object(members) => members.values().any(asks_for_integers),
        _ => false,
    }
}

fn holds_integral_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => scalar::integral_float(number).is_some(),
        Value::Array(items) => items.iter().any(holds_integral_float),
        Value::Object(members) => members.values().any(holds_integral_float),
        _ => false,
    }
}
