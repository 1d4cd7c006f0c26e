//! Any phase of the machine, for those who drive it by hand.

use turnstate::Message;
use turnstate::machine::{AtLimit, AwaitingSteering, Ended, ExecutingTools, FollowUp, Requesting, Streaming, TurnEnd};

pub(crate) enum Phase {
    AwaitingSteering(AwaitingSteering<Message>),
    Requesting(Requesting<Message>),
    Streaming(Box<Streaming<Message>>),
    ExecutingTools(Box<ExecutingTools<Message>>),
    TurnEnd(TurnEnd<Message>),
    AtLimit(AtLimit<Message>),
    FollowUp(FollowUp<Message>),
    Ended(Ended<Message>),
}

/// Does the same in any phase.
macro_rules! in_phase {
    ($phase:expr, $state:ident => $body:expr) => {
        match $phase {
            Phase::AwaitingSteering($state) => $body,
            Phase::Requesting($state) => $body,
            Phase::Streaming($state) => $body,
            Phase::ExecutingTools($state) => $body,
            Phase::TurnEnd($state) => $body,
            Phase::AtLimit($state) => $body,
            Phase::FollowUp($state) => $body,
            Phase::Ended($state) => $body,
        }
    };
}
pub(crate) use in_phase;
