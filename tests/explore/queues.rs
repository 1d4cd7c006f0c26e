//! The queues alone: two messages in each, two runs that may overlap, all that can be done to them.

use std::sync::Arc;

use turnstate::{Delivery, Lease, QueueId, QueueKind, QueueMode, Queues, RunTicket};

use QueueKind::{FollowUp, Steering};

use crate::explorer::{World, ensure};
use crate::pushed::KINDS;

const MESSAGES: usize = 2;
const RUNS: usize = 2;

#[derive(Debug, Clone)]
pub(crate) enum Move {
    Push(QueueKind),
    /// Takes back the message with this number.
    Recall(QueueKind, usize),
    Clear(QueueKind),
    /// From one at a time to all, in both.
    TakeAll,
    Open,
    /// A run looks at steering.
    Look(usize),
    LastLook(usize),
    AtLimit(usize),
    /// From outside, as an abort does.
    CloseRun(usize),
    /// A run commits the first message it has.
    Commit(usize),
    /// A run gives back what it has.
    Return(usize),
    DropTicket(usize),
}

/// A queue and a number: which message it is.
type Name = (QueueKind, usize);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Queued,
    Leased(usize),
    Committed,
    TakenBack,
}

struct Run {
    ticket: Option<RunTicket<Name>>,
    open: bool,
    lease: Option<Lease<Name>>,
}

pub(crate) struct QueueWorld {
    queues: Queues<Name>,
    /// Of each queue, where each message is that was pushed.
    places: [Vec<Place>; 2],
    ids: [Vec<QueueId>; 2],
    runs: Vec<Run>,
    marks: Vec<String>,
}

/// Whether the message is still in its queue.
fn here(place: &Place) -> bool {
    matches!(place, Place::Queued | Place::Leased(_))
}

