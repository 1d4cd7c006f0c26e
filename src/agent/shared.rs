//! What the handles of an agent and its run share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::agent_loop::StartError;
use crate::message::AgentMessage;
use crate::queue::{Queues, RunId};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, step};

use super::AgentState;
use super::listener::Listeners;
use super::settings::{Fixed, Settings};

/// An agent. Locks are taken in the order of the fields, held for a few statements, and never over foreign code but
/// the getters of messages.
pub(super) struct Shared<M: AgentMessage> {
    /// The active run.
    active: Mutex<Option<Arc<Active>>>,
    pub(super) state: Mutex<AgentState<M>>,
    settings: Mutex<Arc<Settings<M>>>,
    pub(super) listeners: Listeners<M>,
    pub(super) queues: Queues<M>,
    pub(super) fixed: Fixed,
}

/// A run that has begun and not yet ended.
#[derive(Debug)]
pub(super) struct Active {
    /// Names the run, among all runs of the process.
    pub(super) id: u64,
    /// Aborts it.
    pub(super) cancel: CancellationToken,
    /// Cancelled when it has ended and its listeners are done.
    pub(super) done: CancellationToken,
    stop_after_turn: AtomicBool,
    /// Its name at the queues; set before anybody else sees the run.
    queue_run: OnceLock<RunId>,
}

/// Locks a mutex that no panic leaves half-way: no foreign code runs under our locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Active {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            cancel: CancellationToken::new(),
            done: CancellationToken::new(),
            stop_after_turn: AtomicBool::new(false),
            queue_run: OnceLock::new(),
        }
    }

    pub(super) fn stops_after_turn(&self) -> bool {
        self.stop_after_turn.load(Ordering::Acquire)
    }
}

impl<M: AgentMessage> Shared<M> {
    pub(super) fn new(state: AgentState<M>, settings: Settings<M>, queues: Queues<M>, fixed: Fixed) -> Self {
        Self {
            active: Mutex::new(None),
            state: Mutex::new(state),
            settings: Mutex::new(Arc::new(settings)),
            listeners: Listeners::new(),
            queues,
            fixed,
        }
    }

    pub(super) fn settings(&self) -> Arc<Settings<M>> {
        Arc::clone(&lock(&self.settings))
    }

    /// Puts another value into a field. What was there is dropped without the lock: it may be foreign.
    pub(super) fn set<T>(&self, field: impl FnOnce(&mut Settings<M>) -> &mut T, value: T) {
        let mut settings = lock(&self.settings);
        let mut changed = Settings::clone(&settings);
        let value = std::mem::replace(field(&mut changed), value);
        let before = std::mem::replace(&mut *settings, Arc::new(changed));
        drop(settings);
        drop((value, before));
    }

    pub(super) fn active(&self) -> Option<Arc<Active>> {
        lock(&self.active).clone()
    }

    /// Claims the agent for the run that `begin` makes. One of several at once wins; the others change nothing.
    pub(super) fn begin<T>(
        &self,
        begin: impl FnOnce(&Arc<Active>) -> Result<(T, RunId), StartError>,
    ) -> Result<T, StartError> {
        let mut active = lock(&self.active);
        if active.is_some() {
            return Err(StartError::Busy);
        }
        let run = Arc::new(Active::new());
        let (handle, id) = begin(&run)?;
        let _ = run.queue_run.set(id);
        *active = Some(run);
        Ok(handle)
    }

    /// Does something that no run must see.
    pub(super) fn while_idle<T>(&self, change: impl FnOnce() -> T) -> Result<T, StartError> {
        let active = lock(&self.active);
        if active.is_some() {
            Err(StartError::Busy)
        } else {
            Ok(change())
        }
    }

    /// The run and its listeners are done.
    pub(super) fn end(&self, run: &Active) {
        lock(&self.active).take_if(|active| active.id == run.id);
        step();
        run.done.cancel();
    }

    /// Aborts the active run. What is queued from here on is for the next.
    pub(super) fn abort(&self) {
        if let Some(run) = self.active() {
            self.abort_run(&run);
        }
    }

    /// The same for this run.
    pub(super) fn abort_run(&self, run: &Active) {
        if let Some(id) = run.queue_run.get() {
            self.queues.close_run(*id);
        }
        step();
        run.cancel.cancel();
    }

    pub(super) fn stop_after_turn(&self) {
        if let Some(run) = self.active() {
            run.stop_after_turn.store(true, Ordering::Release);
        }
    }
}
