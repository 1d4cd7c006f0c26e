//! A stream function that asks again.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::{FusedStream, Stream};
use pin_project::pin_project;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::machine::ABORTED_REQUEST;
use crate::message::{AssistantEvent, ErrorReason, Failure};

use super::{Request, StreamFn};

/// What is awaited before the next request if nobody says otherwise, the first time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// It doubles up to this.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Requests after the first.
const MAX_RETRIES: u32 = 3;
/// The longest wait a provider may ask for, unless the request's options say another. That of the reference.
const MAX_ASKED: Duration = Duration::from_mins(1);

/// Asks a model again while its failure is a [transient](Failure::is_transient) one and nothing of an answer was told.
///
/// A failure after the first block of an answer began is never retried, nor one of which the stream function does not
/// say what it is (see [`AssistantEvent::with_failure`]). The answer's `Start` is held back until something follows, so
/// that only one is told.
///
/// The wait doubles from 1 second up to 30, less up to a quarter at random. If the provider asks for a longer one
/// (`Retry-After`), that is kept, exactly; unless it is above
/// [`max_retry_delay_ms`](crate::StreamOptions::max_retry_delay_ms) (60 seconds if absent, no limit if 0), which is told
/// as the failure it is, at once. As in the reference.
///
/// ```text
///            +-----------------(over)-----------------+
///            v                                        |
/// Answering: the model's stream --(failure)--> Waiting: the delay
///            | end, or its last event                 | token
///            +-----------------> Done <---------------+
/// ```
///
/// ```
/// use std::future::ready;
/// use turnstate::{Agent, AssistantEvent, Failure, Response, Retry, ScriptedModel};
///
/// let busy = AssistantEvent::error("busy").with_failure(Failure::Status { status: 429, retry_after_ms: None });
/// let model = ScriptedModel::new().reply(Response::from_events([busy])).text("Hello!");
/// // A program waits by its timer, such as `tokio::time::sleep`.
/// let model = Retry::new(model, |_delay| ready(())).on_retry(|retry| println!("again after {:?}", retry.delay));
/// let agent = Agent::builder("scripted-1", model).build();
/// # futures_util::future::FutureExt::now_or_never(async {
/// let outcome = agent.prompt("Hi").unwrap().await;
/// assert_eq!(outcome.into_result().unwrap().text(), "Hello!");
/// # }).unwrap();
/// ```
#[must_use]
pub struct Retry<F, W> {
    model: Arc<F>,
    wait: Arc<W>,
    policy: Arc<Policy>,
}

type OnRetry = Arc<dyn Fn(&RetryAttempt) + Send + Sync>;

#[derive(Clone)]
struct Policy {
    max_retries: u32,
    first_delay: Duration,
    max_delay: Duration,
    jitter: Arc<dyn Fn() -> f64 + Send + Sync>,
    on_retry: Option<OnRetry>,
}

/// A request that will be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryAttempt {
    /// Which retry it will be, from 1.
    pub retry: u32,
    /// What is awaited before it.
    pub delay: Duration,
    /// Why the last request failed.
    pub failure: Failure,
    /// What it said.
    pub error_message: Option<String>,
}

impl<F, W> Retry<F, W> {
    /// Retries `model`, and waits by `wait`, which returns a future that is ready after the given time.
    pub fn new<S>(model: F, wait: W) -> Self
    where
        F: StreamFn,
        W: Fn(Duration) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self {
            model: Arc::new(model),
            wait: Arc::new(wait),
            policy: Arc::new(Policy {
                max_retries: MAX_RETRIES,
                first_delay: FIRST_DELAY,
                max_delay: MAX_DELAY,
                jitter: Arc::new(random),
                on_retry: None,
            }),
        }
    }

    /// How often a request is made again at most. Default: 3.
    pub fn max_retries(mut self, retries: u32) -> Self {
        Arc::make_mut(&mut self.policy).max_retries = retries;
        self
    }

    /// The wait before the first retry and the one that its doubling stops at. Default: 1 and 30 seconds.
    pub fn delays(mut self, first: Duration, longest: Duration) -> Self {
        Arc::make_mut(&mut self.policy).first_delay = first;
        Arc::make_mut(&mut self.policy).max_delay = longest;
        self
    }

    /// Where chance comes from: a number from 0 (the whole wait) to 1 (a quarter less). Default: random.
    pub fn jitter(mut self, jitter: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.policy).jitter = Arc::new(jitter);
        self
    }

    /// Is told of each retry before its wait.
    pub fn on_retry(mut self, told: impl Fn(&RetryAttempt) + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.policy).on_retry = Some(Arc::new(told));
        self
    }
}

#[cfg(feature = "tokio")]
impl<F: StreamFn> Retry<F, fn(Duration) -> tokio::time::Sleep> {
    /// Retries `model`, and waits by tokio's timer.
    ///
    /// # Panics
    /// A wait panics outside of a tokio runtime with its timer on; the run then fails with that.
    pub fn tokio(model: F) -> Self {
        Self::new(model, tokio::time::sleep)
    }
}

impl<F, W, S> StreamFn for Retry<F, W>
where
    F: StreamFn,
    W: Fn(Duration) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    type Stream = RetryStream<F, W, S>;

    fn stream(&self, request: Request, cancel: CancellationToken) -> Self::Stream {
        let answer = self.model.stream(request.clone(), cancel.clone());
        RetryStream {
            model: Arc::clone(&self.model),
            wait: Arc::clone(&self.wait),
            policy: Arc::clone(&self.policy),
            request: Some(request),
            retries: 0,
            start: None,
            next: None,
            cancel,
            state: State::Answering(answer),
        }
    }
}

