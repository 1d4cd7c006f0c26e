//! A call is allowed or rejected, and once.

use turnstate::machine::{ExecutingTools, PreflightCall};
use turnstate::schema::ValidatedArguments;
use turnstate::{Message, ToolResult};

fn check(mut batch: ExecutingTools<Message>, call: PreflightCall, arguments: ValidatedArguments) {
    batch.allow(call, arguments);
    batch.reject(call, ToolResult::error("no"), 0);
}

fn main() {}
