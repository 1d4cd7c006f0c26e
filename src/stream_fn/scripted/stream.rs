//! The answer of a scripted model.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_core::{FusedStream, Stream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::message::AssistantEvent;

/// What is awaited before a delta.
pub(super) type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes the [`Delay`]s of a stream.
pub(super) type Pace = Arc<dyn Fn() -> Delay + Send + Sync>;

/// What a poll does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Yields the event.
    Event(AssistantEvent),
    /// Is pending, and wakes.
    PendingOnce,
    /// Is pending until the token is cancelled. Never taken, so the stream stays here.
    Silence,
    /// Panics.
    Panic(String),
}

/// The answer of a [`ScriptedModel`](super::ScriptedModel).
///
/// It yields its events one per poll, moving them out: a poll allocates nothing, unless the model has a
/// [pace](super::ScriptedModel::pace) or the stream waits in [silence](super::Response::silence).
///
/// # Cancel safety
/// It can be dropped at any time; nothing of it runs elsewhere.
pub struct ScriptedStream {
    steps: vec::IntoIter<Step>,
    /// `None` if the stream is deaf.
    cancel: Option<CancellationToken>,
    /// Made when there is something to wait for.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pace: Option<Pace>,
    /// The wait before the next step.
    delay: Option<Delay>,
}

impl ScriptedStream {
    pub(super) fn new(steps: Vec<Step>, cancel: Option<CancellationToken>, pace: Option<Pace>) -> Self {
        Self {
            steps: steps.into_iter(),
            cancel,
            cancelled: None,
            pace,
            delay: None,
        }
    }

    /// Drops what is left.
    fn finish(&mut self) {
        self.steps = Vec::new().into_iter();
        self.cancelled = None;
        self.delay = None;
    }

    fn abort(&mut self) -> AssistantEvent {
        self.finish();
        AssistantEvent::aborted("Request was aborted")
    }

    /// Waits until the token is cancelled, then aborts.
    fn poll_abort(&mut self, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let Some(cancel) = &self.cancel else {
            // Deaf: no wake-up of its own.
            return Poll::Pending;
        };
        let cancelled = self
            .cancelled
            .get_or_insert_with(|| Box::pin(cancel.clone().cancelled_owned()));
        // Pending: the token wakes when it is cancelled.
        ready!(cancelled.as_mut().poll(cx));
        Poll::Ready(Some(self.abort()))
    }

    fn poll_delay(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pace) = &self.pace {
            let delay = self.delay.get_or_insert_with(|| pace());
            // Pending: the delay wakes when it is over.
            ready!(delay.as_mut().poll(cx));
            self.delay = None;
        }
        Poll::Ready(())
    }
}

impl Stream for ScriptedStream {
    type Item = AssistantEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = self.get_mut();
        let Some(next) = this.steps.as_slice().first() else {
            return Poll::Ready(None);
        };
        let (silence, delta) = (matches!(next, Step::Silence), is_delta(next));
        if this.cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Poll::Ready(Some(this.abort()));
        }
        // A delay wakes when it is over; silence relies on the token alone.
        if silence || (delta && this.poll_delay(cx).is_pending()) {
            return this.poll_abort(cx);
        }
        match this.steps.next() {
            Some(Step::Event(event)) => Poll::Ready(Some(event)),
            Some(Step::PendingOnce) => {
                // Pending: it has just woken itself.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Panic(text)) => {
                this.finish();
                scripted_panic(&text)
            }
            Some(Step::Silence) | None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // At most an event per step: cancelled, the rest becomes one error.
        (0, Some(self.steps.len()))
    }
}

impl FusedStream for ScriptedStream {
    fn is_terminated(&self) -> bool {
        self.steps.as_slice().is_empty()
    }
}

impl fmt::Debug for ScriptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedStream")
            .field("steps", &self.steps.as_slice())
            .field("deaf", &self.cancel.is_none())
            .finish_non_exhaustive()
    }
}

fn is_delta(step: &Step) -> bool {
    matches!(
        step,
        Step::Event(
            AssistantEvent::TextDelta { .. }
                | AssistantEvent::ThinkingDelta { .. }
                | AssistantEvent::ToolCallDelta { .. }
        )
    )
}

#[expect(clippy::panic, reason = "the script asks for it")]
fn scripted_panic(text: &str) -> ! {
    panic!("{text}")
}
