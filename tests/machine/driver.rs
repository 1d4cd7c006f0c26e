//! A driver of the machine, as a program without a loop would write it.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AnswerEnd, AwaitingSteering, Ended, ExecutingTools,
    ExecutionMode, PreflightCall, RunEnd, RunningCall, Streaming, ToolAction,
};
use turnstate::{
    AgentEvent, AgentState, AssistantEvent, AssistantMessage, Message, Messages, Model, ToolResult, Transcript,
};

use crate::invariants::check_run;
use crate::phase::{Phase, in_phase};
use crate::words::{line, no_arguments};

/// More steps than any run of these tests has (I2).
const TOO_MANY: usize = 5_000;
const NOW: u64 = 7;

/// What answers the machine: a script, or chance.
pub(crate) trait World {
    /// An event was told.
    fn hear(&mut self, event: &AgentEvent);

    /// Whether to abort now, before anything else happens.
    fn aborts(&mut self) -> bool {
        false
    }
    /// Whether to leave the phase although it has events to tell.
    fn lags(&mut self) -> bool {
        false
    }
    /// Whether a hook fails.
    fn fails(&mut self, phase: &'static str) -> bool {
        let _ = phase;
        false
    }
    fn steering(&mut self) -> Vec<Arc<Message>>;
    fn follow_ups(&mut self) -> Vec<Arc<Message>>;
    /// Whether anything is queued when no further turn may begin.
    fn queued(&mut self) -> bool;
    /// A request was made.
    fn request(&mut self, transcript: &Transcript<Message>);
    /// The next event of the answer; `None` if the stream has ended.
    fn model(&mut self) -> Option<AssistantEvent>;
    fn stops(&mut self) -> bool {
        false
    }
    fn mode(&mut self) -> (ExecutionMode, Option<NonZeroUsize>);
    /// The result of a call that is not run.
    fn rejects(&mut self, call: &PreflightCall) -> Option<ToolResult>;
    fn starts(&mut self, call: &RunningCall);
    /// What the tools do next. `None` if they will not do anything more.
    fn tools(&mut self, running: &[RunningCall], aborted: bool) -> Option<Progress>;
}

/// What one of the running tools does.
pub(crate) enum Progress {
    /// The call at this position of the batch reports, whether it runs or not.
    Update(usize),
    /// The call at this place of the list completes.
    Complete(usize, ToolResult),
}

/// A run that is over.
pub(crate) struct Over {
    pub(crate) told: Vec<AgentEvent>,
    pub(crate) end: RunEnd,
    pub(crate) transcript: Transcript<Message>,
    pub(crate) added: Messages<Message>,
}

impl Over {
    pub(crate) fn line(&self) -> String {
        line(&self.told)
    }

    /// The last answer.
    pub(crate) fn answer(&self) -> &AssistantMessage {
        let answers = self.added.iter().filter_map(|message| message.as_assistant());
        answers.last().expect("a run has an answer")
    }
}

/// Drives a run to its end, and checks on the way what holds for every run (I1, I2, I3, I5, I6).
pub(crate) fn drive<W: World>(world: &mut W, run: AwaitingSteering<Message>) -> Over {
    let mut driver = Driver {
        world,
        state: AgentState::new(run.transcript().clone()),
        told: Vec::new(),
        running: Vec::new(),
        aborted: false,
        lagged: false,
    };
    let before = run.transcript().clone();
    let mut phase = Phase::AwaitingSteering(run);
    for _ in 0..TOO_MANY {
        phase = match driver.step(phase) {
            ControlFlow::Continue(phase) => phase,
            ControlFlow::Break(ended) => return driver.over(&before, ended),
        };
    }
    panic!("the run does not end (I2): {}", line(&driver.told))
}

struct Driver<'a, W> {
    world: &'a mut W,
    /// Folds what is told (I5).
    state: AgentState<Message>,
    told: Vec<AgentEvent>,
    running: Vec<RunningCall>,
    aborted: bool,
    /// A phase was left before all was told: until that is made up for, the transcript is ahead of the events.
    lagged: bool,
}

