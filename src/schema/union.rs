//! `anyOf` and `oneOf` as the reports see them.
//!
//! For its error list the `jsonschema` crate collects the errors of every branch, and those of the unions inside. In a
//! recursive schema that grows exponentially with the depth of the value, while asking a branch whether it accepts
//! does not. So the validator that lists errors has these keywords of ours, which only ask.

use std::sync::Arc;

use jsonschema::{Keyword, ValidationError, ValidationOptions, paths::Location};
use serde_json::{Map, Value};

use super::{parts::Parts, pointer, report};

/// Replaces the unions in `options`.
pub(super) fn replace<'a>(options: ValidationOptions<'a>, parts: &Arc<Parts>) -> ValidationOptions<'a> {
    [("anyOf", false), ("oneOf", true)]
        .into_iter()
        .fold(options, |options, (keyword, exclusive)| {
            let parts = Arc::clone(parts);
            options.with_keyword(keyword, move |_: &Map<String, Value>, branches, place| {
                Ok(boxed(Union::new(&parts, branches, &place, exclusive)))
            })
        })
}

fn boxed(union: Union) -> Box<dyn for<'i> Keyword<'i>> {
    Box::new(union)
}

struct Union {
    parts: Arc<Parts>,
    /// Where the branches are.
    branches: Vec<String>,
    /// Whether just one branch may accept.
    exclusive: bool,
}

impl Union {
    fn new(parts: &Arc<Parts>, branches: &Value, place: &Location, exclusive: bool) -> Self {
        let place = place.as_str();
        // If a keyword were not where it says it is, its branches would not be found; better no complaint than a false
        // one.
        let count = match parts.schema().pointer(place) {
            Some(Value::Array(found)) if parts.schema().pointer(place) == Some(branches) => found.len(),
            _ => 0,
        };
        Self {
            parts: Arc::clone(parts),
            branches: (0..count)
                .map(|index| pointer::join(place, &[&index.to_string()]))
                .collect(),
            exclusive,
        }
    }

    fn accepting(&self, value: &Value) -> usize {
        let accepts = |branch: &&String| self.parts.accepts(branch, value) == Some(true);
        self.branches.iter().filter(accepts).count()
    }

    fn allows(&self, accepting: usize) -> bool {
        match accepting {
            0 => self.branches.is_empty(),
            1 => true,
            _ => !self.exclusive,
        }
    }
}

impl<'i> Keyword<'i> for Union {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        let accepting = self.accepting(value);
        if self.allows(accepting) {
            return Ok(());
        }
        let value = report::quoted(value);
        let count = self.branches.len();
        Err(ValidationError::custom(match accepting {
            0 => format!("{value} matches none of the {count} alternatives"),
            _ => {
                format!("{value} matches {accepting} of the {count} alternatives, not exactly one")
            }
        }))
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.allows(self.accepting(value))
    }
}
