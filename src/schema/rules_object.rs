//! The rules without the feature `jsonschema`: arguments are an object, whatever the schema says.

use serde_json::Value;

use super::{
    error::{Problems, SchemaError},
    well_formed,
};

#[derive(Debug)]
pub(super) struct Rules(());

impl Rules {
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        well_formed(schema).map(Self)
    }

    #[expect(clippy::unused_self, reason = "the shape of the rules that the feature brings")]
    pub(super) fn apply(&self, arguments: Value) -> Result<Value, Problems> {
        if arguments.is_object() {
            Ok(arguments)
        } else {
            Err(Problems::one("the arguments are not an object"))
        }
    }
}
