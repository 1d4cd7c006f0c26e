//! From the bytes of a proxy's answer to the events in it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;

use crate::message::{AssistantEvent, ErrorReason};

use super::decode_blocks::Blocks;
use super::json_event::{Parsed, parse};
use super::sse_lines::Lines;

/// In the reference's words.
const CLOSED: &str = "Connection closed by proxy server before the response completed";

/// How much of an answer may have to be kept in memory before it is an event.
///
/// A whole answer has no limit: it may be long, and what arrived of it is already in the caller's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderLimits {
    /// Bytes of one line. Default: 16 MiB.
    pub max_line: usize,
    /// Bytes of the data of one event, which may be spread over several lines. Default: 16 MiB.
    pub max_event: usize,
}

impl Default for DecoderLimits {
    fn default() -> Self {
        Self {
            max_line: 16 << 20,
            max_event: 16 << 20,
        }
    }
}

impl DecoderLimits {
    /// Sets [`max_line`](Self::max_line).
    pub fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Sets [`max_event`](Self::max_event).
    pub fn with_max_event(mut self, bytes: usize) -> Self {
        self.max_event = bytes;
        self
    }
}

/// Turns the bytes of a proxy's answer into events: no I/O, no clock, no failure.
///
/// **Whatever the bytes are and however they are cut, the events are good**: each fits the blocks before it, and exactly
/// one terminal event comes last. What is wrong with the bytes becomes that event, an [`AssistantEvent::Error`]; what came
/// before it stands. Nothing after the terminal event counts.
///
/// 1. [`push`](Self::push) each piece of the body as it arrives, and [`end`](Self::end) it when it is over.
/// 2. After each of them, take events by [`next_event`](Self::next_event) until there is none.
/// 3. Once it [`is_done`](Self::is_done), close the connection: nothing is missing.
///
/// The cost is O(bytes), even byte by byte. What it reads, and what it forgives, is told at the [module](super).
///
/// ```
/// use turnstate::AssistantEvent;
/// use turnstate::proxy::ProxyDecoder;
///
/// let mut decoder = ProxyDecoder::default();
/// decoder.push(b"data: {\"type\":\"text_start\",\"contentIndex\":0}\n\ndata: {\"type\":\"text_delta\",\"conte");
/// assert_eq!(decoder.next_event(), Some(AssistantEvent::TextStart { content_index: 0 }));
/// assert_eq!(decoder.next_event(), None);
///
/// decoder.push(b"ntIndex\":0,\"delta\":\"Hi\"}\n\n");
/// assert_eq!(decoder.next_event(), Some(AssistantEvent::text_delta(0, "Hi")));
///
/// // The server has gone away in the middle of its answer.
/// decoder.end();
/// assert!(matches!(decoder.next_event(), Some(AssistantEvent::Error { .. })));
/// assert!(decoder.is_done());
/// ```
pub struct ProxyDecoder {
    lines: Lines,
    answer: Answer,
}

impl Default for ProxyDecoder {
    fn default() -> Self {
        Self::new(DecoderLimits::default())
    }
}

impl ProxyDecoder {
    /// A decoder for one answer.
    pub fn new(limits: DecoderLimits) -> Self {
        Self {
            lines: Lines::new(limits.max_line),
            answer: Answer {
                data: Vec::new(),
                max_event: limits.max_event,
                blocks: Blocks::default(),
                events: VecDeque::new(),
                done: false,
                steps: 0,
            },
        }
    }

    /// The next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        if self.is_done() {
            return;
        }
        let Self { lines, answer } = self;
        if lines.push(piece, |line| answer.line(line)).is_err() {
            let message = format!(
                "a line of the proxy server's answer is longer than {} bytes",
                lines.max_line()
            );
            self.fail(ErrorReason::Error, message);
        }
        self.settle();
    }

    /// The body is over.
    ///
    /// A last event without its line end or blank line counts, if it is whole.
    pub fn end(&mut self) {
        self.cut(CLOSED);
    }

    /// The body broke off with an error. As [`end`](Self::end), but with `message` if the answer is not complete.
    pub fn cut(&mut self, message: impl Into<String>) {
        if self.is_done() {
            return;
        }
        let Self { lines, answer } = self;
        lines.finish(|line| answer.line(line));
        answer.end();
        self.fail(ErrorReason::Error, message);
    }

    /// Ends the answer from outside: it was aborted, or took too long. Does nothing if it is done.
    pub fn fail(&mut self, reason: ErrorReason, message: impl Into<String>) {
        self.answer.fail(reason, message.into());
        self.settle();
    }

    /// Ends the answer with `event`, a terminal one.
    pub(super) fn refuse(&mut self, event: AssistantEvent) {
        self.answer.finish(event);
        self.settle();
    }

    /// The next event, if there is one.
    pub fn next_event(&mut self) -> Option<AssistantEvent> {
        self.answer.events.pop_front()
    }

    /// Whether [`next_event`](Self::next_event) has one.
    pub fn has_event(&self) -> bool {
        !self.answer.events.is_empty()
    }

    /// Whether the terminal event has been read; it may still have to be taken.
    pub fn is_done(&self) -> bool {
        self.answer.done
    }

    /// The work done so far, in bytes looked at or copied; tests assert by it that the cost is linear.
    #[doc(hidden)]
    pub fn steps(&self) -> u64 {
        self.lines.steps() + self.answer.steps
    }

    /// Drops what only a further piece could need.
    fn settle(&mut self) {
        if self.answer.done {
            self.lines.clear();
            self.answer.data = Vec::new();
            self.answer.blocks = Blocks::default();
        }
    }
}

