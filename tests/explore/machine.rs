//! The machine with the queues, driven by hand: whatever the model, the tools and the hooks answer, and whenever
//! somebody pushes a message or aborts. An event is told per move, so that all else may come between any two.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AnswerEnd, AwaitingSteering, ExecutingTools, ExecutionMode,
    Limits, PreflightCall, Requesting, RunningCall, Streaming, ToolAction,
};
use turnstate::{
    AgentEvent, AgentState, AssistantEvent, DoneReason, Lease, Message, Model, QueueKind, QueueMode, Queues, RunTicket,
    ToolResult, Transcript,
};

use crate::explorer::{World, ensure};
use crate::phase::{Phase, in_phase};
use crate::pushed::{KINDS, Pushed, outline};
use crate::rules::{Nesting, sendable};
use crate::words::{calls_then, no_arguments, text, user, word};

const NOW: u64 = 7;

/// What differs from one exploration to another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scope {
    pub(crate) mode: ExecutionMode,
    pub(crate) queues: QueueMode,
    /// How many messages may be pushed to each queue.
    pub(crate) messages: usize,
    /// How many answers may call the tools; the others are texts.
    pub(crate) calling: usize,
    /// How often a call may report.
    pub(crate) updates: usize,
    pub(crate) limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    Text,
    /// Two calls.
    Calls,
    /// Two calls, cut by the output limit.
    Truncated,
    Failed,
    /// The stream ends without saying how.
    Cut,
}

#[derive(Debug, Clone)]
pub(crate) enum Move {
    Push(QueueKind),
    Abort,
    /// The next event is told; if there is none, the one thing happens that can.
    Go,
    /// The request is sent, and this is what will be streamed.
    Request(Answer),
    HookFails,
    Allow,
    Reject,
    /// The call at this position reports, whether it runs or not.
    Update(usize),
    /// The running call at this place gives its result, which may ask to terminate.
    Complete(usize, bool),
    /// What still runs after an abort is given up.
    GiveUp,
    Stop(bool),
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::AwaitingSteering(_) => "AwaitingSteering",
            Self::Requesting(_) => "Requesting",
            Self::Streaming(_) => "Streaming",
            Self::ExecutingTools(_) => "ExecutingTools",
            Self::TurnEnd(_) => "TurnEnd",
            Self::AtLimit(_) => "AtLimit",
            Self::FollowUp(_) => "FollowUp",
            Self::Ended(_) => "Ended",
        }
    }

    fn transcript(&self) -> &Transcript<Message> {
        in_phase!(self, state => state.transcript())
    }

    /// What it would tell now.
    fn untold(&self) -> Vec<AgentEvent> {
        in_phase!(self, state => {
            let mut state = state.clone();
            std::iter::from_fn(|| state.poll_event()).collect()
        })
    }
}

pub(crate) struct MachineWorld {
    scope: Scope,
    /// Taken only within a move.
    phase: Option<Phase>,
    queues: Queues<Message>,
    ticket: RunTicket<Message>,
    lease: Option<Lease<Message>>,
    pushed: Pushed,
    /// Folds what is told (I5).
    fold: AgentState,
    nesting: Nesting<Message>,
    /// What was told and decided in the turn under way.
    turn: Vec<String>,
    answers: usize,
    answer: VecDeque<AssistantEvent>,
    preflight: Option<PreflightCall>,
    running: Vec<RunningCall>,
    /// The batch goes on by what the tools do.
    waiting: bool,
    updates: usize,
    aborted: bool,
    marks: Vec<String>,
}

fn model() -> Model {
    Model::new("m")
}

