//! The assistant message while it streams.

use std::sync::Arc;

use crate::partial_json::{PartialArguments, parse_arguments, quote_arguments};

use super::{
    AssistantContent, AssistantEvent, AssistantMessage, DoneReason, ErrorReason, Model, ResponseHead, TextContent,
    ThinkingContent, ToolCall, ToolCallPatch, Usage,
};

/// Beyond it a content index is a mistake of the sender. It also bounds what it costs to put blocks in order that come in
/// the worst one.
pub(crate) const MAX_CONTENT_INDEX: usize = 4_095;

/// An event that does not fit the message so far.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// A delta or end for a block that did not begin, or is of another kind.
    #[error("received {kind} for content index {content_index}, where no block of its kind has begun")]
    WrongBlock {
        /// The event's name in JSON.
        kind: &'static str,
        /// The block it named.
        content_index: usize,
    },
    /// A content index no provider would use.
    #[error("content index {content_index} is out of range")]
    IndexOutOfRange {
        /// The index.
        content_index: usize,
    },
}

/// An assistant message and what is needed to go on folding events into it (I7).
///
/// - Blocks stand in the order of their content indices, whatever order they begin in; indices may have gaps.
/// - A start at an index that is taken replaces the block.
/// - A delta or end for a missing block or one of another kind is a [`FoldError`], which leaves the message as it
///   was; only `toolcall_end` is then ignored, as the reference does.
/// - Arguments of a tool call show what can be read so far. At the call's end, or at a `Done` that comes first, they
///   become the strict parse of the whole text; what cannot be read becomes `{}` and [`ToolCall::arguments_error`].
///
/// ```
/// use turnstate::{AssistantEvent, Model, PartialMessage};
/// let mut partial = PartialMessage::new(&Model::new("m"), 0);
/// partial.apply(&AssistantEvent::TextStart { content_index: 0 })?;
/// partial.apply(&AssistantEvent::text_delta(0, "Hel"))?;
/// partial.apply(&AssistantEvent::text_delta(0, "lo"))?;
/// assert_eq!(partial.message().text(), "Hello");
/// # Ok::<(), turnstate::FoldError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PartialMessage {
    message: AssistantMessage,
    /// One for each block of the content, by ascending index.
    blocks: Vec<Block>,
}

#[derive(Debug, Clone)]
struct Block {
    index: usize,
    /// The text of the arguments, while the block is a call that has not ended.
    arguments: Option<Box<PartialArguments>>,
}

impl PartialMessage {
    /// An empty message of `model`, begun at `timestamp` (milliseconds since the Unix epoch).
    pub fn new(model: &Model, timestamp: u64) -> Self {
        Self::resume(AssistantMessage::new(model, timestamp))
    }

    /// Goes on with a message that has only just started: its blocks count as ended.
    pub fn resume(message: AssistantMessage) -> Self {
        let blocks = (0..message.content.len())
            .map(|index| Block { index, arguments: None })
            .collect();
        Self { message, blocks }
    }

    /// The message so far.
    pub fn message(&self) -> &AssistantMessage {
        &self.message
    }

    /// Folds an event in. A terminal one changes nothing: see [`done`](Self::done) and [`broken`](Self::broken).
    ///
    /// Costs O(its length), and allocates only where the text must grow (I8).
    ///
    /// # Errors
    /// If the event does not fit; the message is then unchanged.
    pub fn apply(&mut self, event: &AssistantEvent) -> Result<(), FoldError> {
        match event {
            AssistantEvent::Start { head } => self.set_head(head.as_deref()),
            AssistantEvent::TextStart { content_index } => {
                self.open(*content_index, AssistantContent::Text(TextContent::default()), None)?;
            }
            AssistantEvent::ThinkingStart { content_index } => {
                self.open(
                    *content_index,
                    AssistantContent::Thinking(ThinkingContent::default()),
                    None,
                )?;
            }
            AssistantEvent::ToolCallStart {
                content_index,
                id,
                tool_name,
            } => {
                let call = ToolCall::new(id.as_str(), tool_name.as_str(), serde_json::Map::new());
                self.open(
                    *content_index,
                    AssistantContent::ToolCall(call.into()),
                    Some(Box::default()),
                )?;
            }
            AssistantEvent::TextDelta { content_index, delta } => match self.block(*content_index) {
                Some((AssistantContent::Text(text), _)) => append(&mut text.text, delta),
                _ => return Err(wrong_block(event, *content_index)),
            },
            AssistantEvent::ThinkingDelta { content_index, delta } => match self.block(*content_index) {
                Some((AssistantContent::Thinking(thinking), _)) => append(&mut thinking.thinking, delta),
                _ => return Err(wrong_block(event, *content_index)),
            },
            AssistantEvent::ToolCallDelta { content_index, delta } => match self.block(*content_index) {
                Some((AssistantContent::ToolCall(call), Some(text))) => {
                    text.push(delta, &mut Arc::make_mut(call).arguments);
                }
                _ => return Err(wrong_block(event, *content_index)),
            },
            AssistantEvent::TextEnd {
                content_index,
                content_signature,
            } => match self.block(*content_index) {
                Some((AssistantContent::Text(text), _)) => text.text_signature.clone_from(content_signature),
                _ => return Err(wrong_block(event, *content_index)),
            },
            AssistantEvent::ThinkingEnd {
                content_index,
                content_signature,
            } => match self.block(*content_index) {
                Some((AssistantContent::Thinking(thinking), _)) => {
                    thinking.thinking_signature.clone_from(content_signature);
                }
                _ => return Err(wrong_block(event, *content_index)),
            },
            AssistantEvent::ToolCallEnd {
                content_index,
                tool_call,
            } => {
                if let Some((AssistantContent::ToolCall(call), text)) = self.block(*content_index) {
                    close_call(Arc::make_mut(call), text, tool_call.as_deref());
                }
            }
            AssistantEvent::Done { .. } | AssistantEvent::Error { .. } => {}
        }
        Ok(())
    }

