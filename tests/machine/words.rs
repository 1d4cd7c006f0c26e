//! The shorthand in which runs are written down, and the values they are made of.
//!
//! | Word | Means |
//! |------|-------|
//! | `as` `ts` | `agent_start`, `turn_start` |
//! | `ms(x)` `mu` `me(x)` | `message_start`, `_update`, `_end`; x is `u TEXT`, `a` (at its end `a/STOP`) or `r ID` |
//! | `xs(id)` `xu(id)` `xe(id)` | `tool_execution_start`, `_update`, `_end` |
//! | `te(STOP)[n]` `ae[n]` | `turn_end` with n results, `agent_end` with n messages |
//!
//! A `!` marks an error result.

use std::sync::Arc;

use serde_json::{Map, json};
use turnstate::schema::{ArgumentsSchema, ValidatedArguments};
use turnstate::{
    AgentEvent, AssistantContent, AssistantEvent, AssistantMessage, DoneReason, Message, StopReason, ToolCall,
    ToolResultMessage,
};

/// The events as one line.
pub(crate) fn line(events: &[AgentEvent]) -> String {
    events.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn word(event: &AgentEvent) -> String {
    match event {
        AgentEvent::AgentStart => "as".into(),
        AgentEvent::AgentEnd { messages } => format!("ae[{}]", messages.len()),
        AgentEvent::TurnStart => "ts".into(),
        AgentEvent::TurnEnd { message, tool_results } => {
            format!("te({})[{}]", stop_of(message), tool_results.len())
        }
        AgentEvent::MessageStart { message, .. } => match &**message {
            Message::Assistant(_) => "ms(a)".into(),
            message => format!("ms({})", name(message)),
        },
        AgentEvent::MessageUpdate { .. } => "mu".into(),
        AgentEvent::MessageEnd { message } => format!("me({})", name(message)),
        AgentEvent::ToolExecutionStart { call, .. } => format!("xs({})", call.id),
        AgentEvent::ToolExecutionUpdate { call, .. } => format!("xu({})", call.id),
        AgentEvent::ToolExecutionEnd { call, result, .. } => format!("xe({}{})", call.id, mark(result.is_error)),
        other => other.kind().into(),
    }
}

/// The messages as one line.
pub(crate) fn names<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> String {
    let names = messages.into_iter().map(|message| name(message));
    names.collect::<Vec<_>>().join(", ")
}

pub(crate) fn name(message: &Message) -> String {
    match message {
        Message::User(_) => format!("u {}", message.text()),
        Message::Assistant(_) => format!("a/{}", stop_of(message)),
        Message::ToolResult(result) => format!("r {}{}", result.tool_call_id, mark(result.is_error)),
    }
}

fn mark(is_error: bool) -> &'static str {
    if is_error { "!" } else { "" }
}

fn stop_of(message: &Message) -> String {
    let stop = message.as_assistant().map(|answer| answer.stop_reason);
    serde_json::from_value(json!(stop)).unwrap_or_default()
}

pub(crate) fn user(text: &str) -> Arc<Message> {
    Message::user(text).into()
}

/// A complete answer of an earlier run.
pub(crate) fn said(stop_reason: StopReason, calls: &[&str]) -> Arc<Message> {
    let call = |id: &&str| AssistantContent::ToolCall(ToolCall::new(*id, "t", Map::new()).into());
    let message = AssistantMessage {
        content: calls.iter().map(call).collect(),
        stop_reason,
        ..AssistantMessage::default()
    };
    Arc::new(message.into())
}

/// The result of such an answer's call.
pub(crate) fn result(id: &str) -> Arc<Message> {
    let message = ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "t".into(),
        ..ToolResultMessage::default()
    };
    Arc::new(message.into())
}

/// A model's answer of one text block: one `mu`.
pub(crate) fn text() -> Vec<AssistantEvent> {
    text_then(AssistantEvent::done(DoneReason::Stop))
}

/// A text, and how it ends.
pub(crate) fn text_then(end: AssistantEvent) -> Vec<AssistantEvent> {
    vec![
        AssistantEvent::start(),
        AssistantEvent::TextStart { content_index: 0 },
        end,
    ]
}

/// An answer that calls tool `t` once for each id: one `mu` each.
pub(crate) fn calls(ids: &[&str]) -> Vec<AssistantEvent> {
    calls_then(ids, AssistantEvent::done(DoneReason::ToolUse))
}

/// Calls, and how they end.
pub(crate) fn calls_then(ids: &[&str], end: AssistantEvent) -> Vec<AssistantEvent> {
    let mut answer = vec![AssistantEvent::start()];
    answer.extend(
        ids.iter()
            .enumerate()
            .map(|(index, id)| AssistantEvent::tool_call_start(index, *id, "t")),
    );
    answer.push(end);
    answer
}

/// Arguments that passed: none.
pub(crate) fn no_arguments() -> ValidatedArguments {
    let checked = ArgumentsSchema::compile(&json!({})).check("t", &Map::new(), json!({}));
    checked.expect("the schema accepts everything")
}
