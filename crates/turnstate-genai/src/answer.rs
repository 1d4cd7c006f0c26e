//! What an answer is, whoever gave it: blocks that open and close, and one end.

use std::collections::VecDeque;
use std::sync::Arc;

use turnstate::{AssistantEvent, DoneReason, ErrorReason, Failure, Model, ResponseHead, ToolCallPatch, Usage};

use crate::failure::Failed;
use crate::usage;

/// What stands for reasoning that the provider withheld; what it needs back is in the signature. The reference's text.
pub(crate) const REDACTED: &str = "[Reasoning redacted]";

/// Turns what a decoder reads into events: opens blocks, closes them, and tells the end once.
///
/// ```text
/// Waiting --(anything)--> Open --(finish, fail, abort)--> Ended
///    |                                                      ^
///    +------------------(finish, fail, abort)---------------+
/// ```
#[derive(Debug)]
pub(crate) struct Answer {
    model: Arc<Model>,
    /// A missing call id is made of it, so that ids do not repeat in a transcript.
    messages: usize,
    events: VecDeque<AssistantEvent>,
    head: ResponseHead,
    phase: Phase,
    /// The content index of the next block.
    next: usize,
    prose: Option<Prose>,
    calls: Vec<Call>,
    /// Tool calls of the answer, open or not.
    called: bool,
    pub(crate) usage: Usage,
    stopped: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Open,
    Ended,
}

/// The block that takes the next piece of text or thinking.
#[derive(Debug)]
struct Prose {
    index: usize,
    thinking: bool,
    signature: String,
}

/// A tool call that may go on.
#[derive(Debug)]
struct Call {
    /// The provider's name for its place.
    key: u64,
    index: usize,
    arguments: String,
    patch: ToolCallPatch,
    /// It began with an id that was made up.
    anonymous: bool,
    unnamed: bool,
}

impl Answer {
    pub(crate) fn new(model: Arc<Model>, messages: usize) -> Self {
        Self {
            model,
            messages,
            events: VecDeque::new(),
            head: ResponseHead::default(),
            phase: Phase::Waiting,
            next: 0,
            prose: None,
            calls: Vec::new(),
            called: false,
            usage: Usage::default(),
            stopped: None,
        }
    }

    /// The next event to tell.
    pub(crate) fn pop(&mut self) -> Option<AssistantEvent> {
        self.events.pop_front()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether the last event was told.
    pub(crate) fn is_told(&self) -> bool {
        self.has_ended() && self.events.is_empty()
    }

    /// Where the answer comes from. Counts until it begins.
    pub(crate) fn at_api(&mut self, api: &str, provider: &str) {
        self.head.api = Some(api.to_owned());
        self.head.provider = Some(provider.to_owned());
    }

    /// Begins the answer, with what the provider says of it; the first time counts.
    pub(crate) fn begin(&mut self, id: Option<&str>, model: Option<&str>) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.phase = Phase::Open;
        let said = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        self.head.response_id = said(id);
        self.head.response_model = said(model).filter(|model| *model != self.model.id);
        let head = std::mem::take(&mut self.head);
        self.events.push_back(AssistantEvent::Start {
            head: (head != ResponseHead::default()).then(|| Box::new(head)),
        });
    }

    /// A piece of text. An empty one is nothing.
    pub(crate) fn text(&mut self, delta: &str) {
        if !delta.is_empty() {
            let index = self.prose(false);
            self.events.push_back(AssistantEvent::text_delta(index, delta));
        }
    }

    /// A piece of reasoning.
    pub(crate) fn thinking(&mut self, delta: &str) {
        if !delta.is_empty() {
            let index = self.prose(true);
            self.events.push_back(AssistantEvent::thinking_delta(index, delta));
        }
    }

    /// A piece of the signature of the reasoning before it.
    pub(crate) fn signature(&mut self, delta: &str) {
        if !delta.is_empty() {
            self.prose(true);
            if let Some(prose) = &mut self.prose {
                prose.signature.push_str(delta);
            }
        }
    }

    /// The block of text or thinking is complete.
    pub(crate) fn end_prose(&mut self) {
        let Some(prose) = self.prose.take() else { return };
        let content_signature = Some(prose.signature).filter(|signature| !signature.is_empty());
        let content_index = prose.index;
        self.events.push_back(if prose.thinking {
            AssistantEvent::ThinkingEnd {
                content_index,
                content_signature,
            }
        } else {
            AssistantEvent::TextEnd {
                content_index,
                content_signature,
            }
        });
    }

