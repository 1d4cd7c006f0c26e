//! A call that may run is started once, and there is only one of it.

use turnstate::machine::{AllowedCall, RunningCall};

fn copy(call: &RunningCall) -> RunningCall {
    RunningCall::clone(call)
}

fn start_twice(call: AllowedCall) {
    let _ = call.start();
    let _ = call.start();
}

fn main() {}