impl<W: World> Driver<'_, W> {
    fn step(&mut self, mut phase: Phase) -> ControlFlow<Ended<Message>, Phase> {
        if !self.aborted && !matches!(phase, Phase::Ended(_)) && self.world.aborts() {
            self.aborted = true;
            return ControlFlow::Continue(self.abort(phase));
        }
        let may_lag = !matches!(phase, Phase::Ended(_));
        if may_lag && self.world.lags() {
            self.lagged = true;
        } else if let Some(event) = in_phase!(&mut phase, state => state.poll_event()) {
            self.tell(event);
            if !self.lagged {
                self.check_state(&phase);
            }
            return ControlFlow::Continue(phase);
        } else {
            self.lagged = false;
            self.check_state(&phase);
        }
        self.leave(phase)
    }

    fn leave(&mut self, phase: Phase) -> ControlFlow<Ended<Message>, Phase> {
        ControlFlow::Continue(match phase {
            Phase::Ended(ended) => return ControlFlow::Break(ended),
            phase if self.aborted && !matches!(phase, Phase::ExecutingTools(_)) => self.abort(phase),
            Phase::AwaitingSteering(state) => {
                let messages = if state.wants_steering() {
                    self.world.steering()
                } else {
                    Vec::new()
                };
                match state.handle_steering(messages) {
                    AfterSteering::Requesting(state) => Phase::Requesting(state),
                    AfterSteering::FollowUp(state) => Phase::FollowUp(state),
                }
            }
            Phase::FollowUp(state) => match state.handle_messages(self.world.follow_ups()) {
                AfterFollowUp::Requesting(state) => Phase::Requesting(state),
                AfterFollowUp::Ended(state) => Phase::Ended(state),
            },
            Phase::Requesting(state) => {
                if self.world.fails("requesting") {
                    return ControlFlow::Continue(Phase::Ended(state.fail(&model(), "hook".into(), NOW)));
                }
                self.world.request(state.transcript());
                Phase::Streaming(Box::new(state.stream(&model(), NOW)))
            }
            Phase::Streaming(state) => self.stream(state),
            Phase::ExecutingTools(state) => self.execute(state),
            Phase::TurnEnd(state) => {
                if self.world.fails("turn_end") {
                    return ControlFlow::Continue(Phase::Ended(state.fail(&model(), "hook".into(), NOW)));
                }
                match state.handle_stop(self.world.stops()) {
                    AfterTurn::AwaitingSteering(state) => Phase::AwaitingSteering(state),
                    AfterTurn::AtLimit(state) => Phase::AtLimit(state),
                    AfterTurn::Ended(state) => Phase::Ended(state),
                }
            }
            Phase::AtLimit(state) => Phase::Ended(state.handle_queued(self.world.queued())),
        })
    }

    fn stream(&mut self, mut state: Box<Streaming<Message>>) -> Phase {
        let end = match self.world.model().map(|event| state.handle(event)) {
            None => AnswerEnd::cut(),
            Some(ControlFlow::Break(end)) => end,
            Some(ControlFlow::Continue(event)) => {
                if let Some(event) = event {
                    self.tell(event);
                }
                return Phase::Streaming(state);
            }
        };
        self.finish(*state, end)
    }

    fn finish(&mut self, state: Streaming<Message>, end: AnswerEnd) -> Phase {
        match state.finish(end, NOW) {
            AfterAnswer::ExecutingTools(state) => {
                let (mode, cap) = self.world.mode();
                Phase::ExecutingTools(Box::new(state.with_mode(mode, cap)))
            }
            AfterAnswer::TurnEnd(state) => Phase::TurnEnd(state),
            AfterAnswer::Ended(state) => Phase::Ended(state),
        }
    }

    fn execute(&mut self, mut state: Box<ExecutingTools<Message>>) -> Phase {
        match state.poll_action() {
            ToolAction::Tell => match state.poll_event() {
                Some(event) => self.tell(event),
                None => panic!("there is nothing to tell: {}", line(&self.told)),
            },
            ToolAction::Preflight(call) => {
                assert!(!self.aborted, "no call is handed out after an abort (I6)");
                match self.world.rejects(&call) {
                    Some(result) => state.reject(call, result, NOW),
                    None => state.allow(call, no_arguments()),
                }
            }
            ToolAction::Execute(call) => {
                assert!(!self.aborted, "no call is handed out after an abort (I6)");
                let (running, _) = call.start();
                self.world.starts(&running);
                self.running.push(running);
            }
            ToolAction::Wait => match self.world.tools(&self.running, self.aborted) {
                Some(Progress::Update(index)) => {
                    let runs = self.running.iter().any(|call| call.index() == index);
                    assert_eq!(
                        state.update(index, ToolResult::text("..")),
                        runs,
                        "late news is no news"
                    );
                }
                Some(Progress::Complete(place, result)) => state.complete(self.running.remove(place), result, NOW),
                None => return self.end_batch(*state),
            },
            ToolAction::Finish => return self.end_batch(*state),
        }
        Phase::ExecutingTools(state)
    }

    fn end_batch(&mut self, state: ExecutingTools<Message>) -> Phase {
        self.running.clear();
        Phase::TurnEnd(state.finish(NOW))
    }

    fn abort(&mut self, phase: Phase) -> Phase {
        Phase::Ended(match phase {
            Phase::AwaitingSteering(state) => state.abort(&model(), NOW),
            Phase::Requesting(state) => state.abort(&model(), NOW),
            Phase::TurnEnd(state) => state.abort(&model(), NOW),
            Phase::AtLimit(state) => state.abort(&model(), NOW),
            Phase::FollowUp(state) => state.abort(&model(), NOW),
            Phase::Ended(state) => state,
            Phase::Streaming(state) => return self.finish(*state, AnswerEnd::aborted()),
            Phase::ExecutingTools(mut state) => {
                state.abort(NOW);
                return Phase::ExecutingTools(state);
            }
        })
    }

    fn tell(&mut self, event: AgentEvent) {
        self.state.apply(&event);
        self.world.hear(&event);
        self.told.push(event);
    }

    fn check_state(&self, phase: &Phase) {
        let transcript = in_phase!(phase, state => state.transcript());
        assert_eq!(self.state.transcript(), transcript, "I5 after {}", line(&self.told));
        if let Phase::Streaming(state) = phase {
            assert_eq!(
                self.state.partial(),
                state.partial(),
                "I5, I7 after {}",
                line(&self.told)
            );
        }
    }

    fn over(self, before: &Transcript<Message>, ended: Ended<Message>) -> Over {
        let end = ended.end();
        let (transcript, added) = ended.into_parts();
        assert_eq!(
            self.state.transcript(),
            &transcript,
            "I5 at the end of {}",
            line(&self.told)
        );
        assert_eq!(self.state.pending_tool_calls().count(), 0);
        assert_eq!(self.state.streaming_message(), None);
        check_run(&self.told, before, &transcript);
        Over {
            told: self.told,
            end,
            transcript,
            added,
        }
    }
}

pub(crate) fn model() -> Model {
    Model::new("m")
}