    /// A piece of the call at `key`, which begins with the first: its id and its name may come late, or never.
    pub(crate) fn call(&mut self, key: u64, id: &str, name: &str) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            if call.anonymous && !id.is_empty() {
                call.patch.id = Some(id.to_owned());
            }
            if call.unnamed && !name.is_empty() {
                call.patch.name.get_or_insert_default().push_str(name);
            }
            return;
        }
        self.begin(None, None);
        self.end_prose();
        let index = self.take_index();
        self.called = true;
        let anonymous = id.is_empty();
        let id = if anonymous {
            format!("call_{}_{index}", self.messages)
        } else {
            id.to_owned()
        };
        self.events.push_back(AssistantEvent::tool_call_start(index, id, name));
        self.calls.push(Call {
            key,
            index,
            arguments: String::new(),
            patch: ToolCallPatch::default(),
            anonymous,
            unnamed: name.is_empty(),
        });
    }

    /// More of the arguments of the call at `key`.
    pub(crate) fn arguments(&mut self, key: u64, delta: &str) {
        if delta.is_empty() {
            return;
        }
        self.call(key, "", "");
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            call.arguments.push_str(delta);
            self.events
                .push_back(AssistantEvent::tool_call_delta(call.index, delta));
        }
    }

    /// All arguments so far of the call at `key`: what is new of them is told. What contradicts what was told cannot be
    /// taken back, so an object replaces it at the end of the call, and anything else is dropped.
    pub(crate) fn arguments_so_far(&mut self, key: u64, all: &str) {
        self.call(key, "", "");
        let Some(call) = self.calls.iter_mut().find(|call| call.key == key) else {
            return;
        };
        match all.strip_prefix(call.arguments.as_str()) {
            Some(delta) => {
                let delta = delta.to_owned();
                self.arguments(key, &delta);
            }
            None => {
                if let Ok(object) = serde_json::from_str(all) {
                    call.patch.arguments = Some(object);
                }
            }
        }
    }

    /// Opaque data that goes back with the call at `key`.
    pub(crate) fn call_signature(&mut self, key: u64, signature: String) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            call.patch.thought_signature = Some(signature);
        }
    }

    /// The call at `key` is complete.
    pub(crate) fn end_call(&mut self, key: u64) {
        if let Some(place) = self.calls.iter().position(|call| call.key == key) {
            let call = self.calls.remove(place);
            self.tell_call_end(call);
        }
    }

    fn tell_call_end(&mut self, call: Call) {
        self.events.push_back(AssistantEvent::ToolCallEnd {
            content_index: call.index,
            tool_call: (call.patch != ToolCallPatch::default()).then(|| Box::new(call.patch)),
        });
    }

    /// Why the provider stopped, in its words. The last counts.
    pub(crate) fn stop(&mut self, reason: &str) {
        if !reason.is_empty() {
            self.stopped = Some(reason.to_owned());
        }
    }

    /// The provider has said all: closes what is open, and tells how it ended.
    pub(crate) fn finish(&mut self) {
        if self.has_ended() {
            return;
        }
        let Some(reason) = self.stopped.take() else {
            // Nothing was told yet only if nothing came, which may go better next time.
            let failure = (self.next == 0).then_some(Failure::Connect);
            let message = "the answer was cut off: it ended without a stop reason".to_owned();
            return self.fail(Failed { message, failure });
        };
        let reason = match stop_reason(&reason) {
            Stop::Complete if self.called => DoneReason::ToolUse,
            Stop::Complete => DoneReason::Stop,
            Stop::Length => DoneReason::Length,
            Stop::Refused => return self.fail(Failed::new(format!("the provider withheld the answer: {reason}"))),
            Stop::Unknown => return self.fail(Failed::new(format!("the provider stopped: {reason}"))),
        };
        self.begin(None, None);
        let usage = Box::new(self.close());
        self.events.push_back(AssistantEvent::Done {
            reason,
            usage,
            message: None,
        });
    }

    /// The answer broke off.
    pub(crate) fn fail(&mut self, failed: Failed) {
        self.break_off(ErrorReason::Error, failed);
    }

    /// Nobody wants the answer any more.
    pub(crate) fn abort(&mut self) {
        self.break_off(ErrorReason::Aborted, Failed::new("Request was aborted"));
    }

    fn break_off(&mut self, reason: ErrorReason, failed: Failed) {
        if self.has_ended() {
            return;
        }
        let usage = Box::new(self.close());
        self.events.push_back(AssistantEvent::Error {
            reason,
            error_message: Some(failed.message),
            usage,
            message: None,
            failure: failed.failure.map(Box::new),
        });
    }

    fn close(&mut self) -> Usage {
        self.end_prose();
        for call in std::mem::take(&mut self.calls) {
            self.tell_call_end(call);
        }
        self.phase = Phase::Ended;
        usage::price(&mut self.usage, &self.model);
        self.usage
    }

    /// The content index of the open block of its kind; another kind's is closed before.
    fn prose(&mut self, thinking: bool) -> usize {
        self.begin(None, None);
        if let Some(prose) = &self.prose {
            if prose.thinking == thinking {
                return prose.index;
            }
            self.end_prose();
        }
        let index = self.take_index();
        self.events.push_back(if thinking {
            AssistantEvent::thinking_start(index)
        } else {
            AssistantEvent::text_start(index)
        });
        self.prose = Some(Prose {
            index,
            thinking,
            signature: String::new(),
        });
        index
    }

    fn take_index(&mut self) -> usize {
        let index = self.next;
        self.next += 1;
        index
    }
}

enum Stop {
    Complete,
    Length,
    Refused,
    Unknown,
}

/// What providers call their ends. A reason that nobody knows is a failure: some say "error" here.
fn stop_reason(reason: &str) -> Stop {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "end_turn" | "complete" | "completed" | "stop_sequence" | "eos" | "end" | "pause_turn"
        | "tool_calls" | "tool_use" | "tool_call" | "function_call" => Stop::Complete,
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "incomplete"
        | "model_context_window_exceeded"
        | "model_length" => Stop::Length,
        "content_filter" | "refusal" | "safety" | "recitation" | "blocklist" | "prohibited_content" | "spii"
        | "image_safety" | "language" | "error_toxic" => Stop::Refused,
        _ => Stop::Unknown,
    }
}
