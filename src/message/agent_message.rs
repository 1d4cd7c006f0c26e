//! What a transcript holds: messages of models, and an app's own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Message, Messages};

/// A message of a transcript: a model's [`Message`], or one of the app's own (a notice, an artifact, ...).
///
/// [`Message`] implements it, and so does [`CustomMessage`], which saves the boilerplate of adding one kind of
/// message; implement it yourself for an enum of your own. Everything the engine adds comes in by `From<Message>`.
///
/// The methods, and the drop of a message, are taken for the getters they are: the engine calls them anywhere, also while
/// it holds a lock of the agent. They must neither panic nor call an agent.
///
/// Cloning must be cheap where the message is not [`Message`] itself: hold it in an [`Arc`].
pub trait AgentMessage: From<Message> + Clone + Send + Sync + 'static {
    /// Who speaks: `user`, `assistant`, `toolResult`, or a role of the app's own.
    fn role(&self) -> &str;

    /// The message as models know it, if it is one.
    fn as_message(&self) -> Option<&Message>;

    /// The same, shared. It must copy a pointer, not the message, for requests to cost what they should (I8).
    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>>;

    /// The whole list as a list of model messages, where the two types are the same. Only [`Message`] says yes.
    fn as_messages(list: &Messages<Self>) -> Option<&Messages<Message>> {
        let _ = list;
        None
    }
}

impl AgentMessage for Message {
    fn role(&self) -> &str {
        Message::role(self)
    }

    fn as_message(&self) -> Option<&Message> {
        Some(self)
    }

    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>> {
        Some(Arc::clone(this))
    }

    fn as_messages(list: &Messages<Self>) -> Option<&Messages<Message>> {
        Some(list)
    }
}

/// An app's own kind of message.
///
/// See [`CustomMessage`], which makes an [`AgentMessage`] of it.
pub trait CustomRole {
    /// Its role, such as `notification`.
    fn role(&self) -> &str;
}

/// A model's message, or one of the app's own type `C`.
///
/// The default conversion drops `C` from requests. That is all it does: a custom message that is prompted or queued
/// begins a turn like any other, and one at the end of a transcript is what a run goes on from. A notice that the model
/// must not answer is put into the transcript between runs, by [`Agent::set_transcript`](crate::Agent::set_transcript).
///
/// In JSON it is whatever its inside is, so `C` has to write its role and to refuse those of [`Message`], which are tried
/// first. An enum that is tagged by `role` does both.
///
/// ```
/// use turnstate::{AgentMessage, CustomMessage, CustomRole, Message};
///
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// #[serde(tag = "role", rename_all = "camelCase")]
/// enum App {
///     Notice { text: String },
/// }
/// impl CustomRole for App {
///     fn role(&self) -> &str { "notice" }
/// }
/// let notice = CustomMessage::Custom(App::Notice { text: "saved".into() });
/// assert_eq!(notice.role(), "notice");
/// assert!(notice.as_message().is_none());
/// assert_eq!(serde_json::to_string(&notice).unwrap(), r#"{"role":"notice","text":"saved"}"#);
///
/// let user: CustomMessage<App> = serde_json::from_str(r#"{"role":"user","content":"hi"}"#).unwrap();
/// assert_eq!((user.role(), user.text().as_str()), ("user", "hi"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CustomMessage<C> {
    /// A message of the model's world.
    Llm(Arc<Message>),
    /// A message of the app's world.
    Custom(C),
}

impl<C> CustomMessage<C> {
    /// All text of a model's message, blocks joined by line ends; empty for one of the app's.
    pub fn text(&self) -> String {
        match self {
            Self::Llm(message) => message.text(),
            Self::Custom(_) => String::new(),
        }
    }
}

impl<C> From<Message> for CustomMessage<C> {
    fn from(message: Message) -> Self {
        Self::Llm(Arc::new(message))
    }
}

impl<C> From<&str> for CustomMessage<C> {
    fn from(text: &str) -> Self {
        Message::user(text).into()
    }
}

impl<C> From<String> for CustomMessage<C> {
    fn from(text: String) -> Self {
        Message::user(text).into()
    }
}

impl<C: CustomRole + Clone + Send + Sync + 'static> AgentMessage for CustomMessage<C> {
    fn role(&self) -> &str {
        match self {
            Self::Llm(message) => message.role(),
            Self::Custom(custom) => custom.role(),
        }
    }

    fn as_message(&self) -> Option<&Message> {
        match self {
            Self::Llm(message) => Some(message),
            Self::Custom(_) => None,
        }
    }

    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>> {
        match &**this {
            Self::Llm(message) => Some(Arc::clone(message)),
            Self::Custom(_) => None,
        }
    }
}