impl QueueWorld {
    pub(crate) fn new() -> Self {
        Self {
            queues: Queues::new(),
            places: Default::default(),
            ids: Default::default(),
            runs: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn portion(&self, kind: QueueKind) -> usize {
        match self.queues.mode(kind) {
            QueueMode::OneAtATime => 1,
            QueueMode::All => MESSAGES,
        }
    }

    fn is_active(&self) -> bool {
        self.runs.iter().any(|run| run.open)
    }

    /// The messages of a queue that nobody has.
    fn free(&self, kind: QueueKind) -> impl Iterator<Item = usize> {
        let places = &self.places[kind as usize];
        (0..places.len()).filter(|number| places[*number] == Place::Queued)
    }

    /// Checks what a look gave, and keeps it.
    fn leased(&mut self, run: usize, kind: QueueKind, lease: Lease<Name>, open: bool) -> Result<(), String> {
        let expected: Vec<_> = self
            .free(kind)
            .take(if open { self.portion(kind) } else { 0 })
            .collect();
        let given: Vec<_> = lease.messages().iter().map(|message| **message).collect();
        ensure(
            given.iter().copied().eq(expected.iter().map(|number| (kind, *number))),
            &format!("I4: a look at {expected:?} of {kind:?} gives {given:?}"),
        )?;
        for number in expected {
            self.places[kind as usize][number] = Place::Leased(run);
        }
        self.runs[run].lease = Some(lease);
        Ok(())
    }

    fn push(&mut self, kind: QueueKind) -> Result<(), String> {
        let number = self.places[kind as usize].len();
        let queued = self.queues.push(kind, Arc::new((kind, number)));
        self.places[kind as usize].push(Place::Queued);
        self.ids[kind as usize].push(queued.id);
        let promised = queued.delivery == Delivery::ThisRun;
        ensure(promised == self.is_active(), "I4: promised to the wrong run")
    }

    fn last_look(&mut self, run: usize) -> Result<(), String> {
        let (Some(ticket), open) = (&self.runs[run].ticket, self.runs[run].open) else {
            return Ok(());
        };
        let lease = ticket.last_look();
        let kind = if self.free(Steering).next().is_some() {
            Steering
        } else {
            FollowUp
        };
        let nothing = lease.is_empty();
        self.leased(run, kind, lease, open)?;
        if open && nothing {
            self.runs[run].open = false;
            self.marks.push("a last look closes".to_owned());
            let stranded = KINDS.into_iter().any(|kind| self.free(kind).next().is_some());
            return ensure(!stranded, "I4: a run ends and leaves behind what it was to take");
        }
        Ok(())
    }

    fn give_back(&mut self, run: usize) {
        for place in self.places.iter_mut().flatten() {
            if *place == Place::Leased(run) {
                *place = Place::Queued;
            }
        }
    }

    fn commit(&mut self, run: usize) -> Result<(), String> {
        let Some(lease) = &mut self.runs[run].lease else {
            return Ok(());
        };
        let Some(first) = lease.messages().first().cloned() else {
            return Ok(());
        };
        ensure(lease.commit(&first), "I4: a message that is leased is not committed")?;
        ensure(!lease.commit(&first), "I4: a message is committed twice")?;
        self.places[first.0 as usize][first.1] = Place::Committed;
        Ok(())
    }
}

impl World for QueueWorld {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for kind in KINDS {
            let places = &self.places[kind as usize];
            if places.len() < MESSAGES {
                moves.push(Move::Push(kind));
            }
            let numbers = 0..places.len();
            moves.extend(
                numbers
                    .filter(|number| here(&places[*number]))
                    .map(|number| Move::Recall(kind, number)),
            );
            if places.iter().any(here) {
                moves.push(Move::Clear(kind));
            }
        }
        if self.queues.mode(Steering) == QueueMode::OneAtATime {
            moves.push(Move::TakeAll);
        }
        if self.runs.len() < RUNS {
            moves.push(Move::Open);
        }
        for (index, run) in self.runs.iter().enumerate() {
            if run.open {
                moves.push(Move::CloseRun(index));
            }
            match &run.lease {
                Some(lease) if lease.is_empty() => moves.push(Move::Return(index)),
                Some(_) => moves.extend([Move::Commit(index), Move::Return(index)]),
                None if run.ticket.is_some() => {
                    moves.extend([Move::Look(index), Move::LastLook(index), Move::AtLimit(index)]);
                }
                None => {}
            }
            if run.ticket.is_some() {
                moves.push(Move::DropTicket(index));
            }
        }
        moves
    }

    fn make(&mut self, next: &Move) -> Result<(), String> {
        self.marks.clear();
        match *next {
            Move::Push(kind) => self.push(kind)?,
            Move::Recall(kind, number) => {
                let recalled = self.queues.recall(self.ids[kind as usize][number]);
                let place = &mut self.places[kind as usize][number];
                ensure(
                    recalled.map(|message| *message) == (*place == Place::Queued).then_some((kind, number)),
                    "I4: what is queued, and no other, can be taken back",
                )?;
                if *place == Place::Queued {
                    *place = Place::TakenBack;
                }
            }
            Move::Clear(kind) => {
                let cleared = self.queues.clear(kind);
                let expected: Vec<_> = self.free(kind).collect();
                ensure(
                    cleared.iter().map(|message| message.1).eq(expected.iter().copied()),
                    "I4: what is queued, and no other, is cleared",
                )?;
                for number in expected {
                    self.places[kind as usize][number] = Place::TakenBack;
                }
            }
            Move::TakeAll => KINDS
                .into_iter()
                .for_each(|kind| self.queues.set_mode(kind, QueueMode::All)),
            Move::Open => self.runs.push(Run {
                ticket: Some(self.queues.open_run()),
                open: true,
                lease: None,
            }),
            Move::Look(run) => {
                if let (Some(ticket), open) = (&self.runs[run].ticket, self.runs[run].open) {
                    let lease = ticket.lease(Steering);
                    self.leased(run, Steering, lease, open)?;
                }
            }
            Move::LastLook(run) => self.last_look(run)?,
            Move::AtLimit(run) => {
                let queued = self.runs[run].ticket.as_ref().map(RunTicket::close_at_limit);
                self.runs[run].open = false;
                ensure(
                    queued == Some(self.queues.has_queued()),
                    "I4: the limit hides what is queued",
                )?;
            }
            Move::CloseRun(run) => {
                if let Some(ticket) = &self.runs[run].ticket {
                    self.queues.close_run(ticket.id());
                }
                self.runs[run].open = false;
            }
            Move::Commit(run) => self.commit(run)?,
            Move::Return(run) => {
                self.runs[run].lease = None;
                self.give_back(run);
            }
            Move::DropTicket(run) => {
                self.runs[run].ticket = None;
                self.runs[run].open = false;
            }
        }
        Ok(())
    }

    /// What can be seen from outside is what was done.
    fn check(&self) -> Result<(), String> {
        for kind in KINDS {
            let places = &self.places[kind as usize];
            let expected = (0..places.len()).filter(|number| here(&places[*number]));
            let expected = expected.take(self.portion(kind)).map(|number| (kind, number));
            let peeked = self.queues.peek(kind);
            ensure(
                peeked.iter().map(|message| **message).eq(expected),
                &format!("I4: {kind:?} is {places:?} but shows {peeked:?}"),
            )?;
        }
        let any = self.places.iter().flatten().any(here);
        ensure(self.queues.has_queued() == any, "I4: has_queued says otherwise")
    }

    fn state(&self) -> String {
        let places = self.places.each_ref().map(|places| {
            let places = places.iter().map(|place| match place {
                Place::Queued => "queued ".to_owned(),
                Place::Leased(run) => format!("leased by {run} "),
                Place::Committed | Place::TakenBack => "gone ".to_owned(),
            });
            places.collect::<String>()
        });
        let runs = self.runs.iter();
        let runs: Vec<_> = runs
            .map(|run| (run.ticket.is_some(), run.open, run.lease.is_some()))
            .collect();
        format!("{places:?}{:?}{runs:?}", self.queues.mode(Steering))
    }

    fn marks(&self) -> Vec<String> {
        let mut marks = self.marks.clone();
        let places = self.places.iter().flatten();
        marks.extend(places.map(|place| match place {
            Place::Queued => "queued".to_owned(),
            Place::Leased(_) => "leased".to_owned(),
            Place::Committed => "committed".to_owned(),
            Place::TakenBack => "taken back".to_owned(),
        }));
        if self.runs.iter().filter(|run| run.open).count() == 2 {
            marks.push("two runs at once".to_owned());
        }
        marks
    }

    /// Nothing need happen.
    fn is_over(&self) -> bool {
        true
    }
}
