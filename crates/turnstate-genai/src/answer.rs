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
    /// As the provider gave them; empty until then.
    id: String,
    name: String,
    arguments: String,
    patch: ToolCallPatch,
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

    /// A piece of the call at `key`, which begins with the first: its id and its name may come late, or never. Another id
    /// is another call, since some providers give all of their calls one place.
    pub(crate) fn call(&mut self, key: u64, id: &str, name: &str) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            if id.is_empty() || call.id.is_empty() || call.id == id {
                for (known, said, patch) in [
                    (&mut call.id, id, &mut call.patch.id),
                    (&mut call.name, name, &mut call.patch.name),
                ] {
                    if known.is_empty() && !said.is_empty() {
                        said.clone_into(known);
                        *patch = Some(said.to_owned());
                    }
                }
                return;
            }
            self.end_call(key);
        }
        self.begin(None, None);
        self.end_prose();
        let index = self.take_index();
        self.called = true;
        let told = if id.is_empty() {
            format!("call_{}_{index}", self.messages)
        } else {
            id.to_owned()
        };
        self.events
            .push_back(AssistantEvent::tool_call_start(index, told, name));
        self.calls.push(Call {
            key,
            index,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
            patch: ToolCallPatch::default(),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told of an answer behind its start, without the usage.
    fn told(say: impl FnOnce(&mut Answer)) -> Vec<Value> {
        let mut answer = Answer::new(Arc::new("m".into()), 3);
        say(&mut answer);
        let events = std::iter::from_fn(|| answer.pop()).map(|event| {
            let mut json = serde_json::to_value(event).unwrap();
            json.as_object_mut().unwrap().remove("usage");
            json
        });
        events.skip(1).collect()
    }

    #[test]
    fn what_ends_mean() {
        for (reason, called, end) in [
            ("STOP", false, json!({"type": "done", "reason": "stop"})),
            ("end_turn", true, json!({"type": "done", "reason": "toolUse"})),
            ("tool_calls", false, json!({"type": "done", "reason": "stop"})),
            ("MAX_TOKENS", true, json!({"type": "done", "reason": "length"})),
            (
                "refusal",
                true,
                json!({"type": "error", "reason": "error", "errorMessage": "the provider withheld the answer: refusal"}),
            ),
            (
                "OTHER",
                false,
                json!({"type": "error", "reason": "error", "errorMessage": "the provider stopped: OTHER"}),
            ),
        ] {
            let events = told(|answer| {
                answer.text("x");
                if called {
                    answer.call(0, "c", "now");
                }
                answer.stop(reason);
                answer.finish();
                answer.fail(Failed::new("nothing counts behind the end"));
            });
            assert_eq!(events.last(), Some(&end), "{reason}");
        }
    }

    /// Of arguments that are told whole, again and again, the difference is told; what contradicts is told at the end.
    #[test]
    fn arguments_that_repeat() {
        let events = told(|answer| {
            answer.call(0, "c", "now");
            for all in ["", r#"{"a""#, r#"{"a""#, r#"{"a":1}"#, "no JSON", r#"{"b":2}"#] {
                answer.arguments_so_far(0, all);
            }
            answer.end_call(0);
        });
        assert_eq!(
            events,
            [
                json!({"type": "toolcall_start", "contentIndex": 0, "id": "c", "toolName": "now"}),
                json!({"type": "toolcall_delta", "contentIndex": 0, "delta": r#"{"a""#}),
                json!({"type": "toolcall_delta", "contentIndex": 0, "delta": ":1}"}),
                json!({"type": "toolcall_end", "contentIndex": 0, "toolCall": {"arguments": {"b": 2}}}),
            ]
        );
    }

    /// Calls at one place are told apart by their ids; what repeats is no news, and what is late is told at the end.
    #[test]
    fn calls_at_one_place() {
        let events = told(|answer| {
            answer.call(0, "a", "one");
            answer.call(0, "a", "one");
            answer.arguments(0, "{}");
            answer.call(0, "b", "");
            answer.call(0, "", "two");
            answer.call(0, "", "two");
            answer.end_call(0);
            answer.arguments(7, "{}");
            answer.call(7, "late", "three");
            answer.end_call(7);
        });
        assert_eq!(
            events,
            [
                json!({"type": "toolcall_start", "contentIndex": 0, "id": "a", "toolName": "one"}),
                json!({"type": "toolcall_delta", "contentIndex": 0, "delta": "{}"}),
                json!({"type": "toolcall_end", "contentIndex": 0}),
                json!({"type": "toolcall_start", "contentIndex": 1, "id": "b", "toolName": ""}),
                json!({"type": "toolcall_end", "contentIndex": 1, "toolCall": {"name": "two"}}),
                json!({"type": "toolcall_start", "contentIndex": 2, "id": "call_3_2", "toolName": ""}),
                json!({"type": "toolcall_delta", "contentIndex": 2, "delta": "{}"}),
                json!({"type": "toolcall_end", "contentIndex": 2, "toolCall": {"id": "late", "name": "three"}}),
            ]
        );
    }
}
