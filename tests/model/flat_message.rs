//! The model's messages: how deltas make an answer (I7, §4.3), and how a message is told.

use std::fmt;

use turnstate::AssistantEvent;

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    User(String),
    Assistant(Answer),
    Result(String),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    /// The blocks that began, by index.
    pub(crate) blocks: Vec<(usize, Block)>,
    pub(crate) stop: &'static str,
    pub(crate) error: Option<String>,
    /// What the engine says itself: one empty text block.
    pub(crate) local: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Text(String),
    Thinking(String),
    Call(Call),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The text of the arguments; none once the call has ended.
    open: Option<String>,
    /// What is shown of the arguments, and in the end what counts.
    pub(crate) arguments: String,
    pub(crate) unread: bool,
}

impl Said {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Assistant(Answer {
                stop: "error" | "aborted",
                ..
            })
        )
    }
}

impl Answer {
    pub(crate) fn calls(&self) -> Vec<Call> {
        let calls = self.blocks.iter().filter_map(|(_, block)| match block {
            Block::Call(call) => Some(call.clone()),
            _ => None,
        });
        calls.collect()
    }

    /// I7: what a delta does to the message.
    pub(crate) fn fold(&mut self, event: &AssistantEvent) -> Result<(), String> {
        let Some(index) = event.content_index() else {
            return Ok(());
        };
        let place = self.blocks.iter().position(|(other, _)| *other == index);
        let begun = match event {
            AssistantEvent::TextStart { .. } => Some(Block::Text(String::new())),
            AssistantEvent::ThinkingStart { .. } => Some(Block::Thinking(String::new())),
            AssistantEvent::ToolCallStart { id, tool_name, .. } => Some(Block::Call(Call {
                id: id.clone(),
                name: tool_name.clone(),
                open: Some(String::new()),
                arguments: "{}".into(),
                unread: false,
            })),
            _ => None,
        };
        if let Some(block) = begun {
            self.blocks.retain(|(other, _)| *other != index);
            self.blocks.push((index, block));
            self.blocks.sort_by_key(|(index, _)| *index);
            return Ok(());
        }
        match (event, place.map(|place| &mut self.blocks[place].1)) {
            (AssistantEvent::TextDelta { delta, .. }, Some(Block::Text(text)))
            | (AssistantEvent::ThinkingDelta { delta, .. }, Some(Block::Thinking(text))) => text.push_str(delta),
            (
                AssistantEvent::ToolCallDelta { delta, .. },
                Some(Block::Call(Call {
                    open: Some(text),
                    arguments,
                    ..
                })),
            ) => {
                text.push_str(delta);
                // Of `{"n":` nothing can be shown; whatever is longer is whole.
                if let Some(whole) = read(text) {
                    *arguments = whole;
                }
            }
            (AssistantEvent::ToolCallEnd { .. }, Some(Block::Call(call))) => call.end(),
            (AssistantEvent::TextEnd { .. }, Some(Block::Text(_)))
            | (AssistantEvent::ThinkingEnd { .. }, Some(Block::Thinking(_)))
            | (AssistantEvent::ToolCallEnd { .. }, _) => {}
            _ => {
                let kind = event.kind();
                return Err(format!(
                    "received {kind} for content index {index}, where no block of its kind has begun"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn complete(&mut self) {
        for (_, block) in &mut self.blocks {
            if let Block::Call(call) = block {
                call.end();
            }
        }
    }
}

impl Call {
    fn end(&mut self) {
        if let Some(text) = self.open.take() {
            let whole = read(&text);
            self.unread = whole.is_none();
            self.arguments = whole.unwrap_or_else(|| "{}".into());
        }
    }
}

/// The arguments that a text is, if it is any; no text is none.
fn read(text: &str) -> Option<String> {
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .map(|whole| whole.to_string())
}

pub(crate) fn list(all: &[Said]) -> String {
    let all: Vec<_> = all.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self {
            Self::User(text) => return write!(f, "user {text}"),
            Self::Result(result) => return f.write_str(result),
            Self::Assistant(answer) => answer,
        };
        write!(f, "assistant {}", answer.stop)?;
        if answer.local {
            f.write_str(" [text ]")?;
        }
        for (_, block) in &answer.blocks {
            match block {
                Block::Text(text) => write!(f, " [text {text}]")?,
                Block::Thinking(text) => write!(f, " [thinking {text}]")?,
                Block::Call(call) => {
                    let unread = if call.unread { " unread" } else { "" };
                    write!(f, " [call {} {} {}{unread}]", call.id, call.name, call.arguments)?;
                }
            }
        }
        answer.error.as_ref().map_or(Ok(()), |error| write!(f, " !{error}"))
    }
}