impl MachineWorld {
    pub(crate) fn new(scope: Scope) -> Self {
        let queues = Queues::new();
        for kind in KINDS {
            queues.set_mode(kind, scope.queues);
        }
        let run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], scope.limits);
        Self {
            scope,
            phase: Some(Phase::AwaitingSteering(run)),
            ticket: queues.open_run(),
            queues,
            lease: None,
            pushed: Pushed::default(),
            fold: AgentState::default(),
            nesting: Nesting::default(),
            turn: Vec::new(),
            answers: 0,
            answer: VecDeque::new(),
            preflight: None,
            running: Vec::new(),
            waiting: false,
            updates: 0,
            aborted: false,
            marks: Vec::new(),
        }
    }

    fn phase(&self) -> &Phase {
        self.phase.as_ref().expect("no move is being made")
    }

    fn mark(&mut self, mark: impl Into<String>) {
        self.marks.push(mark.into());
    }

    /// What has to be decided by others, once all is told.
    fn decisions(&self) -> Vec<Move> {
        match self.phase() {
            Phase::Requesting(_) if self.answers < self.scope.calling => {
                let answers = [
                    Answer::Text,
                    Answer::Calls,
                    Answer::Truncated,
                    Answer::Failed,
                    Answer::Cut,
                ];
                let answers = answers.into_iter().map(Move::Request);
                answers.chain([Move::HookFails]).collect()
            }
            Phase::Requesting(_) => vec![Move::Request(Answer::Text), Move::HookFails],
            Phase::TurnEnd(_) => vec![Move::Stop(false), Move::Stop(true), Move::HookFails],
            Phase::ExecutingTools(_) if self.preflight.is_some() => vec![Move::Allow, Move::Reject],
            Phase::ExecutingTools(_) if self.waiting => {
                let places = 0..self.running.len();
                let mut moves: Vec<_> = places
                    .flat_map(|place| [false, true].map(|terminate| Move::Complete(place, terminate)))
                    .collect();
                if self.updates < self.scope.updates {
                    moves.extend([Move::Update(0), Move::Update(1)]);
                }
                if self.aborted {
                    moves.push(Move::GiveUp);
                }
                moves
            }
            _ => vec![Move::Go],
        }
    }

    /// Tells an event.
    fn tell(&mut self, event: &AgentEvent) -> Result<(), String> {
        self.fold.apply(event);
        self.nesting.check(event).map_err(|wrong| format!("I1, I3: {wrong}"))?;
        match event {
            AgentEvent::TurnStart => self.turn.clear(),
            AgentEvent::MessageStart { message, .. } if self.pushed.contains(message) => {
                ensure(!self.aborted, "I6: a queued message enters an aborted run")?;
            }
            AgentEvent::MessageEnd { message } => {
                if let Some(lease) = &mut self.lease
                    && lease.commit(message)
                {
                    self.mark("delivered");
                }
            }
            AgentEvent::AgentEnd { .. } => {
                let lease = self.lease.take();
                if lease.is_some_and(|lease| !lease.is_empty()) {
                    self.mark("given back");
                }
            }
            _ => {}
        }
        self.turn.push(word(event));
        Ok(())
    }

    /// The next event, or what can only happen in one way.
    fn go(&mut self, mut phase: Phase) -> Result<Phase, String> {
        if let Some(event) = in_phase!(&mut phase, state => state.poll_event()) {
            self.tell(&event)?;
            return Ok(phase);
        }
        Ok(match phase {
            Phase::AwaitingSteering(state) => {
                let lease = self.ticket.lease(QueueKind::Steering);
                let messages = self.lease.insert(lease).messages();
                match state.handle_steering(messages) {
                    AfterSteering::Requesting(state) => Phase::Requesting(state),
                    AfterSteering::FollowUp(state) => Phase::FollowUp(state),
                }
            }
            Phase::FollowUp(state) => {
                let lease = self.ticket.last_look();
                let messages = self.lease.insert(lease).messages();
                match state.handle_messages(messages) {
                    AfterFollowUp::Requesting(state) => Phase::Requesting(state),
                    AfterFollowUp::Ended(state) => Phase::Ended(state),
                }
            }
            Phase::AtLimit(state) => Phase::Ended(state.handle_queued(self.ticket.close_at_limit())),
            Phase::Streaming(mut state) => {
                let end = match self.answer.pop_front().map(|event| state.handle(event)) {
                    None => AnswerEnd::cut(),
                    Some(ControlFlow::Break(end)) => end,
                    Some(ControlFlow::Continue(event)) => {
                        event.iter().try_for_each(|event| self.tell(event))?;
                        return Ok(Phase::Streaming(state));
                    }
                };
                self.finish_answer(*state, end)
            }
            Phase::ExecutingTools(state) => self.act(state)?,
            decided => decided,
        })
    }

    fn act(&mut self, mut state: Box<ExecutingTools<Message>>) -> Result<Phase, String> {
        match state.poll_action() {
            ToolAction::Tell => {}
            ToolAction::Preflight(call) => {
                ensure(!self.aborted, "I6: a call is checked after the abort")?;
                self.preflight = Some(call);
            }
            ToolAction::Execute(call) => {
                ensure(!self.aborted, "I6: a call is run after the abort")?;
                self.running.push(call.start().0);
                if self.running.len() == 2 {
                    self.mark("side by side");
                }
            }
            ToolAction::Wait => self.waiting = true,
            ToolAction::Finish => return Ok(self.finish_batch(*state)),
        }
        Ok(Phase::ExecutingTools(state))
    }

    fn finish_answer(&mut self, state: Streaming<Message>, end: AnswerEnd) -> Phase {
        self.answer.clear();
        match state.finish(end, NOW) {
            AfterAnswer::ExecutingTools(state) => {
                Phase::ExecutingTools(Box::new(state.with_mode(self.scope.mode, None)))
            }
            AfterAnswer::TurnEnd(state) => Phase::TurnEnd(state),
            AfterAnswer::Ended(state) => Phase::Ended(state),
        }
    }

    fn finish_batch(&mut self, state: ExecutingTools<Message>) -> Phase {
        self.running.clear();
        self.preflight = None;
        self.waiting = false;
        Phase::TurnEnd(state.finish(NOW))
    }

    fn abort(&mut self, phase: Phase) -> Phase {
        self.mark(format!("abort in {}", phase.name()));
        self.aborted = true;
        self.ticket.close();
        Phase::Ended(match phase {
            Phase::AwaitingSteering(state) => state.abort(&model(), NOW),
            Phase::Requesting(state) => state.abort(&model(), NOW),
            Phase::TurnEnd(state) => state.abort(&model(), NOW),
            Phase::AtLimit(state) => state.abort(&model(), NOW),
            Phase::FollowUp(state) => state.abort(&model(), NOW),
            Phase::Ended(state) => state,
            Phase::Streaming(state) => return self.finish_answer(*state, AnswerEnd::aborted()),
            Phase::ExecutingTools(mut state) => {
                state.abort(NOW);
                self.preflight = None;
                self.waiting = false;
                return Phase::ExecutingTools(state);
            }
        })
    }

    /// What the driver of an aborted run does with a phase that is entered after the abort.
    fn settle(&mut self, phase: Phase) -> Phase {
        match phase {
            Phase::TurnEnd(state) if self.aborted && state.clone().poll_event().is_none() => {
                Phase::Ended(state.abort(&model(), NOW))
            }
            phase => phase,
        }
    }

    fn request(&mut self, state: Requesting<Message>, answer: Answer) -> Result<Phase, String> {
        ensure(!self.aborted, "I6: a request after the abort")?;
        let request = state.transcript().request();
        sendable(request.iter().map(|message| &**message)).map_err(|wrong| format!("I3: a request: {wrong}"))?;
        self.answers += 1;
        self.mark(format!("{answer:?}").to_lowercase());
        self.answer = match answer {
            Answer::Text => text(),
            Answer::Calls => calls_then(&["a", "b"], AssistantEvent::done(DoneReason::ToolUse)),
            Answer::Truncated => calls_then(&["a", "b"], AssistantEvent::done(DoneReason::Length)),
            Answer::Failed => vec![AssistantEvent::error("down")],
            Answer::Cut => vec![AssistantEvent::start()],
        }
        .into();
        Ok(Phase::Streaming(Box::new(state.stream(&model(), NOW))))
    }

    fn decide(&mut self, phase: Phase, next: &Move) -> Result<Phase, String> {
        self.waiting = false;
        Ok(match (phase, next) {
            (Phase::Requesting(state), Move::Request(answer)) => self.request(state, *answer)?,
            (Phase::Requesting(state), Move::HookFails) => Phase::Ended(state.fail(&model(), "hook".into(), NOW)),
            (Phase::TurnEnd(state), Move::HookFails) => Phase::Ended(state.fail(&model(), "hook".into(), NOW)),
            (Phase::TurnEnd(state), Move::Stop(stop)) => match state.handle_stop(*stop) {
                AfterTurn::AwaitingSteering(state) => Phase::AwaitingSteering(state),
                AfterTurn::AtLimit(state) => Phase::AtLimit(state),
                AfterTurn::Ended(state) => Phase::Ended(state),
            },
            (Phase::ExecutingTools(mut state), next) => {
                self.turn.push(format!("{next:?}"));
                match (next, self.preflight.take()) {
                    (Move::Allow, Some(call)) => state.allow(call, no_arguments()),
                    (Move::Reject, Some(call)) => {
                        self.mark("a call of two is rejected");
                        state.reject(call, ToolResult::error("no"), NOW);
                    }
                    (Move::Update(index), _) => {
                        self.updates += 1;
                        let runs = self.running.iter().any(|call| call.index() == *index);
                        let taken = state.update(*index, ToolResult::text(".."));
                        ensure(taken == runs, "I1: news of a call that does not run")?;
                        self.mark(if taken { "an update" } else { "late news" });
                    }
                    (Move::Complete(place, terminate), _) => {
                        let result = ToolResult::text("done").with_terminate(*terminate);
                        state.complete(self.running.remove(*place), result, NOW);
                        if *place == 1 {
                            self.mark("the second ends first");
                        }
                    }
                    (Move::GiveUp, _) => {
                        self.mark("a batch is given up");
                        return Ok(self.finish_batch(*state));
                    }
                    _ => return Err(format!("{next:?} was not asked for")),
                }
                Phase::ExecutingTools(state)
            }
            (phase, next) => return Err(format!("{next:?} was not asked for in {}", phase.name())),
        })
    }
}

