//! Witnesses of how far a tool call got. Only [`ExecutingTools`](super::ExecutingTools) makes them, each once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::ToolCall;
use crate::schema::ValidatedArguments;

/// Whether the calls of one message run side by side or one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionMode {
    /// All are checked one after the other, then those allowed run side by side.
    #[default]
    Parallel,
    /// Each is checked, run and answered before the next.
    Sequential,
}

/// A call that was announced and has to be checked: allow it with validated arguments, or reject it.
#[derive(Debug)]
#[must_use = "a call that is neither allowed nor rejected stops its batch"]
pub struct PreflightCall {
    pub(super) index: usize,
    pub(super) call: Arc<ToolCall>,
}

/// A call that may run, with its arguments.
#[derive(Debug)]
#[must_use = "an allowed call has to be started"]
pub struct AllowedCall {
    pub(super) running: RunningCall,
    pub(super) arguments: ValidatedArguments,
}

/// A call that runs: it has to be completed.
#[derive(Debug)]
#[must_use = "a running call has to be completed"]
pub struct RunningCall {
    pub(super) index: usize,
    pub(super) call: Arc<ToolCall>,
}

impl PreflightCall {
    /// Its position among the calls of its message.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The call.
    pub fn call(&self) -> &Arc<ToolCall> {
        &self.call
    }
}

impl AllowedCall {
    /// Starts the call: what is to be run, and the arguments for it.
    pub fn start(self) -> (RunningCall, ValidatedArguments) {
        (self.running, self.arguments)
    }
}

impl RunningCall {
    /// Its position among the calls of its message.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The call.
    pub fn call(&self) -> &Arc<ToolCall> {
        &self.call
    }
}
