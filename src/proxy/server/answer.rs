//! The answer: status, headers, and the events as they come.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project::pin_project;
use tokio_util::sync::DropGuard;

use crate::message::AssistantEvent;
use crate::proxy::wire::{EVENT_STREAM, JSON};

use super::Refusal;

const STREAM_HEADERS: &[(&str, &str)] = &[
    ("content-type", EVENT_STREAM),
    ("cache-control", "no-cache"),
    // Or nginx holds the events back until its buffer is full.
    ("x-accel-buffering", "no"),
];
const REFUSAL_HEADERS: &[(&str, &str)] = &[("content-type", JSON)];
const UNAUTHORIZED_HEADERS: &[(&str, &str)] = &[("content-type", JSON), ("www-authenticate", "Bearer")];

const PANICKED: &str = "the model's answer panicked";
const ENDED_EARLY: &str = "the model's answer ended before it was complete";

/// The answer to a request: [status](Self::status), [headers](Self::headers), and, as a stream, the body.
///
/// Each item is one event, `data: {..}` and an empty line, and should be sent at once. The body of a refusal is one
/// item, `{"error": ".."}`. It ends with the model's terminal event; if there is none, or the model panics, with an
/// error event made here.
///
/// # Cancel safety
///
/// Dropping it is how the client's leaving is told: the model's token is cancelled, then its stream dropped.
#[must_use = "the model is only asked while the answer is polled"]
#[pin_project]
pub struct ProxyAnswer<S> {
    #[pin]
    body: Body<S>,
}

#[pin_project(project = BodyProject)]
enum Body<S> {
    Refused {
        refusal: Refusal,
        sent: bool,
    },
    Streaming {
        // Before the stream, so that the token is cancelled when the stream is dropped.
        cancel: Option<DropGuard>,
        #[pin]
        model: Option<S>,
    },
}

impl<S> ProxyAnswer<S> {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self {
            body: Body::Refused { refusal, sent: false },
        }
    }

    pub(super) fn streaming(model: S, cancel: DropGuard) -> Self {
        Self {
            body: Body::Streaming {
                cancel: Some(cancel),
                model: Some(model),
            },
        }
    }

    /// The HTTP status: 200, or what the refusal says.
    pub fn status(&self) -> u16 {
        match &self.body {
            Body::Refused { refusal, .. } => refusal.status(),
            Body::Streaming { .. } => 200,
        }
    }

    /// The HTTP headers, their names in lower case.
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match &self.body {
            Body::Refused { refusal, .. } if refusal.status() == 401 => UNAUTHORIZED_HEADERS,
            Body::Refused { .. } => REFUSAL_HEADERS,
            Body::Streaming { .. } => STREAM_HEADERS,
        }
    }

    /// Why the model was not asked, if it was not.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.body {
            Body::Refused { refusal, .. } => Some(refusal),
            Body::Streaming { .. } => None,
        }
    }
}

impl<S: Stream<Item = AssistantEvent>> Stream for ProxyAnswer<S> {
    type Item = Vec<u8>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        match self.project().body.project() {
            BodyProject::Refused { sent: true, .. } => Poll::Ready(None),
            BodyProject::Refused { refusal, sent } => {
                *sent = true;
                Poll::Ready(Some(refusal.to_json()))
            }
            BodyProject::Streaming { cancel, mut model } => {
                let Some(stream) = model.as_mut().as_pin_mut() else {
                    return Poll::Ready(None);
                };
                // A panicked stream is not polled again, only dropped. Pending: the model's stream wakes.
                let event = match catch_unwind(AssertUnwindSafe(|| stream.poll_next(cx))) {
                    Ok(polled) => ready!(polled).unwrap_or_else(|| AssistantEvent::error(ENDED_EARLY)),
                    // What the panic says is in the server's log, and not the client's business.
                    Err(_) => AssistantEvent::error(PANICKED),
                };
                if event.is_terminal() {
                    // A token that is cancelled after all went well would look like a client that left.
                    cancel.take().map(DropGuard::disarm);
                    // At once: it may hold the provider's connection. Its drop is as foreign as its poll.
                    let _ = catch_unwind(AssertUnwindSafe(|| model.set(None)));
                }
                Poll::Ready(Some(encode(event)))
            }
        }
    }
}

impl<S: Stream<Item = AssistantEvent>> FusedStream for ProxyAnswer<S> {
    fn is_terminated(&self) -> bool {
        match &self.body {
            Body::Refused { sent, .. } => *sent,
            Body::Streaming { model, .. } => model.is_none(),
        }
    }
}

impl<S> fmt::Debug for ProxyAnswer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyAnswer")
            .field("status", &self.status())
            .field("refusal", &self.refusal())
            .finish_non_exhaustive()
    }
}

/// One event of the stream of server-sent events.
fn encode(event: AssistantEvent) -> Vec<u8> {
    let mut bytes = b"data: ".to_vec();
    // JSON has its line ends escaped, so it is one line. Writing ours into memory does not fail.
    if serde_json::to_writer(&mut bytes, &whole_told(event)).is_err() {
        bytes = br#"data: {"type":"error","reason":"error","errorMessage":"the event cannot be written"}"#.to_vec();
    }
    bytes.extend_from_slice(b"\n\n");
    bytes
}

/// Says beside a whole message what clients that know only the fold look for outside of it.
fn whole_told(mut event: AssistantEvent) -> AssistantEvent {
    match &mut event {
        AssistantEvent::Done {
            usage,
            message: Some(whole),
            ..
        } => **usage = whole.usage,
        AssistantEvent::Error {
            usage,
            error_message,
            message: Some(whole),
            ..
        } => {
            **usage = whole.usage;
            if error_message.is_none() {
                error_message.clone_from(&whole.error_message);
            }
        }
        _ => {}
    }
    event
}
