//! A stream function that plays a script instead of asking a model.

mod response;
mod stream;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::message::AssistantEvent;
use crate::sync::{Mutex, MutexGuard, PoisonError};

use super::{Request, StreamFn};

pub use response::Response;
pub use stream::ScriptedStream;

use stream::{Pace, Step};

/// A model for tests and examples: it answers what it was told to, and remembers what it was asked.
///
/// Each request takes the next [`Response`]. A request beyond the script is answered by the
/// [fallback](Self::fallback), and without one by the error `script exhausted`. The requests are recorded.
///
/// It is a cheap handle: copies play the same script, so a test keeps one to read [`requests`](Self::requests) or to
/// [`push`](Self::push) what the model says next, while another is at work.
///
/// Text is streamed word by word, arguments piece by piece. A stream notices at its next poll that it is aborted, and
/// wakes for it while it waits; it then ends with the error `Request was aborted`.
///
/// ```
/// use futures_util::{FutureExt, StreamExt};
/// use serde_json::json;
/// use turnstate::{AssistantEvent, CancellationToken, DoneReason, Message, Request, ScriptedModel, StreamFn};
///
/// let model = ScriptedModel::new()
///     .call("weather", json!({"name": "Oslo"})) // the first response
///     .text("Take an umbrella."); // the second
///
/// let ask = |question: &str| -> Vec<AssistantEvent> {
///     let mut request = Request::new("scripted-1");
///     request.messages.push(Message::user(question).into());
///     let stream = model.stream(request, CancellationToken::new());
///     stream.collect().now_or_never().unwrap()
/// };
/// assert_eq!(ask("Umbrella?").last(), Some(&AssistantEvent::done(DoneReason::ToolUse)));
/// assert_eq!(
///     ask("Well?"),
///     [
///         AssistantEvent::start(),
///         AssistantEvent::TextStart { content_index: 0 },
///         AssistantEvent::text_delta(0, "Take "),
///         AssistantEvent::text_delta(0, "an "),
///         AssistantEvent::text_delta(0, "umbrella."),
///         AssistantEvent::TextEnd { content_index: 0, content_signature: None },
///         AssistantEvent::done(DoneReason::Stop),
///     ]
/// );
/// assert_eq!(ask("And now?"), [AssistantEvent::error("script exhausted")]);
///
/// assert_eq!(model.remaining(), 0);
/// assert_eq!(model.requests()[1].messages[0].text(), "Well?");
/// ```
#[derive(Clone, Default)]
pub struct ScriptedModel {
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    responses: VecDeque<Prepared>,
    requests: Vec<Request>,
    /// Ids given so far.
    calls: u64,
    chunk_chars: Option<usize>,
    pace: Option<Pace>,
    fallback: Option<Fallback>,
}

/// A response, ready to be played.
struct Prepared {
    steps: Vec<Step>,
    deaf: bool,
}

type Fallback = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

impl Script {
    fn prepare(&mut self, response: Response) -> Prepared {
        let deaf = response.is_deaf();
        let steps = response.into_steps(self.chunk_chars, || {
            self.calls += 1;
            format!("call_{}", self.calls)
        });
        Prepared { steps, deaf }
    }
}

