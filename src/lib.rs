//! The turns of a tool-using LLM agent as an explicit, typed state machine.

// Here and not in the manifest: tests and examples fail by panicking.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod agent;
pub mod agent_loop;
pub mod event;
pub mod hooks;
pub mod machine;
pub mod message;
pub mod partial_json;
pub mod queue;
pub mod schema;
pub mod stream_fn;
pub mod tool;

pub use agent::*;
pub use agent_loop::*;
pub use event::*;
pub use hooks::*;
pub use message::*;
pub use queue::*;
pub use stream_fn::*;
pub use tokio_util::sync::CancellationToken;
pub use tool::*;
