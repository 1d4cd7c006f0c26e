//! Steering and follow-up messages: queued by anyone at any time, taken by the run (I4).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How many messages a look at a queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// One: each message has a turn of its own.
    #[default]
    OneAtATime,
    /// All that are there.
    All,
}

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// Enters the transcript before the next request.
    Steering,
    /// Enters the transcript when the run would otherwise end.
    FollowUp,
}

/// Names a queued message. Never used twice by the same [`Queues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u64);

/// Names a run to its queues. Never used twice by the same [`Queues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(u64);

/// Who will see a queued message, decided in the moment it was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The active run still looks at the queue, unless it fails, is stopped or aborted, or comes to its limit.
    ThisRun,
    /// The message waits for the next run: none is active, or its last look is over.
    NextRun,
}

/// The answer to queueing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// By which it can be [recalled](Queues::recall).
    pub id: QueueId,
    /// Who will see it.
    pub delivery: Delivery,
}

/// The two queues of an agent. A cheap handle: copies are the same queues.
///
/// Nothing is lost or doubled (I4): a run [leases](Lease) what it takes, commits it message by message as it enters
/// the transcript, and what it does not commit is at its old place again, in front, as if nobody had taken it. Nothing
/// is stranded: a run with nothing left to do ends by a [last look](RunTicket::last_look), in which finding nothing and no
/// longer counting as active are one step.
///
/// No operation waits for a run.
///
/// ```
/// use turnstate::{Delivery, QueueKind, Queues};
/// let queues = Queues::new();
/// let queued = queues.push(QueueKind::Steering, std::sync::Arc::new("wait"));
/// assert_eq!(queued.delivery, Delivery::NextRun);
/// assert_eq!(*queues.recall(queued.id).unwrap(), "wait");
/// assert!(!queues.has_queued());
/// ```
pub struct Queues<M> {
    inner: Arc<Mutex<Inner<M>>>,
}

struct Inner<M> {
    steering: Queue<M>,
    follow_up: Queue<M>,
    /// The runs whose last look is ahead.
    active: Vec<RunId>,
    /// The next id, of a message or a run.
    next: u64,
}

struct Queue<M> {
    mode: QueueMode,
    /// In order. Leased messages keep their place until they are committed.
    entries: VecDeque<Entry<M>>,
}

struct Entry<M> {
    id: QueueId,
    message: Arc<M>,
    leased: bool,
}

impl<M> Queue<M> {
    fn new() -> Self {
        Self {
            mode: QueueMode::default(),
            entries: VecDeque::new(),
        }
    }

    /// How many messages a look takes at most.
    fn portion(&self) -> usize {
        match self.mode {
            QueueMode::OneAtATime => 1,
            QueueMode::All => usize::MAX,
        }
    }

    /// Marks what a look takes as leased.
    fn take(&mut self) -> VecDeque<(QueueId, Arc<M>)> {
        let portion = self.portion();
        let free = self.entries.iter_mut().filter(|entry| !entry.leased);
        free.take(portion)
            .map(|entry| {
                entry.leased = true;
                (entry.id, Arc::clone(&entry.message))
            })
            .collect()
    }

    fn place(&self, id: QueueId) -> Option<usize> {
        // Ids ascend along the queue.
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }
}

impl<M> Inner<M> {
    fn is_active(&self, id: RunId) -> bool {
        self.active.contains(&id)
    }

    fn close(&mut self, id: RunId) {
        self.active.retain(|active| *active != id);
    }

    fn has_queued(&self) -> bool {
        !self.steering.entries.is_empty() || !self.follow_up.entries.is_empty()
    }

    fn queue(&mut self, kind: QueueKind) -> &mut Queue<M> {
        match kind {
            QueueKind::Steering => &mut self.steering,
            QueueKind::FollowUp => &mut self.follow_up,
        }
    }
}

impl<M> Queues<M> {
    /// Two empty queues, one at a time.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                steering: Queue::new(),
                follow_up: Queue::new(),
                active: Vec::new(),
                next: 0,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        // No foreign code runs under the lock, so it cannot be poisoned half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message.
    pub fn push(&self, kind: QueueKind, message: Arc<M>) -> Queued {
        let mut inner = self.lock();
        let id = QueueId(inner.next);
        inner.next += 1;
        let delivery = if inner.active.is_empty() {
            Delivery::NextRun
        } else {
            Delivery::ThisRun
        };
        inner.queue(kind).entries.push_back(Entry {
            id,
            message,
            leased: false,
        });
        Queued { id, delivery }
    }

    /// Takes a message back. `None` if a run has it, or it was recalled or cleared before.
    pub fn recall(&self, id: QueueId) -> Option<Arc<M>> {
        let mut inner = self.lock();
        for kind in [QueueKind::Steering, QueueKind::FollowUp] {
            let queue = inner.queue(kind);
            if let Some(place) = queue.place(id).filter(|place| !queue.entries[*place].leased) {
                return queue.entries.remove(place).map(|entry| entry.message);
            }
        }
        None
    }

    /// Takes back all that is queued, but for what a run has leased.
    pub fn clear(&self, kind: QueueKind) -> Vec<Arc<M>> {
        let mut inner = self.lock();
        let entries = &mut inner.queue(kind).entries;
        let (leased, cleared): (_, VecDeque<_>) = std::mem::take(entries).into_iter().partition(|entry| entry.leased);
        *entries = leased;
        cleared.into_iter().map(|entry| entry.message).collect()
    }

    /// Whether anything is queued or leased in either queue.
    pub fn has_queued(&self) -> bool {
        self.lock().has_queued()
    }

