//! A phase that was left is gone.

use turnstate::machine::{AwaitingSteering, Limits};
use turnstate::{Message, Transcript};

fn main() {
    let run = AwaitingSteering::<Message>::resume(Transcript::new(), Limits::default());
    let _next = run.handle_steering(Vec::new());
    let _again = run.handle_steering(Vec::new());
}
