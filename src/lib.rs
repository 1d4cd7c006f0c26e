//! The turns of a tool-using LLM agent as an explicit, typed state machine.

pub mod partial_json;
pub mod schema;
