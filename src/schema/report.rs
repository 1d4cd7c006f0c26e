//! What the validator found, in words of bounded length.

use std::fmt::{self, Write};

use jsonschema::error::ValidationErrorKind;

use super::{
    error::{Problem, Problems, SchemaError},
    pointer,
};

/// How many problems one error lists.
const MAX_PROBLEMS: usize = 20;
/// How long one problem's message may get, in bytes.
const MAX_MESSAGE: usize = 300;

/// The problems of one value.
pub(super) fn problems<'a>(errors: impl Iterator<Item = jsonschema::ValidationError<'a>>) -> Problems {
    let mut errors = errors.peekable();
    if errors.peek().is_none() {
        // The validator and its error list may disagree, but a refusal is never without a reason.
        return Problems::one("the arguments do not match the schema");
    }
    Problems {
        listed: errors
            .by_ref()
            .take(MAX_PROBLEMS)
            .map(|error| problem(&error))
            .collect(),
        omitted: errors.count(),
    }
}

/// Why a schema does not compile. The instance of `error` is the schema.
pub(super) fn schema_error(error: &jsonschema::ValidationError<'_>) -> SchemaError {
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

fn problem(error: &jsonschema::ValidationError<'_>) -> Problem {
    let missing = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        _ => None,
    };
    Problem {
        path: pointer::dotted(error.instance_path().as_str(), missing),
        message: message(error),
    }
}

/// The error's own message, which quotes the offending value. A large value is not quoted: it would push out of sight
/// what is wrong with it.
fn message(error: &jsonschema::ValidationError<'_>) -> String {
    bounded(error).unwrap_or_else(|_| {
        bounded(&error.masked_with("the value")).unwrap_or_else(|mut cut| {
            cut.push('…');
            cut
        })
    })
}

/// `text` as a string, or its beginning if it is too long. Never makes more of it than is kept.
fn bounded(text: &dyn fmt::Display) -> Result<String, String> {
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
