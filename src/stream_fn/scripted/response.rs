//! One response of a scripted model, and the steps it is played as.

use serde_json::Value;

use crate::message::{AssistantEvent, DoneReason, ErrorReason, Usage};

use super::stream::Step;

/// One response of a [`ScriptedModel`](super::ScriptedModel).
///
/// The methods append, in order. A plain one is what a good model streams: a start, then each block with its deltas
/// and its end, then done. The others make it a bad one:
///
/// | method | what the stream does |
/// |---|---|
/// | [`silence`](Self::silence) | says nothing until it is aborted |
/// | [`deaf`](Self::deaf) | does not notice that it is aborted |
/// | [`fail`](Self::fail) | ends with an error event |
/// | [`end_early`](Self::end_early) | ends without a terminal event |
/// | [`panic`](Self::panic) | panics |
/// | [`pending_once`](Self::pending_once), [`pending_between`](Self::pending_between) | is pending, and wakes at once |
/// | [`event`](Self::event), [`from_events`](Self::from_events) | yields any events in any order |
///
/// Silence, failure, an early end and a panic break off the block before them: it never gets its end event.
///
/// ```
/// use futures_util::{FutureExt, StreamExt};
/// use serde_json::json;
/// use turnstate::{AssistantEvent, CancellationToken, DoneReason, Request, Response, ScriptedModel, StreamFn};
///
/// let response = Response::new()
///     .text("Let me look.")
///     .call("weather", json!({"name": "Oslo"}))
///     .call_with_id("x", "time", json!({}));
/// let model = ScriptedModel::new().chunk_chars(20).reply(response);
/// let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
/// let events: Vec<_> = stream.collect().now_or_never().unwrap();
/// assert_eq!(
///     events,
///     [
///         AssistantEvent::start(),
///         AssistantEvent::TextStart { content_index: 0 },
///         AssistantEvent::text_delta(0, "Let me look."),
///         AssistantEvent::TextEnd { content_index: 0, content_signature: None },
///         AssistantEvent::tool_call_start(1, "call_1", "weather"),
///         AssistantEvent::tool_call_delta(1, r#"{"name":"Oslo"}"#),
///         AssistantEvent::ToolCallEnd { content_index: 1, tool_call: None },
///         AssistantEvent::tool_call_start(2, "x", "time"),
///         AssistantEvent::tool_call_delta(2, "{}"),
///         AssistantEvent::ToolCallEnd { content_index: 2, tool_call: None },
///         AssistantEvent::done(DoneReason::ToolUse),
///     ]
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use = "a response does nothing until a model has it"]
pub struct Response {
    parts: Vec<Part>,
    frame: Frame,
    stop: Option<DoneReason>,
    usage: Usage,
    chunk_chars: Option<usize>,
    deaf: bool,
    pending_between: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Block(Block, String),
    Fail(String),
    Step(Step),
}

#[derive(Debug, Clone, PartialEq)]
enum Block {
    Text,
    Thinking,
    Call { id: Option<String>, tool: String },
}

/// What is put around the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Frame {
    /// A start before, and done after, unless the parts end the response themselves.
    #[default]
    Whole,
    /// Only the start.
    NoEnd,
    /// Nothing.
    Verbatim,
}

impl Response {
    /// An empty response: a start, then done.
    pub fn new() -> Self {
        Self::default()
    }

    /// Just these events, whatever they are: no start and no done is added, not even to the parts that follow, the last
    /// of which is left open.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, DoneReason, Request, Response, ScriptedModel, StreamFn};
    /// let events = [AssistantEvent::done(DoneReason::Stop), AssistantEvent::text_delta(7, "late")];
    /// let model = ScriptedModel::new().reply(Response::from_events(events.clone()));
    /// let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    /// assert_eq!(stream.collect::<Vec<_>>().now_or_never().unwrap(), events);
    /// ```
    pub fn from_events(events: impl IntoIterator<Item = AssistantEvent>) -> Self {
        Self {
            parts: events.into_iter().map(|event| Part::Step(Step::Event(event))).collect(),
            frame: Frame::Verbatim,
            ..Self::default()
        }
    }

