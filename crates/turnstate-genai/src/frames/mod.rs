//! What is on the wire: three protocols are read here, frame by frame, because genai passes on less than they say (no
//! content index, no response id, all arguments so far in place of what is new).

mod chat_completions;
mod messages;
mod responses;

use serde_json::Value;

use crate::answer::Answer;
use crate::failure::Failed;

/// Who reads the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Protocol {
    /// Nothing has come.
    #[default]
    Unknown,
    /// OpenAI's Chat Completions, and what resembles it.
    ChatCompletions,
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// genai.
    Other,
}

impl Protocol {
    /// Told apart by what only one of them has.
    fn of(frame: &Value) -> Self {
        match frame["type"].as_str() {
            Some("message_start" | "ping") => Self::Messages,
            Some(kind) if kind.starts_with("response.") => Self::Responses,
            _ if frame["choices"].is_array() => Self::ChatCompletions,
            _ => Self::Other,
        }
    }

    /// Reads a frame into the answer. Gives whether it was read, so that what genai thinks of it does not count.
    pub(crate) fn read(&mut self, frame: &str, answer: &mut Answer) -> bool {
        if answer.has_ended() || frame.is_empty() {
            return true;
        }
        if frame == "[DONE]" {
            if *self == Self::ChatCompletions {
                answer.finish();
            }
            return *self == Self::ChatCompletions;
        }
        let frame = match serde_json::from_str::<Value>(frame) {
            Ok(frame) => frame,
            Err(_) if matches!(self, Self::Unknown | Self::Other) => return false,
            Err(error) => {
                answer.fail(Failed::new(format!("the provider sent what is not JSON: {error}")));
                return true;
            }
        };
        if *self == Self::Unknown {
            if is_error(&frame["error"]) {
                answer.fail(Failed::in_stream(&frame));
                return true;
            }
            *self = Self::of(&frame);
        }
        match self {
            Self::ChatCompletions => chat_completions::read(&frame, answer),
            Self::Messages => messages::read(&frame, answer),
            Self::Responses => responses::read(&frame, answer),
            Self::Unknown | Self::Other => return false,
        }
        true
    }
}

/// Whether what stands in a field `error` is one: some send `null` with every frame.
fn is_error(error: &Value) -> bool {
    error.is_object() || error.is_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
