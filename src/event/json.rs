//! Pi's JSON of an event, borrowed from the event and the message so far.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::message::{AssistantContent, AssistantEvent, AssistantMessage};

use super::AgentEvent;

impl<M> AgentEvent<M> {
    /// Pi's JSON of the event, to be serialised by any `serde` format. `partial` is the message that streams, as
    /// lent by the loop or run right after the event; only updates need it.
    ///
    /// ```
    /// use turnstate::{AgentEvent, AssistantEvent, Message, Model, PartialMessage};
    /// let event = AgentEvent::<Message>::TurnStart;
    /// assert_eq!(serde_json::to_string(&event.json(None)).unwrap(), r#"{"type":"turn_start"}"#);
    ///
    /// let mut partial = PartialMessage::new(&Model::new("m"), 0);
    /// let started = AssistantEvent::TextStart { content_index: 0 };
    /// partial.apply(&started).unwrap();
    /// let event = AgentEvent::<Message>::MessageUpdate { event: started };
    /// let json = serde_json::to_value(event.json(Some(partial.message()))).unwrap();
    /// assert_eq!(json["message"]["content"][0]["text"], "");
    /// assert_eq!(json["assistantMessageEvent"]["type"], "text_start");
    /// assert_eq!(json["assistantMessageEvent"]["partial"], json["message"]);
    /// ```
    pub fn json<'a>(&'a self, partial: Option<&'a AssistantMessage>) -> JsonEvent<'a, M> {
        JsonEvent { event: self, partial }
    }
}

/// An event in Pi's JSON. Made by [`AgentEvent::json`].
#[derive(Debug)]
pub struct JsonEvent<'a, M> {
    event: &'a AgentEvent<M>,
    partial: Option<&'a AssistantMessage>,
}

impl<M> Clone for JsonEvent<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for JsonEvent<'_, M> {}

impl<M: Serialize> Serialize for JsonEvent<'_, M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.event.kind())?;
        match self.event {
            AgentEvent::AgentStart | AgentEvent::TurnStart => {}
            AgentEvent::AgentEnd { messages } => map.serialize_entry("messages", messages)?,
            AgentEvent::TurnEnd { message, tool_results } => {
                map.serialize_entry("message", &**message)?;
                map.serialize_entry("toolResults", tool_results)?;
            }
            AgentEvent::MessageStart { message, .. } | AgentEvent::MessageEnd { message } => {
                map.serialize_entry("message", &**message)?;
            }
            AgentEvent::MessageUpdate { event } => {
                map.serialize_entry("message", &self.partial)?;
                let partial = self.partial;
                map.serialize_entry("assistantMessageEvent", &JsonUpdate { event, partial })?;
            }
            AgentEvent::ToolExecutionStart { call, .. } => {
                map.serialize_entry("toolCallId", &call.id)?;
                map.serialize_entry("toolName", &call.name)?;
                map.serialize_entry("args", &call.arguments)?;
            }
            AgentEvent::ToolExecutionUpdate {
                call, partial_result, ..
            } => {
                map.serialize_entry("toolCallId", &call.id)?;
                map.serialize_entry("toolName", &call.name)?;
                map.serialize_entry("args", &call.arguments)?;
                map.serialize_entry("partialResult", partial_result)?;
            }
            AgentEvent::ToolExecutionEnd { call, result, .. } => {
                map.serialize_entry("toolCallId", &call.id)?;
                map.serialize_entry("toolName", &call.name)?;
                map.serialize_entry("result", &**result)?;
                map.serialize_entry("isError", &result.is_error)?;
            }
        }
        map.end()
    }
}

/// The model's event in Pi's in-process form: with the message so far, and at a block's end with the block.
struct JsonUpdate<'a> {
    event: &'a AssistantEvent,
    partial: Option<&'a AssistantMessage>,
}

impl Serialize for JsonUpdate<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.event.kind())?;
        if let Some(index) = self.event.content_index() {
            map.serialize_entry("contentIndex", &index)?;
        }
        match self.event {
            AssistantEvent::TextDelta { delta, .. }
            | AssistantEvent::ThinkingDelta { delta, .. }
            | AssistantEvent::ToolCallDelta { delta, .. } => map.serialize_entry("delta", delta)?,
            AssistantEvent::TextEnd { content_index, .. }
            | AssistantEvent::ThinkingEnd { content_index, .. }
            | AssistantEvent::ToolCallEnd { content_index, .. } => {
                match self.partial.and_then(|partial| partial.content.get(*content_index)) {
                    Some(AssistantContent::Text(text)) => map.serialize_entry("content", &text.text)?,
                    Some(AssistantContent::Thinking(thinking)) => map.serialize_entry("content", &thinking.thinking)?,
                    Some(AssistantContent::ToolCall(call)) => map.serialize_entry("toolCall", &**call)?,
                    None => {}
                }
            }
            _ => {}
        }
        map.serialize_entry("partial", &self.partial)?;
        map.end()
    }
}
