//! The transcript, and what is sent of it.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::list::Iter;
use super::{AgentMessage, AssistantMessage, Content, Message, Messages, ToolCall, ToolResult, ToolResultMessage};

/// The messages of an agent, with the form in which they are sent kept beside (§4.8 of the
/// [contract](crate::docs::contract)). In JSON it is the list.
///
/// What is sent always satisfies I3: every tool call has exactly one result, in call order, right behind its
/// assistant message, and no result is without its call. So [`request`](Self::request)
/// - leaves out custom messages, and assistant messages that failed or were aborted, with their results;
/// - gives a call without a result an error result that says `No result provided`;
/// - leaves out results without a call, and puts those that came late or in another order in their place.
///
/// A result belongs to the nearest assistant message before it; calls of the same id are told apart by position.
///
/// Each message is looked at once, when it is added, so that a request costs what was added since the last one (I8),
/// and copying a transcript costs as little as copying [`Messages`], to which it dereferences.
///
/// ```
/// use turnstate::{AssistantContent, AssistantMessage, Message, ToolCall, Transcript};
/// let call = ToolCall::new("a", "search", serde_json::Map::new());
/// let transcript: Transcript<Message> = vec![
///     Message::user("find it"),
///     AssistantMessage { content: vec![AssistantContent::ToolCall(call.into())], ..Default::default() }.into(),
///     Message::user("never mind"),
/// ].into();
/// assert_eq!(transcript.len(), 3);
/// let roles: Vec<_> = transcript.request().iter().map(|message| message.role()).collect();
/// assert_eq!(roles, ["user", "assistant", "toolResult", "user"]);
/// ```
#[derive(Debug)]
pub struct Transcript<M> {
    messages: Messages<M>,
    /// The request form of everything before `open`. For `Message` it lives on the storage of `messages` as long as
    /// nothing had to be repaired.
    sent: Messages<Message>,
    /// Where the last assistant message stands whose calls may still get results; the end, if there is none.
    open: usize,
}

impl<M: AgentMessage> Transcript<M> {
    /// An empty transcript.
    pub fn new() -> Self {
        Self::from(Messages::new())
    }

    /// Appends a message.
    pub fn push(&mut self, message: Arc<M>) {
        let answer = message.as_message().and_then(Message::as_assistant);
        if answer.is_some() {
            self.close_group();
        }
        let alone = self.open == self.messages.len();
        let settled = alone && answer.is_none_or(|answer| answer.stop_reason.is_failure());
        let sent = if settled && answer.is_none() {
            M::to_message(&message)
        } else {
            None
        };
        self.messages.push(message);
        if settled {
            self.open = self.messages.len();
            self.sent.extend(sent.filter(|message| !is_result(message)));
        }
    }

    /// The messages.
    pub fn messages(&self) -> &Messages<M> {
        &self.messages
    }

    /// What is sent to a model: the default conversion.
    pub fn request(&self) -> Messages<Message> {
        let mut sent = self.sent.clone();
        send_group(self.messages.iter_from(self.open), &mut sent);
        sent
    }

    /// The first `len` messages.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        if len >= self.messages.len() {
            return self.clone();
        }
        Self::from(self.messages.prefix(len))
    }

    fn close_group(&mut self) {
        send_group(self.messages.iter_from(self.open), &mut self.sent);
        self.open = self.messages.len();
    }
}

/// Appends what is sent of one group: an assistant message that did not fail and what follows it, or nothing.
fn send_group<'a, M: AgentMessage>(group: impl Iterator<Item = &'a Arc<M>>, sent: &mut Messages<Message>) {
    let mut group = group.filter_map(M::to_message).peekable();
    let Some(head) = group.next() else { return };
    let Some(assistant) = head.as_assistant() else { return };
    sent.push(Arc::clone(&head));
    let mut calls = assistant.tool_calls().peekable();
    // The usual case needs no list: the results follow in call order.
    while let Some(call) = calls.peek() {
        let Some(result) = group.next_if(|message| answers(message, call)) else {
            break;
        };
        sent.push(result);
        calls.next();
    }
    if calls.peek().is_none() {
        sent.extend(group.filter(|message| !is_result(message)));
        return;
    }
    let mut rest: Vec<_> = group.map(Some).collect();
    for call in calls {
        let late = rest
            .iter_mut()
            .find(|message| message.as_ref().is_some_and(|message| answers(message, call)));
        sent.push(match late.and_then(Option::take) {
            Some(result) => result,
            None => Arc::new(placeholder(assistant, call).into()),
        });
    }
    sent.extend(rest.into_iter().flatten().filter(|message| !is_result(message)));
}

fn is_result(message: &Message) -> bool {
    message.as_tool_result().is_some()
}

fn answers(message: &Message, call: &ToolCall) -> bool {
    message
        .as_tool_result()
        .is_some_and(|result| result.tool_call_id == call.id)
}

fn placeholder(assistant: &AssistantMessage, call: &ToolCall) -> ToolResultMessage {
    let mut result = ToolResult::error("");
    result.content = vec![Content::text("No result provided")];
    ToolResultMessage::new(call, &result, assistant.timestamp)
}

impl<M> Clone for Transcript<M> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            sent: self.sent.clone(),
            open: self.open,
        }
    }
}

impl<M: AgentMessage> Default for Transcript<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Deref for Transcript<M> {
    type Target = Messages<M>;

    fn deref(&self) -> &Messages<M> {
        &self.messages
    }
}

impl<M: AgentMessage> From<Messages<M>> for Transcript<M> {
    fn from(messages: Messages<M>) -> Self {
        let sent = M::as_messages(&messages).map_or_else(Messages::new, |same| same.prefix(0));
        let mut transcript = Self {
            messages: messages.prefix(0),
            sent,
            open: 0,
        };
        messages.iter().for_each(|message| transcript.push(Arc::clone(message)));
        transcript
    }
}

impl<M: AgentMessage> From<Vec<M>> for Transcript<M> {
    fn from(messages: Vec<M>) -> Self {
        Messages::from(messages).into()
    }
}

impl<M: AgentMessage> From<Vec<Arc<M>>> for Transcript<M> {
    fn from(messages: Vec<Arc<M>>) -> Self {
        Messages::from(messages).into()
    }
}

impl<M: AgentMessage> FromIterator<Arc<M>> for Transcript<M> {
    fn from_iter<I: IntoIterator<Item = Arc<M>>>(messages: I) -> Self {
        messages.into_iter().collect::<Messages<M>>().into()
    }
}

impl<M: Serialize> Serialize for Transcript<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.messages.serialize(serializer)
    }
}

impl<'de, M: AgentMessage + Deserialize<'de>> Deserialize<'de> for Transcript<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Messages::deserialize(deserializer).map(Self::from)
    }
}

impl<'a, M> IntoIterator for &'a Transcript<M> {
    type Item = &'a Arc<M>;
    type IntoIter = Iter<'a, M>;

    fn into_iter(self) -> Iter<'a, M> {
        self.messages.iter()
    }
}

impl<M: PartialEq> PartialEq for Transcript<M> {
    fn eq(&self, other: &Self) -> bool {
        self.messages == other.messages
    }
}
