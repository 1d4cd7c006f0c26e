//! The machine driven by hand: one function per phase, purely synchronous.
//!
//! Each tells the events of its phase, finds out what the phase asks for, and goes on with the phase it is given. What
//! comes when is the machine's to say.

use std::ops::ControlFlow;
use std::slice;

use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AnswerEnd, AwaitingSteering, Ended, ExecutingTools,
    ExecutionMode, FollowUp, Limits, PreflightCall, Requesting, RunningCall, Streaming, ToolAction, TurnEnd,
};
use turnstate::schema::ValidatedArguments;
use turnstate::{
    AgentEvent, AssistantEvent, AssistantMessage, Decision, Lease, QueueKind, RequestPlan, RunTicket, Start, ToolResult,
};

use crate::check_engine;
use crate::compare::Observed;
use crate::custom::Msg;
use crate::fixture::{Fixture, ModelItem, Request};
use crate::recorder::request;
use crate::script::{Performance, model_event};
use crate::stage::{Engine, Stage, play};

/// The time at which everything happens.
const NOW: u64 = 0;

/// The machine's engine: a scripted model, and what it was given.
struct ByHand<'a> {
    responses: slice::Iter<'a, Vec<ModelItem>>,
    requests: Vec<Request>,
}

impl Engine for ByHand<'_> {
    fn run(&mut self, stage: &mut Stage<'_>, start: Start<Msg>) {
        let plan = stage.plan();
        let (transcript, limits) = (plan.transcript.clone(), Limits::default());
        let mut lease = None;
        let begun = match start {
            Start::Prompt(messages) => AwaitingSteering::prompt(transcript, messages, limits),
            Start::Continue => AwaitingSteering::resume(transcript, limits),
            Start::Queued(queued) => {
                let (messages, from) = (queued.messages(), queued.kind());
                lease = Some(queued);
                AwaitingSteering::queued(transcript, messages, from, limits)
            }
            other => unreachable!("no start of the stage: {other:?}"),
        };
        let ticket = stage.queues.open_run();
        let mut run = Run {
            engine: self,
            stage,
            plan,
            ticket,
            lease,
        };
        let ended = run.until_ended(begun);
        run.end(ended);
    }

    fn requests(self) -> Vec<Request> {
        self.requests
    }
}

/// Where a run stands.
enum Phase {
    AwaitingSteering(AwaitingSteering<Msg>),
    Requesting(Requesting<Msg>),
    Streaming(Streaming<Msg>),
    ExecutingTools(ExecutingTools<Msg>),
    TurnEnd(TurnEnd<Msg>),
    FollowUp(FollowUp<Msg>),
    Ended(Ended<Msg>),
}

/// A run, and everything it asks.
struct Run<'r, 'f, 's> {
    engine: &'r mut ByHand<'f>,
    stage: &'r mut Stage<'s>,
    plan: RequestPlan<Msg>,
    ticket: RunTicket<Msg>,
    lease: Option<Lease<Msg>>,
}

