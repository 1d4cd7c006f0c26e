//! The turns of an agent as a state machine: one type per phase, pure and synchronous.
//!
//! ```text
//!            prompt / resume
//!                   v
//!        +--> AwaitingSteering --(messages, or results to answer, or first turn)--> Requesting
//!        |          |                                                              |  ^   |
//!        |          +--(nothing to do)--> FollowUp --(messages)--------------------|--+   | stream
//!        |                                   |                                     |      v
//!        |                                   +--(none)--> Ended             fail / |  Streaming
//!        |                                                                  abort  |      |
//!        |                                                                         v      | finish
//!        |                                            (error, aborted)---------> Ended <--+
//!        |                                                                                |
//!        |              ExecutingTools <----------------(tool calls)----------------------+
//!        |                     | finish                                                   |
//!        |                     v                                                          |
//!        +----------------- TurnEnd <-------------------(no tool calls)-------------------+
//!                              |
//!                              +--(stop hook, limit, abort)--> Ended
//! ```
//!
//! **Each phase is a value. What leaves a phase consumes it, so that a spent or wrong state does not compile; what
//! keeps it is `&mut`. Nothing here waits, knows the time, or calls foreign code.** A driver
//!
//! 1. tells the events the phase has: `poll_event` until `None`;
//! 2. finds out what the phase asks for (what is queued, what the model says, what a tool gave), however it likes;
//! 3. puts that in (`handle_*`, `finish`, ...) and goes on with the phase it is given.
//!
//! Every phase can also be left by `abort`, which ends the run as [the contract](crate::docs::contract) says (§4.6), and the silent ones by
//! `fail`. An abort does not wait until all is told: what came from a queue and was not told yet is dropped then, for
//! the driver to give back (I4, I6), and the rest comes in the next phase. Whatever a driver does, the run's events
//! keep I1, and every tool call is answered (I3).
//!
//! Tools and hooks lie above the machine, and their rules (§4.4) are theirs:
//! [`ToolSet::execution_mode`](crate::ToolSet::execution_mode) says how a batch is run,
//! [`ToolSet::check`](crate::ToolSet::check) and [`Decision::apply`](crate::Decision::apply) are the preflight of a call,
//! [`ResultPatch::apply`](crate::ResultPatch::apply) is what a hook makes of its result.
//!
//! [`AgentLoop`](crate::AgentLoop) is the driver for async programs. A complete one by hand:
//!
//! ```
//! use turnstate::machine::{AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AwaitingSteering, Limits};
//! use turnstate::{AssistantEvent, DoneReason, Message, Model, Transcript};
//! use std::ops::ControlFlow;
//!
//! let model = Model::new("by-hand");
//! let mut told = Vec::new();
//! let prompt = vec![Message::user("hi").into()];
//! let mut run = AwaitingSteering::prompt(Transcript::new(), prompt, Limits::default());
//! while let Some(event) = run.poll_event() { told.push(event.kind()); }
//!
//! let AfterSteering::Requesting(mut request) = run.handle_steering(vec![]) else { unreachable!("first turn") };
//! while let Some(event) = request.poll_event() { told.push(event.kind()); }
//! assert_eq!(request.transcript().request().len(), 1); // what a model would be sent
//!
//! let mut streaming = request.stream(&model, 0);
//! let mut answer = [
//!     AssistantEvent::start(),
//!     AssistantEvent::TextStart { content_index: 0 },
//!     AssistantEvent::text_delta(0, "hello"),
//!     AssistantEvent::done(DoneReason::Stop),
//! ].into_iter();
//! let end = loop {
//!     match streaming.handle(answer.next().unwrap()) {
//!         ControlFlow::Continue(event) => told.extend(event.map(|event| event.kind())),
//!         ControlFlow::Break(end) => break end,
//!     }
//! };
//! let AfterAnswer::TurnEnd(mut turn) = streaming.finish(end, 0) else { unreachable!("no tool calls") };
//! while let Some(event) = turn.poll_event() { told.push(event.kind()); }
//!
//! let AfterTurn::AwaitingSteering(steering) = turn.handle_stop(false) else { unreachable!("no limit") };
//! let AfterSteering::FollowUp(follow_up) = steering.handle_steering(vec![]) else { unreachable!("nothing to do") };
//! let AfterFollowUp::Ended(mut ended) = follow_up.handle_messages(vec![]) else { unreachable!("nothing queued") };
//! while let Some(event) = ended.poll_event() { told.push(event.kind()); }
//! assert_eq!(told, [
//!     "agent_start", "turn_start", "message_start", "message_end",
//!     "message_start", "message_update", "message_update", "message_end", "turn_end", "agent_end",
//! ]);
//! ```

mod awaiting_steering;
mod core;
mod ended;
mod executing_tools;
mod follow_up;
mod requesting;
mod streaming;
mod tool_call;
mod turn_end;

use std::num::NonZeroU32;

pub use awaiting_steering::{AfterSteering, AwaitingSteering};
pub use ended::{Ended, RunEnd};
pub use executing_tools::{ExecutingTools, ToolAction};
pub use follow_up::{AfterFollowUp, FollowUp};
pub use requesting::Requesting;
pub use streaming::{AfterAnswer, AnswerEnd, Streaming};
pub use tool_call::{AllowedCall, ExecutionMode, PreflightCall, RunningCall};
pub use turn_end::{AfterTurn, AtLimit, TurnEnd};

/// The error message of an aborted response.
pub(crate) const ABORTED_REQUEST: &str = "Request was aborted";
/// The result of a tool call that was aborted.
pub(crate) const ABORTED_CALL: &str = "Operation aborted";

/// What bounds a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Limits {
    /// How many turns a run may have. Where it would go on beyond, it ends with [`RunEnd::Limit`].
    pub max_turns: Option<NonZeroU32>,
}

impl Limits {
    /// At most `max_turns` turns in a run.
    pub fn max_turns(max_turns: NonZeroU32) -> Self {
        Self {
            max_turns: Some(max_turns),
        }
    }
}

/// What all phases have in common: telling their events.
macro_rules! tells_events {
    ($phase:ident) => {
        impl<M: crate::message::AgentMessage> $phase<M> {
            /// The next event of the run. All should be told before the phase is left; those that are not, come
            /// first in the next.
            pub fn poll_event(&mut self) -> Option<crate::event::AgentEvent<M>> {
                self.core.poll_event()
            }

            /// The transcript, as far as it was told.
            pub fn transcript(&self) -> &crate::message::Transcript<M> {
                &self.core.transcript
            }
        }
    };
}
use tells_events;