    /// A block of text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Block(Block::Text, text.into()))
    }

    /// A block of reasoning.
    pub fn thinking(self, thinking: impl Into<String>) -> Self {
        self.part(Part::Block(Block::Thinking, thinking.into()))
    }

    /// A tool call. The model gives it an id: `call_1`, `call_2` and so on.
    pub fn call(self, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        self.call_raw(tool, arguments.into().to_string())
    }

    /// A tool call with an id of your choice, which may be empty or taken.
    pub fn call_with_id(self, id: impl Into<String>, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        let (id, tool) = (Some(id.into()), tool.into());
        self.part(Part::Block(Block::Call { id, tool }, arguments.into().to_string()))
    }

    /// A tool call whose arguments are this text, be it JSON or not.
    pub fn call_raw(self, tool: impl Into<String>, arguments: impl Into<String>) -> Self {
        let (id, tool) = (None, tool.into());
        self.part(Part::Block(Block::Call { id, tool }, arguments.into()))
    }

    /// An event as it is. An end event ends the block before it; a terminal one makes the end of the response, and
    /// a start that comes first the beginning. The next block gets a content index above all of them.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, DoneReason, Request, Response, ScriptedModel, StreamFn};
    /// let end = AssistantEvent::TextEnd { content_index: 0, content_signature: Some("signed".into()) };
    /// let model = ScriptedModel::new().reply(Response::new().text("Hi").event(end.clone()));
    /// let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    /// let events: Vec<_> = stream.collect().now_or_never().unwrap();
    /// assert_eq!(events[3..], [end, AssistantEvent::done(DoneReason::Stop)]);
    /// ```
    pub fn event(self, event: AssistantEvent) -> Self {
        self.part(Part::Step(Step::Event(event)))
    }

    /// Nothing until the token is cancelled; the response then ends as an aborted one. What follows is never reached.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// # use turnstate::{AssistantEvent, CancellationToken, ErrorReason, Request, Response, ScriptedModel, StreamFn};
    /// let model = ScriptedModel::new().reply(Response::new().text("Hm").silence());
    /// let cancel = CancellationToken::new();
    /// let mut stream = model.stream(Request::new("scripted-1"), cancel.clone());
    /// let said: Vec<_> = stream.by_ref().take(3).collect().now_or_never().unwrap();
    /// assert_eq!(said[2], AssistantEvent::text_delta(0, "Hm"));
    /// assert!(stream.next().now_or_never().is_none()); // pending
    /// cancel.cancel();
    /// let last = stream.next().now_or_never().unwrap();
    /// assert!(matches!(last, Some(AssistantEvent::Error { reason: ErrorReason::Aborted, .. })));
    /// ```
    pub fn silence(self) -> Self {
        self.part(Part::Step(Step::Silence))
    }

    /// Lets the whole response ignore the token: it goes on when it is aborted, and its [silence](Self::silence) is
    /// for ever. The only way out is to drop the stream. In a benchmark it spares each poll the look at the token, a
    /// lock.
    pub fn deaf(mut self) -> Self {
        self.deaf = true;
        self
    }

    /// An error event with this text; it ends the response, which keeps what was streamed.
    pub fn fail(self, message: impl Into<String>) -> Self {
        self.part(Part::Fail(message.into()))
    }

    /// Ends the stream after the last part, without a terminal event.
    pub fn end_early(mut self) -> Self {
        if self.frame == Frame::Whole {
            self.frame = Frame::NoEnd;
        }
        self
    }

    /// A panic with this text, in the poll of the stream. Polled again, the stream is at its end.
    pub fn panic(self, text: impl Into<String>) -> Self {
        self.part(Part::Step(Step::Panic(text.into())))
    }

    /// One poll that is pending, though the stream wakes its task at once.
    pub fn pending_once(self) -> Self {
        self.part(Part::Step(Step::PendingOnce))
    }

    /// The same between any two events.
    pub fn pending_between(mut self) -> Self {
        self.pending_between = true;
        self
    }

    /// Why it is done. Without it: [`ToolUse`](DoneReason::ToolUse) if there are calls, else
    /// [`Stop`](DoneReason::Stop).
    pub fn stop(mut self, reason: DoneReason) -> Self {
        self.stop = Some(reason);
        self
    }

    /// What it costs, said when it is done or [fails](Self::fail).
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Splits all its texts into deltas of `chars` characters, whatever
    /// [the model's default](super::ScriptedModel::chunk_chars) is. 0 counts as 1, `usize::MAX` splits nothing.
    pub fn chunk_chars(mut self, chars: usize) -> Self {
        self.chunk_chars = Some(chars);
        self
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Whether it ignores its token.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Whether there is a call in it, and it would therefore wait for results.
    fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| {
            matches!(
                part,
                Part::Block(Block::Call { .. }, _) | Part::Step(Step::Event(AssistantEvent::ToolCallStart { .. }))
            )
        })
    }

    /// The steps to play: everything that costs is done here, so that polling only moves events.
    pub(super) fn into_steps(self, chunk_chars: Option<usize>, next_id: impl FnMut() -> String) -> Vec<Step> {
        let reason = self.stop.unwrap_or(if self.has_calls() {
            DoneReason::ToolUse
        } else {
            DoneReason::Stop
        });
        let mut player = Player {
            steps: Vec::new(),
            chunk_chars: self.chunk_chars.or(chunk_chars),
            usage: self.usage,
            next_id,
            next_index: 0,
            open: None,
            ended: false,
        };
        let has_start = matches!(
            self.parts.first(),
            Some(Part::Step(Step::Event(AssistantEvent::Start { .. })))
        );
        if self.frame != Frame::Verbatim && !has_start {
            player.event(AssistantEvent::start());
        }
        for part in self.parts {
            player.part(part);
        }
        if self.frame == Frame::Whole && !player.ended {
            player.close();
            player.event(AssistantEvent::Done {
                reason,
                usage: Box::new(self.usage),
                message: None,
            });
        }
        if self.pending_between {
            let steps = player.steps.into_iter();
            return steps.flat_map(|step| [Step::PendingOnce, step]).skip(1).collect();
        }
        player.steps
    }
}

