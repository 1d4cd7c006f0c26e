//! Stream functions: how a model is called.

mod request;
mod retry;
mod scripted;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use tokio_util::sync::CancellationToken;

use crate::message::{ApiKey, AssistantEvent, Message, Messages, Model, StreamOptions, ThinkingLevel};
use crate::tool::ToolSet;

pub use retry::{Retry, RetryAttempt, RetryStream};
pub use scripted::{Response, ScriptedModel, ScriptedStream};

/// What one model call is given. Cheap to clone: everything in it is shared.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The model to ask.
    pub model: Arc<Model>,
    /// The system prompt; empty if there is none.
    pub system_prompt: Arc<str>,
    /// The messages, with each tool call answered (I3).
    pub messages: Messages<Message>,
    /// The tools it may call.
    pub tools: ToolSet,
    /// How much it shall think.
    pub thinking_level: ThinkingLevel,
    /// Everything else the provider may be told.
    pub options: Arc<StreamOptions>,
    /// The key for this request.
    pub api_key: Option<ApiKey>,
}

/// Calls a model, and streams its answer.
///
/// It never fails: a failure is an [`AssistantEvent::Error`]. The stream should end with a terminal event; what comes
/// after is ignored, and the stream is dropped at once. `cancel` is cancelled when the run is aborted or dropped. The
/// engine does not wait for the stream then, but a stream with work elsewhere (a socket, a task) should stop it.
///
/// A closure is one:
///
/// ```
/// use turnstate::{AssistantEvent, CancellationToken, DoneReason, Request, StreamFn};
/// use futures_util::stream;
///
/// let parrot = |request: Request, _cancel: CancellationToken| {
///     let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
///     stream::iter([
///         AssistantEvent::start(),
///         AssistantEvent::TextStart { content_index: 0 },
///         AssistantEvent::text_delta(0, said),
///         AssistantEvent::done(DoneReason::Stop),
///     ])
/// };
/// let model = parrot.boxed(); // one type for any of them
/// # let _ = model;
/// ```
pub trait StreamFn: Send + Sync + 'static {
    /// The answer.
    type Stream: Stream<Item = AssistantEvent> + Send + 'static;

    /// Calls the model.
    fn stream(&self, request: Request, cancel: CancellationToken) -> Self::Stream;

    /// The same, with its type erased; one box per request.
    fn boxed(self) -> BoxedStreamFn
    where
        Self: Sized,
    {
        BoxedStreamFn(Arc::new(self))
    }
}

impl<F, S> StreamFn for F
where
    F: Fn(Request, CancellationToken) -> S + Send + Sync + 'static,
    S: Stream<Item = AssistantEvent> + Send + 'static,
{
    type Stream = S;

    fn stream(&self, request: Request, cancel: CancellationToken) -> S {
        self(request, cancel)
    }
}

impl<T: StreamFn + ?Sized> StreamFn for Arc<T> {
    type Stream = T::Stream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> T::Stream {
        (**self).stream(request, cancel)
    }
}

/// The object-safe twin of [`StreamFn`].
trait DynStreamFn: Send + Sync {
    fn stream_boxed(&self, request: Request, cancel: CancellationToken) -> BoxedStream;
}

impl<T: StreamFn> DynStreamFn for T {
    fn stream_boxed(&self, request: Request, cancel: CancellationToken) -> BoxedStream {
        Box::pin(self.stream(request, cancel))
    }
}

/// The answer of a [`BoxedStreamFn`].
pub type BoxedStream = Pin<Box<dyn Stream<Item = AssistantEvent> + Send>>;

/// Any stream function. Made by [`StreamFn::boxed`]; a cheap handle.
#[derive(Clone)]
pub struct BoxedStreamFn(Arc<dyn DynStreamFn>);

impl StreamFn for BoxedStreamFn {
    type Stream = BoxedStream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> BoxedStream {
        self.0.stream_boxed(request, cancel)
    }

    fn boxed(self) -> BoxedStreamFn {
        self
    }
}

impl fmt::Debug for BoxedStreamFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxedStreamFn(..)")
    }
}
