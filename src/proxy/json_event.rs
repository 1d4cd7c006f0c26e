//! One event from its JSON.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::message::{
    AssistantEvent, AssistantMessage, DoneReason, ErrorReason, Failure, ResponseHead, ToolCallPatch, Usage,
};

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
            Self::Start => &["api", "provider", "model", "responseModel", "responseId"],
            Self::TextStart | Self::ThinkingStart => &["contentIndex"],
            Self::TextDelta | Self::ThinkingDelta | Self::ToolCallDelta => &["contentIndex", "delta"],
            Self::TextEnd | Self::ThinkingEnd => &["contentIndex", "contentSignature"],
            Self::ToolCallStart => &["contentIndex", "id", "toolName"],
            Self::ToolCallEnd => &["contentIndex", "toolCall"],
            Self::Done => &["reason", "usage", "message"],
            Self::Error => &["reason", "errorMessage", "usage", "message", "error", "failure"],
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

/// The name of a field.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Type,
    ContentIndex,
    Delta,
    ContentSignature,
    Id,
    ToolName,
    ToolCall,
    Reason,
    ErrorMessage,
    Failure,
    Usage,
    #[serde(alias = "error")]
    Message,
    Api,
    Provider,
    Model,
    ResponseModel,
    ResponseId,
    #[serde(other)]
    Other,
}

/// The fields of all events. The last of a name counts, as in JavaScript.
#[derive(Debug, Default)]
struct Flat {
    kind: Kind,
    content_index: Option<usize>,
    delta: Option<JsonText>,
    /// Apart, because nearly all events are deltas, and those pay for every field they do not have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    content_signature: Option<JsonText>,
    id: Option<JsonText>,
    tool_name: Option<JsonText>,
    tool_call: Option<Box<ToolCallPatch>>,
    reason: Option<Reason>,
    error_message: Option<JsonText>,
    failure: Option<MaybeFailure>,
    usage: Option<Box<Usage>>,
    message: Option<Box<AssistantMessage>>,
    api: Option<JsonText>,
    provider: Option<JsonText>,
    model: Option<JsonText>,
    response_model: Option<JsonText>,
    response_id: Option<JsonText>,
}

/// A failure, or whatever else a server calls so: what it says of the failure must not cost the failure.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MaybeFailure {
    Known(Box<Failure>),
    Unknown(IgnoredAny),
}

impl MaybeFailure {
    fn known(self) -> Option<Box<Failure>> {
        match self {
            Self::Known(failure) => Some(failure),
            Self::Unknown(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyEvent;
        impl<'de> Visitor<'de> for AnyEvent {
            type Value = Flat;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Flat, A::Error> {
                let mut flat = Flat::default();
                while let Some(field) = fields.next_key()? {
                    match field {
                        Field::Type => flat.kind = fields.next_value()?,
                        Field::ContentIndex => flat.content_index = fields.next_value()?,
                        Field::Delta => flat.delta = fields.next_value()?,
                        Field::Other => {
                            fields.next_value::<IgnoredAny>()?;
                        }
                        field => flat.rare.get_or_insert_default().read(&field, &mut fields)?,
                    }
                }
                Ok(flat)
            }
        }
        deserializer.deserialize_map(AnyEvent)
    }
}

impl Rare {
    fn read<'de, A: MapAccess<'de>>(&mut self, field: &Field, fields: &mut A) -> Result<(), A::Error> {
        match field {
            Field::ContentSignature => self.content_signature = fields.next_value()?,
            Field::Id => self.id = fields.next_value()?,
            Field::ToolName => self.tool_name = fields.next_value()?,
            Field::ToolCall => self.tool_call = fields.next_value()?,
            Field::Reason => self.reason = fields.next_value()?,
            Field::ErrorMessage => self.error_message = fields.next_value()?,
            Field::Failure => self.failure = fields.next_value()?,
            Field::Usage => self.usage = fields.next_value()?,
            Field::Message => self.message = fields.next_value()?,
            Field::Api => self.api = fields.next_value()?,
            Field::Provider => self.provider = fields.next_value()?,
            Field::Model => self.model = fields.next_value()?,
            Field::ResponseModel => self.response_model = fields.next_value()?,
            Field::ResponseId => self.response_id = fields.next_value()?,
            Field::Type | Field::ContentIndex | Field::Delta | Field::Other => {}
        }
        Ok(())
    }

    fn head(self) -> Option<Box<ResponseHead>> {
        let head = ResponseHead {
            api: self.api.map(JsonText::alone),
            provider: self.provider.map(JsonText::alone),
            model: self.model.map(JsonText::alone),
            response_model: self.response_model.map(JsonText::alone),
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
            failure: self.failure.and_then(MaybeFailure::known),
        }
    }
}

impl Flat {
    fn into_parsed(self) -> Parsed {
        let kind = match self.kind {
            Kind::TextDelta => BlockKind::Text,
            Kind::ThinkingDelta => BlockKind::Thinking,
            Kind::ToolCallDelta => BlockKind::ToolCall,
            _ => return self.into_other(),
        };
        match (self.content_index, self.delta) {
            (Some(content_index), Some(delta)) => Parsed::Delta {
                kind,
                content_index,
                delta,
            },
            _ => Parsed::Malformed("a delta has no delta or contentIndex".to_owned()),
        }
    }

    fn into_other(self) -> Parsed {
        let rare = self.rare.map(|rare| *rare).unwrap_or_default();
        match (self.kind, self.content_index) {
            (Kind::Unknown, _) => Parsed::Unknown,
            (Kind::Start, _) => Parsed::Event(AssistantEvent::Start { head: rare.head() }),
            (Kind::Done, _) => rare.done(),
            (Kind::Error, _) => Parsed::Event(rare.error()),
            (kind, Some(content_index)) => block_event(kind, content_index, rare),
            (_, None) => Parsed::Malformed("an event of a block has no contentIndex".to_owned()),
        }
    }
}

fn block_event(kind: Kind, content_index: usize, rare: Rare) -> Parsed {
    let content_signature = rare.content_signature.map(JsonText::alone);
    Parsed::Event(match kind {
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
            id: rare.id.unwrap_or_default().alone(),
            tool_name: rare.tool_name.unwrap_or_default().alone(),
        },
        Kind::ToolCallEnd => AssistantEvent::ToolCallEnd {
            content_index,
            tool_call: rare.tool_call,
        },
        // These are no events of a block, or have been told apart before.
        Kind::TextDelta
        | Kind::ThinkingDelta
        | Kind::ToolCallDelta
        | Kind::Start
        | Kind::Done
        | Kind::Error
        | Kind::Unknown => return Parsed::Unknown,
    })
}