impl fmt::Debug for ProxyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyDecoder")
            .field("events", &self.answer.events.len())
            .field("done", &self.answer.done)
            .finish_non_exhaustive()
    }
}

/// Everything behind the lines.
#[derive(Debug)]
struct Answer {
    /// The data lines of an event that one line did not complete, joined.
    data: Vec<u8>,
    max_event: usize,
    blocks: Blocks,
    events: VecDeque<AssistantEvent>,
    done: bool,
    steps: u64,
}

impl Answer {
    /// Takes one line, and breaks when the answer is done.
    fn line(&mut self, line: &[u8]) -> ControlFlow<()> {
        if line.is_empty() {
            self.dispatch();
        } else if let Some(data) = data_of(line) {
            self.data(data);
        }
        if self.done {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Takes one data line.
    ///
    /// Servers that end each event with a blank line and servers that write one event per line are told apart by the JSON:
    /// a line that is one whole value is an event, one that ends early waits for more lines and the blank one. Since at
    /// most one line of an event is tried before, each byte is parsed at most twice.
    fn data(&mut self, data: &[u8]) {
        let length = self.data.len() + data.len();
        if length > self.max_event {
            let message = format!("an event of the proxy server is longer than {} bytes", self.max_event);
            self.fail(ErrorReason::Error, message);
        } else if !self.data.is_empty() {
            self.data.push(b'\n');
            self.keep(data);
        } else if !matches!(data.trim_ascii(), b"" | b"[DONE]") && self.event(data).is_none() {
            self.keep(data);
        }
    }

    fn keep(&mut self, data: &[u8]) {
        self.steps += data.len() as u64;
        self.data.extend_from_slice(data);
    }

    /// A blank line: the event has all its lines.
    fn dispatch(&mut self) {
        if self.take_event().is_none() {
            self.malformed("its JSON ends too early");
        }
    }

    /// The end of the body. An event that ends early was cut off with the connection.
    fn end(&mut self) {
        self.take_event();
    }

    /// Takes the event of the lines so far; `None` if its JSON ends early.
    fn take_event(&mut self) -> Option<()> {
        if self.data.is_empty() {
            return Some(());
        }
        let data = std::mem::take(&mut self.data);
        self.event(&data)
    }

    /// Takes one event; `None` if its JSON ends early.
    fn event(&mut self, json: &[u8]) -> Option<()> {
        self.steps += json.len() as u64;
        let fits = match parse(json) {
            Parsed::Incomplete => return None,
            Parsed::Unknown => Ok(()),
            Parsed::Malformed(reason) => {
                self.malformed(&reason);
                return Some(());
            }
            Parsed::Delta {
                kind,
                content_index,
                delta,
            } => {
                let event = self.blocks.delta(kind, content_index, delta);
                event.map(|event| self.events.push_back(event))
            }
            Parsed::Event(event) => {
                let done = event.is_terminal();
                let fits = self.blocks.event(event, &mut self.events);
                self.done |= done;
                fits
            }
        };
        if let Err(reason) = fits {
            self.fail(ErrorReason::Error, reason);
        }
        Some(())
    }

    fn malformed(&mut self, reason: &str) {
        let message = format!("Could not parse an event of the proxy server: {reason}");
        self.fail(ErrorReason::Error, message);
    }

    fn fail(&mut self, reason: ErrorReason, message: String) {
        self.finish(match reason {
            ErrorReason::Error => AssistantEvent::error(message),
            ErrorReason::Aborted => AssistantEvent::aborted(message),
        });
    }

    fn finish(&mut self, event: AssistantEvent) {
        if self.done {
            return;
        }
        self.blocks.flush(&mut self.events);
        self.events.push_back(event);
        self.done = true;
    }
}

/// The data of a data line: all behind the colon, but for one space. `None` for comments and other fields.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [b':', b' ', data @ ..] | [b':', data @ ..] => Some(data),
        [] => Some(&[]),
        _ => None,
    }
}