impl Run<'_, '_, '_> {
    fn until_ended(&mut self, begun: AwaitingSteering<Msg>) -> Ended<Msg> {
        let mut phase = Phase::AwaitingSteering(begun);
        loop {
            phase = match phase {
                Phase::AwaitingSteering(state) => self.await_steering(state),
                Phase::Requesting(state) => self.request(state),
                Phase::Streaming(state) => self.stream(state),
                Phase::ExecutingTools(state) => self.execute(state),
                Phase::TurnEnd(state) => self.end_turn(state),
                Phase::FollowUp(state) => self.follow_up(state),
                Phase::Ended(state) => return state,
            };
        }
    }

    fn is_aborted(&self) -> bool {
        self.stage.cancel.is_cancelled()
    }

    /// Tells an event: what came from a queue is committed by its end, and what was not is returned before the run is over.
    fn tell(&mut self, event: &AgentEvent<Msg>, partial: Option<&AssistantMessage>) {
        match (event, &mut self.lease) {
            (AgentEvent::MessageEnd { message }, Some(lease)) => {
                lease.commit(message);
            }
            (AgentEvent::AgentEnd { .. }, lease) => *lease = None,
            _ => {}
        }
        self.stage.observe(event, partial);
    }

    /// Tells all a phase has to tell.
    fn tell_all(&mut self, mut next: impl FnMut() -> Option<AgentEvent<Msg>>) {
        while let Some(event) = next() {
            self.tell(&event, None);
        }
    }

    /// Tells what a phase has to tell, as long as the run is not aborted: what came from a queue is not told then.
    fn tell_until_aborted(&mut self, mut next: impl FnMut() -> Option<AgentEvent<Msg>>) {
        while !self.is_aborted()
            && let Some(event) = next()
        {
            self.tell(&event, None);
        }
    }

    fn await_steering(&mut self, mut state: AwaitingSteering<Msg>) -> Phase {
        self.tell_until_aborted(|| state.poll_event());
        if self.is_aborted() {
            return Phase::Ended(state.abort(&self.plan.model, NOW));
        }
        let messages = if state.wants_steering() {
            let lease = self.ticket.lease(QueueKind::Steering);
            self.lease.insert(lease).messages()
        } else {
            Vec::new()
        };
        match state.handle_steering(messages) {
            AfterSteering::Requesting(state) => Phase::Requesting(state),
            AfterSteering::FollowUp(state) => Phase::FollowUp(state),
        }
    }

    fn request(&mut self, mut state: Requesting<Msg>) -> Phase {
        self.tell_until_aborted(|| state.poll_event());
        if self.is_aborted() {
            return Phase::Ended(state.abort(&self.plan.model, NOW));
        }
        let script = &self.stage.cast.script;
        let messages = script.convert(&script.transform(state.transcript().clone()));
        let key = script.next_api_key();
        let plan = &self.plan;
        let request = request(&plan.system_prompt, &messages, &plan.tools, key.as_ref());
        self.engine.requests.push(request);
        Phase::Streaming(state.stream(&plan.model, NOW))
    }

    fn stream(&mut self, mut state: Streaming<Msg>) -> Phase {
        self.tell_all(|| state.poll_event());
        let end = self.answer(&mut state);
        match state.finish(end, NOW) {
            AfterAnswer::ExecutingTools(state) => Phase::ExecutingTools(state),
            AfterAnswer::TurnEnd(state) => Phase::TurnEnd(state),
            AfterAnswer::Ended(state) => Phase::Ended(state),
        }
    }

    /// Plays the next response, up to its end.
    fn answer(&mut self, state: &mut Streaming<Msg>) -> AnswerEnd {
        let Some(response) = self.engine.responses.next() else {
            return AnswerEnd::failed("script exhausted");
        };
        for item in response {
            if self.is_aborted() {
                return AnswerEnd::aborted();
            }
            match item {
                ModelItem::WaitAbort => panic!("the run hangs: its model waits for an abort, and nobody aborts it"),
                ModelItem::Event(event) => match self.take(state, model_event(event)) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(end) => return end,
                },
            }
        }
        if self.is_aborted() {
            AnswerEnd::aborted()
        } else {
            AnswerEnd::cut()
        }
    }

    fn take(&mut self, state: &mut Streaming<Msg>, event: AssistantEvent) -> ControlFlow<AnswerEnd> {
        if let Some(event) = state.handle(event)? {
            self.tell(&event, state.partial());
        }
        ControlFlow::Continue(())
    }

    fn execute(&mut self, state: ExecutingTools<Msg>) -> Phase {
        let mode = self.execution_mode(&state);
        let mut state = state.with_mode(mode, None);
        let mut running = Vec::new();
        loop {
            self.tell_all(|| state.poll_event());
            if self.is_aborted() && !state.is_aborted() {
                state.abort(NOW);
                self.last_chance(&mut state, &mut running);
                continue;
            }
            match state.poll_action() {
                ToolAction::Tell => {}
                ToolAction::Preflight(call) => self.preflight(&mut state, call),
                ToolAction::Execute(call) => {
                    let (call, arguments) = call.start();
                    running.push(self.start(&mut state, call, &arguments));
                }
                ToolAction::Wait => match running.iter().position(|task| self.may_finish(task)) {
                    Some(ready) => self.complete(&mut state, running.remove(ready)),
                    None if state.is_aborted() => break,
                    None => panic!("the run hangs: none of its tools can finish: {running:?}"),
                },
                ToolAction::Finish => break,
            }
        }
        Phase::TurnEnd(state.finish(NOW))
    }

    /// The mode of a batch is a choice of whoever has the tools.
    fn execution_mode(&self, state: &ExecutingTools<Msg>) -> ExecutionMode {
        let tools = state.calls().filter_map(|call| self.plan.tools.find(&call.name));
        let mut modes = tools.filter_map(|tool| tool.execution_mode());
        modes
            .find(|mode| *mode == ExecutionMode::Sequential)
            .unwrap_or(self.plan.execution_mode)
    }

    fn preflight(&mut self, state: &mut ExecutingTools<Msg>, call: PreflightCall) {
        match self.check(&call) {
            Ok(arguments) => state.allow(call, arguments),
            Err(error) => state.reject(call, ToolResult::error(error), NOW),
        }
    }

    /// Whether a call may run; if not, why.
    fn check(&self, call: &PreflightCall) -> Result<ValidatedArguments, String> {
        let call = call.call();
        let Some(tool) = self.plan.tools.find(&call.name) else {
            return Err(format!("Tool {} not found", call.name));
        };
        if let Some(error) = &call.arguments_error {
            return Err(format!("Tool call was not executed: {error}"));
        }
        let script = &self.stage.cast.script;
        let prepared = script.prepare_arguments(&call.name, call.arguments.clone());
        let arguments = tool.schema().check(&call.name, &call.arguments, prepared);
        let arguments = arguments.map_err(|error| error.to_string())?;
        match script.before_tool_call(&call.id) {
            Ok(Decision::Allow) => Ok(arguments),
            Ok(Decision::Block { reason, .. }) => {
                Err(reason.unwrap_or_else(|| "Tool execution was blocked".to_owned()))
            }
            Ok(other) => unreachable!("no decision of the format: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Starts a call, which reports all its progress at once.
    fn start(&mut self, state: &mut ExecutingTools<Msg>, call: RunningCall, arguments: &ValidatedArguments) -> Task {
        let (tool, id) = (&call.call().name, &call.call().id);
        let mut performance = self.stage.cast.script.perform(tool, id, arguments.as_value());
        for update in performance.updates.drain(..) {
            state.update(call.index(), update);
        }
        Task { call, performance }
    }

    fn may_finish(&self, task: &Task) -> bool {
        let Performance { after, until_abort, .. } = &task.performance;
        let awaited = after.as_ref();
        awaited.is_none_or(|call_id| self.stage.cast.ends.has(call_id)) && (!until_abort || self.is_aborted())
    }

    fn complete(&mut self, state: &mut ExecutingTools<Msg>, Task { call, performance }: Task) {
        let result = match performance.result {
            Ok(result) => result,
            Err(error) => ToolResult::error(error),
        };
        let result = match self.stage.cast.script.after_tool_call(&call.call().id) {
            Ok(patch) => patch.apply(result),
            Err(error) => ToolResult::error(error.to_string()),
        };
        state.complete(call, result, NOW);
    }

    /// The run is aborted: tools that can finish now do, the others are given up.
    fn last_chance(&mut self, state: &mut ExecutingTools<Msg>, running: &mut Vec<Task>) {
        let (ready, _given_up): (Vec<_>, Vec<_>) = running.drain(..).partition(|task| self.may_finish(task));
        for task in ready {
            self.complete(state, task);
        }
    }

    fn end_turn(&mut self, mut state: TurnEnd<Msg>) -> Phase {
        self.tell_all(|| state.poll_event());
        if self.is_aborted() {
            return Phase::Ended(state.abort(&self.plan.model, NOW));
        }
        match state.handle_stop(self.stage.cast.script.next_stop()) {
            AfterTurn::AwaitingSteering(state) => Phase::AwaitingSteering(state),
            AfterTurn::Ended(state) => Phase::Ended(state),
            AfterTurn::AtLimit(_) => unreachable!("the run has no limit"),
        }
    }

    fn follow_up(&mut self, mut state: FollowUp<Msg>) -> Phase {
        self.tell_all(|| state.poll_event());
        if self.is_aborted() {
            return Phase::Ended(state.abort(&self.plan.model, NOW));
        }
        let lease = self.ticket.last_look();
        match state.handle_messages(self.lease.insert(lease).messages()) {
            AfterFollowUp::Requesting(state) => Phase::Requesting(state),
            AfterFollowUp::Ended(state) => Phase::Ended(state),
        }
    }

    fn end(mut self, mut state: Ended<Msg>) {
        self.ticket.close();
        self.tell_all(|| state.poll_event());
        let (transcript, _) = state.into_parts();
        // The machine's own transcript and the one folded from its events (I5).
        assert_eq!(&transcript, self.stage.state().transcript());
    }
}

/// A call that runs.
#[derive(Debug)]
struct Task {
    call: RunningCall,
    performance: Performance,
}

/// Plays a scenario.
pub(crate) fn run(fixture: &Fixture) -> Observed {
    let by_hand = ByHand {
        responses: fixture.responses.iter(),
        requests: Vec::new(),
    };
    play(fixture, by_hand)
}

#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn conformance_machine() {
    check_engine(run).unwrap_or_else(|report| panic!("{report}"));
}
