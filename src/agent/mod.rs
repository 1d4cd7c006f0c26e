//! The agent.

mod state;

pub use state::AgentState;
