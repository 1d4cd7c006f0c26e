//! What the model, the tools and the hooks of a scenario answer: plain functions of what they are asked. None of them
//! waits; that is left to whoever plays them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::{Map, Value};
use turnstate::{
    ApiKey, AssistantEvent, BoxError, Content, CustomMessage, CustomRole, Decision, Message, Messages, Model,
    ResultPatch, ToolResult, Transcript,
};

use crate::custom::Msg;
use crate::fixture::{Call, Setup, Tool};

/// The answers of a scenario. It counts how often hooks were asked whose answers differ from time to time.
#[derive(Debug)]
pub(crate) struct Script {
    setup: Arc<Setup>,
    keys_given: AtomicUsize,
    stops_asked: AtomicUsize,
}

/// What a tool does for one call.
#[derive(Debug)]
pub(crate) struct Performance {
    /// Reported at once.
    pub(crate) updates: Vec<ToolResult>,
    /// It does not finish before the end of this call was seen.
    pub(crate) after: Option<String>,
    /// It does not finish before the run is aborted.
    pub(crate) until_abort: bool,
    /// How it finishes.
    pub(crate) result: Result<ToolResult, String>,
}

impl Script {
    /// The answers of the scenario, from its beginning.
    pub(crate) fn new(setup: &Arc<Setup>) -> Self {
        Self {
            setup: Arc::clone(setup),
            keys_given: AtomicUsize::new(0),
            stops_asked: AtomicUsize::new(0),
        }
    }

    /// The transcript as the hook that transforms it leaves it.
    pub(crate) fn transform(&self, transcript: Transcript<Msg>) -> Transcript<Msg> {
        match self.setup.hooks.keep_last {
            Some(kept) => {
                let dropped = transcript.len().saturating_sub(kept);
                transcript.iter_from(dropped).cloned().collect()
            }
            None => transcript,
        }
    }

    /// The plain conversion: messages of models as they are, those of the app as the fixture says.
    pub(crate) fn convert(&self, transcript: &Transcript<Msg>) -> Messages<Message> {
        let convert = |message: &Arc<Msg>| match &**message {
            CustomMessage::Llm(message) => Some(Arc::clone(message)),
            CustomMessage::Custom(message) => {
                let is_sent = self.setup.custom_as_user.iter().any(|role| role == message.role());
                is_sent.then(|| Arc::new(message.as_user()))
            }
        };
        transcript.iter().filter_map(convert).collect()
    }

    /// The key of the next request.
    pub(crate) fn next_api_key(&self) -> Option<ApiKey> {
        let request = self.keys_given.fetch_add(1, Ordering::Relaxed);
        self.setup.hooks.api_key(request).map(ApiKey::new)
    }

    /// The answer of the hook before a call.
    pub(crate) fn before_tool_call(&self, call_id: &str) -> Result<Decision, BoxError> {
        let Some(hook) = self.setup.hooks.before_tool_call.get(call_id) else {
            return Ok(Decision::Allow);
        };
        match &hook.throw {
            Some(error) => Err(error.clone().into()),
            None if hook.block => Ok(Decision::Block {
                reason: hook.reason.clone(),
                terminate: None,
            }),
            None => Ok(Decision::Allow),
        }
    }

    /// The answer of the hook after a call.
    pub(crate) fn after_tool_call(&self, call_id: &str) -> Result<ResultPatch, BoxError> {
        let mut patch = ResultPatch::keep();
        let Some(hook) = self.setup.hooks.after_tool_call.get(call_id) else {
            return Ok(patch);
        };
        if let Some(error) = &hook.throw {
            return Err(error.clone().into());
        }
        patch.content = hook.content.as_ref().map(Vec::<Content>::deserialize).transpose()?;
        patch.details.clone_from(&hook.details);
        patch.is_error = hook.is_error;
        patch.terminate = hook.terminate;
        Ok(patch)
    }

    /// The next answer of the hook after a turn.
    pub(crate) fn next_stop(&self) -> bool {
        let Some(answers) = &self.setup.hooks.should_stop_after_turn else {
            return false;
        };
        let asked = self.stops_asked.fetch_add(1, Ordering::Relaxed);
        answers.get(asked).copied().unwrap_or(false)
    }

    /// A tool, by name; of several the first.
    fn tool(&self, name: &str) -> &Tool {
        let tool = self.setup.tools.iter().find(|tool| tool.name == name);
        tool.unwrap_or_else(|| panic!("a tool runs that the fixture does not have: {name}"))
    }

    /// What a tool makes of raw arguments before they are validated.
    pub(crate) fn prepare_arguments(&self, tool: &str, mut arguments: Map<String, Value>) -> Value {
        if let Some(rename) = &self.tool(tool).rename_argument
            && let Some(value) = arguments.shift_remove(&rename.from)
        {
            arguments.insert(rename.to.clone(), value);
        }
        Value::Object(arguments)
    }

    /// What a tool does for a call with these validated arguments.
    pub(crate) fn perform(&self, tool: &str, call_id: &str, arguments: &Value) -> Performance {
        let tool = self.tool(tool);
        let unlisted = Call::default();
        let call = tool.calls.get(call_id).unwrap_or(&unlisted);
        let result = match (&call.throw, &call.result) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(result)) => Ok(tool_result(result.clone())),
            (None, None) => Ok(tool_result(tool.plain_result(arguments))),
        };
        Performance {
            updates: call.partial_results().map(tool_result).collect(),
            after: call.after.clone(),
            until_abort: call.until_abort,
            result,
        }
    }
}

fn tool_result(json: Value) -> ToolResult {
    serde_json::from_value(json).unwrap_or_else(|error| panic!("not a tool result: {error}"))
}

/// The model of all scenarios.
pub(crate) fn model() -> Model {
    Model::new("scripted-1").with_provider("scripted", "scripted")
}

/// An event of a scripted response.
pub(crate) fn model_event(json: &Value) -> AssistantEvent {
    AssistantEvent::deserialize(json).unwrap_or_else(|error| panic!("not a model event: {error}: {json}"))
}
