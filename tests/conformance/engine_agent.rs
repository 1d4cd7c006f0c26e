//! The agent itself.
//!
//! It is watched, and operated, from a listener: only there is a run still active at its last event.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use turnstate::{
    Agent, AgentBuilder, AgentEvent, AssistantMessage, ImageContent, QueueKind, Run, ScriptedModel, StartError,
};

use crate::cast::{Cast, scripted_model};
use crate::check_engine;
use crate::compare::Observed;
use crate::custom::{Msg, message, messages};
use crate::drive::Poller;
use crate::fixture::{Fixture, State};
use crate::op::{Op, Prompt};
use crate::recorder::{Recorder, list_json, recorded};
use crate::script::model;

/// The record, shared with the listener.
#[derive(Clone)]
struct Watch(Arc<Mutex<Recorder>>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listener: what it does at the event is done without a lock.
    fn observe(&self, agent: &Agent<Msg>, event: &AgentEvent<Msg>, partial: Option<&AssistantMessage>) {
        let operations = self.lock().event(event, partial);
        for operation in operations {
            match operation {
                Op::Prompt(prompt) => {
                    let accepted = begin(agent, &prompt).is_ok();
                    self.lock().nested_outcome(accepted);
                }
                operation => operate(agent, &operation),
            }
        }
    }
}

fn build(fixture: &Fixture, cast: &Cast, model_fn: ScriptedModel) -> Agent<Msg> {
    let setup = &fixture.setup;
    let builder = AgentBuilder::new(model(), model_fn)
        .system_prompt(setup.system_prompt.as_deref().unwrap_or_default())
        .transcript(messages(&setup.messages))
        .execution_mode(setup.tool_execution.into())
        .steering_mode(setup.steering_mode.into())
        .follow_up_mode(setup.follow_up_mode.into())
        .hooks(cast.hooks())
        .clock(|| 0);
    let tools = cast.tools.iter();
    tools
        .fold(builder, |builder, tool| builder.shared_tool(Arc::clone(tool.tool())))
        .build()
}

fn begin(agent: &Agent<Msg>, prompt: &Prompt) -> Result<Run<Msg>, StartError> {
    match prompt {
        Prompt::Text { text, images } if images.is_empty() => agent.prompt(text.as_str()),
        Prompt::Text { text, images } => agent.prompt((text.as_str(), images.iter().map(image).collect::<Vec<_>>())),
        Prompt::Messages(list) => agent.prompt(messages(list)),
    }
}

fn image(json: &serde_json::Value) -> ImageContent {
    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("not an image: {error}: {json}"))
}

/// What can be done at any time.
fn operate(agent: &Agent<Msg>, operation: &Op) {
    match operation {
        Op::Steer(json) => {
            agent.steer(message(json));
        }
        Op::FollowUp(json) => {
            agent.follow_up(message(json));
        }
        Op::Abort => agent.abort(),
        Op::ClearSteering => drop(agent.clear_queue(QueueKind::Steering)),
        Op::ClearFollowUps => drop(agent.clear_queue(QueueKind::FollowUp)),
        Op::SetSteeringMode(mode) => agent.set_queue_mode(QueueKind::Steering, (*mode).into()),
        Op::Prompt(_) | Op::Continue | Op::Reset => unreachable!("these have an outcome"),
    }
}

/// Drives a run to its end, and says whether it was begun at all.
fn drive(run: Result<Run<Msg>, StartError>) -> bool {
    let Ok(mut run) = run else {
        return false;
    };
    let mut poller = Poller::default();
    while poller.next(Pin::new(&mut run)).is_some() {}
    // A listener's panic is isolated from its run, but is a failure of the scenario.
    let outcome = run.into_future().now_or_never().unwrap();
    assert_eq!(outcome.listener_errors, []);
    true
}

fn step(agent: &Agent<Msg>, watch: &Watch, step: &Op) {
    let seen_before = watch.lock().seen();
    let accepted = match step {
        Op::Prompt(prompt) => drive(begin(agent, prompt)),
        Op::Continue => drive(agent.continue_run()),
        Op::Reset => agent.reset().is_ok(),
        operation => return operate(agent, operation),
    };
    watch.lock().step_outcome(accepted, seen_before);
}

fn final_state(agent: &Agent<Msg>) -> State {
    let pending = agent.pending_tool_calls();
    State {
        messages: list_json(&agent.transcript()),
        is_streaming: agent.is_streaming(),
        streaming: agent.streaming_message().is_some(),
        pending_tool_calls: pending.iter().map(|call| call.id.clone()).collect(),
        error_message: agent.error_message(),
    }
}

/// Plays a scenario.
pub(crate) fn run(fixture: &Fixture) -> Observed {
    let (cast, model_fn) = (Cast::new(fixture), scripted_model(fixture));
    let agent = build(fixture, &cast, model_fn.clone());
    let watch = Watch(Arc::new(Mutex::new(Recorder::new(fixture, &cast.ends))));
    let listener = watch.clone();
    agent.subscribe(move |event, cx| listener.observe(&cx.agent(), event, cx.partial()));
    for operation in &fixture.steps {
        step(&agent, &watch, operation);
    }
    watch.lock().finish(recorded(&model_fn.requests()), final_state(&agent))
}

#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn conformance_agent() {
    check_engine(run).unwrap_or_else(|report| panic!("{report}"));
}
