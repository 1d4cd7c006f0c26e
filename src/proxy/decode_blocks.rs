//! Which blocks an answer has, as far as its events must fit them.

use std::collections::BTreeMap;

use crate::message::{AssistantEvent, MAX_CONTENT_INDEX};

use super::json_text::JsonText;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thinking,
    ToolCall,
}

impl BlockKind {
    /// As the reference calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::ToolCall => "toolCall",
        }
    }

    fn delta(self, content_index: usize, delta: String) -> AssistantEvent {
        match self {
            Self::Text => AssistantEvent::text_delta(content_index, delta),
            Self::Thinking => AssistantEvent::thinking_delta(content_index, delta),
            Self::ToolCall => AssistantEvent::tool_call_delta(content_index, delta),
        }
    }
}

#[derive(Debug)]
struct Block {
    kind: BlockKind,
    /// A call takes no deltas after its end; a text does.
    closed: bool,
    /// Half of a surrogate pair that the text so far ends with.
    high: Option<u16>,
}

impl Block {
    /// The text so far is all there will be: half of a pair turned out alone.
    fn flush(&mut self, content_index: usize) -> Option<AssistantEvent> {
        self.high.take()?;
        Some(self.kind.delta(content_index, char::REPLACEMENT_CHARACTER.into()))
    }
}

/// The blocks that have begun, by content index. A map, so that no order of indices makes it slow.
#[derive(Debug, Default)]
pub(super) struct Blocks(BTreeMap<usize, Block>);

impl Blocks {
    /// More of a block; the error is the reason why it does not fit.
    pub(super) fn delta(
        &mut self,
        kind: BlockKind,
        content_index: usize,
        delta: JsonText,
    ) -> Result<AssistantEvent, String> {
        match self.0.get_mut(&content_index) {
            Some(block) if block.kind == kind && !block.closed => {
                Ok(kind.delta(content_index, delta.resume(&mut block.high)))
            }
            _ => Err(misfit("delta", kind)),
        }
    }

    /// Hands `event` on to `out`, after what it completes, if it fits. One that the reference ignores goes nowhere.
    pub(super) fn event(&mut self, event: AssistantEvent, out: &mut impl Extend<AssistantEvent>) -> Result<(), String> {
        match &event {
            AssistantEvent::TextStart { content_index } => self.open(*content_index, BlockKind::Text)?,
            AssistantEvent::ThinkingStart { content_index } => self.open(*content_index, BlockKind::Thinking)?,
            AssistantEvent::ToolCallStart { content_index, .. } => self.open(*content_index, BlockKind::ToolCall)?,
            AssistantEvent::TextEnd { content_index, .. } => {
                out.extend(self.close(*content_index, BlockKind::Text)?);
            }
            AssistantEvent::ThinkingEnd { content_index, .. } => {
                out.extend(self.close(*content_index, BlockKind::Thinking)?);
            }
            AssistantEvent::ToolCallEnd { content_index, .. } => {
                match self.close(*content_index, BlockKind::ToolCall) {
                    Ok(flushed) => out.extend(flushed),
                    Err(_) => return Ok(()),
                }
            }
            _ if event.is_terminal() => self.flush(out),
            _ => {}
        }
        out.extend([event]);
        Ok(())
    }

    /// Completes every text.
    pub(super) fn flush(&mut self, out: &mut impl Extend<AssistantEvent>) {
        out.extend(self.0.iter_mut().filter_map(|(index, block)| block.flush(*index)));
    }

    /// A start at an index that is taken replaces the block.
    fn open(&mut self, content_index: usize, kind: BlockKind) -> Result<(), String> {
        if content_index > MAX_CONTENT_INDEX {
            return Err(format!("content index {content_index} is out of range"));
        }
        let block = Block {
            kind,
            closed: false,
            high: None,
        };
        self.0.insert(content_index, block);
        Ok(())
    }

    fn close(&mut self, content_index: usize, kind: BlockKind) -> Result<Option<AssistantEvent>, String> {
        match self.0.get_mut(&content_index) {
            Some(block) if block.kind == kind => {
                block.closed = kind == BlockKind::ToolCall;
                Ok(block.flush(content_index))
            }
            _ => Err(misfit("end", kind)),
        }
    }
}

/// In the reference's words.
fn misfit(what: &str, kind: BlockKind) -> String {
    let name = kind.name();
    format!("Received {}_{what} for non-{name} content", name.to_lowercase())
}