/// The answer of a [`Retry`].
///
/// # Cancel safety
/// Dropping it drops the model's stream or the wait; nothing of it runs elsewhere.
#[pin_project]
pub struct RetryStream<F: StreamFn, W, S> {
    model: Arc<F>,
    wait: Arc<W>,
    policy: Arc<Policy>,
    /// What may be asked again: until something of an answer is told.
    request: Option<Request>,
    retries: u32,
    /// The `Start` of an answer of which nothing followed yet.
    start: Option<AssistantEvent>,
    /// What followed it.
    next: Option<AssistantEvent>,
    cancel: CancellationToken,
    #[pin]
    state: State<F::Stream, S>,
}

#[pin_project(project = StateProj)]
enum State<A, S> {
    Answering(#[pin] A),
    Waiting(#[pin] S, #[pin] WaitForCancellationFutureOwned),
    Done,
}

impl Policy {
    /// The retry of a request that ended with `event`, the `retry`th, if there shall be one.
    fn retry(&self, request: &Request, retry: u32, event: &AssistantEvent) -> Option<RetryAttempt> {
        let AssistantEvent::Error {
            reason: ErrorReason::Error,
            error_message,
            failure: Some(failure),
            ..
        } = event
        else {
            return None;
        };
        if retry > self.max_retries || !failure.is_transient() {
            return None;
        }
        let doubled = self.first_delay.saturating_mul(2_u32.saturating_pow(retry - 1));
        let own = doubled.min(self.max_delay);
        let jitter = Some((self.jitter)()).filter(|jitter| (0.0..=1.0).contains(jitter));
        let own = own.saturating_sub(own.mul_f64(jitter.unwrap_or_default() / 4.0));
        let asked = failure.retry_after().unwrap_or_default();
        let longest = match request.options.max_retry_delay_ms {
            None => MAX_ASKED,
            Some(0) => Duration::MAX,
            Some(ms) => Duration::from_millis(ms),
        };
        (asked <= longest).then(|| RetryAttempt {
            retry,
            delay: own.max(asked),
            failure: **failure,
            error_message: error_message.clone(),
        })
    }
}

/// A number from 0 to 1. The keys of the standard library's hash maps are random, which spares a dependency.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}

impl<F, W, S> Stream for RetryStream<F, W, S>
where
    F: StreamFn,
    W: Fn(Duration) -> S,
    S: Future<Output = ()>,
{
    type Item = AssistantEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let mut this = self.project();
        loop {
            if let Some(event) = this.next.take() {
                return Poll::Ready(Some(event));
            }
            match this.state.as_mut().project() {
                StateProj::Answering(answer) => {
                    // Pending: the model wakes.
                    let Some(event) = ready!(answer.poll_next(cx)) else {
                        this.state.set(State::Done);
                        return Poll::Ready(this.start.take());
                    };
                    if event.is_terminal() {
                        let retry = this
                            .request
                            .as_ref()
                            .and_then(|request| this.policy.retry(request, *this.retries + 1, &event));
                        if let Some(retry) = retry
                            && !this.cancel.is_cancelled()
                        {
                            *this.retries = retry.retry;
                            *this.start = None;
                            if let Some(told) = &this.policy.on_retry {
                                told(&retry);
                            }
                            let cancelled = this.cancel.clone().cancelled_owned();
                            this.state.set(State::Waiting((this.wait)(retry.delay), cancelled));
                            continue;
                        }
                        this.state.set(State::Done);
                    } else if this.request.is_some() && matches!(event, AssistantEvent::Start { .. }) {
                        // Of two the first counts, as for the machine.
                        this.start.get_or_insert(event);
                        continue;
                    }
                    *this.request = None;
                    let Some(start) = this.start.take() else {
                        return Poll::Ready(Some(event));
                    };
                    *this.next = Some(event);
                    return Poll::Ready(Some(start));
                }
                StateProj::Waiting(wait, cancelled) => {
                    if cancelled.poll(cx).is_ready() {
                        this.state.set(State::Done);
                        return Poll::Ready(Some(AssistantEvent::aborted(ABORTED_REQUEST)));
                    }
                    // Pending: the wait and the token wake.
                    ready!(wait.poll(cx));
                    let Some(request) = this.request.clone() else {
                        this.state.set(State::Done); // not so: it waits only while it may ask again
                        continue;
                    };
                    this.state
                        .set(State::Answering(this.model.stream(request, this.cancel.clone())));
                }
                StateProj::Done => return Poll::Ready(None),
            }
        }
    }
}

impl<F, W, S> FusedStream for RetryStream<F, W, S>
where
    F: StreamFn,
    W: Fn(Duration) -> S,
    S: Future<Output = ()>,
{
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Done) && self.next.is_none()
    }
}

impl<F, W> Clone for Retry<F, W> {
    fn clone(&self) -> Self {
        Self {
            model: Arc::clone(&self.model),
            wait: Arc::clone(&self.wait),
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<F, W> fmt::Debug for Retry<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("max_retries", &self.policy.max_retries)
            .finish_non_exhaustive()
    }
}

impl<F: StreamFn, W, S> fmt::Debug for RetryStream<F, W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Answering(_) => "answering",
            State::Waiting(..) => "waiting",
            State::Done => "done",
        };
        f.debug_struct("RetryStream")
            .field("state", &state)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
