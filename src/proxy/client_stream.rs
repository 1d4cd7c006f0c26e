//! The client end: one answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::{FusedStream, Stream};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::machine::ABORTED_REQUEST;
use crate::message::{AssistantEvent, ErrorReason};
use crate::stream_fn::Request;

use super::client::{Activity, Config};
use super::client_http::{chain, send};
use super::decode::ProxyDecoder;

/// Pieces of the body without an event (comments, parts of a line) that one poll reads.
const MAX_PIECES: usize = 32;

/// The answer of a [`ProxyModel`](super::ProxyModel).
///
/// It reads the body only when it is polled and has no event left, and drops the body, and with it the connection, as
/// soon as the terminal event was read, whatever the server does. What `reqwest` returns cannot be named, so an answer has
/// a box for its request and one for its body; an event costs none.
///
/// # Cancel safety
/// Dropping it closes the connection. Nothing of it runs elsewhere.
pub struct ProxyStream {
    decoder: ProxyDecoder,
    state: State,
    idle: Option<Idle>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

type Opening = Pin<Box<dyn Future<Output = Result<Body, AssistantEvent>> + Send>>;

/// The body of a good response.
pub(super) type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// ```text
/// Opening --(good response)--> Reading --(terminal event, end, error)--> Closed
///    +------(anything else, aborted, idle)------------------------------> Closed
/// ```
enum State {
    Opening(Opening),
    Reading(Body),
    Closed,
}

/// The time the server may still be silent.
struct Idle {
    limit: Duration,
    activity: Activity,
    /// Made at the first poll, where there is a runtime.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    fn restart(&mut self) {
        let limit = self.limit;
        if let Some(timer) = &mut self.timer
            && let Some(deadline) = Instant::now().checked_add(limit)
        {
            timer.as_mut().reset(deadline);
        }
    }

    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        // Pending: the timer wakes when it elapses.
        timer.as_mut().poll(cx).map(|()| limit)
    }
}

impl ProxyStream {
    pub(super) fn new(config: Arc<Config>, request: Request, cancel: CancellationToken) -> Self {
        Self {
            decoder: ProxyDecoder::new(config.limits),
            idle: config.idle_timeout.map(|limit| Idle {
                limit,
                activity: config.activity,
                timer: None,
            }),
            cancelled: Box::pin(cancel.cancelled_owned()),
            state: State::Opening(Box::pin(send(config, request))),
        }
    }

    /// Lets the decoder have more. Ready when it has.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // First, so that a request aborted before it was sent is not sent. Pending: the token wakes.
        if self.cancelled.as_mut().poll(cx).is_ready() {
            self.decoder.fail(ErrorReason::Aborted, ABORTED_REQUEST);
            return Poll::Ready(());
        }
        if Handle::try_current().is_err() {
            let message = "a proxy model has to be polled within a tokio runtime";
            self.decoder.fail(ErrorReason::Error, message);
            return Poll::Ready(());
        }
        // Before the timer, so that what has arrived counts even if it is looked at late.
        if self.poll_server(cx).is_ready() {
            return Poll::Ready(());
        }
        // Pending: the server and the token wake; so does the timer, if there is one.
        let Some(Poll::Ready(limit)) = self.idle.as_mut().map(|idle| idle.poll_elapsed(cx)) else {
            return Poll::Pending;
        };
        let message = format!("The proxy server was silent for {limit:?}");
        self.decoder.fail(ErrorReason::Error, message);
        Poll::Ready(())
    }

    /// Ready when something came of the server.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            // Pending: the request wakes when it goes on.
            State::Opening(opening) => match std::task::ready!(opening.as_mut().poll(cx)) {
                Ok(body) => {
                    self.state = State::Reading(body);
                    self.heard();
                }
                Err(event) => self.decoder.refuse(event),
            },
            // Pending: the connection wakes when more arrives.
            State::Reading(body) => match std::task::ready!(body.as_mut().poll_next(cx)) {
                Some(Ok(piece)) => {
                    self.decoder.push(&piece);
                    self.heard();
                }
                Some(Err(error)) => {
                    let message = format!("Connection to the proxy server broke: {}", chain(error));
                    self.decoder.cut(message);
                }
                None => self.decoder.end(),
            },
            State::Closed => self.decoder.end(),
        }
        Poll::Ready(())
    }

    /// The server was heard.
    fn heard(&mut self) {
        if let Some(idle) = &mut self.idle
            && (idle.activity == Activity::Bytes || self.decoder.has_event())
        {
            idle.restart();
        }
    }
}

impl Stream for ProxyStream {
    type Item = AssistantEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = self.get_mut();
        for _ in 0..MAX_PIECES {
            if let Some(event) = this.decoder.next_event() {
                return Poll::Ready(Some(event));
            }
            if this.decoder.is_done() {
                return Poll::Ready(None);
            }
            std::task::ready!(this.poll_more(cx));
            if this.decoder.is_done() {
                this.state = State::Closed;
                this.idle = None;
            }
        }
        // Pending: it has just woken itself, to let others run.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl FusedStream for ProxyStream {
    fn is_terminated(&self) -> bool {
        self.decoder.is_done() && !self.decoder.has_event()
    }
}

impl fmt::Debug for ProxyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Opening(_) => "opening",
            State::Reading(_) => "reading",
            State::Closed => "closed",
        };
        f.debug_struct("ProxyStream")
            .field("state", &state)
            .field("decoder", &self.decoder)
            .finish_non_exhaustive()
    }
}
