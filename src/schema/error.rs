//! Why a schema or a call's arguments are refused.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use super::{MAX_DEPTH, deeper_than};

/// Why a tool's schema cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is neither an object nor a boolean.
    #[error("a JSON Schema is an object or a boolean")]
    NotASchema,
    /// It nests too deep.
    #[error("nested more than {limit} levels deep")]
    TooDeep {
        /// The deepest nesting taken.
        limit: usize,
    },
    /// One of its keywords does not compile, such as a `pattern` that is no regular expression.
    #[error("{path}: {message}")]
    #[non_exhaustive]
    Keyword {
        /// Where, in dotted form; `root` for the top.
        path: String,
        /// What is wrong there.
        message: String,
    },
}

/// Why a call's arguments were refused. The text is meant for the model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValidationError {
    /// The tool's schema cannot be used, so none of its calls can be checked.
    #[error("Invalid schema for tool \"{tool}\": {source}")]
    #[non_exhaustive]
    Schema {
        /// The tool's name.
        tool: String,
        /// What is wrong with its schema.
        source: SchemaError,
    },
    /// The arguments do not match the schema.
    #[error(
        "Validation failed for tool \"{tool}\":\n{}\nReceived arguments:\n{received}",
        Bullets(problems, *omitted)
    )]
    #[non_exhaustive]
    Arguments {
        /// The tool's name.
        tool: String,
        /// What is wrong with the arguments, at least one.
        problems: Vec<Problem>,
        /// How many more problems were found but are not listed.
        omitted: usize,
        /// The model's own arguments, as pretty JSON.
        received: String,
    },
}

impl ValidationError {
    pub(super) fn schema(tool: &str, source: &SchemaError) -> Self {
        Self::Schema {
            tool: tool.to_owned(),
            source: source.clone(),
        }
    }

    pub(super) fn arguments(tool: &str, problems: Problems, original: &Map<String, Value>) -> Self {
        // Serialising recurses; what is too deep to check is too deep to print.
        let received = if original.values().any(|v| deeper_than(v, MAX_DEPTH)) {
            "…".to_owned()
        } else {
            serde_json::to_string_pretty(original).unwrap_or_default()
        };
        Self::Arguments {
            tool: tool.to_owned(),
            problems: problems.listed,
            omitted: problems.omitted,
            received,
        }
    }
}

/// One thing that is wrong with a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Where, in dotted form such as `edits.0.path`; `root` for the top.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// What is wrong with one call's arguments: the first problems, and how many more there are.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) listed: Vec<Problem>,
    pub(super) omitted: usize,
}

impl Problems {
    /// A single problem of the arguments as a whole.
    pub(super) fn one(message: impl Into<String>) -> Self {
        Self {
            listed: vec![Problem {
                path: "root".to_owned(),
                message: message.into(),
            }],
            omitted: 0,
        }
    }
}

/// The problems as a list, one line each.
struct Bullets<'a>(&'a [Problem], usize);

impl fmt::Display for Bullets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problems, omitted) = *self;
        for problem in problems {
            writeln!(f, "  - {problem}")?;
        }
        match omitted {
            0 => Ok(()),
            more => writeln!(f, "  … and {more} more"),
        }
    }
}
