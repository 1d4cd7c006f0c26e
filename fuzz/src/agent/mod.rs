//! The agent, driven by hand: what the model, tools, hooks and listeners do, when the run is polled, who is woken, and
//! what is done to the agent meanwhile is decided by the input. No runtime, no threads, no time.

mod foreign;
mod listeners;
mod watch;
mod world;

use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use turnstate::machine::ExecutionMode;
use turnstate::{
    Agent, AgentEvent, Message, QueueKind, QueueMode, Run, RunEnd, StartError, StopReason, Tool, ToolContext,
    Transcript, WaitInsideListener,
};

use crate::words;
use foreign::{Model, ScriptHooks, ScriptTool};
use watch::{KINDS, same};
use world::World;

/// The bytes of an input that count.
const TAPE: usize = 2_000;
/// The most messages in a queue.
const ENOUGH: usize = 4;
/// More polls in a row than any run of such a tape needs (I2).
const TOO_MANY: usize = 20_000;

/// The first bytes say how the agent is made, the others all that happens.
pub fn agent(data: &[u8]) {
    let world = World::new(&data[..data.len().min(TAPE)]);
    let mut play = Play::new(world.clone());
    while !world.is_at_end() {
        play.step();
        play.check();
    }
    play.finish();
    drop(play);
    world.lock().reporters.clear();
    world.assert_right();
    assert!(world.is_last(), "an agent that was dropped is kept alive");
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An agent and what is known of its run.
struct Play {
    world: World,
    agent: Agent,
    run: Option<Run>,
    /// Whether the run can go on: its waker was woken, or there is an event to fetch.
    flag: Arc<Flag>,
    /// The events that the holder of the run got.
    yielded: usize,
    /// The runs that had ended when this one began.
    runs_before: usize,
    idle: Option<Idle>,
}

/// Who waits for the end of the run.
type Idle = Pin<Box<dyn Future<Output = Result<(), WaitInsideListener>>>>;

impl Play {
    fn new(world: World) -> Self {
        let modes = [QueueMode::OneAtATime, QueueMode::All];
        let transcript = transcript(&world);
        let mut builder = Agent::builder("m", Model(world.clone()))
            .clock(|| 7)
            .transcript(transcript.clone())
            .tool(ScriptTool::side(&world))
            .tool(ScriptTool::alone(&world))
            .execution_mode(world.pick(&[ExecutionMode::Parallel, ExecutionMode::Sequential]))
            .steering_mode(world.pick(&modes))
            .follow_up_mode(world.pick(&modes));
        if let Some(cap) = NonZeroUsize::new(world.below(4).into()) {
            builder = builder.max_concurrent_tools(cap);
        }
        if let Some(turns) = NonZeroU32::new(world.below(8).saturating_sub(4).into()) {
            builder = builder.max_turns(turns);
        }
        if world.once_in(2) {
            builder = builder.hooks(ScriptHooks(world.clone()));
        }
        if world.once_in(4) {
            let world = world.clone();
            builder = builder.grace(move || {
                let (life, pause) = (world.hold(), world.pause());
                async move {
                    pause.await;
                    drop(life);
                }
            });
        }
        let agent = builder.build();
        world.lock().watch.fold.set_transcript(transcript);
        listeners::subscribe(&world, &agent);
        Self {
            world,
            agent,
            run: None,
            flag: Arc::default(),
            yielded: 0,
            runs_before: 0,
            idle: None,
        }
    }

    /// Does something.
    fn step(&mut self) {
        let world = self.world.clone();
        match (world.below(32), self.run.is_some()) {
            (0..=21, false) => self.begin(),
            (0..=5, true) => self.poll(),
            (6..=15, true) => self.run_on(),
            (16..=21, true) => {
                let which = world.below(8);
                self.let_through(which);
            }
            (22, _) => self.push(QueueKind::Steering),
            (23, _) => self.push(QueueKind::FollowUp),
            (24, _) => self.abort(),
            (25, _) => self.drop_run(),
            (26, _) => self.agent.stop_after_turn(),
            (27, _) => self.recall(),
            (28, _) => self.clear(),
            (29, _) => self.set(),
            (30, _) => self.be_refused(),
            _ => {
                let reporter = world.lock().reporters.last().cloned();
                if let Some(cx) = reporter {
                    cx.progress("from elsewhere");
                }
            }
        }
    }

    /// What holds at any time.
    fn check(&self) {
        let Self { world, agent, .. } = self;
        for kind in KINDS {
            let mode = agent.queue_mode(kind);
            agent.set_queue_mode(kind, QueueMode::All);
            let queued: Vec<_> = agent.peek(kind).iter().map(|message| message.text()).collect();
            agent.set_queue_mode(kind, mode);
            let inner = world.lock();
            assert_eq!(
                queued,
                inner.watch.texts(kind),
                "I4: {kind:?} after {}",
                inner.watch.line()
            );
        }
        world.check(agent.is_streaming() == self.run.is_some(), || {
            "busy without a run".into()
        });
        world.assert_right();
    }

    /// Begins a run, or changes the transcript.
    fn begin(&mut self) {
        let before = self.agent.transcript();
        let failed = is_failed(before.last());
        let queued = self.agent.has_queued();
        let may_go_on = |transcript: &[&Arc<Message>]| match transcript.last() {
            None => Err(StartError::EmptyTranscript),
            Some(last) if last.role() == "assistant" && !queued => Err(StartError::NothingToContinue),
            Some(_) => Ok(()),
        };
        let messages: Vec<_> = before.iter().collect();
        let (run, expected) = match self.world.below(8) {
            5 => (self.agent.continue_run(), may_go_on(&messages)),
            6 => {
                self.world.lock().watch.is_retry = failed;
                let expected = if failed {
                    may_go_on(&messages[..messages.len() - 1])
                } else {
                    Err(StartError::NothingToRetry)
                };
                (self.agent.retry(), expected)
            }
            7 => return self.change_transcript(),
            4 => (
                self.agent.prompt(vec![Message::user("go"), Message::user("on")]),
                Ok(()),
            ),
            3 => (self.agent.prompt(Vec::<Message>::new()), Err(StartError::EmptyPrompt)),
            _ => (self.agent.prompt("go"), Ok(())),
        };
        assert_eq!(run.as_ref().map(|_| ()), expected.as_ref().copied());
        self.run = run.ok();
        if self.run.is_some() {
            self.flag = Arc::default();
            self.flag.0.store(true, Ordering::SeqCst);
            self.yielded = 0;
            let mut idle = Box::pin(self.agent.wait_for_idle());
            assert_eq!(poll_once(idle.as_mut()), Poll::Pending);
            self.idle = Some(idle);
            let mut inner = self.world.lock();
            self.runs_before = inner.watch.runs();
            inner.watch.heard.clear();
            let queued = inner.watch.queued.iter_mut().flatten();
            queued.for_each(|entry| entry.is_owed = true);
        } else {
            self.world.lock().watch.is_retry = false;
        }
    }

    fn change_transcript(&mut self) {
        let transcript = if self.world.once_in(2) {
            assert_eq!(self.agent.reset(), Ok(()));
            self.world.lock().watch.queued = Default::default();
            Transcript::new()
        } else {
            let transcript = transcript(&self.world);
            assert_eq!(self.agent.set_transcript(transcript.clone()), Ok(()));
            transcript
        };
        self.world.lock().watch.fold = turnstate::AgentState::new(transcript);
    }

    /// Polls once.
    fn poll(&mut self) {
        let Some(run) = &mut self.run else { return };
        if self.world.once_in(4) {
            self.flag = Arc::default();
        }
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        match Pin::new(run).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(event)) => {
                self.flag.0.store(true, Ordering::SeqCst);
                let inner = self.world.lock();
                assert_eq!(inner.watch.heard.get(self.yielded), Some(&event), "yielded");
                drop(inner);
                self.yielded += 1;
                if let AgentEvent::AgentEnd { .. } = event {
                    self.end();
                }
            }
            Poll::Ready(None) => panic!("I1: no agent_end in {}", self.world.lock().watch.line()),
            Poll::Pending if !self.is_woken() => {
                let inner = self.world.lock();
                let line = inner.watch.line();
                assert!(inner.is_awaited(), "a hang, or a lost wake-up, after {line}");
                assert!(!inner.aborted || inner.is_held(), "an aborted run waits, after {line}");
            }
            Poll::Pending => {}
        }
    }

    fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }

    /// Polls as long as the run can go on.
    fn run_on(&mut self) {
        for _ in 0..TOO_MANY {
            if self.run.is_none() || !self.is_woken() {
                return;
            }
            self.poll();
        }
        panic!("I2: the run does not end, after {}", self.world.lock().watch.line());
    }

    /// Lets somebody through that waits. That wakes the run, unless it awaits a listener.
    fn let_through(&mut self, which: u8) -> bool {
        let waits = self.world.let_through(which);
        if waits && self.run.is_some() && !self.is_woken() {
            let inner = self.world.lock();
            assert!(inner.is_held(), "a lost wake-up, after {}", inner.watch.line());
        }
        waits
    }

    fn push(&mut self, kind: QueueKind) {
        listeners::push(&self.world, &self.agent, kind);
    }

    fn abort(&mut self) {
        listeners::abort(&self.world, &self.agent);
        let is_woken = self.run.is_none() || self.is_woken();
        let inner = self.world.lock();
        assert!(
            is_woken || inner.is_held(),
            "an abort is no wake-up, after {}",
            inner.watch.line()
        );
    }

    fn drop_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let has_ended = {
            let mut inner = self.world.lock();
            inner.aborted = true;
            // Its last event was told, and a listener is being awaited.
            matches!(inner.watch.heard.last(), Some(AgentEvent::AgentEnd { .. }))
        };
        drop(run);
        self.settle((!has_ended).then_some(RunEnd::Aborted));
    }

    /// The run has told its last event.
    fn end(&mut self) {
        let mut run = self.run.take().expect("it was polled");
        assert_eq!(
            poll_once(pin!(run.next())),
            Poll::Ready(None),
            "I1: an event behind the last"
        );
        let Poll::Ready(outcome) = poll_once(pin!(run.into_future())) else {
            panic!("a run that ended has an outcome");
        };
        {
            let inner = self.world.lock();
            assert_eq!(self.yielded, inner.watch.heard.len(), "I1: not all was yielded");
            assert_eq!(outcome.listener_errors.len(), inner.listener_failures);
            let Some(AgentEvent::AgentEnd { messages }) = inner.watch.heard.last() else {
                panic!("I1: it ends otherwise, with {}", inner.watch.line());
            };
            assert!(same(messages, &outcome.messages), "I5: the messages of the outcome");
            if outcome.end == RunEnd::Aborted {
                assert!(inner.aborted || is_failed(messages.last()), "it was not aborted");
            }
        }
        self.settle(Some(outcome.end));
    }

    /// The run is over, in a way that is known unless nobody was told.
    fn settle(&mut self, end: Option<RunEnd>) {
        let Self { world, agent, .. } = self;
        assert!(!agent.is_streaming());
        let mut idle = self.idle.take().expect("a run has one who waits for its end");
        assert_eq!(poll_once(idle.as_mut()), Poll::Ready(Ok(())));
        assert!(agent.streaming_message().is_none());
        assert!(agent.pending_tool_calls().is_empty(), "I3: a call is pending");
        assert_eq!(world.alive(), 0, "work goes on");
        let mut inner = world.lock();
        let mut reporters = inner.reporters.iter();
        assert!(reporters.all(ToolContext::is_cancelled), "a token is not cancelled");
        let line = inner.watch.line();
        assert!(
            same(inner.watch.fold.transcript(), &agent.transcript()),
            "I5 after {line}"
        );
        let has_begun = usize::from(!inner.watch.heard.is_empty());
        assert_eq!(inner.watch.runs(), self.runs_before + has_begun, "I1 after {line}");
        let last = agent.transcript().last().map(|last| last.role());
        if has_begun == 1 && matches!(end, Some(RunEnd::Aborted | RunEnd::Failed)) {
            assert_eq!(last, Some("assistant"), "after {line}");
        }
        if let Some(RunEnd::Completed | RunEnd::Terminated) = end {
            let mut queued = inner.watch.queued.iter().flatten();
            let owed = queued.find(|entry| entry.is_owed).map(|entry| &entry.text);
            assert_eq!(owed, None, "I4: left in its queue, after {line}");
        }
        inner.aborted = false;
        inner.listener_failures = 0;
        inner.watch.is_retry = false;
    }

    /// Takes a message back.
    fn recall(&mut self) {
        let which = usize::from(self.world.below(4));
        let kind = self.world.pick(&KINDS);
        let mut inner = self.world.lock();
        let queued = &mut inner.watch.queued[kind as usize];
        let Some(entry) = queued.get(which) else { return };
        match self.agent.recall(entry.id) {
            Some(message) => {
                assert_eq!(message.text(), entry.text, "I4: another was recalled");
                queued.remove(which);
            }
            None => assert!(self.run.is_some(), "I4: nobody has it, and it cannot be recalled"),
        }
    }

    /// Takes all back that no run has.
    fn clear(&mut self) {
        let kind = self.world.pick(&KINDS);
        let cleared = self.agent.clear_queue(kind);
        let mut inner = self.world.lock();
        let queued = &mut inner.watch.queued[kind as usize];
        for message in cleared {
            let text = message.text();
            let place = queued.iter().position(|entry| entry.text == text);
            queued.remove(place.expect("I4: it was queued"));
        }
        assert!(queued.is_empty() || self.run.is_some(), "I4: not all was cleared");
    }

    /// Sets something that takes effect at the next turn, or look at a queue.
    fn set(&mut self) {
        let Self { world, agent, .. } = self;
        match world.below(8) {
            0 | 1 => agent.set_queue_mode(world.pick(&KINDS), world.pick(&[QueueMode::OneAtATime, QueueMode::All])),
            2 | 3 => agent.set_execution_mode(world.pick(&[ExecutionMode::Parallel, ExecutionMode::Sequential])),
            4 => agent.set_hooks(ScriptHooks(world.clone())),
            5 => agent.set_hooks(()),
            6 => agent.set_tools([Arc::new(ScriptTool::side(world)) as Arc<dyn Tool>]),
            _ => {
                agent.set_model("n");
                agent.set_stream_fn(Model(world.clone()));
            }
        }
    }

    /// What is refused while a run is active changes nothing.
    fn be_refused(&mut self) {
        if self.run.is_some() {
            assert_eq!(self.agent.prompt("no").map(|_| ()), Err(StartError::Busy));
            assert_eq!(self.agent.continue_run().map(|_| ()), Err(StartError::Busy));
            assert_eq!(self.agent.retry().map(|_| ()), Err(StartError::Busy));
            assert_eq!(self.agent.reset(), Err(StartError::Busy));
            assert_eq!(self.agent.set_transcript(Transcript::new()), Err(StartError::Busy));
        }
    }

    /// The tape has ended: the run goes on to its end, by force if need be, and then the next one works.
    fn finish(&mut self) {
        while self.run.is_some() {
            self.run_on();
            if self.run.is_none() || self.let_through(0) {
                continue;
            }
            if self.world.lock().aborted {
                self.drop_run();
            } else {
                self.abort();
            }
        }
        self.check();
        let before = self.world.lock().requests;
        assert_eq!(self.world.below(2), 0, "the tape has ended");
        self.begin();
        self.run_on();
        assert!(self.run.is_none(), "the last run waits");
        self.check();
        assert!(self.world.lock().requests > before, "the last run did nothing");
    }
}

/// What an agent may begin with; some of it no run leaves behind.
fn transcript(world: &World) -> Transcript<Message> {
    let user = || words::user("earlier");
    match world.below(6) {
        1 => vec![user()],
        2 => vec![user(), words::said(StopReason::Stop, &[])],
        3 => vec![user(), words::said(StopReason::Error, &["1"]), words::result("1")],
        4 => vec![
            user(),
            words::said(StopReason::ToolUse, &["1", "1"]),
            words::result("1"),
            user(),
        ],
        5 => vec![user(), words::said(StopReason::Aborted, &[])],
        _ => Vec::new(),
    }
    .into()
}

fn is_failed(message: Option<&Arc<Message>>) -> bool {
    let answer = message.and_then(|message| message.as_assistant());
    answer.is_some_and(|answer| answer.stop_reason.is_failure())
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
