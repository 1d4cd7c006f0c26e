//! The agent, its run polled by hand: whatever its model and tools wait for, and whenever somebody pushes a message,
//! aborts, drops the run or begins another. One event is told per poll, so that all else may come between any two.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AgentEvent, Message, QueueKind, QueueMode, Run, RunFuture, StartError, StopReason, WaitInsideListener,
};

use crate::explorer::{World, ensure};
use crate::listening::Heard;
use crate::pushed::{KINDS, Pushed, outline};
use crate::rules::{pairing, sendable};
use crate::stage::Stage;
use crate::words::word;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scope {
    pub(crate) mode: ExecutionMode,
    pub(crate) queues: QueueMode,
    /// How many messages may be pushed to each queue.
    pub(crate) messages: usize,
    /// How many answers call both tools; the others are texts.
    pub(crate) calling: usize,
    pub(crate) runs: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Move {
    /// The run, which was woken, is polled once.
    Poll,
    /// The model says on what it waits to say.
    Model,
    /// The tool of the call at this position is done.
    Tool(usize),
    Push(QueueKind),
    Abort,
    Drop,
    Begin(Start),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Start {
    Prompt,
    Continue,
    Retry,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Flag {
    fn is_up(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Waiter = Pin<Box<dyn Future<Output = Result<(), WaitInsideListener>> + Send>>;

pub(crate) struct AgentWorld {
    scope: Scope,
    stage: Stage,
    agent: Agent,
    heard: Heard,
    run: Option<Run>,
    /// Whether the run was woken since its last poll.
    woken: Arc<Flag>,
    /// Somebody waits for idle since the run began.
    waiter: Option<(Waiter, Arc<Flag>)>,
    runs: usize,
    pushed: Pushed,
    /// What was told in the turn under way, and how much was pushed when the run looked.
    turn: Vec<String>,
    /// What had been asked of model and tools when the run was aborted or dropped.
    asked: Option<(usize, usize)>,
    /// How many messages from the queues had begun by then.
    begun: usize,
    marks: Vec<String>,
}

impl AgentWorld {
    pub(crate) fn new(scope: Scope) -> Self {
        let stage = Stage::new(scope.calling);
        let agent = Agent::builder("m", stage.clone())
            .clock(|| 7)
            .execution_mode(scope.mode)
            .steering_mode(scope.queues)
            .follow_up_mode(scope.queues)
            .build();
        agent.set_tools(Stage::tools());
        let mut world = Self {
            scope,
            stage,
            heard: Heard::of(&agent),
            agent,
            run: None,
            woken: Arc::default(),
            waiter: None,
            runs: 0,
            pushed: Pushed::default(),
            turn: Vec::new(),
            asked: None,
            begun: 0,
            marks: Vec::new(),
        };
        let begun = world.begin(Start::Prompt);
        assert_eq!(begun, Ok(()));
        world
    }

    fn start(&self, start: Start) -> Result<Run, StartError> {
        match start {
            Start::Prompt => self.agent.prompt("go"),
            Start::Continue => self.agent.continue_run(),
            Start::Retry => self.agent.retry(),
        }
    }

    fn begin(&mut self, start: Start) -> Result<(), String> {
        let run = self.start(start).map_err(|error| format!("{start:?}: {error}"))?;
        self.run = Some(run);
        self.heard.begins(start == Start::Retry);
        self.runs += 1;
        self.asked = None;
        self.woken.0.store(true, Ordering::SeqCst);
        self.turn = vec![format!("{start:?} with {:?}", self.pushed)];
        let (mut waiter, flag): (Waiter, Arc<Flag>) = (Box::pin(self.agent.wait_for_idle()), Arc::default());
        let waker = Waker::from(Arc::clone(&flag));
        let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
        self.waiter = Some((waiter, flag));
        ensure(polled.is_pending(), "idle while a run is active")
    }

    /// Whether a run may begin so, by §4.7.
    fn may(&self, start: Start) -> bool {
        let transcript = self.agent.transcript();
        let answer = |message: &Arc<Message>| message.as_assistant().map(|answer| answer.stop_reason);
        let failed = |stop: StopReason| stop.is_failure();
        match (start, transcript.last().map(answer)) {
            (Start::Prompt, _) => true,
            (_, None) => false,
            (Start::Continue, Some(stop)) => stop.is_none() || self.agent.has_queued(),
            (Start::Retry, Some(stop)) => {
                let kept = transcript.len().checked_sub(2).and_then(|kept| transcript.get(kept));
                let goes_on = |kept: &Arc<Message>| answer(kept).is_none() || self.agent.has_queued();
                stop.is_some_and(failed) && kept.is_some_and(goes_on)
            }
        }
    }

    fn poll(&mut self) -> Result<(), String> {
        let Some(run) = &mut self.run else { return Ok(()) };
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        let Poll::Ready(event) = Pin::new(run).poll_next(&mut Context::from_waker(&waker)) else {
            return Ok(());
        };
        // Who was given an event polls again.
        self.woken.0.store(true, Ordering::SeqCst);
        let Some(event) = event else {
            return Err("I1: a run that ends without agent_end".to_owned());
        };
        ensure(
            self.heard.last() == Some(word(&event)),
            "I1: the holder is told what listeners are not",
        )?;
        self.note(&event);
        if let AgentEvent::AgentEnd { .. } = event {
            let end = self.end_of_run()?;
            self.marks.push(format!("{end:?}"));
        }
        Ok(())
    }

    fn note(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::TurnStart => self.turn = vec![format!("{:?}", self.pushed)],
            AgentEvent::MessageEnd { message } if self.pushed.contains(message) => {
                self.marks.push("delivered".to_owned());
            }
            _ => {}
        }
        self.turn.push(word(event));
    }

    /// The run has told its last event.
    fn end_of_run(&mut self) -> Result<RunEnd, String> {
        let Some(run) = self.run.take() else {
            return Err("no run".to_owned());
        };
        let mut outcome: RunFuture = run.into_future();
        let Poll::Ready(outcome) = Pin::new(&mut outcome).poll(&mut Context::from_waker(Waker::noop())) else {
            return Err("I1: it goes on after agent_end".to_owned());
        };
        ensure(
            (outcome.end == RunEnd::Aborted) == self.asked.is_some(),
            &format!("an outcome of {:?}", outcome.end),
        )?;
        self.settled()?;
        Ok(outcome.end)
    }

    /// No run is active any more.
    fn settled(&mut self) -> Result<(), String> {
        self.turn.clear();
        let (mut waiter, flag) = self.waiter.take().ok_or("nobody waited")?;
        ensure(flag.is_up(), "a lost wake-up: of who waits for idle")?;
        let polled = waiter.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        ensure(polled == Poll::Ready(Ok(())), "who waits for idle still waits")?;
        ensure(!self.agent.is_streaming(), "still streaming")?;
        ensure(self.stage.alive() == 0, "something foreign outlives the run")?;
        ensure(self.agent.pending_tool_calls().is_empty(), "I3: a call is open")?;
        ensure(self.agent.streaming_message().is_none(), "I5: a message streams")?;
        let transcript = self.agent.transcript();
        pairing(transcript.iter().map(|message| &**message)).map_err(|wrong| format!("I3: {wrong}"))
    }

    /// How many messages from the queues are in the transcript.
    fn entered(&self) -> usize {
        let transcript = self.agent.transcript();
        transcript
            .iter()
            .filter(|message| self.pushed.contains(message))
            .count()
    }

    fn stop(&mut self, mark: &str) {
        if self.asked.is_none() {
            self.asked = Some(self.stage.asked());
            let begun = |told: Arc<Message>| self.pushed.contains(&told);
            self.begun = self.entered() + usize::from(self.agent.streaming_message().is_some_and(begun));
        }
        let turn = self.turn.last().map_or("", String::as_str);
        let place = turn.split(['(', '[', ' ']).next().unwrap_or_default();
        self.marks.push(format!("{mark} after {place}"));
    }

    fn close(&mut self) -> Result<(), String> {
        let polled = self.turn.len() > 1 || self.turn.first().is_some_and(|turn| !turn.contains("with"));
        self.stop("drop");
        self.run = None;
        self.heard.check(&self.agent)?;
        ensure(
            self.heard.is_between_runs() || !polled,
            "I1: a dropped run does not tell its end",
        )?;
        self.settled()
    }
}

impl World for AgentWorld {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        // What comes behind an abort matters where there is another run.
        let goes_on = self.asked.is_none() || self.scope.runs > 1;
        if self.run.is_some() {
            if self.woken.is_up() {
                moves.push(Move::Poll);
            }
            if self.stage.model_waits() {
                moves.push(Move::Model);
            }
            moves.extend(self.stage.tools_that_wait().map(Move::Tool));
            moves.extend((self.asked.is_none()).then_some(Move::Abort));
            moves.extend(goes_on.then_some(Move::Drop));
        } else if self.runs < self.scope.runs {
            let starts = [Start::Prompt, Start::Continue, Start::Retry].into_iter();
            moves.extend(starts.filter(|start| self.may(*start)).map(Move::Begin));
        }
        if !self.is_over() && goes_on {
            let kinds = KINDS.into_iter();
            moves.extend(
                kinds
                    .filter(|kind| self.pushed.count(*kind) < self.scope.messages)
                    .map(Move::Push),
            );
        }
        moves
    }

    fn make(&mut self, next: &Move) -> Result<(), String> {
        self.marks.clear();
        self.stage.enter();
        match *next {
            Move::Poll => return self.poll(),
            Move::Model => self.stage.let_model_go_on(),
            Move::Tool(index) => self.stage.let_tool_end(index),
            Move::Push(kind) => {
                let text = self.pushed.next(kind);
                let queued = match kind {
                    QueueKind::Steering => self.agent.steer(text),
                    QueueKind::FollowUp => self.agent.follow_up(text),
                };
                self.marks.push(format!("{:?}", queued.delivery));
                if self.turn.len() > 1 && !self.turn.iter().any(|told| told.starts_with("ms(a)")) {
                    self.turn.push(format!("{kind:?}"));
                }
            }
            Move::Abort => {
                self.stop("abort");
                self.agent.abort();
                ensure(self.woken.is_up(), "a lost wake-up: of the abort")?;
            }
            Move::Drop => return self.close(),
            Move::Begin(start) => {
                self.marks.push(format!("{start:?}"));
                return self.begin(start);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.heard.check(&self.agent)?;
        for kind in KINDS {
            self.agent.set_queue_mode(kind, QueueMode::All);
            let queued = self.agent.peek(kind);
            self.agent.set_queue_mode(kind, self.scope.queues);
            self.pushed.check_queue(kind, &self.agent.transcript(), &queued)?;
        }
        self.stage.requests().iter().try_for_each(|request| {
            sendable(request.iter().map(|message| &**message)).map_err(|wrong| format!("I3: a request: {wrong}"))
        })?;
        let reasons = self.runs + self.scope.calling + self.pushed.total();
        ensure(self.stage.asked().0 <= reasons, "I2: a turn without a reason")?;
        if let Some(asked) = self.asked {
            ensure(
                self.stage.asked() == asked,
                "I6: something is asked for after the abort",
            )?;
            ensure(
                self.entered() <= self.begun,
                "I6: a queued message enters an aborted run",
            )?;
        }
        if self.run.is_some() {
            let waits = self.stage.model_waits() || self.stage.tools_that_wait().next().is_some();
            ensure(self.woken.is_up() || waits, "I2: a hang, or a lost wake-up")?;
            ensure(self.agent.is_streaming(), "idle while a run is active")?;
            ensure(
                self.agent.reset() == Err(StartError::Busy),
                "reset while a run is active",
            )?;
        }
        for start in [Start::Prompt, Start::Continue, Start::Retry] {
            // One that was never polled leaves nothing behind; the next checks will tell.
            let begun = self.start(start).map(drop);
            ensure(
                match begun {
                    Ok(()) => self.run.is_none() && self.may(start),
                    Err(StartError::Busy) => self.run.is_some(),
                    Err(_) => self.run.is_none() && !self.may(start),
                },
                &format!("{start:?} is not let in as it should: {begun:?}"),
            )?;
        }
        Ok(())
    }

    fn state(&self) -> String {
        let transcript = self.agent.transcript();
        format!(
            "{:?} [{}] {:?} {:?} {} {:?}",
            self.turn,
            outline(&transcript),
            self.pushed,
            (self.run.is_some(), self.woken.is_up(), self.runs, self.asked.is_some()),
            self.stage.state(),
            transcript
                .last()
                .map(|last| last.as_assistant().map(|answer| answer.stop_reason)),
        )
    }

    fn marks(&self) -> Vec<String> {
        self.marks.clone()
    }

    fn is_over(&self) -> bool {
        self.run.is_none() && self.runs == self.scope.runs
    }
}
