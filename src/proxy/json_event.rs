//! One event from its JSON.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::message::{AssistantEvent, AssistantMessage, DoneReason, ErrorReason, ResponseHead, ToolCallPatch, Usage};

use super::decode_blocks::BlockKind;
use super::json_text::{JsonText, repair_strings};

/// What a piece of data is.
#[derive(Debug)]
pub(super) enum Parsed {
    /// More of a block. Its text may begin or end within a character.
    Delta {
        kind: BlockKind,
        content_index: usize,
        delta: JsonText,
    },
    /// Any other event.
    Event(AssistantEvent),
    /// JSON, but no event that is known here.
    Unknown,
    /// JSON that ends too early.
    Incomplete,
    /// Not an event. The reason quotes nothing of it.
    Malformed(String),
}

/// Reads `json`.
///
/// Reading into a flat structure is one pass; the derived reader of the tagged enum has to store the fields until it has
/// seen the tag. It also lets the texts be read as [`JsonText`].
pub(super) fn parse(json: &[u8]) -> Parsed {
    if json.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return match serde_json::from_slice::<IgnoredAny>(json) {
            Ok(_) => Parsed::Unknown,
            Err(error) => refused(&error, ""),
        };
    }
    match serde_json::from_slice::<Flat>(json) {
        Ok(flat) => flat.into_parsed(),
        Err(error) if error.is_eof() => Parsed::Incomplete,
        Err(_) => parse_odd(json),
    }
}

/// Reads what the fast way refused, which need not be wrong: an unknown event whose fields mean something else, half of a
/// surrogate pair within a tool call's arguments, usage in which JavaScript wrote a number as `null`.
fn parse_odd(json: &[u8]) -> Parsed {
    let text = repair_strings(&String::from_utf8_lossy(json));
    let mut fields: Map<String, Value> = match serde_json::from_str(&text) {
        Ok(fields) => fields,
        Err(error) => return refused(&error, ""),
    };
    let kind = fields.get("type").and_then(|kind| Kind::deserialize(kind).ok());
    let kind = kind.unwrap_or_default();
    if kind == Kind::Unknown {
        return Parsed::Unknown;
    }
    fields.retain(|name, _| name == "type" || kind.fields().contains(&name.as_str()));
    if fields
        .get("usage")
        .is_some_and(|usage| Usage::deserialize(usage).is_err())
    {
        // What it cost is worth less than the answer.
        fields.remove("usage");
    }
    match Flat::deserialize(Value::Object(fields)) {
        Ok(flat) => flat.into_parsed(),
        Err(error) => refused(&error, " of an event"),
    }
}

/// The reason without a word of the payload: what `serde_json` says of wrong data quotes it.
fn refused(error: &serde_json::Error, whose: &str) -> Parsed {
    match error.classify() {
        Category::Eof => Parsed::Incomplete,
        Category::Syntax => Parsed::Malformed(format!("not valid JSON: {error}")),
        Category::Data | Category::Io => Parsed::Malformed(format!("a field{whose} has a wrong type or value")),
    }
}

/// The `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Start,
    TextStart,
    TextDelta,
    TextEnd,
    ThinkingStart,
    ThinkingDelta,
    ThinkingEnd,
    #[serde(rename = "toolcall_start")]
    ToolCallStart,
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta,
    #[serde(rename = "toolcall_end")]
    ToolCallEnd,
    Done,
    Error,
    #[default]
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// The fields it has.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Start => &["api", "provider", "model", "responseId"],
            Self::TextStart | Self::ThinkingStart => &["contentIndex"],
            Self::TextDelta | Self::ThinkingDelta | Self::ToolCallDelta => &["contentIndex", "delta"],
            Self::TextEnd | Self::ThinkingEnd => &["contentIndex", "contentSignature"],
            Self::ToolCallStart => &["contentIndex", "id", "toolName"],
            Self::ToolCallEnd => &["contentIndex", "toolCall"],
            Self::Done => &["reason", "usage", "message"],
            Self::Error => &["reason", "errorMessage", "usage", "message", "error"],
            Self::Unknown => &[],
        }
    }
}

/// Why an answer ended, for both events that say so.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reason {
    Stop,
    Length,
    ToolUse,
    Aborted,
    #[serde(other)]
    Other,
}

