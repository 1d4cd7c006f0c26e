//! Listeners: who is told every event, before the holder of the run.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use crate::event::AgentEvent;
use crate::message::{AgentMessage, AssistantMessage, Message, Transcript};
use crate::sync::{AtomicBool, Mutex, Ordering, thread_local};
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
pub(super) struct Listeners<M: AgentMessage>(Mutex<Snapshot<M>>);

impl<M: AgentMessage> Listeners<M> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Arc::from([])))
    }

    pub(super) fn snapshot(&self) -> Snapshot<M> {
        Arc::clone(&lock(&self.0))
    }

    pub(super) fn add(&self, call: Call<M>) -> Arc<Listener<M>> {
        let listener = Arc::new(Listener {
            call,
            subscribed: AtomicBool::new(true),
        });
        let mut all = lock(&self.0);
        *all = all.iter().chain([&listener]).cloned().collect();
        listener
    }

    fn remove(&self, listener: &Arc<Listener<M>>) {
        let mut all = lock(&self.0);
        let rest: Snapshot<M> = all
            .iter()
            .filter(|other| !Arc::ptr_eq(other, listener))
            .cloned()
            .collect();
        let before = std::mem::replace(&mut *all, rest);
        drop(all);
        // May drop the listener, which is foreign.
        drop(before);
    }
}

/// A subscription. It lasts as long as the agent; dropping this does not end it.
pub struct Subscription<M: AgentMessage = Message> {
    pub(super) shared: Weak<Shared<M>>,
    pub(super) listener: Arc<Listener<M>>,
}

impl<M: AgentMessage> Subscription<M> {
    /// Ends it: the listener is not called again, but for a call that is under way on another thread.
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
