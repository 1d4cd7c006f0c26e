//! A run of an agent.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use crate::agent_loop::foreign::{catch, error_text};
use crate::agent_loop::{AgentLoop, ListenerError, NextStep, Outcome};
use crate::event::AgentEvent;
use crate::machine::RunEnd;
use crate::message::{AgentMessage, AssistantMessage, Message, Messages, Transcript};
use crate::stream_fn::BoxedStream;
use crate::tool::{BoxError, BoxFuture};

use super::listener::{Call, Known, Listener, ListenerContext, Listening, Snapshot};
use super::settings::{RunHooks, RunStreamFn};
use super::shared::{Active, Shared, lock};

/// How many events a poll of an awaited run takes before it lets others run.
const EVENTS: usize = 128;

/// The loop of an agent's run.
pub(super) type Inner<M> = AgentLoop<M, RunHooks<M>, RunStreamFn<M>, BoxFuture<'static, NextStep<M, BoxedStream>>>;

/// A run of an [`Agent`](super::Agent): a stream of its events, and a future of its [`Outcome`].
///
/// Only polling it drives the run; nothing is spawned. For each event, first the agent's state is reduced, then
/// listeners are called in the order of their subscription, async ones awaited, and then it is yielded here. Awaited
/// instead of drained, or after some events, it runs to its end.
///
/// ```
/// use turnstate::{Agent, ScriptedModel};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let agent = Agent::builder("scripted-1", ScriptedModel::new().text("Hello!")).build();
/// let mut run = agent.prompt("hi")?;
/// assert_eq!(run.next().await.unwrap().kind(), "agent_start");
/// assert!(agent.is_streaming());
/// let outcome = run.await.into_result()?;
/// assert_eq!(outcome.text(), "Hello!");
/// assert!(!agent.is_streaming());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Cancel safety
/// Polling may stop at any time and go on later. A run that is dropped half-way is closed on the spot: its token is
/// cancelled, open tool calls get aborted results, a message that streams becomes an aborted one, messages that were
/// taken from a queue but not told are queued again, and the agent is idle. Sync listeners hear the closing events;
/// async ones cannot be awaited and do not. A run that is dropped before its first poll leaves nothing behind.
#[must_use = "a run does nothing unless it is polled or awaited"]
pub struct Run<M: AgentMessage = Message> {
    inner: Pin<Box<Inner<M>>>,
    shared: Arc<Shared<M>>,
    active: Arc<Active>,
    listeners: Known<M>,
    /// An event whose async listeners are being awaited.
    telling: Option<Telling<M>>,
    errors: Vec<ListenerError>,
    /// What a retry keeps of the transcript.
    keep: Option<Transcript<M>>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    Polled,
    Ended,
}

/// An event on its way through the listeners.
struct Telling<M: AgentMessage> {
    event: Arc<AgentEvent<M>>,
    listeners: Snapshot<M>,
    /// The first that was not called yet.
    next: usize,
    /// The one that is being awaited.
    current: BoxFuture<'static, Result<(), BoxError>>,
}

impl<M: AgentMessage> Run<M> {
    pub(super) fn new(
        inner: Inner<M>,
        shared: Arc<Shared<M>>,
        active: Arc<Active>,
        keep: Option<Transcript<M>>,
    ) -> Self {
        Self {
            inner: Box::pin(inner),
            listeners: shared.listeners.known(),
            shared,
            active,
            telling: None,
            errors: Vec::new(),
            keep,
            progress: Progress::Begun,
        }
    }

    /// The assistant message that streams, from its `MessageStart` to before its `MessageEnd`.
    pub fn partial(&self) -> Option<&AssistantMessage> {
        self.inner.partial()
    }

    /// The next event, or `None` behind the last: what `StreamExt::next` gives, without its import.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<AgentEvent<M>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Reduces an event and calls its listeners, up to the first that has to be awaited: its position.
    fn tell(&mut self, event: &AgentEvent<M>) -> Option<usize> {
        self.reduce(event);
        self.listeners.refresh(&self.shared.listeners);
        for index in 0..self.listeners.snapshot.len() {
            let listener = &self.listeners.snapshot[index];
            if let Call::Async(_) = &listener.call {
                return Some(index);
            }
            if let Err(error) = self.call(listener, event) {
                self.failed(event, error);
            }
        }
        None
    }

