//! Any driver, any answers, an abort anywhere: [`drive`] checks I1, I2, I3, I5, I6 and I7 on the way; here the queues are
//! real, so that I4 is checked too. For the property, and for the fuzz target `machine`.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use turnstate::machine::{AwaitingSteering, ExecutionMode, Limits, PreflightCall, RunEnd, RunningCall};
use turnstate::{
    AgentEvent, AssistantEvent, DoneReason, ErrorReason, Lease, Message, QueueKind, QueueMode, Queued, Queues,
    RunTicket, ToolResult, Transcript,
};

use crate::driver::{Progress, World, drive};
use crate::invariants::paired;
use crate::tape::Tape;
use crate::words::{names, user};

/// Decides everything by a tape, at whose end the answer is always 0, which lets the run end.
struct Chance<'a> {
    tape: Tape<'a>,
    /// One event in so many is not told before the phase is left; 0: all are.
    lag: u8,
    queues: Queues<Message>,
    ticket: RunTicket<Message>,
    /// More than one while what was taken first is still to be told.
    leases: Vec<Lease<Message>>,
    pushed: Vec<(QueueKind, Arc<Message>)>,
    /// The text of what was told of `pushed`, in order.
    delivered: Vec<String>,
    answer: VecDeque<AssistantEvent>,
    aborted: bool,
    calls: usize,
}

impl<'a> Chance<'a> {
    fn new(tape: Tape<'a>, lag: u8) -> Self {
        let queues = Queues::new();
        Self {
            tape,
            lag,
            ticket: queues.open_run(),
            queues,
            leases: Vec::new(),
            pushed: Vec::new(),
            delivered: Vec::new(),
            answer: VecDeque::new(),
            aborted: false,
            calls: 0,
        }
    }

    /// A number below `below`.
    fn below(&mut self, below: u8) -> u8 {
        self.tape.below(below)
    }

    /// Yes, once in `times`.
    fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == times - 1
    }

    fn push(&mut self, kind: QueueKind) {
        let message = user(&format!("{} {}", ["s", "f"][kind as usize], self.pushed.len()));
        let Queued { .. } = self.queues.push(kind, Arc::clone(&message));
        self.pushed.push((kind, message));
    }

    fn take(&mut self, lease: Lease<Message>) -> Vec<Arc<Message>> {
        let messages = lease.messages();
        self.leases.push(lease);
        messages
    }

    fn write_answer(&mut self) -> VecDeque<AssistantEvent> {
        let mut answer = VecDeque::new();
        if !self.once_in(4) {
            answer.push_back(AssistantEvent::start());
        }
        for index in 0..usize::from(self.below(4)) {
            if self.once_in(2) {
                self.calls += 1;
                // Ids repeat, over turns too, and some are empty.
                let id = ["", "x", "y"][self.calls % 3];
                answer.push_back(AssistantEvent::tool_call_start(index, id, "t"));
                answer.push_back(AssistantEvent::tool_call_delta(index, r#"{"n":"#));
                answer.push_back(AssistantEvent::tool_call_delta(index, ["1}", ""][self.calls % 2]));
            } else {
                answer.push_back(AssistantEvent::TextStart { content_index: index });
                answer.push_back(AssistantEvent::text_delta(index, "hi"));
            }
        }
        match self.below(16) {
            15 => answer.push_back(AssistantEvent::error("failed")),
            14 => answer.push_back(AssistantEvent::Error {
                reason: ErrorReason::Aborted,
                error_message: None,
                usage: Box::default(),
                message: None,
                failure: None,
            }),
            13 => {}
            12 => answer.push_back(AssistantEvent::text_delta(9, "of no block")),
            11 => answer.push_back(AssistantEvent::done(DoneReason::Length)),
            10 => answer.extend([AssistantEvent::start(), AssistantEvent::done(DoneReason::ToolUse)]),
            _ => answer.push_back(AssistantEvent::done(DoneReason::Stop)),
        }
        answer
    }
}

impl World for Chance<'_> {
    fn hear(&mut self, event: &AgentEvent) {
        if let AgentEvent::MessageStart { message, .. } = event {
            let is_queued = self
                .leases
                .iter()
                .flat_map(Lease::messages)
                .any(|taken| Arc::ptr_eq(&taken, message));
            // Where a driver lags, it may count already.
            let revoked = is_queued && self.aborted && self.lag == 0;
            assert!(!revoked, "{} is delivered after an abort (I6)", message.text());
        }
        if let AgentEvent::MessageEnd { message } = event
            && self.leases.iter_mut().any(|lease| lease.commit(message))
        {
            self.delivered.push(message.text());
        }
        if let kind @ 14..=15 = self.below(16) {
            self.push([QueueKind::Steering, QueueKind::FollowUp][usize::from(kind - 14)]);
        }
    }

    fn aborts(&mut self) -> bool {
        self.aborted = self.aborted || self.once_in(64);
        self.aborted
    }

    fn lags(&mut self) -> bool {
        self.lag > 0 && self.once_in(self.lag)
    }

    fn fails(&mut self, _phase: &'static str) -> bool {
        self.once_in(32)
    }

    fn steering(&mut self) -> Vec<Arc<Message>> {
        let lease = self.queues.lease(QueueKind::Steering);
        self.take(lease)
    }

    fn follow_ups(&mut self) -> Vec<Arc<Message>> {
        let lease = self.ticket.last_look();
        self.take(lease)
    }

    fn queued(&mut self) -> bool {
        !self.ticket.last_look().is_empty()
    }

    fn request(&mut self, transcript: &Transcript<Message>) {
        assert!(!self.aborted, "no request is sent after an abort (I6)");
        let mut taken = self.leases.iter().flat_map(Lease::messages);
        // A driver that lags asks before all was told.
        let is_sent = |message: Arc<Message>| transcript.iter().any(|sent| Arc::ptr_eq(sent, &message));
        assert!(self.lag > 0 || taken.all(is_sent), "what was taken is sent (I4)");
        let sent: Vec<_> = transcript.request().iter().cloned().collect();
        assert_eq!(paired(&sent), Ok(()), "{}", names(&sent));
        self.answer = self.write_answer();
    }

    fn model(&mut self) -> Option<AssistantEvent> {
        self.answer.pop_front()
    }

    fn stops(&mut self) -> bool {
        self.once_in(32)
    }

    fn mode(&mut self) -> (ExecutionMode, Option<NonZeroUsize>) {
        let mode = [ExecutionMode::Parallel, ExecutionMode::Sequential][usize::from(self.below(2))];
        (mode, NonZeroUsize::new(usize::from(self.below(3))))
    }

    fn rejects(&mut self, _call: &PreflightCall) -> Option<ToolResult> {
        self.once_in(4).then(|| ToolResult::error("no"))
    }

    fn starts(&mut self, _call: &RunningCall) {}

    fn tools(&mut self, running: &[RunningCall], aborted: bool) -> Option<Progress> {
        match self.below(8) {
            7 => Some(Progress::Update(usize::from(self.below(4)))),
            6 if aborted => None,
            _ if running.is_empty() => None,
            _ => {
                let place = usize::from(self.below(8)) % running.len();
                let result = ToolResult::text("done");
                let wish = self.once_in(2);
                Some(Progress::Complete(
                    place,
                    if wish { result.with_terminate(true) } else { result },
                ))
            }
        }
    }
}

