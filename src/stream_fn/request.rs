//! How a request is made by hand.

use std::sync::Arc;

use crate::message::{Messages, Model, ThinkingLevel};
use crate::tool::ToolSet;

use super::Request;

impl Request {
    /// A request with nothing in it, for whoever calls or tests a stream function without the engine. Its fields are
    /// set one by one.
    ///
    /// ```
    /// use turnstate::{Message, Request};
    /// let mut request = Request::new("scripted-1");
    /// request.messages.push(Message::user("Umbrella?").into());
    /// assert_eq!((request.model.id.as_str(), request.messages.len()), ("scripted-1", 1));
    /// ```
    pub fn new(model: impl Into<Model>) -> Self {
        Self {
            model: Arc::new(model.into()),
            system_prompt: Arc::from(""),
            messages: Messages::new(),
            tools: ToolSet::default(),
            thinking_level: ThinkingLevel::default(),
            options: Arc::default(),
            api_key: None,
        }
    }
}
