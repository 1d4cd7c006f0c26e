//! The real agent in a scripted world, polled by hand: only when it was woken, one step at a time.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_core::Stream;
use serde_json::{Value, json};
use turnstate::{
    Agent, AgentBuilder, AgentEvent, AssistantEvent, BoxError, CallContext, CallOutcome, CancellationToken, Content,
    Decision, Delivery, ExecutionMode, FnTool, HookFns, Message, QueueId, QueueKind, QueueMode, Request, ResultPatch,
    Run, RunEnd, StartError, StreamFn, ToolContext, ToolResult, json_tool,
};

use crate::gate::{Gate, Pass};
use crate::invariants::Ledger;
use crate::robust_support::watch::Watch;
use crate::said;
use crate::script::{Command, FALLBACK, Hook, Item, Op, Script, Setup, Start, TOOLS, Trouble, spell};

/// More steps than any script makes.
const ENDLESS: usize = 10_000;

/// What was told, done and begun, in order.
type Told = Arc<Mutex<Vec<String>>>;

/// The agent, and what was seen of it.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) told: Told,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    /// Checks I1, I5 and I7 event by event.
    pub(crate) watch: Watch,
    /// Checks the other invariants.
    pub(crate) ledger: Ledger,
    gate: Gate,
    picks: std::iter::Cycle<std::vec::IntoIter<u8>>,
    queued: Vec<QueueId>,
    /// The agent, for a tool of its own.
    itself: Arc<Mutex<Option<Agent>>>,
    bad_listener: bool,
    late: Arc<Mutex<Vec<ToolContext>>>,
    /// How often tools reported when they were over.
    pub(crate) late_updates: usize,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    pub(crate) fn new(script: &Script) -> Self {
        let Setup { hooks, trouble, .. } = script.setup;
        let (gate, late, requests): (Gate, Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (told, ledger) = (Told::default(), Ledger::default());
        let itself: Arc<Mutex<Option<Agent>>> = Arc::default();
        let model = Model {
            gate: gate.clone(),
            answers: Mutex::new(script.answers.clone().into()),
            requests: Arc::clone(&requests),
            ledger: ledger.clone(),
        };
        let mode = |all| if all { QueueMode::All } else { QueueMode::OneAtATime };
        let mut builder = Agent::builder("scripted-1", model)
            .clock(|| 7)
            .execution_mode(execution_mode(script.setup.sequential))
            .steering_mode(mode(script.setup.steering_all))
            .follow_up_mode(mode(script.setup.follow_up_all));
        for name in TOOLS.into_iter().filter(|name| *name != "nobody") {
            builder = builder.tool(tool(name, &gate, &late, &told, &ledger, &itself));
        }
        if let Some(most) = script.setup.max_concurrent.and_then(NonZeroUsize::new) {
            builder = builder.max_concurrent_tools(most);
        }
        if let Some(most) = script.setup.max_turns.and_then(NonZeroU32::new) {
            builder = builder.max_turns(most);
        }
        if hooks {
            builder = with_hooks(builder, &gate, trouble);
        }
        let agent = builder.build();
        *itself.lock().unwrap() = Some(agent.clone());
        let watch = Watch::new(&agent);
        ledger.listen(&agent);
        if script.setup.bad_listener {
            agent.subscribe(|event, _| match event {
                AgentEvent::MessageEnd { .. } => plant(),
                _ => Err(BoxError::from("the listener failed")),
            });
        }
        let hears = Arc::clone(&told);
        agent.subscribe(move |event, cx| hears.lock().unwrap().push(said::event(event, cx.partial())));
        if script.setup.slow_listener {
            let gate = gate.clone();
            agent.subscribe_async(move |_, _| gate.pass_of_listener());
        }
        Self {
            agent,
            told,
            requests,
            watch,
            ledger,
            gate,
            picks: script.picks.clone().into_iter().cycle(),
            queued: Vec::new(),
            itself,
            bad_listener: script.setup.bad_listener,
            late,
            late_updates: 0,
        }
    }

    /// Does a command, and says how the run ended; nothing if there was none. An error is a hang or a lost wake-up.
    pub(crate) fn command(&mut self, command: &Command) -> Result<Result<Option<&'static str>, String>, String> {
        self.ledger.begin();
        let begun = match command.start {
            Start::Reset => {
                self.ledger.reset();
                return Ok(self.agent.reset().map(|()| None).map_err(name));
            }
            Start::Prompt(count) => {
                let prompts = (0..count).map(|n| Message::user(format!("prompt {n}")));
                self.agent.prompt(prompts.collect::<Vec<_>>())
            }
            Start::Continue => self.agent.continue_run(),
            Start::Retry => self.agent.retry(),
        };
        match begun {
            Ok(run) => self.drive(run, &command.ops).map(Ok),
            Err(error) => Ok(Err(name(error))),
        }
    }

    fn drive(&mut self, run: Run, ops: &[(usize, Op)]) -> Result<Option<&'static str>, String> {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        let woken = || flag.0.load(Ordering::SeqCst);
        let mut run = Some(run);
        // A wait is counted once, however often it is polled: until something is told, or somebody is let go on.
        let (mut step, mut counted) = (0, None);
        self.outside(&mut run, ops, step);
        while let Some(running) = &mut run {
            if step > ENDLESS {
                return Err("the run does not end (I2)".into());
            }
            let polled = if woken() {
                flag.0.store(false, Ordering::SeqCst);
                Pin::new(running).poll_next(&mut Context::from_waker(&waker))
            } else {
                Poll::Pending
            };
            match polled {
                Poll::Ready(None) => {
                    let outcome = std::pin::pin!(IntoFuture::into_future(run.take().expect("it runs")));
                    let Poll::Ready(outcome) = outcome.poll(&mut Context::from_waker(Waker::noop())) else {
                        return Err("no outcome of a run that is over".into());
                    };
                    if outcome.listener_errors.is_empty() == self.bad_listener {
                        return Err(format!("a listener failed: {:?}", outcome.listener_errors));
                    }
                    return Ok(Some(match outcome.end {
                        RunEnd::Completed => "completed",
                        RunEnd::Terminated => "terminated",
                        RunEnd::Stopped => "stopped",
                        RunEnd::Limit => "limit",
                        RunEnd::Failed => "failed",
                        RunEnd::Aborted => "aborted",
                        _ => "?",
                    }));
                }
                Poll::Ready(Some(_)) => {
                    // Who holds the run asks for more.
                    flag.0.store(true, Ordering::SeqCst);
                    (step, counted) = (step + 1, None);
                    self.outside(&mut run, ops, step);
                }
                Poll::Pending if woken() => {}
                Poll::Pending => {
                    let told = Some(self.told.lock().unwrap().len());
                    if counted != told {
                        step += 1;
                        self.outside(&mut run, ops, step);
                        // What it noted is no reason to count this wait again.
                        counted = Some(self.told.lock().unwrap().len());
                        if woken() {
                            continue;
                        }
                        let aborts = ops.iter().any(|(at, op)| *at == step && matches!(op, Op::Abort));
                        if aborts && run.is_some() && !self.gate.holds_listener() {
                            return Err(format!("the abort at step {step} wakes nobody"));
                        }
                    }
                    if run.is_none() {
                        break;
                    }
                    counted = None;
                    if self.gate.is_empty() {
                        self.ledger.aborted();
                        self.agent.abort();
                    } else {
                        self.gate.pick(self.picks.next().unwrap_or_default());
                    }
                    // While a listener is awaited, nothing else need wake the run.
                    if !woken() && !self.gate.holds_listener() {
                        return Err(format!("a hang, or a lost wake-up, at step {step}"));
                    }
                }
            }
        }
        Ok(Some("dropped").filter(|_| step > 0))
    }

    pub(crate) fn queue(&mut self, steering: bool) {
        let text = format!("queued {}", self.queued.len());
        let (kind, queued) = if steering {
            (QueueKind::Steering, self.agent.steer(&text))
        } else {
            (QueueKind::FollowUp, self.agent.follow_up(&text))
        };
        self.queued.push(queued.id);
        self.ledger.queued(kind, text, queued.delivery);
        self.note(if queued.delivery == Delivery::ThisRun {
            "for this run"
        } else {
            "for the next run"
        });
    }

    fn take_back(&self, messages: impl IntoIterator<Item = Arc<Message>>) {
        let taken = self.ledger.taken_back(messages);
        self.note(&format!("took back {taken}"));
    }

    /// Notes what an operation on the queues gave, and what they hold then.
    fn note(&self, what: &str) {
        let [steering, follow_ups] = self.queues().map(|queue| queue.join(", "));
        let line = format!("{what}; steering: {steering}; follow-ups: {follow_ups}");
        self.told.lock().unwrap().push(line);
    }

    /// What happens outside at this step.
    fn outside(&mut self, run: &mut Option<Run>, ops: &[(usize, Op)], step: usize) {
        for (_, op) in ops.iter().filter(|(at, _)| *at == step) {
            let agent = &self.agent;
            let mode = |all| if all { QueueMode::All } else { QueueMode::OneAtATime };
            match *op {
                Op::Steer => self.queue(true),
                Op::FollowUp => self.queue(false),
                Op::Recall(which) => {
                    if let Some(id) = self.queued.get(usize::from(which) % self.queued.len().max(1)) {
                        self.take_back(agent.recall(*id));
                    }
                }
                Op::ClearSteering => self.take_back(agent.clear_queue(QueueKind::Steering)),
                Op::ClearFollowUps => self.take_back(agent.clear_queue(QueueKind::FollowUp)),
                Op::SteeringMode(all) => agent.set_queue_mode(QueueKind::Steering, mode(all)),
                Op::FollowUpMode(all) => agent.set_queue_mode(QueueKind::FollowUp, mode(all)),
                Op::ExecutionMode(sequential) => agent.set_execution_mode(execution_mode(sequential)),
                Op::Abort => {
                    self.ledger.aborted();
                    agent.abort();
                }
                Op::Drop => {
                    self.ledger.aborted();
                    *run = None;
                    return;
                }
                Op::StopAfterTurn => agent.stop_after_turn(),
                Op::Busy => {
                    let refused = [
                        agent.prompt("now").err(),
                        agent.continue_run().err(),
                        agent.retry().err(),
                    ];
                    assert!(!agent.is_streaming() || refused.iter().all(|error| *error == Some(StartError::Busy)));
                    assert!(!agent.is_streaming() || agent.reset() == Err(StartError::Busy));
                }
                Op::LateUpdate => {
                    let late = self.late.lock().unwrap();
                    late.iter().for_each(|cx| cx.progress("late"));
                    self.late_updates += late.len();
                }
            }
        }
    }

    /// What is queued, whatever the modes are.
    pub(crate) fn queues(&self) -> [Vec<String>; 2] {
        [QueueKind::Steering, QueueKind::FollowUp].map(|kind| {
            let mode = self.agent.queue_mode(kind);
            self.agent.set_queue_mode(kind, QueueMode::All);
            let queued = self.agent.peek(kind);
            self.agent.set_queue_mode(kind, mode);
            queued.iter().map(|message| message.text()).collect()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The agent has the tool that has the agent.
        self.itself.lock().unwrap().take();
    }
}

fn name(error: StartError) -> String {
    format!("{error:?}")
}

fn execution_mode(sequential: bool) -> ExecutionMode {
    if sequential {
        ExecutionMode::Sequential
    } else {
        ExecutionMode::Parallel
    }
}

/// A panic that a script plants: without the panic hook, which is for others.
fn plant() -> ! {
    resume_unwind(Box::new("planted"))
}

fn tool(
    name: &'static str,
    gate: &Gate,
    late: &Arc<Mutex<Vec<ToolContext>>>,
    told: &Told,
    ledger: &Ledger,
    itself: &Arc<Mutex<Option<Agent>>>,
) -> FnTool {
    let (gate, late, told) = (gate.clone(), Arc::clone(late), Arc::clone(told));
    let (ledger, itself) = (ledger.clone(), Arc::clone(itself));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let act = move |arguments: Value, cx: ToolContext| {
        let (gate, late, told) = (gate.clone(), Arc::clone(&late), Arc::clone(&told));
        let (ledger, itself) = (ledger.clone(), Arc::clone(&itself));
        async move {
            ledger.tool_begins(name);
            told.lock().unwrap().push(format!("{name} begins"));
            let n = arguments["n"].as_i64();
            let done = n.map_or_else(|| format!("{name} -"), |n| format!("{name} {n}"));
            match name {
                "instant" => {}
                "quits" => {
                    let agent = itself.lock().unwrap().clone();
                    agent.expect("the world has its agent").abort();
                    ledger.aborted();
                }
                "chatty" => {
                    cx.progress("so far");
                    gate.pass().await;
                    cx.progress("so far");
                    cx.progress("so far");
                    gate.pass().await;
                    cx.progress("so far");
                }
                "fails" => {
                    gate.pass().await;
                    return Err(BoxError::from("the tool failed"));
                }
                "panics" => {
                    gate.pass().await;
                    plant();
                }
                "enough" => {
                    gate.pass().await;
                    return Ok(ToolResult::text("enough").with_terminate(true));
                }
                "deaf" => {
                    cx.progress("so far");
                    std::future::pending::<()>().await;
                }
                "polite" => {
                    cx.cancellation_token().cancelled().await;
                    return Ok(ToolResult::text("gave up"));
                }
                "solo" => {
                    gate.pass().await;
                    gate.pass().await;
                }
                _ => gate.pass().await,
            }
            if name == "late" {
                late.lock().unwrap().push(cx);
            }
            Ok(ToolResult::text(done))
        }
    };
    let tool = json_tool(name, name, schema, move |arguments, cx| act(arguments.into_value(), cx));
    if name == "solo" { tool.sequential() } else { tool }
}

/// Sets all hooks; each waits once.
fn with_hooks(builder: AgentBuilder, gate: &Gate, trouble: Option<(Hook, usize, Trouble)>) -> AgentBuilder {
    let asked: Arc<[AtomicUsize; 5]> = Arc::default();
    // Waits, and makes the trouble that the script has for it; true is a yes.
    let ask = {
        let gate = gate.clone();
        move |hook: Hook| {
            let pass = gate.pass();
            let time = asked[hook as usize].fetch_add(1, Ordering::SeqCst);
            async move {
                pass.await;
                match trouble.filter(|(which, nth, _)| (*which, *nth) == (hook, time)) {
                    None => Ok(false),
                    Some((_, _, Trouble::SaysYes)) => Ok(true),
                    Some((_, _, Trouble::Fails)) => Err(BoxError::from("the hook failed")),
                    Some((_, _, Trouble::Panics)) => plant(),
                    Some((_, _, Trouble::NeverEnds)) => std::future::pending().await,
                }
            }
        }
    };
    let [prepare, transform, convert, key, stop] = std::array::from_fn(|_| ask.clone());
    let (before, after) = (gate.clone(), gate.clone());
    let hooks = HookFns::<Message>::new()
        .prepare_request(move |request: turnstate::PrepareRequest| {
            let asked = prepare(Hook::Prepare);
            async move { asked.await.map(|_| request.plan) }
        })
        .transform_context(move |cx: turnstate::RequestContext| {
            let asked = transform(Hook::Transform);
            async move { asked.await.map(|_| cx.transcript) }
        })
        .convert_to_llm(move |cx: turnstate::RequestContext| {
            let asked = convert(Hook::Convert);
            async move { asked.await.map(|_| cx.transcript.request()) }
        })
        .api_key(move |_: String| {
            let asked = key(Hook::ApiKey);
            async move { asked.await.map(|_| None::<turnstate::ApiKey>) }
        })
        .should_stop_after_turn(move |_: turnstate::TurnSummary| stop(Hook::Stop))
        .before_tool_call(move |cx: CallContext| {
            let pass = before.pass();
            async move {
                pass.await;
                Ok::<_, BoxError>(match cx.call.id.as_str() {
                    "block" => Decision::Block {
                        reason: None,
                        terminate: None,
                    },
                    "halt" => Decision::Block {
                        reason: Some("halted".into()),
                        terminate: Some(true),
                    },
                    "rewrite" => Decision::Replace(json!({"n": 9})),
                    "spoil" => Decision::Replace(json!("nine")),
                    "no" => return Err("the hook failed".into()),
                    "boom" => plant(),
                    "never" => std::future::pending().await,
                    _ => Decision::Allow,
                })
            }
        })
        .after_tool_call(move |outcome: CallOutcome| {
            let pass = after.pass();
            async move {
                let id = outcome.cx.call.id.as_str();
                if id == "unpatched" {
                    std::future::pending::<()>().await;
                }
                pass.await;
                match id {
                    "patch" => Ok(ResultPatch::keep().content(vec![Content::text("patched")])),
                    "no after" => Err(BoxError::from("the hook failed")),
                    "boom after" => plant(),
                    _ => Ok(ResultPatch::keep()),
                }
            }
        });
    builder.hooks(hooks)
}

/// The scripted model: it waits before each event, and records what it is sent.
struct Model {
    gate: Gate,
    answers: Mutex<VecDeque<Vec<Item>>>,
    requests: Arc<Mutex<Vec<String>>>,
    ledger: Ledger,
}

struct Answer {
    gate: Gate,
    pass: Pass,
    events: std::vec::IntoIter<Result<AssistantEvent, bool>>,
    silent: bool,
}

impl StreamFn for Model {
    type Stream = Answer;

    fn stream(&self, request: Request, _cancel: CancellationToken) -> Answer {
        self.ledger.requested(&request);
        let sent = said::messages(request.messages.iter().map(|message| &**message));
        self.requests.lock().unwrap().push(sent);
        let items = self.answers.lock().unwrap().pop_front();
        Answer {
            gate: self.gate.clone(),
            pass: self.gate.pass(),
            events: spell(items.as_deref().unwrap_or(&FALLBACK)).into_iter(),
            silent: false,
        }
    }
}

impl Stream for Answer {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        if self.silent {
            return Poll::Pending;
        }
        ready!(Pin::new(&mut self.pass).poll(cx));
        self.pass = self.gate.pass();
        match self.events.next() {
            None => Poll::Ready(None),
            Some(Ok(event)) => Poll::Ready(Some(event)),
            Some(Err(true)) => plant(),
            Some(Err(false)) => {
                self.silent = true;
                Poll::Pending
            }
        }
    }
}
