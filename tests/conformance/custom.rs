//! Messages of an app: every role of a fixture that models do not know.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnstate::{CustomMessage, CustomRole, Message};

/// What the transcripts of the scenarios hold.
pub(crate) type Msg = CustomMessage<AppMessage>;

/// A message of a role of its own, in its JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct AppMessage(Value);

impl AppMessage {
    /// The user message that stands for it in a request, if its role is sent at all.
    pub(crate) fn as_user(&self) -> Message {
        Message::user(self.0["text"].as_str().unwrap_or_default())
    }
}

impl TryFrom<Value> for AppMessage {
    type Error = String;

    fn try_from(message: Value) -> Result<Self, String> {
        match message["role"].as_str() {
            None | Some("user" | "assistant" | "toolResult") => Err(format!("no message of an app: {message}")),
            Some(_) => Ok(Self(message)),
        }
    }
}

impl CustomRole for AppMessage {
    fn role(&self) -> &str {
        self.0["role"].as_str().unwrap_or_default()
    }
}

/// A message of a fixture.
pub(crate) fn message(json: &Value) -> Arc<Msg> {
    Arc::new(Msg::deserialize(json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

/// Messages of a fixture.
pub(crate) fn messages(json: &[Value]) -> Vec<Arc<Msg>> {
    json.iter().map(message).collect()
}
