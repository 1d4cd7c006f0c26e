//! What is compared, as text: each message and event in one line, whoever says it.

use turnstate::{AgentEvent, AssistantContent, AssistantMessage, Content, Message, StopReason, ToolCall, ToolResult};

pub(crate) fn message(message: &Message) -> String {
    match message {
        Message::User(_) => format!("user {}", message.text()),
        Message::Assistant(answer) => assistant(answer),
        Message::ToolResult(result) => format!(
            "result of {} {}: {}{}",
            result.tool_call_id,
            result.tool_name,
            if result.is_error { "error " } else { "" },
            readable(&message.text()),
        ),
    }
}

/// The answer to a call without readable arguments quotes them, and that to invalid ones is long: `tests/tools.rs` and
/// `tests/schema` look at those.
fn readable(text: &str) -> &str {
    if text.starts_with("Validation failed for tool") {
        return "invalid";
    }
    match text.split_once(": ") {
        Some(("Tool call was not executed", why)) if !why.starts_with("the response hit") => "unread arguments",
        _ => text,
    }
}

pub(crate) fn messages<'a>(all: impl IntoIterator<Item = &'a Message>) -> String {
    let all: Vec<_> = all.into_iter().map(message).collect();
    all.join("; ")
}

pub(crate) fn assistant(answer: &AssistantMessage) -> String {
    let stop = match answer.stop_reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::ToolUse => "toolUse",
        StopReason::Error => "error",
        StopReason::Aborted => "aborted",
        _ => "?",
    };
    let mut line = format!("assistant {stop}");
    for block in &answer.content {
        let said = match block {
            AssistantContent::Text(text) => format!(" [text {}]", text.text),
            AssistantContent::Thinking(thinking) => format!(" [thinking {}]", thinking.thinking),
            AssistantContent::ToolCall(call) => format!(
                " [call {} {} {}{}]",
                call.id,
                call.name,
                serde_json::Value::Object(call.arguments.clone()),
                if call.arguments_error.is_some() { " unread" } else { "" },
            ),
            _ => " [?]".to_owned(),
        };
        line.push_str(&said);
    }
    if let Some(error) = &answer.error_message {
        line.push_str(" !");
        line.push_str(error);
    }
    line
}

pub(crate) fn result(result: &ToolResult) -> String {
    let text: String = result.content.iter().filter_map(Content::as_text).collect();
    let text = readable(&text);
    let (error, enough) = (result.is_error, result.terminate == Some(true));
    format!(
        "{}{text}{}",
        if error { "error " } else { "" },
        if enough { " (enough)" } else { "" }
    )
}

/// A line per event; `partial` is the message that streams.
pub(crate) fn event(event: &AgentEvent, partial: Option<&AssistantMessage>) -> String {
    match event {
        AgentEvent::AgentEnd { messages: all } => format!("agent_end: {}", messages(all.iter().map(|m| &**m))),
        AgentEvent::TurnEnd {
            message: answer,
            tool_results,
        } => format!(
            "turn_end {}: {}",
            message(answer),
            messages(tool_results.iter().map(|m| &**m))
        ),
        AgentEvent::MessageStart { message: begun, .. } => format!("message_start {}", message(begun)),
        AgentEvent::MessageEnd { message: ended } => format!("message_end {}", message(ended)),
        AgentEvent::MessageUpdate { event } => {
            format!(
                "message_update {} {}",
                event.kind(),
                partial.map(assistant).unwrap_or_default()
            )
        }
        AgentEvent::ToolExecutionStart { index, call } => tool("start", *index, call, ""),
        AgentEvent::ToolExecutionUpdate {
            index,
            call,
            partial_result,
        } => tool("update", *index, call, &result(partial_result)),
        AgentEvent::ToolExecutionEnd {
            index,
            call,
            result: ended,
        } => tool("end", *index, call, &result(ended)),
        other => other.kind().to_owned(),
    }
}

fn tool(what: &str, index: usize, call: &ToolCall, text: &str) -> String {
    let ToolCall {
        id, name, arguments, ..
    } = call;
    let arguments = serde_json::Value::Object(arguments.clone());
    format!("tool_execution_{what} {index} {id} {name} {arguments} {text}")
}