/// The fields of all events.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Flat {
    #[serde(rename = "type", default)]
    kind: Kind,
    content_index: Option<usize>,
    delta: Option<JsonText>,
    content_signature: Option<JsonText>,
    id: Option<JsonText>,
    tool_name: Option<JsonText>,
    tool_call: Option<Box<ToolCallPatch>>,
    reason: Option<Reason>,
    error_message: Option<JsonText>,
    usage: Option<Box<Usage>>,
    #[serde(alias = "error")]
    message: Option<Message>,
    api: Option<JsonText>,
    provider: Option<JsonText>,
    model: Option<JsonText>,
    response_id: Option<JsonText>,
}

type Message = Box<AssistantMessage>;

impl Flat {
    fn into_parsed(self) -> Parsed {
        match self.kind {
            Kind::Unknown => Parsed::Unknown,
            Kind::Start => Parsed::Event(AssistantEvent::Start { head: self.head() }),
            Kind::Done => self.done(),
            Kind::Error => Parsed::Event(self.error()),
            _ => match self.content_index {
                Some(content_index) => self.block_event(content_index),
                None => Parsed::Malformed("an event of a block has no contentIndex".to_owned()),
            },
        }
    }

    fn head(self) -> Option<Box<ResponseHead>> {
        let head = ResponseHead {
            api: self.api.map(JsonText::alone),
            provider: self.provider.map(JsonText::alone),
            model: self.model.map(JsonText::alone),
            response_id: self.response_id.map(JsonText::alone),
        };
        (head != ResponseHead::default()).then(|| Box::new(head))
    }

    fn done(self) -> Parsed {
        let reason = match self.reason {
            Some(Reason::Stop) => DoneReason::Stop,
            Some(Reason::Length) => DoneReason::Length,
            Some(Reason::ToolUse) => DoneReason::ToolUse,
            // Not knowing how an answer ended is not knowing whether it is complete.
            Some(Reason::Aborted | Reason::Other) | None => {
                return Parsed::Malformed("a done event has no known reason".to_owned());
            }
        };
        Parsed::Event(AssistantEvent::Done {
            reason,
            usage: self.usage.unwrap_or_default(),
            message: self.message,
        })
    }

    fn error(self) -> AssistantEvent {
        AssistantEvent::Error {
            reason: match self.reason {
                Some(Reason::Aborted) => ErrorReason::Aborted,
                _ => ErrorReason::Error,
            },
            error_message: self.error_message.map(JsonText::alone),
            usage: self.usage.unwrap_or_default(),
            message: self.message,
        }
    }

    fn block_event(self, content_index: usize) -> Parsed {
        let content_signature = self.content_signature.map(JsonText::alone);
        Parsed::Event(match self.kind {
            Kind::TextDelta => return delta(BlockKind::Text, content_index, self.delta),
            Kind::ThinkingDelta => return delta(BlockKind::Thinking, content_index, self.delta),
            Kind::ToolCallDelta => return delta(BlockKind::ToolCall, content_index, self.delta),
            Kind::TextStart => AssistantEvent::TextStart { content_index },
            Kind::TextEnd => AssistantEvent::TextEnd {
                content_index,
                content_signature,
            },
            Kind::ThinkingStart => AssistantEvent::ThinkingStart { content_index },
            Kind::ThinkingEnd => AssistantEvent::ThinkingEnd {
                content_index,
                content_signature,
            },
            Kind::ToolCallStart => AssistantEvent::ToolCallStart {
                content_index,
                id: self.id.unwrap_or_default().alone(),
                tool_name: self.tool_name.unwrap_or_default().alone(),
            },
            Kind::ToolCallEnd => AssistantEvent::ToolCallEnd {
                content_index,
                tool_call: self.tool_call,
            },
            Kind::Start | Kind::Done | Kind::Error | Kind::Unknown => return Parsed::Unknown,
        })
    }
}

fn delta(kind: BlockKind, content_index: usize, delta: Option<JsonText>) -> Parsed {
    match delta {
        Some(delta) => Parsed::Delta {
            kind,
            content_index,
            delta,
        },
        None => Parsed::Malformed("a delta event has no delta".to_owned()),
    }
}
