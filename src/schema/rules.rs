//! A schema compiled by the `jsonschema` crate, and what a value goes through.

use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use crate::sync::OnceLock;

use super::{
    coerce::coerce,
    error::{Problems, SchemaError},
    normalise::normalise,
    parts::{self, Parts},
    report, scalar, union, well_formed,
};

pub(super) struct Rules {
    validator: Validator,
    parts: Arc<Parts>,
    /// Lists the errors of what `validator` refuses; compiled when it first does.
    reporter: OnceLock<Option<Validator>>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rules").field(self.parts.schema()).finish()
    }
}

impl Rules {
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        well_formed(schema)?;
        let schema = normalise(schema);
        let validator = parts::options()
            .build(&schema)
            .map_err(|error| report::schema_error(&error))?;
        Ok(Self {
            validator,
            parts: Arc::new(Parts::new(schema)),
            reporter: OnceLock::new(),
        })
    }

    pub(super) fn apply(&self, mut arguments: Value) -> Result<Value, Problems> {
        if !self.validator.is_valid(&arguments) {
            coerce(&self.parts, &mut arguments);
            if !self.validator.is_valid(&arguments) {
                return Err(self.problems(&arguments));
            }
        }
        if holds_integral_float(&arguments) {
            // In a valid value this rewrites integral floats and nothing else; JSON Schema compares numbers by value,
            // so what was valid stays so.
            coerce(&self.parts, &mut arguments);
        }
        Ok(arguments)
    }

    fn problems(&self, arguments: &Value) -> Problems {
        let reporter = self.reporter.get_or_init(|| {
            let options = union::replace(parts::options(), &self.parts);
            options.build(self.parts.schema()).ok()
        });
        report::problems(reporter.as_ref().unwrap_or(&self.validator), arguments)
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