/// I4: what was delivered and what is still queued is what was pushed, in order, of each queue.
fn nothing_is_lost_or_doubled(chance: Chance<'_>) {
    let Chance {
        queues,
        leases,
        pushed,
        delivered,
        ..
    } = chance;
    drop(leases);
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        queues.set_mode(kind, QueueMode::All);
        let initial = ["s ", "f "][kind as usize];
        let mut found: Vec<_> = delivered
            .iter()
            .filter(|text| text.starts_with(initial))
            .cloned()
            .collect();
        found.extend(queues.peek(kind).iter().map(|message| message.text()));
        let expected: Vec<_> = pushed
            .iter()
            .filter(|(other, _)| *other == kind)
            .map(|(_, m)| m.text())
            .collect();
        assert_eq!(found, expected);
    }
}

/// Plays a run: the first bytes say how it begins, the others all that happens.
///
/// # Panics
/// If something does not hold.
pub(crate) fn play(data: &[u8]) {
    let mut tape = Tape(data);
    let lag = tape.below(12);
    let limits = NonZeroU32::new(tape.below(6).into()).map_or_else(Limits::default, Limits::max_turns);
    let (start, all) = (tape.below(4), [tape.once_in(2), tape.once_in(2)]);
    // `drive` allows so many steps.
    let mut chance = Chance::new(Tape(tape.take(1_000)), if lag < 2 { 0 } else { lag });
    for (kind, all) in [QueueKind::Steering, QueueKind::FollowUp].into_iter().zip(all) {
        let mode = if all { QueueMode::All } else { QueueMode::OneAtATime };
        chance.queues.set_mode(kind, mode);
    }
    let before: Transcript<Message> = vec![user("earlier")].into();
    let run = match start {
        0 => AwaitingSteering::resume(before, limits),
        1 => AwaitingSteering::prompt(before, vec![user("go"), user("now")], limits),
        start => {
            let kind = [QueueKind::Steering, QueueKind::FollowUp][usize::from(start - 2)];
            chance.push(kind);
            chance.push(kind);
            let lease = chance.queues.lease(kind);
            AwaitingSteering::queued(before, chance.take(lease), kind, limits)
        }
    };
    let over = drive(&mut chance, run);
    if chance.aborted && over.end != RunEnd::Failed {
        let last = over.added.last();
        assert!(
            last.is_none_or(|last| last.as_tool_result().is_none()),
            "{}",
            over.line()
        );
    }
    nothing_is_lost_or_doubled(chance);
}