    fn reduce(&self, event: &AgentEvent<M>) {
        lock(&self.shared.state).apply(event);
    }

    /// Calls the listeners from `next` on; the event comes back when all are done.
    fn tell_async(&mut self, event: Arc<AgentEvent<M>>, listeners: Snapshot<M>, next: usize) -> Option<AgentEvent<M>> {
        for index in next..listeners.len() {
            let listener = &listeners[index];
            match &listener.call {
                Call::Sync(_) => self.hear(listener, &event),
                Call::Async(call) if listener.is_subscribed() => {
                    let context = Listener::context(&self.shared, &self.active);
                    let started = {
                        let _listening = Listening::to(self.active.id);
                        catch(|| call(Arc::clone(&event), context))
                    };
                    match started {
                        Ok(current) => {
                            self.telling = Some(Telling {
                                event,
                                next: index + 1,
                                current,
                                listeners,
                            });
                            return None;
                        }
                        Err(panic) => self.failed(&event, panic),
                    }
                }
                Call::Async(_) => {}
            }
        }
        Some(Arc::unwrap_or_clone(event))
    }

    fn hear(&mut self, listener: &Listener<M>, event: &AgentEvent<M>) {
        if let Err(error) = self.call(listener, event) {
            self.failed(event, error);
        }
    }

    /// Calls a sync listener.
    fn call(&self, listener: &Listener<M>, event: &AgentEvent<M>) -> Result<(), String> {
        let Call::Sync(call) = &listener.call else {
            return Ok(());
        };
        if !listener.is_subscribed() {
            return Ok(());
        }
        let context = ListenerContext {
            shared: &self.shared,
            active: &self.active,
            partial: self.inner.partial(),
        };
        let called = {
            let _listening = Listening::to(self.active.id);
            catch(|| call(event, &context))
        };
        called?.map_err(error_text)
    }

    fn failed(&mut self, event: &AgentEvent<M>, message: String) {
        let error = ListenerError {
            event: event.kind(),
            message,
        };
        if let Some(report) = &self.shared.fixed.on_listener_error {
            let _ = catch(|| report(&error));
        }
        self.errors.push(error);
    }

    /// Awaits the listeners of the event that is being told.
    fn poll_telling(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentEvent<M>>> {
        while let Some(telling) = &mut self.telling {
            let polled = {
                let _listening = Listening::to(self.active.id);
                catch(|| telling.current.as_mut().poll(cx))
            };
            let failure = match polled {
                // Woken by the listener's own future; the run waits for it.
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Ok(()))) => None,
                Ok(Poll::Ready(Err(error))) => Some(error_text(error)),
                Err(panic) => Some(panic),
            };
            let Some(Telling {
                event,
                listeners,
                next,
                current,
            }) = self.telling.take()
            else {
                break;
            };
            let _ = catch(|| drop(current));
            if let Some(failure) = failure {
                self.failed(&event, failure);
            }
            if let Some(event) = self.tell_async(event, listeners, next) {
                return Poll::Ready(Some(event));
            }
        }
        Poll::Ready(None)
    }

    /// The run is about to tell its first event.
    fn begin(&mut self) {
        if self.progress == Progress::Begun {
            self.progress = Progress::Polled;
            if let Some(kept) = self.keep.take() {
                let before = lock(&self.shared.state).set_transcript(kept);
                // May be the last copy of a message, which is foreign: dropped without the lock.
                drop(before);
            }
        }
    }

    /// The event was told; with the last one the run is over, before its holder hears of it.
    fn told(&mut self, event: &AgentEvent<M>) {
        if let AgentEvent::AgentEnd { .. } = event {
            self.end();
        }
    }

    fn end(&mut self) {
        self.progress = Progress::Ended;
        self.listeners.forget();
        self.shared.end(&self.active);
    }

    /// Ends the run where it stands. Sync listeners hear how.
    fn close(&mut self) {
        if let Some(Telling {
            event,
            listeners,
            next,
            current,
        }) = self.telling.take()
        {
            let _ = catch(|| drop(current));
            listeners
                .iter()
                .skip(next)
                .for_each(|listener| self.hear(listener, &event));
        }
        let mut closing = Vec::new();
        self.inner.as_mut().close(|event| closing.push(event));
        for event in closing {
            self.reduce(&event);
            self.listeners.refresh(&self.shared.listeners);
            for listener in Arc::clone(&self.listeners.snapshot).iter() {
                self.hear(listener, &event);
            }
        }
    }

    fn outcome(&mut self) -> Outcome<M> {
        let outcome = self.inner.outcome().cloned();
        // Without an outcome the stream was not at its end.
        let mut outcome = outcome.unwrap_or_else(|| Outcome::new(RunEnd::Aborted, Messages::new()));
        outcome.listener_errors = std::mem::take(&mut self.errors);
        outcome
    }
}