impl ScriptedModel {
    /// A model with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        // No foreign code runs under the lock, so it cannot be poisoned half-way.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next response is a text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.reply(Response::new().text(text))
    }

    /// The next response is one tool call.
    pub fn call(self, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        self.reply(Response::new().call(tool, arguments))
    }

    /// The next response fails.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, Request, ScriptedModel, StreamFn};
    /// let model = ScriptedModel::new().fail("overloaded");
    /// let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    /// let events: Vec<_> = stream.collect().now_or_never().unwrap();
    /// assert_eq!(events, [AssistantEvent::start(), AssistantEvent::error("overloaded")]);
    /// ```
    pub fn fail(self, message: impl Into<String>) -> Self {
        self.reply(Response::new().fail(message))
    }

    /// The next response is this one: a [`Response`], a text, or a list of events.
    pub fn reply(self, response: impl Into<Response>) -> Self {
        self.push(response);
        self
    }

    /// The same, while the model is at work.
    ///
    /// ```
    /// use turnstate::{Response, ScriptedModel};
    /// let model = ScriptedModel::new().text("One.");
    /// let at_work = model.clone();
    /// model.push(Response::new().thinking("Two?").text("Two."));
    /// model.push("Three.");
    /// assert_eq!(at_work.remaining(), 3);
    /// ```
    pub fn push(&self, response: impl Into<Response>) {
        let response = response.into();
        let mut script = self.lock();
        let prepared = script.prepare(response);
        script.responses.push_back(prepared);
    }

    /// Answers the requests beyond the script. It may use copies of this model, but one that it keeps is never freed:
    /// they hold each other.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, Message, Request, ScriptedModel, StreamFn};
    /// let parrot = ScriptedModel::new().fallback(|request| {
    ///     request.messages.last().map(|message| message.text()).unwrap_or_default()
    /// });
    /// let mut request = Request::new("scripted-1");
    /// request.messages.push(Message::user("Hello").into());
    /// let stream = parrot.stream(request, CancellationToken::new());
    /// let events: Vec<_> = stream.collect().now_or_never().unwrap();
    /// assert_eq!(events[2], AssistantEvent::text_delta(0, "Hello"));
    /// ```
    pub fn fallback<F, R>(self, answer: F) -> Self
    where
        F: Fn(&Request) -> R + Send + Sync + 'static,
        R: Into<Response>,
    {
        let fallback: Fallback = Arc::new(move |request| answer(request).into());
        let replaced = self.lock().fallback.replace(fallback);
        // Its captures are foreign: dropped without the lock.
        drop(replaced);
        self
    }

    /// Splits the texts of the responses that are scripted from now on into deltas of `chars` characters, unless
    /// [they say otherwise](Response::chunk_chars). 0 counts as 1, `usize::MAX` splits nothing.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, Request, ScriptedModel, StreamFn};
    /// let model = ScriptedModel::new().chunk_chars(3).text("Smørrebrød");
    /// let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    /// let deltas = stream.filter_map(async |event| match event {
    ///     AssistantEvent::TextDelta { delta, .. } => Some(delta),
    ///     _ => None,
    /// });
    /// assert_eq!(deltas.collect::<Vec<_>>().now_or_never().unwrap(), ["Smø", "rre", "brø", "d"]);
    /// ```
    pub fn chunk_chars(self, chars: usize) -> Self {
        self.lock().chunk_chars = Some(chars);
        self
    }

    /// Awaits what `delay` gives before each delta, so that a demo looks streamed. Such as
    /// `.pace(|| tokio::time::sleep(Duration::from_millis(30)))`; the timer is yours, whatever the runtime.
    ///
    /// Boxes one future per delta.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, Request, ScriptedModel, StreamFn};
    /// let model = ScriptedModel::new().pace(std::future::pending).text("Never said.");
    /// let mut stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    /// assert_eq!(stream.next().now_or_never(), Some(Some(AssistantEvent::start())));
    /// assert_eq!(stream.next().now_or_never(), Some(Some(AssistantEvent::TextStart { content_index: 0 })));
    /// assert_eq!(stream.next().now_or_never(), None);
    /// ```
    pub fn pace<F, Fut>(self, delay: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let pace: Pace = Arc::new(move || Box::pin(delay()));
        let replaced = self.lock().pace.replace(pace);
        // Its captures are foreign: dropped without the lock.
        drop(replaced);
        self
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// How many scripted responses no request has taken yet.
    pub fn remaining(&self) -> usize {
        self.lock().responses.len()
    }
}

impl StreamFn for ScriptedModel {
    type Stream = ScriptedStream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> ScriptedStream {
        let mut script = self.lock();
        let pace = script.pace.clone();
        let prepared = script.responses.pop_front();
        let fallback = match &prepared {
            Some(_) => None,
            None => script.fallback.clone().map(|fallback| (fallback, request.clone())),
        };
        script.requests.push(request);
        drop(script);
        // The fallback is foreign: called without the lock.
        let prepared = prepared.or_else(|| {
            let (fallback, request) = fallback?;
            let response = fallback(&request);
            Some(self.lock().prepare(response))
        });
        let Prepared { steps, deaf } = prepared.unwrap_or_else(|| Prepared {
            steps: vec![Step::Event(AssistantEvent::error("script exhausted"))],
            deaf: false,
        });
        ScriptedStream::new(steps, (!deaf).then_some(cancel), pace)
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.lock();
        f.debug_struct("ScriptedModel")
            .field("remaining", &script.responses.len())
            .field("requests", &script.requests.len())
            .finish_non_exhaustive()
    }
}
