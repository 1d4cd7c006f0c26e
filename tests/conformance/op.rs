//! What the user of the agent does: the operations of `steps` and `triggers`.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::fixture::QueueMode;

/// One operation on the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawOp")]
pub(crate) enum Op {
    /// Starts a run. In a trigger it must be refused as busy, and its outcome is marked as nested.
    Prompt(Prompt),
    /// Starts a run from the transcript as it is.
    Continue,
    /// Forgets messages, error and queues.
    Reset,
    /// Queues a message for the active run.
    Steer(Value),
    /// Queues a message for when the run would end.
    FollowUp(Value),
    /// Aborts the active run.
    Abort,
    /// Empties the steering queue.
    ClearSteering,
    /// Empties the follow-up queue.
    ClearFollowUps,
    /// Changes how much a drain of the steering queue takes.
    SetSteeringMode(QueueMode),
}

/// What a prompt consists of.
#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    /// A text, possibly with image blocks.
    Text {
        /// The text.
        text: String,
        /// Image blocks in Pi's JSON.
        images: Vec<Value>,
    },
    /// Whole messages in Pi's JSON.
    Messages(Vec<Value>),
}

impl Prompt {
    /// The messages of this prompt, for engines that do not know texts and images.
    pub(crate) fn messages(&self) -> Vec<Value> {
        match self {
            Self::Text { text, images } => {
                let mut content = vec![json!({ "type": "text", "text": text })];
                content.extend_from_slice(images);
                vec![json!({ "role": "user", "content": content, "timestamp": 0 })]
            }
            Self::Messages(messages) => messages.clone(),
        }
    }
}

/// A user message with one text block, as a string stands for it.
fn user_message(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 0 })
}

/// The operation as it is written: an object whose one key names it (`images` goes with `prompt`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawOp {
    prompt: Option<Value>,
    images: Option<Vec<Value>>,
    r#continue: Option<bool>,
    reset: Option<bool>,
    steer: Option<Value>,
    follow_up: Option<Value>,
    abort: Option<bool>,
    clear_steering: Option<bool>,
    clear_follow_ups: Option<bool>,
    set_steering_mode: Option<QueueMode>,
}

impl TryFrom<RawOp> for Op {
    type Error = String;

    fn try_from(mut raw: RawOp) -> Result<Self, String> {
        let images = raw.images.take();
        if images.is_some() && !matches!(raw.prompt, Some(Value::String(_))) {
            return Err("`images` goes with a text prompt only".to_owned());
        }
        let prompt = raw.prompt.map(|content| prompt(content, images.unwrap_or_default()));
        let operations = [
            prompt.transpose()?.map(Self::Prompt),
            flag("continue", raw.r#continue, Self::Continue)?,
            flag("reset", raw.reset, Self::Reset)?,
            raw.steer.map(message).transpose()?.map(Self::Steer),
            raw.follow_up.map(message).transpose()?.map(Self::FollowUp),
            flag("abort", raw.abort, Self::Abort)?,
            flag("clearSteering", raw.clear_steering, Self::ClearSteering)?,
            flag("clearFollowUps", raw.clear_follow_ups, Self::ClearFollowUps)?,
            raw.set_steering_mode.map(Self::SetSteeringMode),
        ];
        let mut operations = operations.into_iter().flatten();
        match (operations.next(), operations.next()) {
            (Some(operation), None) => Ok(operation),
            (None, _) => Err("no operation".to_owned()),
            _ => Err("more than one operation in one object".to_owned()),
        }
    }
}

/// An operation without content is written `true`; a `false` would be a mistake of the fixture.
fn flag(name: &str, value: Option<bool>, operation: Op) -> Result<Option<Op>, String> {
    match value {
        Some(false) => Err(format!("`{name}` must be true")),
        given => Ok(given.map(|_| operation)),
    }
}

fn prompt(content: Value, images: Vec<Value>) -> Result<Prompt, String> {
    match content {
        Value::String(text) => Ok(Prompt::Text { text, images }),
        Value::Array(items) => {
            let messages = items.into_iter().map(message).collect::<Result<_, _>>()?;
            Ok(Prompt::Messages(messages))
        }
        one => Ok(Prompt::Messages(vec![message(one)?])),
    }
}

fn message(value: Value) -> Result<Value, String> {
    match value {
        Value::String(text) => Ok(user_message(&text)),
        Value::Object(_) => Ok(value),
        other => Err(format!("neither a text nor a message: {other}")),
    }
}

/// The kinds of agent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    AgentStart,
    AgentEnd,
    TurnStart,
    TurnEnd,
    MessageStart,
    MessageUpdate,
    MessageEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolExecutionEnd,
}

