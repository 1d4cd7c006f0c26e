//! Listeners: who is told every event, before the holder of the run.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use crate::agent_loop::foreign::catch;
use crate::event::AgentEvent;
use crate::message::{AgentMessage, AssistantMessage, Message, Transcript};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, thread_local};
use crate::tool::{BoxError, BoxFuture};

use super::Agent;
use super::shared::{Active, Shared, lock};

/// What a listener is told beside the event. Lent for the length of the call.
pub struct ListenerContext<'a, M: AgentMessage = Message> {
    pub(super) shared: &'a Arc<Shared<M>>,
    pub(super) active: &'a Active,
    pub(super) partial: Option<&'a AssistantMessage>,
}

impl<M: AgentMessage> ListenerContext<'_, M> {
    /// The assistant message that streams, as it is after the event.
    pub fn partial(&self) -> Option<&AssistantMessage> {
        self.partial
    }

    /// Cancelled when the run is aborted.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.active.cancel
    }

    /// The transcript, with the event in it.
    pub fn transcript(&self) -> Transcript<M> {
        lock(&self.shared.state).transcript().clone()
    }

    /// The agent, to steer or abort it, say. To keep it in the listener instead would keep the agent alive for ever.
    pub fn agent(&self) -> Agent<M> {
        Agent::from_shared(Arc::clone(self.shared))
    }
}

impl<M: AgentMessage> fmt::Debug for ListenerContext<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerContext")
            .field("partial", &self.partial)
            .finish_non_exhaustive()
    }
}

/// What an async listener is told beside the event.
#[derive(Debug)]
pub struct AsyncListenerContext<M: AgentMessage = Message> {
    agent: Agent<M>,
    cancel: CancellationToken,
}

impl<M: AgentMessage> AsyncListenerContext<M> {
    /// The agent: its state has the event in it.
    pub fn agent(&self) -> &Agent<M> {
        &self.agent
    }

    /// Cancelled when the run is aborted.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.cancel
    }
}

type SyncListener<M> = dyn Fn(&AgentEvent<M>, &ListenerContext<'_, M>) -> Result<(), BoxError> + Send + Sync;
type AsyncListener<M> =
    dyn Fn(Arc<AgentEvent<M>>, AsyncListenerContext<M>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync;

pub(super) enum Call<M: AgentMessage> {
    Sync(Box<SyncListener<M>>),
    Async(Box<AsyncListener<M>>),
}

pub(super) struct Listener<M: AgentMessage> {
    pub(super) call: Call<M>,
    subscribed: AtomicBool,
}

impl<M: AgentMessage> Listener<M> {
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscribed.load(Ordering::Acquire)
    }

    /// What an async listener is told.
    pub(super) fn context(shared: &Arc<Shared<M>>, active: &Active) -> AsyncListenerContext<M> {
        AsyncListenerContext {
            agent: Agent::from_shared(Arc::clone(shared)),
            cancel: active.cancel.clone(),
        }
    }
}

/// The listeners as of one event.
pub(super) type Snapshot<M> = Arc<[Arc<Listener<M>>]>;

/// The listeners of an agent, in the order of their subscription.
pub(super) struct Listeners<M: AgentMessage> {
    current: Mutex<Snapshot<M>>,
    /// How often they changed; grows under the lock.
    changes: AtomicUsize,
}

impl<M: AgentMessage> Listeners<M> {
    pub(super) fn new() -> Self {
        Self {
            current: Mutex::new(Arc::default()),
            changes: AtomicUsize::new(0),
        }
    }

    pub(super) fn known(&self) -> Known<M> {
        let current = lock(&self.current);
        Known {
            snapshot: Arc::clone(&current),
            changes: self.changes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn add(&self, call: Call<M>) -> Arc<Listener<M>> {
        let listener = Arc::new(Listener {
            call,
            subscribed: AtomicBool::new(true),
        });
        let mut current = lock(&self.current);
        *current = current.iter().chain([&listener]).cloned().collect();
        self.changes.fetch_add(1, Ordering::Release);
        listener
    }

    fn remove(&self, listener: &Arc<Listener<M>>) {
        let mut current = lock(&self.current);
        let others = current.iter().filter(|other| !Arc::ptr_eq(other, listener));
        let rest: Snapshot<M> = others.cloned().collect();
        let before = std::mem::replace(&mut *current, rest);
        self.changes.fetch_add(1, Ordering::Release);
        drop(current);
        // May drop the listener, which is foreign.
        drop(before);
    }
}

/// The listeners as a run knows them: to ask for them costs no lock, as long as they do not change.
pub(super) struct Known<M: AgentMessage> {
    pub(super) snapshot: Snapshot<M>,
    changes: usize,
}

impl<M: AgentMessage> Known<M> {
    /// Makes the snapshot one of now.
    pub(super) fn refresh(&mut self, all: &Listeners<M>) {
        if self.changes != all.changes.load(Ordering::Acquire) {
            self.forget();
            *self = all.known();
        }
    }

    /// Keeps no listener alive any more.
    pub(super) fn forget(&mut self) {
        let before = std::mem::take(&mut self.snapshot);
        // May drop one, which is foreign.
        let _ = catch(|| drop(before));
    }
}

/// A subscription. It lasts as long as the agent; dropping this does not end it.
pub struct Subscription<M: AgentMessage = Message> {
    pub(super) shared: Weak<Shared<M>>,
    pub(super) listener: Arc<Listener<M>>,
}

impl<M: AgentMessage> Subscription<M> {
    /// Ends it: the listener is not called again, but for a call that is under way on another thread. A run that knows of it
    /// drops it with its next event.
    pub fn unsubscribe(self) {
        self.listener.subscribed.store(false, Ordering::Release);
        if let Some(shared) = self.shared.upgrade() {
            shared.listeners.remove(&self.listener);
        }
    }
}

impl<M: AgentMessage> fmt::Debug for Subscription<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

thread_local! {
    /// The runs whose listeners are being called on this thread, innermost last.
    static LISTENING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Marks that a listener of a run is being called, as long as it lives.
pub(super) struct Listening;

impl Listening {
    pub(super) fn to(run: u64) -> Self {
        LISTENING.with(|runs| runs.borrow_mut().push(run));
        Self
    }

    /// Whether a listener of this run is being called on this thread.
    pub(super) fn is_inside(run: u64) -> bool {
        LISTENING.with(|runs| runs.borrow().contains(&run))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.with(|runs| runs.borrow_mut().pop());
    }
}
