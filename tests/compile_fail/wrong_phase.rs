//! A model's event is for a run that streams, not for one that looks for steering messages.

use turnstate::machine::{AwaitingSteering, Limits, Streaming};
use turnstate::{AssistantEvent, Message, Transcript};

fn main() {
    let mut run = AwaitingSteering::<Message>::resume(Transcript::new(), Limits::default());
    let _ = Streaming::handle(&mut run, AssistantEvent::start());
}
