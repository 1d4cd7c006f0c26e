//! One scenario of `loop/`, as `fixtures/FORMAT.md` describes it.
//!
//! Keys that the format does not have are refused, so that no rule of a fixture is silently ignored. Messages, schemas,
//! arguments, results and events stay JSON: their shape is what the engines are tested for.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::op::{Op, Trigger};

/// What a user does, what the scripted model answers, and what came of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fixture {
    /// The name of the scenario.
    pub(crate) name: String,
    /// What it shows, for readers.
    #[serde(default)]
    pub(crate) about: String,
    /// The agent at the start.
    #[serde(default)]
    pub(crate) setup: Arc<Setup>,
    /// What the model answers, per request.
    #[serde(default)]
    pub(crate) responses: Vec<Vec<ModelItem>>,
    /// What the user does when certain events are seen.
    #[serde(default)]
    pub(crate) triggers: Vec<Trigger>,
    /// What the user does, one after another.
    pub(crate) steps: Vec<Op>,
    /// What the reference implementation did.
    pub(crate) expect: Expect,
}

/// The configuration and transcript the agent starts with.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Setup {
    /// The system prompt; a request without one has an empty one.
    pub(crate) system_prompt: Option<String>,
    /// The initial transcript.
    pub(crate) messages: Vec<Value>,
    /// The tools, in order.
    pub(crate) tools: Vec<Tool>,
    /// How a batch runs, unless one of its tools is sequential.
    pub(crate) tool_execution: ExecutionMode,
    /// How much a drain of the steering queue takes.
    pub(crate) steering_mode: QueueMode,
    /// How much a drain of the follow-up queue takes.
    pub(crate) follow_up_mode: QueueMode,
    /// The scripted hooks.
    pub(crate) hooks: Hooks,
    /// Custom roles sent as user messages with their `text`; other custom roles are not sent.
    pub(crate) custom_as_user: Vec<String>,
}

impl Setup {
    /// The call whose end the given call waits for.
    pub(crate) fn after(&self, tool: &str, call_id: &str) -> Option<&str> {
        let tool = self.tools.iter().find(|known| known.name == tool)?;
        tool.calls.get(call_id)?.after.as_deref()
    }
}

/// How much a drain takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueueMode {
    /// One message.
    #[default]
    OneAtATime,
    /// All there are.
    All,
}

impl From<QueueMode> for turnstate::QueueMode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::OneAtATime => Self::OneAtATime,
            QueueMode::All => Self::All,
        }
    }
}

/// Whether calls of a batch overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutionMode {
    /// They do.
    #[default]
    Parallel,
    /// Each is answered before the next starts.
    Sequential,
}

impl From<ExecutionMode> for turnstate::machine::ExecutionMode {
    fn from(mode: ExecutionMode) -> Self {
        match mode {
            ExecutionMode::Parallel => Self::Parallel,
            ExecutionMode::Sequential => Self::Sequential,
        }
    }
}

/// A scripted tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Tool {
    /// Its name.
    pub(crate) name: String,
    description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default = "any_object")]
    pub(crate) parameters: Value,
    /// Its own mode, if it has one.
    pub(crate) execution_mode: Option<ExecutionMode>,
    /// Its preparation of raw arguments.
    pub(crate) rename_argument: Option<Rename>,
    /// What it does, by tool call id; a call that is not listed gives [`Tool::plain_result`].
    #[serde(default)]
    pub(crate) calls: HashMap<String, Call>,
}

fn any_object() -> Value {
    json!({ "type": "object" })
}

impl Tool {
    /// Its description, by default its name.
    pub(crate) fn description(&self) -> &str {
        self.description.as_ref().unwrap_or(&self.name)
    }

    /// The answer to a call without a scripted result: `NAME(ARGS)` with the validated arguments.
    pub(crate) fn plain_result(&self, arguments: &Value) -> Value {
        let text = format!("{}({})", self.name, as_javascript_writes(arguments.clone()));
        json!({ "content": [{ "type": "text", "text": text }], "details": {} })
    }
}

