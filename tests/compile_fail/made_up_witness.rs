//! Only a check makes validated arguments, only a batch hands out calls.

use turnstate::machine::{AllowedCall, RunningCall};
use turnstate::schema::ValidatedArguments;

fn make_up() -> ValidatedArguments {
    ValidatedArguments(serde_json::Value::Null)
}

fn clone(call: &RunningCall) -> RunningCall {
    RunningCall::clone(call)
}

fn start_twice(call: AllowedCall) {
    let _ = call.start();
    let _ = call.start();
}

fn main() {}
