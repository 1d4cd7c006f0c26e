//! What every phase carries: the run so far, and the events that are yet to be told.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::event::AgentEvent;
use crate::message::{AgentMessage, AssistantMessage, Message, Messages, Model, StopReason, Transcript};

use super::{Ended, RunEnd};

/// The run so far. It goes from phase to phase in a box: a phase is moved some ten times in a turn, through a future each
/// time something is asked of a hook.
///
/// A phase queues events; [`poll_event`](Self::poll_event) hands them out one by one, and only then do they count:
/// a message enters the transcript when its `message_end` is told (I5). A phase that is left before all was told takes
/// the rest with it, [settled](Self::settle): counted, still to be told.
#[derive(Debug, Clone)]
pub(super) struct Core<M> {
    /// What requests are made of.
    pub(super) transcript: Transcript<M>,
    /// What this run added.
    added: Messages<M>,
    outbox: VecDeque<Untold<M>>,
    /// How many at the front of the outbox are settled.
    settled: usize,
    turn_open: bool,
    turns: u32,
    max_turns: Option<NonZeroU32>,
}

#[derive(Debug, Clone)]
struct Untold<M> {
    event: AgentEvent<M>,
    /// Not told if the run is aborted first: a message that came from a queue, and the turn it would begin (I4, I6).
    revocable: bool,
}

impl<M: AgentMessage> Core<M> {
    pub(super) fn new(transcript: Transcript<M>, max_turns: Option<NonZeroU32>) -> Self {
        let mut core = Self {
            transcript,
            added: Messages::new(),
            outbox: VecDeque::new(),
            settled: 0,
            turn_open: false,
            turns: 1,
            max_turns,
        };
        core.tell(AgentEvent::AgentStart);
        core.tell(AgentEvent::TurnStart);
        core
    }

    /// The next event to tell.
    pub(super) fn poll_event(&mut self) -> Option<AgentEvent<M>> {
        let Untold { event, .. } = self.outbox.pop_front()?;
        match self.settled.checked_sub(1) {
            Some(left) => self.settled = left,
            None => self.record(&event),
        }
        Some(event)
    }

    /// Whether all was told.
    pub(super) fn is_told(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Counts what is not told yet as told.
    pub(super) fn settle(&mut self) {
        for place in self.settled..self.outbox.len() {
            let event = self.outbox[place].event.clone();
            self.record(&event);
        }
        self.settled = self.outbox.len();
    }

    fn record(&mut self, event: &AgentEvent<M>) {
        match event {
            AgentEvent::TurnStart => self.turn_open = true,
            AgentEvent::TurnEnd { .. } => self.turn_open = false,
            AgentEvent::MessageEnd { message } => {
                self.transcript.push(Arc::clone(message));
                self.added.push(Arc::clone(message));
            }
            _ => {}
        }
    }

    /// Queues an event.
    pub(super) fn tell(&mut self, event: AgentEvent<M>) {
        self.outbox.push_back(Untold {
            event,
            revocable: false,
        });
    }

    /// Queues a message that is complete.
    pub(super) fn tell_message(&mut self, message: Arc<M>) {
        self.tell(AgentEvent::message_start(&message));
        self.tell(AgentEvent::MessageEnd { message });
    }

    /// Queues messages that came from a queue.
    pub(super) fn tell_queued(&mut self, messages: Vec<Arc<M>>) {
        for message in messages {
            for event in [AgentEvent::message_start(&message), AgentEvent::MessageEnd { message }] {
                self.outbox.push_back(Untold { event, revocable: true });
            }
        }
    }

    /// Begins a turn behind the first, with what came from a queue.
    pub(super) fn begin_turn(&mut self, queued: Vec<Arc<M>>) {
        self.settle();
        self.turns = self.turns.saturating_add(1);
        self.outbox.push_back(Untold {
            event: AgentEvent::TurnStart,
            revocable: true,
        });
        self.tell_queued(queued);
    }

    /// Whether no further turn may begin.
    pub(super) fn at_limit(&self) -> bool {
        self.max_turns.is_some_and(|max| self.turns >= max.get())
    }

    /// Ends the run where it stands. What is to be told before the end counts only when it is told.
    pub(super) fn end(mut self: Box<Self>, end: RunEnd) -> Ended<M> {
        let messages = self.all_added();
        self.tell(AgentEvent::AgentEnd { messages });
        Ended { core: self, end }
    }

    /// Ends the run because something failed outside a response: with an assistant message that says so, in the open
    /// turn or one of its own.
    pub(super) fn fail(self: Box<Self>, model: &Model, error: String, now: u64) -> Ended<M> {
        self.close(
            AssistantMessage::local(model, StopReason::Error, error, now),
            RunEnd::Failed,
        )
    }

    /// Ends the run because it was aborted outside a response and outside tools. An open turn has no answer yet and
    /// gets one that says so; so does a tool result, which would make the next model go on with what was cancelled.
    pub(super) fn abort(mut self: Box<Self>, model: &Model, now: u64) -> Ended<M> {
        self.revoke();
        let ends_with_result = matches!(
            self.all_added().last().and_then(|last| last.as_message()),
            Some(Message::ToolResult(_))
        );
        if !self.leaves_turn_open() && !ends_with_result {
            return self.end(RunEnd::Aborted);
        }
        let error = super::ABORTED_REQUEST.to_owned();
        self.close(
            AssistantMessage::local(model, StopReason::Aborted, error, now),
            RunEnd::Aborted,
        )
    }

    fn close(mut self: Box<Self>, message: AssistantMessage, end: RunEnd) -> Ended<M> {
        if !self.leaves_turn_open() {
            self.tell(AgentEvent::TurnStart);
        }
        let message = Arc::new(M::from(message.into()));
        self.tell_message(Arc::clone(&message));
        self.tell(AgentEvent::TurnEnd {
            message,
            tool_results: Vec::new(),
        });
        self.end(end)
    }

    /// What does not count before it is told.
    fn uncounted(&self) -> impl DoubleEndedIterator<Item = &AgentEvent<M>> {
        self.outbox.iter().skip(self.settled).map(|untold| &untold.event)
    }

    /// What the run will have added when all is told.
    fn all_added(&self) -> Messages<M> {
        let mut messages = self.added.clone();
        messages.extend(self.uncounted().filter_map(|event| match event {
            AgentEvent::MessageEnd { message } => Some(Arc::clone(message)),
            _ => None,
        }));
        messages
    }

    /// Whether a turn will be open when all is told.
    fn leaves_turn_open(&self) -> bool {
        let last = self.uncounted().rev().find_map(|event| match event {
            AgentEvent::TurnStart => Some(true),
            AgentEvent::TurnEnd { .. } => Some(false),
            _ => None,
        });
        last.unwrap_or(self.turn_open)
    }

    /// Forgets what is revocable, but for the end of a message whose start was told.
    fn revoke(&mut self) {
        let begun = self
            .outbox
            .front()
            .is_some_and(|first| matches!(first.event, AgentEvent::MessageEnd { .. }));
        let (mut place, settled) = (0, self.settled);
        self.outbox.retain(|untold| {
            let keep = !untold.revocable || place < settled || (place == 0 && begun);
            place += 1;
            keep
        });
    }

    pub(super) fn into_parts(self) -> (Transcript<M>, Messages<M>) {
        (self.transcript, self.added)
    }

    pub(super) fn added(&self) -> &Messages<M> {
        &self.added
    }
}
