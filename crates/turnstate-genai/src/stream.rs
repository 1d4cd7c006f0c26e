//! One answer, as it comes.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};
use genai::Client;
use genai::chat::{ChatStream, ChatStreamEvent, RawFrameRef};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use turnstate::{AssistantEvent, Request};

use crate::answer::Answer;
use crate::events::Events;
use crate::failure::Failed;
use crate::frames::Protocol;
use crate::{options, request, target};

/// What genai saw on the wire in one poll.
type Frames = Arc<Mutex<VecDeque<String>>>;
/// genai's stream, and what the answer says of where it comes from.
type Opened = Result<(ChatStream, &'static str, String), Failed>;

/// The answer of a [`GenaiModel`](crate::GenaiModel). Dropping it closes the connection.
#[must_use = "streams do nothing unless polled"]
pub struct GenaiStream {
    answer: Answer,
    source: Source,
    frames: Frames,
    protocol: Protocol,
    events: Events,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Source {
    Opening(Pin<Box<dyn Future<Output = Opened> + Send>>),
    Open(Box<ChatStream>),
    Closed,
}

/// What a poll of genai gave.
enum Polled {
    Opened(Opened),
    Event(ChatStreamEvent),
    Error(genai::Error),
    End,
}

impl GenaiStream {
    pub(crate) fn new(client: Result<Client, Failed>, request: Request, cancel: CancellationToken) -> Self {
        let frames = Frames::default();
        Self {
            answer: Answer::new(request.model.clone(), request.messages.len()),
            source: Source::Opening(Box::pin(open(client, request, frames.clone()))),
            frames,
            protocol: Protocol::default(),
            events: Events::default(),
            cancelled: Box::pin(cancel.cancelled_owned()),
        }
    }

    fn poll_genai(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        match &mut self.source {
            Source::Opening(opening) => opening.as_mut().poll(cx).map(Polled::Opened),
            Source::Open(stream) => Pin::new(stream).poll_next(cx).map(|event| match event {
                Some(Ok(event)) => Polled::Event(event),
                Some(Err(error)) => Polled::Error(error),
                None => Polled::End,
            }),
            Source::Closed => Poll::Ready(Polled::End),
        }
    }

    /// Reads the frames of the last poll. Gives whether there were any and all were read here.
    fn read_frames(&mut self) -> bool {
        let frames = std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner));
        let mut read = !frames.is_empty();
        for frame in frames {
            read &= self.protocol.read(&frame, &mut self.answer);
        }
        read
    }

    fn handle(&mut self, polled: Polled, read: bool) {
        match polled {
            Polled::Opened(Ok((stream, api, provider))) => {
                self.answer.at_api(api, &provider);
                self.source = Source::Open(Box::new(stream));
            }
            Polled::Opened(Err(failed)) => self.answer.fail(failed),
            Polled::Event(event) => match self.protocol {
                Protocol::Unknown | Protocol::Other => self.events.read(event, &mut self.answer),
                Protocol::ChatCompletions | Protocol::Messages | Protocol::Responses => {}
            },
            // What was read here is not an error because genai could not read it.
            Polled::Error(_) if read => {}
            Polled::Error(error) => self.answer.fail(Failed::of_genai(&error)),
            Polled::End => self.answer.finish(),
        }
    }
}

/// Resolves the target and makes the request; it is sent by the first poll of the stream.
async fn open(client: Result<Client, Failed>, request: Request, frames: Frames) -> Opened {
    let client = client?;
    let target = target::resolve(&client, &request).await?;
    let model = target.model.clone();
    let chat = request::of(&request, &model);
    let options = options::of(&request, model.adapter_kind).with_raw_frame_fn(move |_, frame: RawFrameRef<'_>| {
        frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(frame.data.to_owned());
    });
    let response = client.exec_chat_stream(target, chat, Some(&options)).await;
    let response = response.map_err(|error| Failed::of_genai(&error))?;
    let provider = target::provider(&request.model, model.adapter_kind);
    Ok((response.stream, target::api(model.adapter_kind), provider))
}

impl Stream for GenaiStream {
    type Item = AssistantEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = self.get_mut();
        loop {
            if this.answer.has_ended() {
                this.source = Source::Closed;
                return Poll::Ready(this.answer.pop());
            }
            if this.cancelled.as_mut().poll(cx).is_ready() {
                this.answer.abort();
                continue;
            }
            if let Some(event) = this.answer.pop() {
                return Poll::Ready(Some(event));
            }
            // genai adds up 32-bit counts that the provider names, among others.
            let polled = catch_unwind(AssertUnwindSafe(|| this.poll_genai(cx)));
            let read = this.read_frames();
            match polled {
                Ok(Poll::Ready(polled)) => this.handle(polled, read),
                Ok(Poll::Pending) if read => {}
                Ok(Poll::Pending) => return Poll::Pending,
                Err(_) => this.answer.fail(Failed::new("genai panicked at the provider's answer")),
            }
        }
    }
}

impl FusedStream for GenaiStream {
    fn is_terminated(&self) -> bool {
        self.answer.is_told()
    }
}

impl fmt::Debug for GenaiStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenaiStream")
            .field("protocol", &self.protocol)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}
