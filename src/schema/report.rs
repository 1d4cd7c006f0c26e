//! What the validator found, in words of bounded length.

use std::fmt::{self, Write};

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value};

use super::{
    error::{Problem, Problems, SchemaError},
    pointer,
};

/// How many problems one error lists.
const MAX_PROBLEMS: usize = 20;
/// How long one problem's message may get, in bytes.
const MAX_MESSAGE: usize = 300;

/// The problems of `value`.
pub(super) fn problems(validator: &Validator, value: &Value) -> Problems {
    let mut errors = validator.iter_errors(value).peekable();
    if errors.peek().is_none() {
        // A schema that contradicts itself, such as a `not` of a reference to itself, has no one verdict; but a refusal is
        // never without a reason.
        return Problems::one("the arguments do not match the schema");
    }
    Problems {
        listed: errors
            .by_ref()
            .take(MAX_PROBLEMS)
            .map(|error| problem(&error, value))
            .collect(),
        omitted: errors.count(),
    }
}

/// Why a schema does not compile. The instance of `error` is the schema.
pub(super) fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    // An error of the meta-schema points into its instance, one of the compiler at the keyword itself.
    let place = match error.instance_path().as_str() {
        "" => error.schema_path().as_str(),
        place => place,
    };
    SchemaError::Keyword {
        path: pointer::dotted(place, None),
        message: message(error),
    }
}

fn problem(error: &ValidationError<'_>, value: &Value) -> Problem {
    let path = error.instance_path().as_str();
    let missing = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        _ => None,
    };
    let message = match value.pointer(path) {
        Some(Value::Object(members)) if is_false_additional_properties(error) => {
            text(&Unexpected(members)).unwrap_or_else(cut)
        }
        _ => message(error),
    };
    Problem {
        path: pointer::dotted(path, missing),
        message,
    }
}

/// Whether `error` is that of an object which may have no properties at all. Unlike that of an object which declares
/// some, it does not say what is wrong.
fn is_false_additional_properties(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::FalseSchema)
        && error.schema_path().as_str().ends_with("/additionalProperties")
}

/// The words of the other error, for an object none of whose properties is allowed.
struct Unexpected<'a>(&'a Map<String, Value>);

impl fmt::Display for Unexpected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Additional properties are not allowed (")?;
        for (index, name) in self.0.keys().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}'{name}'")?;
        }
        let verb = if self.0.len() == 1 { "was" } else { "were" };
        write!(f, " {verb} unexpected)")
    }
}

/// The error's own message, which quotes the offending value. A large value is not quoted: it would push out of sight
/// what is wrong with it.
fn message(error: &ValidationError<'_>) -> String {
    text(error).unwrap_or_else(|_| text(&error.masked_with("the value")).unwrap_or_else(cut))
}

/// `value` as JSON, or a stand-in if it is large.
pub(super) fn quoted(value: &Value) -> String {
    match text(value) {
        Ok(text) if text.len() <= MAX_MESSAGE / 2 => text,
        _ => "the value".to_owned(),
    }
}

fn cut(mut beginning: String) -> String {
    beginning.push('…');
    beginning
}

/// `text` as a string, or its beginning if it is too long. Never makes more of it than is kept.
fn text(text: &dyn fmt::Display) -> Result<String, String> {
    struct Bounded(String);

    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MAX_MESSAGE - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            let end = (0..=room).rev().find(|&end| text.is_char_boundary(end));
            self.0.push_str(text.get(..end.unwrap_or(0)).unwrap_or_default());
            Err(fmt::Error)
        }
    }

    let mut out = Bounded(String::new());
    match write!(out, "{text}") {
        Ok(()) => Ok(out.0),
        Err(fmt::Error) => Err(out.0),
    }
}