/// The value with whole floats as integers: JavaScript, which recorded the texts, has no other way to write them.
fn as_javascript_writes(value: Value) -> Value {
    match value {
        // `as` is exact here: a whole float below 2^53 is an i64.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(n) if n.is_f64() => match n.as_f64() {
            Some(f) if f.fract() == 0.0 && f.abs() < 9e15 => json!(f as i64),
            _ => Value::Number(n),
        },
        Value::Array(items) => items.into_iter().map(as_javascript_writes).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, member)| (key, as_javascript_writes(member)))
            .collect(),
        other => other,
    }
}

/// If the raw arguments have `from`, it is moved to `to`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rename {
    /// The old key.
    pub(crate) from: String,
    /// The new key.
    pub(crate) to: String,
}

/// What a tool does for one call.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Call {
    /// Texts reported as progress, at once.
    pub(crate) updates: Vec<String>,
    /// Not to finish before the `tool_execution_end` of that call was seen.
    pub(crate) after: Option<String>,
    /// Not to finish before the run is aborted.
    pub(crate) until_abort: bool,
    /// To fail with this message.
    pub(crate) throw: Option<String>,
    /// The result instead of [`Tool::plain_result`].
    pub(crate) result: Option<Value>,
}

impl Call {
    /// The partial results it reports.
    pub(crate) fn partial_results(&self) -> impl Iterator<Item = Value> {
        let partial_result = |text| json!({ "content": [{ "type": "text", "text": text }], "details": {} });
        self.updates.iter().map(partial_result)
    }
}

/// The scripted hooks.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Hooks {
    /// By tool call id.
    pub(crate) before_tool_call: HashMap<String, BeforeToolCall>,
    /// By tool call id.
    pub(crate) after_tool_call: HashMap<String, AfterToolCall>,
    /// One answer each time the hook is asked, over the whole scenario, then false. `None`: there is no hook.
    pub(crate) should_stop_after_turn: Option<Vec<bool>>,
    /// The context is reduced to its last messages, this many.
    pub(crate) keep_last: Option<usize>,
    /// The n-th request gets the n-th key, the last repeats.
    pub(crate) api_keys: Vec<String>,
}

impl Hooks {
    /// The key of a request, counted from 0.
    pub(crate) fn api_key(&self, request: usize) -> Option<&str> {
        let key = self.api_keys.get(request).or(self.api_keys.last())?;
        Some(key)
    }
}

/// What the hook before a call answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BeforeToolCall {
    /// To refuse the call.
    pub(crate) block: bool,
    /// Why.
    pub(crate) reason: Option<String>,
    /// The hook fails with this message.
    pub(crate) throw: Option<String>,
}

/// What the hook after a call replaces.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AfterToolCall {
    /// The content of the result.
    pub(crate) content: Option<Value>,
    /// Its details; a `null` replaces them too.
    #[serde(deserialize_with = "present")]
    pub(crate) details: Option<Value>,
    /// Whether it is an error.
    pub(crate) is_error: Option<bool>,
    /// Whether it ends the run.
    pub(crate) terminate: Option<bool>,
    /// The hook fails with this message.
    pub(crate) throw: Option<String>,
}

/// `null` is a value, not an absent one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// One item of a scripted response.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum ModelItem {
    /// Silence until the run is aborted.
    WaitAbort,
    /// An event in the wire form of the proxy protocol.
    Event(Value),
}

impl TryFrom<Value> for ModelItem {
    type Error = String;

    fn try_from(item: Value) -> Result<Self, String> {
        match item["type"].as_str() {
            Some("wait_abort") => Ok(Self::WaitAbort),
            Some(_) => Ok(Self::Event(item)),
            None => Err(format!("a model event without `type`: {item}")),
        }
    }
}

/// What the reference implementation did.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Every event, trimmed, in order.
    pub(crate) events: Vec<Value>,
    /// What each model request was given.
    pub(crate) requests: Vec<Request>,
    /// What came of each prompt, continue and reset.
    pub(crate) outcomes: Vec<ExpectedOutcome>,
    /// The agent at the end.
    pub(crate) state: State,
}

/// What a model request was given.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Request {
    /// Empty if there is none.
    pub(crate) system_prompt: String,
    /// The converted messages.
    pub(crate) messages: Vec<Value>,
    /// The names of the tools.
    pub(crate) tools: Vec<String>,
    /// The key, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
}

