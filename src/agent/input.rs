//! What may be said to an agent.

use std::sync::Arc;

use crate::message::{AgentMessage, Content, ImageContent, Message, UserContent, UserMessage};

/// Something that can be said to an agent: a text, a text with images, or a message.
pub trait IntoMessage<M> {
    /// The message; a text is said at `now` (milliseconds since the Unix epoch).
    fn into_message(self, now: u64) -> Arc<M>;
}

/// A prompt: one thing said, or many messages.
pub trait IntoPrompt<M> {
    /// The messages; a text is said at `now` (milliseconds since the Unix epoch).
    fn into_prompt(self, now: u64) -> Vec<Arc<M>>;
}

fn user<M: AgentMessage>(text: String, images: Vec<ImageContent>, now: u64) -> Arc<M> {
    let mut blocks = vec![Content::text(text)];
    blocks.extend(images.into_iter().map(Content::Image));
    let message = UserMessage {
        content: UserContent::Blocks(blocks),
        timestamp: now,
    };
    Arc::new(Message::User(message).into())
}

impl<M: AgentMessage> IntoMessage<M> for &str {
    fn into_message(self, now: u64) -> Arc<M> {
        user(self.to_owned(), Vec::new(), now)
    }
}

impl<M: AgentMessage> IntoMessage<M> for &String {
    fn into_message(self, now: u64) -> Arc<M> {
        user(self.clone(), Vec::new(), now)
    }
}

impl<M: AgentMessage> IntoMessage<M> for String {
    fn into_message(self, now: u64) -> Arc<M> {
        user(self, Vec::new(), now)
    }
}

impl<M: AgentMessage, T: Into<String>> IntoMessage<M> for (T, Vec<ImageContent>) {
    fn into_message(self, now: u64) -> Arc<M> {
        user(self.0.into(), self.1, now)
    }
}

impl<M: AgentMessage> IntoMessage<M> for M {
    fn into_message(self, _: u64) -> Arc<M> {
        Arc::new(self)
    }
}

impl<M: AgentMessage> IntoMessage<M> for Arc<M> {
    fn into_message(self, _: u64) -> Arc<M> {
        self
    }
}

macro_rules! one_message {
    ($([$($generics:tt)*] $type:ty;)*) => {
        $(
            impl<M: AgentMessage, $($generics)*> IntoPrompt<M> for $type {
                fn into_prompt(self, now: u64) -> Vec<Arc<M>> {
                    vec![self.into_message(now)]
                }
            }
        )*
    };
}

one_message! {
    [] &str;
    [] &String;
    [] String;
    [T: Into<String>] (T, Vec<ImageContent>);
    [] M;
    [] Arc<M>;
}

impl<M: AgentMessage> IntoPrompt<M> for Vec<M> {
    fn into_prompt(self, _: u64) -> Vec<Arc<M>> {
        self.into_iter().map(Arc::new).collect()
    }
}

impl<M: AgentMessage> IntoPrompt<M> for Vec<Arc<M>> {
    fn into_prompt(self, _: u64) -> Self {
        self
    }
}