impl<M: AgentMessage> Stream for Run<M> {
    type Item = AgentEvent<M>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent<M>>> {
        let this = self.get_mut();
        loop {
            if this.telling.is_some()
                && let Some(event) = ready!(this.poll_telling(cx))
            {
                this.told(&event);
                return Poll::Ready(Some(event));
            }
            if this.progress == Progress::Ended {
                return Poll::Ready(None);
            }
            this.begin();
            let polled = this.inner.as_mut().poll_next(cx);
            // Looked at where it lies: to move a delta costs as much as to tell it.
            let Poll::Ready(Some(event)) = &polled else {
                return polled;
            };
            let Some(first_async) = this.tell(event) else {
                this.told(event);
                return polled;
            };
            let listeners = Arc::clone(&this.listeners.snapshot);
            if let Poll::Ready(Some(event)) = polled
                && let Some(event) = this.tell_async(Arc::new(event), listeners, first_async)
            {
                this.told(&event);
                return Poll::Ready(Some(event));
            }
        }
    }
}

impl<M: AgentMessage> FusedStream for Run<M> {
    fn is_terminated(&self) -> bool {
        self.progress == Progress::Ended
    }
}

// The pinned loop is in a box, and nothing else is pinned.
impl<M: AgentMessage> Unpin for Run<M> {}

impl<M: AgentMessage> Drop for Run<M> {
    fn drop(&mut self) {
        if self.progress == Progress::Ended {
            return;
        }
        // What listeners queue from here on is for the next run.
        self.shared.abort_run(&self.active);
        if self.progress == Progress::Begun {
            // The agent is idle only once this is done.
            self.inner.as_mut().release();
        } else {
            // Where the app's own message type has panicked in a poll, the run cannot be closed as it should.
            let _ = catch(|| self.close());
            lock(&self.shared.state).settle();
        }
        self.shared.end(&self.active);
    }
}

impl<M: AgentMessage> fmt::Debug for Run<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("progress", &self.progress)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<M: AgentMessage> IntoFuture for Run<M> {
    type Output = Outcome<M>;
    type IntoFuture = RunFuture<M>;

    fn into_future(self) -> RunFuture<M> {
        RunFuture(self)
    }
}

/// The outcome of a run. Made by awaiting a [`Run`].
///
/// # Cancel safety
/// As for [`Run`]: dropping it closes the run.
#[derive(Debug)]
pub struct RunFuture<M: AgentMessage = Message>(Run<M>);

impl<M: AgentMessage> Future for RunFuture<M> {
    type Output = Outcome<M>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<M>> {
        let run = &mut self.as_mut().get_mut().0;
        for _ in 0..EVENTS {
            if ready!(Pin::new(&mut *run).poll_next(cx)).is_none() {
                return Poll::Ready(run.outcome());
            }
        }
        // Nothing else wakes a task that has merely had its share.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