impl EventKind {
    /// The kind of an event in Pi's JSON.
    pub(crate) fn of(event: &Value) -> Option<Self> {
        Self::deserialize(event.get("type")?).ok()
    }
}

/// Operations to do when a certain event is observed.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawTrigger")]
pub(crate) struct Trigger {
    on: On,
    operations: Vec<Op>,
}

/// The event of a trigger.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct On {
    event: EventKind,
    /// Counted over the whole scenario, from 1.
    #[serde(default = "first")]
    nth: usize,
}

fn first() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrigger {
    on: On,
    r#do: Vec<Op>,
}

impl TryFrom<RawTrigger> for Trigger {
    type Error = String;

    fn try_from(raw: RawTrigger) -> Result<Self, String> {
        if raw.on.nth == 0 {
            return Err("`nth` counts from 1".to_owned());
        }
        let step_only = |op: &Op| matches!(op, Op::Continue | Op::Reset);
        if raw.r#do.iter().any(step_only) {
            return Err("`continue` and `reset` are steps, not operations of a trigger".to_owned());
        }
        Ok(Self {
            on: raw.on,
            operations: raw.r#do,
        })
    }
}

/// Counts the events of a scenario and tells which operations each of them triggers.
#[derive(Debug)]
pub(crate) struct TriggerLog {
    triggers: Vec<Trigger>,
    seen: HashMap<EventKind, usize>,
}

impl TriggerLog {
    /// A log in which no event was seen yet.
    pub(crate) fn new(triggers: &[Trigger]) -> Self {
        Self {
            triggers: triggers.to_vec(),
            seen: HashMap::new(),
        }
    }

    /// Counts one event; the operations are to be done before anything else happens.
    pub(crate) fn observe(&mut self, kind: EventKind) -> Vec<Op> {
        let seen = self.seen.entry(kind).or_default();
        *seen += 1;
        let nth = *seen;
        self.triggers
            .iter()
            .filter(move |trigger| trigger.on.event == kind && trigger.on.nth == nth)
            .flat_map(|trigger| &trigger.operations)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_step() {
        let operations = json!([
            { "prompt": "a" }, { "prompt": "a", "images": [{ "type": "image" }] }, { "prompt": ["a", { "role": "user" }] },
            { "continue": true }, { "reset": true }, { "steer": "a" }, { "followUp": { "role": "user" } }, { "abort": true },
            { "clearSteering": true }, { "clearFollowUps": true }, { "setSteeringMode": "all" },
        ]);
        let operations: Vec<Op> = serde_json::from_value(operations).unwrap();
        assert_eq!(operations.len(), 11);
        let Op::Prompt(with_image) = &operations[1] else {
            panic!("not a prompt: {:?}", operations[1]);
        };
        let content = json!([{ "type": "text", "text": "a" }, { "type": "image" }]);
        assert_eq!(with_image.messages()[0]["content"], content);
    }

    #[test]
    fn what_is_not_one_operation_is_refused() {
        let wrong = [
            json!({}),
            json!({ "setFollowUpMode": "all" }),
            json!({ "abort": false }),
            json!({ "steer": "a", "abort": true }),
            json!({ "steer": 1 }),
            json!({ "steer": "a", "images": [] }),
        ];
        for operation in wrong {
            assert!(Op::deserialize(&operation).is_err(), "{operation}");
        }
    }

    #[test]
    fn what_cannot_trigger_is_refused() {
        let wrong = [
            json!({ "on": { "event": "turn_ended" }, "do": [] }),
            json!({ "on": { "event": "turn_end", "nth": 0 }, "do": [] }),
            json!({ "on": { "event": "turn_end" }, "do": [{ "reset": true }] }),
            json!({ "on": { "event": "turn_end", "step": 1 }, "do": [] }),
        ];
        for trigger in wrong {
            assert!(Trigger::deserialize(&trigger).is_err(), "{trigger}");
        }
    }

    #[test]
    fn triggers_count_each_kind_from_one() {
        let triggers: Vec<Trigger> = serde_json::from_value(json!([
            { "on": { "event": "turn_end", "nth": 2 }, "do": [{ "abort": true }] },
            { "on": { "event": "turn_end" }, "do": [{ "steer": "a" }, { "clearSteering": true }] },
        ]))
        .unwrap();
        let mut log = TriggerLog::new(&triggers);
        assert_eq!(log.observe(EventKind::TurnStart).len(), 0);
        assert_eq!(log.observe(EventKind::TurnEnd).len(), 2);
        let second = log.observe(EventKind::TurnEnd);
        assert!(matches!(second[..], [Op::Abort]));
        assert_eq!(log.observe(EventKind::TurnEnd).len(), 0);
    }
}
