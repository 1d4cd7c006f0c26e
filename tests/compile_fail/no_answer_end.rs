//! An answer ends by what ended it, and a complete end cannot be made up.

use turnstate::DoneReason;
use turnstate::machine::{AnswerEnd, Streaming};

fn finish(run: Streaming<turnstate::Message>) {
    let _ = run.finish(DoneReason::Stop, 0);
}

fn make_up() -> AnswerEnd {
    AnswerEnd(DoneReason::Stop)
}

fn main() {}
