//! Validators of parts of a schema, each compiled the first time it is asked for.

use std::{collections::HashMap, sync::Arc};

use jsonschema::{
    Draft, Keyword, PatternOptions, Registry, RegistryBuilder, ValidationError, ValidationOptions, Validator,
    paths::Location,
};
use serde_json::{Map, Value, json};

use crate::sync::{Mutex, PoisonError};

use super::{normalise::UNRESOLVED, pointer};

/// Steps a regular expression with look-around or back-references may take; other expressions need none.
const BACKTRACK_LIMIT: usize = 100_000;
/// The name under which a part refers to the whole schema.
const WHOLE: &str = "turnstate:///arguments";

pub(super) struct Parts {
    schema: Value,
    /// By JSON pointer or pattern; `None` for what cannot be compiled.
    compiled: Mutex<HashMap<String, Option<Arc<Validator>>>>,
}

impl Parts {
    /// The parts of `schema`, which is in its normal form.
    pub(super) fn new(schema: Value) -> Self {
        Self {
            schema,
            compiled: Mutex::default(),
        }
    }

    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether the part at `pointer` accepts `value`; `None` if that cannot be told.
    pub(super) fn accepts(&self, pointer: &str, value: &Value) -> Option<bool> {
        let reference = || json!({ "$ref": format!("{WHOLE}{}", pointer::to_fragment(pointer)) });
        let part = self.part(pointer, reference)?;
        Some(part.is_valid(value))
    }

    /// Whether `key` matches the regular expression of a `patternProperties`.
    pub(super) fn key_matches(&self, pattern: &str, key: &str) -> bool {
        // No JSON pointer begins like this.
        let name = format!("pattern {pattern}");
        self.part(&name, || json!({ "pattern": pattern }))
            .is_some_and(|part| part.is_valid(&Value::from(key)))
    }

    fn part(&self, name: &str, schema: impl FnOnce() -> Value) -> Option<Arc<Validator>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = compiled.get(name) {
            return part.clone();
        }
        let part = self.compile(&schema());
        compiled.insert(name.to_owned(), part.clone());
        part
    }

    fn compile(&self, schema: &Value) -> Option<Arc<Validator>> {
        let registry = Registry::new()
            .draft(Draft::Draft202012)
            .retrieve_known_draft_meta_schemas(false)
            .add(WHOLE, &self.schema)
            .and_then(RegistryBuilder::prepare)
            .ok()?;
        let part = options().with_registry(&registry).build(schema);
        part.ok().map(Arc::new)
    }
}

/// How every schema is compiled.
pub(super) fn options<'a>() -> ValidationOptions<'a> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
        .with_keyword(UNRESOLVED, unresolved)
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a keyword factory")]
fn unresolved<'a>(
    _: &'a Map<String, Value>,
    reference: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let message = format!("the schema's $ref {reference} leads nowhere");
    Ok(Box::new(Unresolved(message)))
}

/// The keyword that stands for a reference which leads nowhere.
struct Unresolved(String);

impl<'i> Keyword<'i> for Unresolved {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        Err(ValidationError::custom(self.0.as_str()))
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        false
    }
}
