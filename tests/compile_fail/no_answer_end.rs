//! An answer ends by what ended it: a reason alone does not do.

use turnstate::DoneReason;
use turnstate::machine::Streaming;

fn finish(run: Streaming<turnstate::Message>) {
    let _ = run.finish(DoneReason::Stop, 0);
}

fn main() {}