    /// What the next look would give if a run returned what it leased.
    pub fn peek(&self, kind: QueueKind) -> Vec<Arc<M>> {
        let mut inner = self.lock();
        let queue = inner.queue(kind);
        queue
            .entries
            .iter()
            .take(queue.portion())
            .map(|entry| Arc::clone(&entry.message))
            .collect()
    }

    /// How many a look takes.
    pub fn mode(&self, kind: QueueKind) -> QueueMode {
        self.lock().queue(kind).mode
    }

    /// Sets how many the next look takes.
    pub fn set_mode(&self, kind: QueueKind, mode: QueueMode) {
        self.lock().queue(kind).mode = mode;
    }

    /// Counts a run as active until its ticket is closed.
    pub fn open_run(&self) -> RunTicket<M> {
        let mut inner = self.lock();
        let id = RunId(inner.next);
        inner.next += 1;
        inner.active.push(id);
        RunTicket {
            queues: self.clone(),
            id,
        }
    }

    /// The run will not look at the queues again, whatever its ticket says: it was aborted.
    pub fn close_run(&self, id: RunId) {
        self.lock().close(id);
    }

    /// Leases what a look at a queue takes, for a run that is about to begin with it.
    pub fn lease(&self, kind: QueueKind) -> Lease<M> {
        let entries = self.lock().queue(kind).take();
        self.lease_of(kind, entries)
    }

    /// To be called without the lock, as a lease takes it when it is dropped.
    fn lease_of(&self, kind: QueueKind, entries: VecDeque<(QueueId, Arc<M>)>) -> Lease<M> {
        Lease {
            queues: self.clone(),
            kind,
            entries,
        }
    }
}

impl<M> Clone for Queues<M> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<M> Default for Queues<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> fmt::Debug for Queues<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Queues")
            .field("steering", &inner.steering.entries.len())
            .field("follow_up", &inner.follow_up.entries.len())
            .field("active", &inner.active.len())
            .finish()
    }
}

/// Says that a run is active: its last look at the queues is ahead. Only with an open ticket a run gets anything.
#[must_use = "the run counts as active only while it has its ticket"]
pub struct RunTicket<M> {
    queues: Queues<M>,
    id: RunId,
}

impl<M> RunTicket<M> {
    /// Names the run.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Leases what a look at a queue takes.
    pub fn lease(&self, kind: QueueKind) -> Lease<M> {
        let mut inner = self.queues.lock();
        let entries = if inner.is_active(self.id) {
            inner.queue(kind).take()
        } else {
            VecDeque::new()
        };
        drop(inner);
        self.queues.lease_of(kind, entries)
    }

    /// The look of a run that would end: what steering it has not seen, else follow-ups; if there is nothing, the run
    /// is no longer active from this very moment.
    pub fn last_look(&self) -> Lease<M> {
        let looked = self.last_look_unless_closed();
        looked.unwrap_or_else(|| self.queues.lease_of(QueueKind::FollowUp, VecDeque::new()))
    }

    /// The same; `None` if the run was closed by somebody else, so that what is queued, if anything, is not for it.
    pub(crate) fn last_look_unless_closed(&self) -> Option<Lease<M>> {
        let mut inner = self.queues.lock();
        if !inner.is_active(self.id) {
            return None;
        }
        let (mut kind, mut entries) = (QueueKind::Steering, inner.steering.take());
        if entries.is_empty() {
            (kind, entries) = (QueueKind::FollowUp, inner.follow_up.take());
        }
        if entries.is_empty() {
            inner.close(self.id);
        }
        drop(inner);
        Some(self.queues.lease_of(kind, entries))
    }

    /// The run will not look again; whether anything is queued in this moment.
    pub fn close_at_limit(&self) -> bool {
        let mut inner = self.queues.lock();
        inner.close(self.id);
        inner.has_queued()
    }

    /// The run will not look again.
    pub fn close(&self) {
        self.queues.close_run(self.id);
    }
}

impl<M> Drop for RunTicket<M> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<M> fmt::Debug for RunTicket<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunTicket").field(&self.id.0).finish()
    }
}

/// Messages a run has taken but not yet told. Those that are not committed when it is dropped are queued as before.
#[must_use = "what is not committed returns to its queue"]
pub struct Lease<M> {
    queues: Queues<M>,
    kind: QueueKind,
    entries: VecDeque<(QueueId, Arc<M>)>,
}

impl<M> Lease<M> {
    /// The queue they came from.
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    /// The messages that are not committed yet.
    pub fn messages(&self) -> Vec<Arc<M>> {
        self.entries.iter().map(|(_, message)| Arc::clone(message)).collect()
    }

    /// Whether all are committed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Commits the first message, if it is this one: it is in the transcript now, and no longer queued.
    pub fn commit(&mut self, message: &Arc<M>) -> bool {
        let Some((id, _)) = self.entries.pop_front_if(|(_, first)| Arc::ptr_eq(first, message)) else {
            return false;
        };
        let mut inner = self.queues.lock();
        let queue = inner.queue(self.kind);
        let entry = queue.place(id).and_then(|place| queue.entries.remove(place));
        drop(inner);
        entry.is_some()
    }
}

impl<M> Drop for Lease<M> {
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let mut inner = self.queues.lock();
        let queue = inner.queue(self.kind);
        for (id, _) in &self.entries {
            if let Some(place) = queue.place(*id) {
                queue.entries[place].leased = false;
            }
        }
    }
}

impl<M> fmt::Debug for Lease<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("kind", &self.kind)
            .field("left", &self.entries.len())
            .finish_non_exhaustive()
    }
}
