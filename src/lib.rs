//! The turns of a tool-using LLM agent as an explicit, typed state machine.

pub mod agent;
pub mod agent_loop;
pub mod event;
pub mod hooks;
pub mod machine;
pub mod message;
pub mod partial_json;
#[cfg(any(feature = "proxy", feature = "proxy-server"))]
pub mod proxy;
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
