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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use genai::chat::{MessageContent, StopReason, StreamChunk, ToolChunk, Usage};
    use serde_json::json;

    use super::*;

    fn call(id: &str, arguments: Value, signature: Option<&str>) -> ToolCall {
        ToolCall {
            call_id: id.into(),
            fn_name: "now".into(),
            fn_arguments: arguments,
            thought_signatures: signature.map(|signature| vec![signature.into()]),
        }
    }

    fn told(events: Vec<ChatStreamEvent>) -> Vec<Value> {
        let (mut reader, mut answer) = (Events::default(), Answer::new(Arc::new("m".into()), 0));
        for event in events {
            reader.read(event, &mut answer);
        }
        let events = std::iter::from_fn(|| answer.pop());
        events.map(|event| serde_json::to_value(event).unwrap()).collect()
    }

    fn end(content: Option<MessageContent>) -> ChatStreamEvent {
        ChatStreamEvent::End(StreamEnd {
            captured_usage: Some(Usage {
                prompt_tokens: Some(5),
                completion_tokens: Some(-1),
                total_tokens: Some(9),
                ..Usage::default()
            }),
            captured_stop_reason: Some(StopReason::from("STOP".to_owned())),
            captured_content: content,
            ..StreamEnd::default()
        })
    }

    /// Arguments as text so far and as JSON, calls without ids, a signature: as Gemini's and Ollama's adapters tell them.
    #[test]
    fn events_become_blocks() {
        let chunk = |text: &str| StreamChunk { content: text.into() };
        let tool = |call| ChatStreamEvent::ToolCallChunk(ToolChunk { tool_call: call });
        let events = told(vec![
            ChatStreamEvent::Start,
            ChatStreamEvent::ReasoningChunk(chunk("Hm.")),
            ChatStreamEvent::ThoughtSignatureChunk(chunk("sign")),
            ChatStreamEvent::Chunk(chunk("Look.")),
            tool(call("a", json!(""), None)),
            tool(call("a", json!("{\"x\":"), None)),
            tool(call("a", json!("{\"x\":1}"), None)),
            tool(call("", json!({"y": 2}), Some("sign"))),
            tool(call("", Value::Null, None)),
            ChatStreamEvent::Heartbeat,
            end(None),
        ]);
        let usage = json!({"input": 5, "output": 4, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 9});
        let mut last = events.last().unwrap().clone();
        last["usage"].as_object_mut().unwrap().remove("cost");
        assert_eq!(last, json!({"type": "done", "reason": "toolUse", "usage": usage}));
        assert_eq!(
            events[..events.len() - 1],
            [
                json!({"type": "start"}),
                json!({"type": "thinking_start", "contentIndex": 0}),
                json!({"type": "thinking_delta", "contentIndex": 0, "delta": "Hm."}),
                json!({"type": "thinking_end", "contentIndex": 0, "contentSignature": "sign"}),
                json!({"type": "text_start", "contentIndex": 1}),
                json!({"type": "text_delta", "contentIndex": 1, "delta": "Look."}),
                json!({"type": "text_end", "contentIndex": 1}),
                json!({"type": "toolcall_start", "contentIndex": 2, "id": "a", "toolName": "now"}),
                json!({"type": "toolcall_delta", "contentIndex": 2, "delta": "{\"x\":"}),
                json!({"type": "toolcall_delta", "contentIndex": 2, "delta": "1}"}),
                json!({"type": "toolcall_start", "contentIndex": 3, "id": "call_0_3", "toolName": "now"}),
                json!({"type": "toolcall_delta", "contentIndex": 3, "delta": "{\"y\":2}"}),
                json!({"type": "toolcall_start", "contentIndex": 4, "id": "call_0_4", "toolName": "now"}),
                json!({"type": "toolcall_end", "contentIndex": 2}),
                json!({"type": "toolcall_end", "contentIndex": 3, "toolCall": {"thoughtSignature": "sign"}}),
                json!({"type": "toolcall_end", "contentIndex": 4}),
            ]
        );
    }

    /// Calls that are only in what genai captured are told at the end; those that were told are not told twice.
    #[test]
    fn captured_calls_are_told_once() {
        let captured = || Some(MessageContent::from_tool_calls(vec![call("a", json!({}), None)]));
        let starts = |events: Vec<Value>| events.iter().filter(|event| event["type"] == "toolcall_start").count();
        assert_eq!(starts(told(vec![end(captured())])), 1);
        let tool = ChatStreamEvent::ToolCallChunk(ToolChunk {
            tool_call: call("a", json!({}), None),
        });
        assert_eq!(starts(told(vec![tool, end(captured())])), 1);
    }
}
