//! What genai makes of the protocols that are not read here: Gemini, Ollama, Cohere, Bedrock.

use genai::chat::{ChatStreamEvent, StreamEnd, ToolCall};
use serde_json::Value;

use crate::answer::Answer;
use crate::usage;

/// Calls as genai tells them, told apart by their ids.
#[derive(Debug, Default)]
pub(crate) struct Events {
    ids: Vec<String>,
}

impl Events {
    pub(crate) fn read(&mut self, event: ChatStreamEvent, answer: &mut Answer) {
        match event {
            ChatStreamEvent::Chunk(chunk) => answer.text(&chunk.content),
            ChatStreamEvent::ReasoningChunk(chunk) => answer.thinking(&chunk.content),
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => answer.signature(&chunk.content),
            ChatStreamEvent::ToolCallChunk(chunk) => self.call(chunk.tool_call, answer),
            ChatStreamEvent::End(end) => self.end(end, answer),
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
        }
    }

    /// A call with all of its arguments so far: as text, or as the JSON they are.
    fn call(&mut self, call: ToolCall, answer: &mut Answer) {
        let known = self.ids.iter().position(|id| !id.is_empty() && *id == call.call_id);
        let key = known.unwrap_or_else(|| {
            self.ids.push(call.call_id.clone());
            self.ids.len() - 1
        }) as u64;
        answer.call(key, &call.call_id, &call.fn_name);
        match call.fn_arguments {
            Value::String(text) => answer.arguments_so_far(key, &text),
            Value::Null => {}
            other => answer.arguments_so_far(key, &other.to_string()),
        }
        if let Some(signature) = call.thought_signatures.and_then(|mut signatures| signatures.pop()) {
            answer.call_signature(key, signature);
        }
    }

    fn end(&mut self, end: StreamEnd, answer: &mut Answer) {
        if let Some(used) = &end.captured_usage {
            answer.usage = usage::of_genai(used);
        }
        if let Some(reason) = &end.captured_stop_reason {
            answer.stop(reason.raw());
        }
        // Calls that were never told as they streamed.
        if self.ids.is_empty() {
            for call in end.captured_into_tool_calls().into_iter().flatten() {
                self.call(call, answer);
            }
        }
        answer.finish();
    }
}
