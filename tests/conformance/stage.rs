//! Plays the agent for engines below it: the queues, the rule of `continue`, busy, reset, and folding the state.
//!
//! Nothing here knows in which order a run does what; that is the engine's, and what is tested.

use turnstate::{
    AgentEvent, AgentMessage, AgentState, AssistantMessage, CancellationToken, QueueKind, Queues, RequestPlan, Start,
    Transcript,
};

use crate::cast::Cast;
use crate::compare::Observed;
use crate::custom::{Msg, message, messages};
use crate::fixture::{Fixture, Request, State};
use crate::op::Op;
use crate::recorder::{Recorder, list_json};
use crate::script::model;

/// What runs prompts.
pub(crate) trait Engine {
    /// Runs from `start` to the end, and shows every event to the stage before anything else happens.
    fn run(&mut self, stage: &mut Stage<'_>, start: Start<Msg>);

    /// What the model was given, per request.
    fn requests(self) -> Vec<Request>;
}

/// The agent of a scenario, as its engine sees it.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// The scenario.
    pub(crate) fixture: &'a Fixture,
    /// Tools, hooks and their answers.
    pub(crate) cast: Cast,
    /// Where the run takes steering and follow-up messages from.
    pub(crate) queues: Queues<Msg>,
    /// Aborts the active run; a new one for each.
    pub(crate) cancel: CancellationToken,
    is_running: bool,
    state: AgentState<Msg>,
    recorder: Recorder,
}

/// Plays a scenario on an engine.
pub(crate) fn play<E: Engine>(fixture: &Fixture, mut engine: E) -> Observed {
    let mut stage = Stage::new(fixture);
    for step in &fixture.steps {
        stage.step(step, &mut engine);
    }
    let at_the_end = stage.final_state();
    stage.recorder.finish(engine.requests(), at_the_end)
}

impl<'a> Stage<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let setup = &fixture.setup;
        let cast = Cast::new(fixture);
        let queues = Queues::new();
        queues.set_mode(QueueKind::Steering, setup.steering_mode.into());
        queues.set_mode(QueueKind::FollowUp, setup.follow_up_mode.into());
        Self {
            fixture,
            recorder: Recorder::new(fixture, &cast.ends),
            cast,
            queues,
            cancel: CancellationToken::new(),
            is_running: false,
            state: AgentState::new(messages(&setup.messages).into()),
        }
    }

    /// The state as folded from the events so far.
    pub(crate) fn state(&self) -> &AgentState<Msg> {
        &self.state
    }

    /// What a run of this agent begins with.
    pub(crate) fn plan(&self) -> RequestPlan<Msg> {
        let setup = &self.fixture.setup;
        let mut plan = RequestPlan::new(model());
        plan.system_prompt = setup.system_prompt.as_deref().unwrap_or_default().into();
        plan.tools = self.cast.tools.clone();
        plan.execution_mode = setup.tool_execution.into();
        plan.transcript = self.state.transcript().clone();
        plan
    }

    /// The engine shows an event, and the partial message right after it.
    pub(crate) fn observe(&mut self, event: &AgentEvent<Msg>, partial: Option<&AssistantMessage>) {
        self.state.apply(event);
        if let AgentEvent::MessageUpdate { .. } = event {
            // The engine's fold of the answer and the state's are the same (I5, I7).
            assert_eq!(self.state.partial(), partial);
        }
        for operation in self.recorder.event(event, partial) {
            self.operate(&operation);
        }
    }

    fn step(&mut self, step: &Op, engine: &mut impl Engine) {
        let seen_before = self.recorder.seen();
        let accepted = match step {
            Op::Prompt(prompt) => {
                let prompt = messages(&prompt.messages());
                let start = (!prompt.is_empty()).then_some(Start::Prompt(prompt));
                self.start(start, engine)
            }
            Op::Continue => {
                let start = self.to_continue();
                self.start(start, engine)
            }
            Op::Reset => {
                self.reset();
                true
            }
            operation => return self.operate(operation),
        };
        self.recorder.step_outcome(accepted, seen_before);
    }

    /// Runs, unless there is nothing to begin with.
    fn start(&mut self, start: Option<Start<Msg>>, engine: &mut impl Engine) -> bool {
        let Some(start) = start else {
            return false;
        };
        self.cancel = CancellationToken::new();
        self.is_running = true;
        engine.run(self, start);
        self.is_running = false;
        true
    }

    /// What a `continue` begins with: what the transcript ends with, or what is queued behind an answer.
    fn to_continue(&self) -> Option<Start<Msg>> {
        if self.state.transcript().last()?.role() != "assistant" {
            return Some(Start::Continue);
        }
        let queues = [QueueKind::Steering, QueueKind::FollowUp];
        let mut leases = queues.into_iter().map(|queue| self.queues.lease(queue));
        leases.find(|lease| !lease.is_empty()).map(Start::Queued)
    }

    fn reset(&mut self) {
        self.state = AgentState::new(Transcript::new());
        self.queues.clear(QueueKind::Steering);
        self.queues.clear(QueueKind::FollowUp);
    }

    fn final_state(&self) -> State {
        let state = &self.state;
        State {
            messages: list_json(state.transcript()),
            is_streaming: self.is_running,
            streaming: state.streaming_message().is_some(),
            pending_tool_calls: state.pending_tool_calls().map(|(_, call)| call.id.clone()).collect(),
            error_message: state.error_message().map(ToOwned::to_owned),
        }
    }

    /// What can be done at any time.
    fn operate(&mut self, operation: &Op) {
        let queue = |kind, json| {
            // Who will see it is not part of the scenarios.
            let _ = self.queues.push(kind, message(json));
        };
        match operation {
            Op::Steer(json) => queue(QueueKind::Steering, json),
            Op::FollowUp(json) => queue(QueueKind::FollowUp, json),
            Op::Abort => self.cancel.cancel(),
            Op::ClearSteering => drop(self.queues.clear(QueueKind::Steering)),
            Op::ClearFollowUps => drop(self.queues.clear(QueueKind::FollowUp)),
            Op::SetSteeringMode(mode) => self.queues.set_mode(QueueKind::Steering, (*mode).into()),
            // Busy: an event is seen, so a run is active.
            Op::Prompt(_) => self.recorder.nested_outcome(!self.is_running),
            Op::Continue | Op::Reset => unreachable!("the format has them as steps only"),
        }
    }
}