impl World for MachineWorld {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        if self.is_over() {
            return Vec::new();
        }
        let mut moves = if self.phase().untold().is_empty() {
            self.decisions()
        } else {
            vec![Move::Go]
        };
        let kinds = KINDS.into_iter();
        moves.extend(
            kinds
                .filter(|kind| self.pushed.count(*kind) < self.scope.messages)
                .map(Move::Push),
        );
        if !self.aborted && !matches!(self.phase(), Phase::Ended(_)) {
            moves.push(Move::Abort);
        }
        moves
    }

    fn make(&mut self, next: &Move) -> Result<(), String> {
        self.marks.clear();
        if let Move::Push(kind) = next {
            self.pushed.push(*kind, &self.queues);
        } else {
            let phase = self.phase.take().expect("no other move is being made");
            let phase = match next {
                Move::Abort => self.abort(phase),
                Move::Go => self.go(phase)?,
                next => self.decide(phase, next)?,
            };
            let phase = self.settle(phase);
            if let Phase::Ended(state) = &phase {
                // A run that is over does not look again.
                self.ticket.close();
                let end = state.end();
                self.mark(format!("{end:?}"));
            }
            self.mark(phase.name());
            self.phase = Some(phase);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let phase = self.phase();
        ensure(
            self.fold.transcript() == phase.transcript(),
            "I5: the transcript is not what was told",
        )?;
        if let Phase::Streaming(state) = phase
            && state.clone().poll_event().is_none()
        {
            ensure(
                self.fold.partial() == state.partial(),
                "I7: the partial is not what was told",
            )?;
        }
        self.pushed.check(self.fold.transcript(), &self.queues)?;
        // The prompt is answered, each batch of calls, and each message.
        let reasons = 1 + self.scope.calling + self.pushed.total();
        ensure(self.answers <= reasons, "I2: a turn without a reason")?;
        if let (Phase::Ended(state), true) = (phase, self.is_over()) {
            let (transcript, added) = state.clone().into_parts();
            ensure(
                *self.fold.transcript() == transcript,
                "I5: it ends with another transcript",
            )?;
            ensure(added.iter().eq(transcript.iter()), "I5: it added other messages")?;
            ensure(self.nesting.runs == 1, "I1: it did not end")?;
            ensure(self.fold.pending_tool_calls().count() == 0, "I3: a call is open")?;
        }
        Ok(())
    }

    fn state(&self) -> String {
        let untold: Vec<_> = self.phase().untold().iter().map(word).collect();
        let running: Vec<_> = self.running.iter().map(RunningCall::index).collect();
        let leased = self.lease.as_ref().map_or(0, |lease| lease.messages().len());
        format!(
            "{} {:?} {untold:?} [{}] {leased} {:?} {:?} {running:?} {:?} {:?}",
            self.phase().name(),
            self.turn,
            outline(self.fold.transcript()),
            self.pushed,
            self.answer.iter().map(AssistantEvent::kind).collect::<Vec<_>>(),
            self.preflight.as_ref().map(PreflightCall::index),
            (self.waiting, self.updates, self.aborted, self.answers),
        )
    }

    fn marks(&self) -> Vec<String> {
        self.marks.clone()
    }

    fn is_over(&self) -> bool {
        matches!(self.phase(), Phase::Ended(state) if state.clone().poll_event().is_none())
    }
}