/// The agent at the end of a scenario.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct State {
    /// The transcript.
    pub(crate) messages: Vec<Value>,
    /// Whether a run is active.
    pub(crate) is_streaming: bool,
    /// Whether a streaming message exists.
    pub(crate) streaming: bool,
    /// The ids of the calls without a result.
    pub(crate) pending_tool_calls: Vec<String>,
    /// The error of the last failed or aborted turn.
    pub(crate) error_message: Option<String>,
}

/// What came of a prompt, a continue or a reset.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawOutcome")]
pub(crate) struct ExpectedOutcome {
    /// Whether it is the prompt of a trigger.
    pub(crate) nested: bool,
    /// Whether it was accepted; the wording of a refusal is not compared.
    pub(crate) accepted: bool,
    /// The number of events it produced, if recorded.
    pub(crate) events: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutcome {
    op: Option<String>,
    ok: Option<bool>,
    error: Option<String>,
    events: Option<usize>,
}

impl TryFrom<RawOutcome> for ExpectedOutcome {
    type Error = String;

    fn try_from(raw: RawOutcome) -> Result<Self, String> {
        if raw.ok.is_some() == raw.error.is_some() {
            return Err("an outcome has either `ok` or `error`".to_owned());
        }
        match raw.op.as_deref() {
            None | Some("nested prompt") => Ok(Self {
                nested: raw.op.is_some(),
                accepted: raw.ok == Some(true),
                events: raw.events,
            }),
            Some(op) => Err(format!("unknown outcome `{op}`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_keys_have_the_defaults_of_the_format() {
        let setup: Setup = serde_json::from_value(json!({ "tools": [{ "name": "t" }] })).unwrap();
        assert_eq!(setup.tool_execution, ExecutionMode::Parallel);
        assert_eq!(setup.steering_mode, QueueMode::OneAtATime);
        assert_eq!(setup.tools[0].description(), "t");
        assert_eq!(setup.tools[0].parameters, json!({ "type": "object" }));
        assert!(setup.hooks.should_stop_after_turn.is_none());
    }

    #[test]
    fn unknown_keys_are_refused_at_every_level() {
        let wrong = [
            json!({ "tool": [] }),
            json!({ "tools": [{ "name": "t", "strict": true }] }),
            json!({ "tools": [{ "name": "t", "calls": { "a": { "update": [] } } }] }),
            json!({ "tools": [{ "name": "t", "renameArgument": { "from": "a", "to": "b", "x": 1 } }] }),
            json!({ "hooks": { "prepareRequest": {} } }),
            json!({ "hooks": { "beforeToolCall": { "a": { "allow": true } } } }),
            json!({ "hooks": { "afterToolCall": { "a": { "error": true } } } }),
            json!({ "steeringMode": "two" }),
        ];
        for setup in wrong {
            assert!(Setup::deserialize(&setup).is_err(), "{setup}");
        }
    }

    #[test]
    fn a_plain_result_shows_the_arguments_as_javascript_does() {
        let tool: Tool = serde_json::from_value(json!({ "name": "calc" })).unwrap();
        let result = tool.plain_result(&json!({ "z": 42.0, "a": [1.5, "x"] }));
        assert_eq!(result["content"][0]["text"], "calc({\"z\":42,\"a\":[1.5,\"x\"]})");
    }

    #[test]
    fn the_last_api_key_repeats() {
        let hooks: Hooks = serde_json::from_value(json!({ "apiKeys": ["a", "b"] })).unwrap();
        let keys: Vec<_> = (0..3).map(|request| hooks.api_key(request)).collect();
        assert_eq!(keys, [Some("a"), Some("b"), Some("b")]);
        assert_eq!(Hooks::default().api_key(0), None);
    }

    #[test]
    fn a_null_of_the_after_hook_replaces_the_details() {
        let hook: AfterToolCall = serde_json::from_value(json!({ "details": null })).unwrap();
        assert_eq!(hook.details, Some(Value::Null));
        assert_eq!(AfterToolCall::default().details, None);
    }
}