    /// The final message of a complete answer; `whole`, where the provider gave it, replaces the fold.
    pub fn done(mut self, reason: DoneReason, usage: Usage, whole: Option<AssistantMessage>) -> AssistantMessage {
        let mut message = whole.unwrap_or_else(|| {
            for (block, content) in self.blocks.iter_mut().zip(&mut self.message.content) {
                if let (Some(_), AssistantContent::ToolCall(call)) = (&block.arguments, content) {
                    close_call(Arc::make_mut(call), &mut block.arguments, None);
                }
            }
            self.message.usage = usage;
            self.message
        });
        message.stop_reason = reason.into();
        message
    }

    /// The final message of an answer that broke off. A call still open keeps the arguments shown so far.
    pub fn broken(
        mut self,
        reason: ErrorReason,
        error: Option<String>,
        usage: Usage,
        whole: Option<AssistantMessage>,
    ) -> AssistantMessage {
        self.message.usage = usage;
        let mut message = whole.unwrap_or(self.message);
        message.stop_reason = reason.into();
        if error.is_some() {
            message.error_message = error;
        }
        message
    }

    fn set_head(&mut self, head: Option<&ResponseHead>) {
        let Some(head) = head else { return };
        for (field, said) in [
            (&mut self.message.api, &head.api),
            (&mut self.message.provider, &head.provider),
            (&mut self.message.model, &head.model),
        ] {
            if let Some(said) = said {
                field.clone_from(said);
            }
        }
        for (field, said) in [
            (&mut self.message.response_model, &head.response_model),
            (&mut self.message.response_id, &head.response_id),
        ] {
            if said.is_some() {
                field.clone_from(said);
            }
        }
    }

    /// Where the block of a content index stands, or where it would have to be put.
    fn position(&self, content_index: usize) -> Result<usize, usize> {
        match self.blocks.get(content_index) {
            Some(block) if block.index == content_index => Ok(content_index),
            _ => self.blocks.binary_search_by_key(&content_index, |block| block.index),
        }
    }

    fn block(&mut self, content_index: usize) -> Option<(&mut AssistantContent, &mut Option<Box<PartialArguments>>)> {
        let position = self.position(content_index).ok()?;
        let content = self.message.content.get_mut(position)?;
        Some((content, &mut self.blocks.get_mut(position)?.arguments))
    }

    fn open(
        &mut self,
        index: usize,
        content: AssistantContent,
        arguments: Option<Box<PartialArguments>>,
    ) -> Result<(), FoldError> {
        if index > MAX_CONTENT_INDEX {
            return Err(FoldError::IndexOutOfRange { content_index: index });
        }
        let block = Block { index, arguments };
        match self.position(index) {
            Ok(position) => {
                self.blocks[position] = block;
                self.message.content[position] = content;
            }
            Err(position) => {
                self.blocks.insert(position, block);
                self.message.content.insert(position, content);
            }
        }
        Ok(())
    }
}

impl PartialEq for PartialMessage {
    /// Compares what is to be seen, the messages.
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

fn wrong_block(event: &AssistantEvent, content_index: usize) -> FoldError {
    FoldError::WrongBlock {
        kind: event.kind(),
        content_index,
    }
}

/// Ends a call: what the provider says counts, else the strict parse of what it streamed.
fn close_call(call: &mut ToolCall, text: &mut Option<Box<PartialArguments>>, said: Option<&ToolCallPatch>) {
    if let Some(text) = text.take()
        && said.is_none_or(|said| said.arguments.is_none())
    {
        match parse_arguments(text.text()) {
            Ok(arguments) => call.arguments = arguments,
            Err(error) => {
                call.arguments.clear();
                call.arguments_error = Some(format!("{error}: {}", quote_arguments(text.text())));
            }
        }
    }
    let Some(said) = said else { return };
    if let Some(id) = &said.id {
        call.id.clone_from(id);
    }
    if let Some(name) = &said.name {
        call.name.clone_from(name);
    }
    if let Some(arguments) = &said.arguments {
        call.arguments.clone_from(arguments);
        call.arguments_error = None;
    }
    if said.thought_signature.is_some() {
        call.thought_signature.clone_from(&said.thought_signature);
    }
    if said.arguments_error.is_some() {
        call.arguments_error.clone_from(&said.arguments_error);
    }
}

/// Appends to a text that will grow: by fours, so that the message and the agent's view of it together allocate less
/// often than its length doubles (I8).
fn append(text: &mut String, delta: &str) {
    if text.capacity() - text.len() < delta.len() {
        text.reserve_exact(delta.len().max(3 * text.len()).max(64));
    }
    text.push_str(delta);
}
