//! The messages that were pushed to the queues, and I4: each is in the transcript once or still queued, in order.

use std::sync::Arc;

use turnstate::{Message, Messages, QueueKind, QueueMode, Queues};

use crate::explorer::ensure;

pub(crate) const KINDS: [QueueKind; 2] = [QueueKind::Steering, QueueKind::FollowUp];

/// How many messages were pushed to each queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pushed {
    steering: usize,
    follow_up: usize,
}

/// The text of the message with this number.
fn text(kind: QueueKind, number: usize) -> String {
    match kind {
        QueueKind::Steering => format!("s{number}"),
        QueueKind::FollowUp => format!("f{number}"),
    }
}

/// What a transcript means for what comes: who said something, and what was queued.
pub(crate) fn outline(transcript: &Messages<Message>) -> String {
    let words = transcript.iter().map(|message| match &**message {
        Message::User(_) => message.text() + " ",
        message => message.role()[..1].to_owned() + " ",
    });
    words.collect()
}

impl Pushed {
    pub(crate) fn count(self, kind: QueueKind) -> usize {
        match kind {
            QueueKind::Steering => self.steering,
            QueueKind::FollowUp => self.follow_up,
        }
    }

    pub(crate) fn total(self) -> usize {
        self.steering + self.follow_up
    }

    /// The text of the next message for this queue, which counts as pushed.
    pub(crate) fn next(&mut self, kind: QueueKind) -> String {
        let count = match kind {
            QueueKind::Steering => &mut self.steering,
            QueueKind::FollowUp => &mut self.follow_up,
        };
        *count += 1;
        text(kind, *count)
    }

    pub(crate) fn push(&mut self, kind: QueueKind, queues: &Queues<Message>) {
        queues.push(kind, Arc::new(Message::user(self.next(kind))));
    }

    pub(crate) fn contains(self, message: &Message) -> bool {
        let said = (message.role() == "user").then(|| message.text());
        let mut all = KINDS.into_iter().flat_map(|kind| self.all(kind));
        said.is_some_and(|said| all.any(|text| text == said))
    }

    fn all(self, kind: QueueKind) -> impl Iterator<Item = String> {
        (1..=self.count(kind)).map(move |number| text(kind, number))
    }

    /// I4, of each queue.
    pub(crate) fn check(self, transcript: &Messages<Message>, queues: &Queues<Message>) -> Result<(), String> {
        KINDS.into_iter().try_for_each(|kind| {
            let mode = queues.mode(kind);
            queues.set_mode(kind, QueueMode::All);
            let queued = queues.peek(kind);
            queues.set_mode(kind, mode);
            self.check_queue(kind, transcript, &queued)
        })
    }

    pub(crate) fn check_queue(
        self,
        kind: QueueKind,
        transcript: &Messages<Message>,
        queued: &[Arc<Message>],
    ) -> Result<(), String> {
        let all: Vec<_> = self.all(kind).collect();
        let told = transcript.iter().filter(|message| message.role() == "user");
        let told = told.map(|message| message.text()).filter(|text| all.contains(text));
        let found: Vec<_> = told.chain(queued.iter().map(|message| message.text())).collect();
        ensure(found == all, &format!("I4: {found:?} of {all:?} in {kind:?}"))
    }
}
