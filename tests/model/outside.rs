//! The model's outside: what happens between two events, who waits for what, and the queues (§4.2).

use crate::flat::{Aborted, Flat, Queued};
use crate::script::Op;

/// Who waits to be let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seat {
    /// A hook, or the model: there is never more than one of them.
    Foreign,
    Listener,
    /// A running tool, or the hook behind it, by the place of the call.
    Tool(usize),
}

impl Flat<'_> {
    pub(crate) fn rare(&mut self, what: &'static str) {
        self.rare.push(what);
    }

    /// Tells an event: a step, and two where a listener waits first.
    pub(crate) fn tell(&mut self, line: String) {
        self.told.push(line);
        if self.run.dropped {
            return;
        }
        if self.script.setup.slow_listener {
            self.run.waiting.push(Seat::Listener);
            loop {
                self.step();
                if self.run.dropped {
                    self.rare("drop in a listener");
                    self.leave(Seat::Listener);
                    return;
                }
                match self.pick() {
                    Seat::Tool(index) => {
                        self.rare("a tool goes on while a listener waits");
                        self.run.ready.push(index);
                    }
                    _ => break,
                }
            }
        }
        self.step();
    }

    /// Waits for a hook or the model. Without a seat it never goes on, so that in the end the run is aborted.
    pub(crate) fn wait(&mut self, seat: Option<Seat>) -> Result<(), Aborted> {
        if self.run.aborted {
            return Err(Aborted);
        }
        self.run.waiting.extend(seat);
        self.step();
        if !self.run.aborted && self.run.waiting.is_empty() {
            self.rare("a hang that an abort ended");
            self.abort();
        }
        if self.run.aborted {
            self.run.waiting.clear();
            return Err(Aborted);
        }
        self.pick();
        Ok(())
    }

    /// One of those who wait may go on.
    pub(crate) fn pick(&mut self) -> Seat {
        let pick = usize::from(self.script.picks[self.picked % self.script.picks.len()]);
        self.picked += 1;
        self.run.waiting.remove(pick % self.run.waiting.len())
    }

    pub(crate) fn leave(&mut self, seat: Seat) {
        self.run.waiting.retain(|other| *other != seat);
    }

    /// An event was told, or a wait was reached.
    pub(crate) fn step(&mut self) {
        self.run.steps += 1;
        self.outside();
    }

    /// What happens outside at this step.
    pub(crate) fn outside(&mut self) {
        let now = self.run.steps;
        let ops: Vec<Op> = self
            .run
            .ops
            .iter()
            .filter(|(at, _)| *at == now)
            .map(|(_, op)| *op)
            .collect();
        for op in ops {
            if self.run.dropped {
                return;
            }
            match op {
                Op::Steer => self.push(0),
                Op::FollowUp => self.push(1),
                Op::Recall(which) => {
                    if self.queued_so_far > 0 {
                        let which = format!("queued {}", usize::from(which) % self.queued_so_far);
                        self.take_back(&[0, 1], |queued| queued.text == which);
                    }
                }
                Op::ClearSteering => self.take_back(&[0], |_| true),
                Op::ClearFollowUps => self.take_back(&[1], |_| true),
                Op::SteeringMode(all) => self.all[0] = all,
                Op::FollowUpMode(all) => self.all[1] = all,
                Op::ExecutionMode(sequential) => self.sequential = sequential,
                Op::Abort => self.abort(),
                Op::Drop => {
                    self.rare("drop");
                    self.run.dropped = true;
                    self.abort();
                }
                Op::StopAfterTurn => self.run.stops = true,
                Op::Busy | Op::LateUpdate => {}
            }
        }
    }

    pub(crate) fn push(&mut self, kind: usize) {
        if self.run.aborted {
            self.rare("queued after an abort");
        }
        self.queues[kind].push(Queued {
            text: format!("queued {}", self.queued_so_far),
            leased: false,
        });
        self.queued_so_far += 1;
        self.note(if self.run.looks {
            "for this run"
        } else {
            "for the next run"
        });
    }

    /// Takes back what is queued and not leased.
    fn take_back(&mut self, kinds: &[usize], what: impl Fn(&Queued) -> bool) {
        let before = self.queues.iter().map(Vec::len).sum::<usize>();
        for kind in kinds {
            self.queues[*kind].retain(|queued| queued.leased || !what(queued));
        }
        let taken = before - self.queues.iter().map(Vec::len).sum::<usize>();
        if taken > 0 {
            self.rare("taken back");
        }
        self.note(&format!("took back {taken}"));
    }

    fn note(&mut self, what: &str) {
        let text = |queue: &Vec<Queued>| {
            queue
                .iter()
                .map(|queued| queued.text.clone())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let [steering, follow_ups] = [text(&self.queues[0]), text(&self.queues[1])];
        self.told
            .push(format!("{what}; steering: {steering}; follow-ups: {follow_ups}"));
    }

    /// From here on the run looks at no queue (I6).
    pub(crate) fn abort(&mut self) {
        self.run.aborted = true;
        self.run.looks = false;
    }

    /// Takes what the queue's mode says; it counts as queued until it is told. After an abort nothing is taken.
    pub(crate) fn lease(&mut self, kind: usize) -> Vec<String> {
        let portion = if self.all[kind] { usize::MAX } else { 1 };
        let taken = self.queues[kind].iter_mut().take(portion);
        taken
            .map(|queued| {
                queued.leased = true;
                queued.text.clone()
            })
            .collect()
    }

    pub(crate) fn commit(&mut self, text: &str) {
        for queue in &mut self.queues {
            queue.retain(|queued| queued.text != *text);
        }
    }

    /// What was taken and not told is queued again, where it was.
    pub(crate) fn give_back(&mut self) {
        for queued in self.queues.iter_mut().flatten() {
            queued.leased = false;
        }
    }
}
