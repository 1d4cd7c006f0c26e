//! What must hold of the events, the requests and the queues at every step (I1, I3, I4, I5, I6, I7, I8).

use std::sync::Arc;

use turnstate::{
    AgentEvent, AgentState, Delivery, ListenerContext, Message, Messages, QueueId, QueueKind, Queued, Request,
};

use crate::rules::{Nesting, sendable};
use crate::words::line;

/// Both queues.
pub(super) const KINDS: [QueueKind; 2] = [QueueKind::Steering, QueueKind::FollowUp];

/// What was told and queued so far.
#[derive(Default)]
pub(super) struct Watch {
    nesting: Nesting<Message>,
    /// The fold of all that was told since the transcript was last set.
    pub(super) fold: AgentState,
    /// The events of the last run.
    pub(super) heard: Vec<AgentEvent>,
    /// The run that begins drops the last message.
    pub(super) is_retry: bool,
    /// What is queued, in order.
    pub(super) queued: [Vec<Entry>; 2],
    pushed: usize,
}

/// A queued message.
pub(super) struct Entry {
    pub(super) id: QueueId,
    pub(super) text: String,
    /// The run that was active when it was queued, or the first one after, has to look at it.
    pub(super) is_owed: bool,
}

impl Watch {
    /// The events of the last run in shorthand.
    pub(super) fn line(&self) -> String {
        line(&self.heard)
    }

    /// The runs that ended.
    pub(super) fn runs(&self) -> usize {
        self.nesting.runs
    }

    /// The text of the next message for a queue.
    pub(super) fn next_text(&mut self, kind: QueueKind) -> String {
        self.pushed += 1;
        format!("{}{}", ["s", "f"][kind as usize], self.pushed)
    }

    pub(super) fn pushed(&mut self, kind: QueueKind, text: String, queued: Queued) {
        self.queued[kind as usize].push(Entry {
            id: queued.id,
            text,
            is_owed: queued.delivery == Delivery::ThisRun,
        });
    }

    /// What is queued of this kind.
    pub(super) fn texts(&self, kind: QueueKind) -> Vec<&str> {
        self.queued[kind as usize].iter().map(|entry| &*entry.text).collect()
    }

    /// The place of a message that came from a queue.
    fn place(&self, message: &Message) -> Option<(QueueKind, usize)> {
        let text = message.text();
        KINDS.into_iter().find_map(|kind| {
            let place = self.queued[kind as usize].iter().position(|entry| entry.text == text);
            place.map(|place| (kind, place))
        })
    }

    /// Takes an event in; gives what is wrong with it.
    pub(super) fn hear(&mut self, event: &AgentEvent, cx: &ListenerContext<'_>, aborted: bool) -> Option<String> {
        if matches!(event, AgentEvent::AgentStart) && self.is_retry {
            let kept = self.fold.transcript().len() - 1;
            let kept = self.fold.transcript().prefix(kept);
            self.fold.set_transcript(kept);
        }
        self.heard.push(event.clone());
        self.fold.apply(event);
        let agent = cx.agent();
        let wrong = self.nesting.check(event).err().map(|error| format!("I1, I3: {error}"));
        let wrong = wrong.or_else(|| self.follow_queues(event, aborted));
        let wrong = wrong.or_else(|| {
            let pending = agent.pending_tool_calls();
            let folded = self.fold.pending_tool_calls().map(|(_, call)| call);
            if !same_end(self.fold.transcript(), &cx.transcript()) {
                Some("I5: the transcript is not the fold of the events")
            } else if !folded.eq(&pending) {
                Some("I5: other calls are pending than were told")
            } else if self.fold.error_message() != agent.error_message().as_deref() {
                Some("I5: another error than was told")
            } else if matches!(event, AgentEvent::MessageUpdate { .. }) && self.fold.partial() != cx.partial() {
                Some("I7: the partial is not the fold of its deltas")
            } else if !agent.is_streaming() {
                Some("I1: an event of an idle agent")
            } else {
                None
            }
            .map(str::to_owned)
        });
        wrong.map(|wrong| format!("{wrong}, at {}", event.kind()))
    }

    fn follow_queues(&mut self, event: &AgentEvent, aborted: bool) -> Option<String> {
        match event {
            AgentEvent::MessageStart { message, .. } if aborted && self.place(message).is_some() => {
                Some(format!("I6: {} is delivered after an abort", message.text()))
            }
            AgentEvent::MessageEnd { message } => {
                let (kind, place) = self.place(message)?;
                self.queued[kind as usize].remove(place);
                (place != 0).then(|| format!("I4: {} is delivered out of order", message.text()))
            }
            _ => None,
        }
    }

    /// What is wrong with a request.
    pub(super) fn request(&self, request: &Request) -> Option<String> {
        if let Err(error) = sendable(request.messages.iter().map(|message| &**message)) {
            return Some(format!("I3: {error}, in a request"));
        }
        // What is sent are messages of the transcript, in order, and placeholders for results that are missing.
        let mut transcript = self.fold.transcript().iter();
        let mut own = request.messages.iter().filter(|message| {
            message.text() != "No result provided" && !transcript.any(|other| Arc::ptr_eq(other, message))
        });
        own.next()
            .map(|message| format!("I8: {message:?} is sent, and is not the transcript's"))
    }
}

/// The same messages, not only equal ones.
pub(super) fn same(one: &Messages<Message>, other: &Messages<Message>) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// As many messages, and the same last one; at the end of a run all are compared.
fn same_end(one: &Messages<Message>, other: &Messages<Message>) -> bool {
    let (last, other_last) = (one.last(), other.last());
    one.len() == other.len() && last.map(Arc::as_ptr) == other_last.map(Arc::as_ptr)
}
