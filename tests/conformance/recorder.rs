//! Writes down what is seen of an engine, and tells what the user does at it.

use serde::Serialize;
use serde_json::Value;
use turnstate::{AgentEvent, ApiKey, AssistantMessage, Message, Messages, ToolSet};

use crate::cast::Ends;
use crate::compare::{Observed, Outcome};
use crate::custom::Msg;
use crate::fixture::{Fixture, Request, State};
use crate::op::{EventKind, Op, TriggerLog};

/// The record of a scenario.
#[derive(Debug)]
pub(crate) struct Recorder {
    triggers: TriggerLog,
    ends: Ends,
    events: Vec<Value>,
    outcomes: Vec<Outcome>,
}

impl Recorder {
    /// A record of nothing yet; `ends` are the calls whose end it saw.
    pub(crate) fn new(fixture: &Fixture, ends: &Ends) -> Self {
        Self {
            triggers: TriggerLog::new(&fixture.triggers),
            ends: ends.clone(),
            events: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// How many events were seen.
    pub(crate) fn seen(&self) -> usize {
        self.events.len()
    }

    /// An event is seen, and the partial message right after it. The operations are to be done before anything else.
    pub(crate) fn event(&mut self, event: &AgentEvent<Msg>, partial: Option<&AssistantMessage>) -> Vec<Op> {
        if let AgentEvent::ToolExecutionEnd { call, .. } = event {
            self.ends.saw(&call.id);
        }
        let json = to_json(&event.json(partial));
        let kind = EventKind::of(&json).unwrap_or_else(|| panic!("no event of the format: {json}"));
        self.events.push(json);
        self.triggers.observe(kind)
    }

    /// What came of a step, given the number of events seen before it.
    pub(crate) fn step_outcome(&mut self, accepted: bool, seen_before: usize) {
        self.outcomes.push(Outcome {
            nested: false,
            accepted,
            events: self.seen() - seen_before,
        });
    }

    /// What came of the prompt of a trigger.
    pub(crate) fn nested_outcome(&mut self, accepted: bool) {
        self.outcomes.push(Outcome {
            nested: true,
            accepted,
            events: 0,
        });
    }

    /// All that was seen, at the end of the scenario.
    pub(crate) fn finish(&mut self, requests: Vec<Request>, state: State) -> Observed {
        Observed {
            events: std::mem::take(&mut self.events),
            requests,
            outcomes: std::mem::take(&mut self.outcomes),
            state,
        }
    }
}

/// The model requests of a scripted model, as the fixtures have them.
pub(crate) fn recorded(requests: &[turnstate::Request]) -> Vec<Request> {
    let recorded = |made: &turnstate::Request| {
        let key = made.api_key.as_ref();
        request(&made.system_prompt, &made.messages, &made.tools, key)
    };
    requests.iter().map(recorded).collect()
}

/// What a model request was given.
pub(crate) fn request(
    system_prompt: &str,
    messages: &Messages<Message>,
    tools: &ToolSet,
    api_key: Option<&ApiKey>,
) -> Request {
    Request {
        system_prompt: system_prompt.to_owned(),
        messages: list_json(messages),
        tools: tools.iter().map(|tool| tool.name().to_owned()).collect(),
        api_key: api_key.map(|key| key.expose().to_owned()),
    }
}

/// Messages of whatever kind, one by one.
pub(crate) fn list_json<T: Serialize>(messages: &Messages<T>) -> Vec<Value> {
    messages.iter().map(|message| to_json(&**message)).collect()
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| panic!("cannot be written as JSON: {error}"))
}