impl From<Vec<AssistantEvent>> for Response {
    /// See [`Response::from_events`].
    fn from(events: Vec<AssistantEvent>) -> Self {
        Self::from_events(events)
    }
}

impl From<&str> for Response {
    /// A response of one block of text.
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

impl From<String> for Response {
    /// A response of one block of text.
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

/// Turns parts into steps.
struct Player<F> {
    steps: Vec<Step>,
    chunk_chars: Option<usize>,
    usage: Usage,
    next_id: F,
    /// Above all content indices used so far.
    next_index: usize,
    /// The end of the last block, kept back: whether there will be one depends on what comes next.
    open: Option<AssistantEvent>,
    /// Whether the parts so far end the response.
    ended: bool,
}

impl<F: FnMut() -> String> Player<F> {
    fn part(&mut self, part: Part) {
        match part {
            Part::Block(block, text) => self.block(block, &text),
            Part::Fail(message) => self.event(AssistantEvent::Error {
                reason: ErrorReason::Error,
                error_message: Some(message),
                usage: Box::new(self.usage),
                message: None,
                failure: None,
            }),
            Part::Step(Step::Event(event)) => self.event(event),
            Part::Step(step) => {
                self.ended |= step != Step::PendingOnce;
                self.steps.push(step);
            }
        }
    }

    fn event(&mut self, event: AssistantEvent) {
        self.ended |= event.is_terminal();
        if let Some(index) = event.content_index() {
            self.next_index = self.next_index.max(index.saturating_add(1));
        }
        let ends_open =
            |open: &AssistantEvent| open.kind() == event.kind() && open.content_index() == event.content_index();
        if self.open.as_ref().is_some_and(ends_open) {
            self.open = None;
        }
        self.steps.push(Step::Event(event));
    }

    fn block(&mut self, block: Block, text: &str) {
        self.close();
        let content_index = self.next_index;
        let (start, delta, end): (_, fn(usize, &str) -> AssistantEvent, _) = match block {
            Block::Text => (
                AssistantEvent::TextStart { content_index },
                |index, delta| AssistantEvent::text_delta(index, delta),
                AssistantEvent::TextEnd {
                    content_index,
                    content_signature: None,
                },
            ),
            Block::Thinking => (
                AssistantEvent::ThinkingStart { content_index },
                |index, delta| AssistantEvent::thinking_delta(index, delta),
                AssistantEvent::ThinkingEnd {
                    content_index,
                    content_signature: None,
                },
            ),
            Block::Call { id, tool } => (
                AssistantEvent::tool_call_start(content_index, id.unwrap_or_else(&mut self.next_id), tool),
                |index, delta| AssistantEvent::tool_call_delta(index, delta),
                AssistantEvent::ToolCallEnd {
                    content_index,
                    tool_call: None,
                },
            ),
        };
        let splits = match start {
            AssistantEvent::ToolCallStart { .. } => |c: char| matches!(c, ',' | ':'),
            _ => char::is_whitespace,
        };
        self.event(start);
        let delta = |piece| Step::Event(delta(content_index, piece));
        match self.chunk_chars {
            Some(chars) => self.steps.extend(chunks(text, chars).map(delta)),
            None => self.steps.extend(text.split_inclusive(splits).map(delta)),
        }
        self.open = Some(end);
    }

    fn close(&mut self) {
        if let Some(end) = self.open.take() {
            self.event(end);
        }
    }
}

/// Pieces of `chars` characters; the last may be shorter.
fn chunks(text: &str, chars: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(chars.max(1)).map_or(rest.len(), |(end, _)| end);
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}
