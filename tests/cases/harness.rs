//! The rig: an agent with a scripted model and tools, driven by hand, its events recorded in the shorthand of the cases.
//!
//! A [`Rig`] checks when it is dropped what holds in every case: P1, each request pairs calls and results; P2, each
//! run came to its end, once, and left nothing behind. I1 and I5 are checked event by event.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use serde_json::{Value, json};
use turnstate::schema::ValidatedArguments;
use turnstate::{
    Agent, AgentBuilder, AgentEvent, AgentMessage, BoxError, CancellationToken, Decision, DoneReason, FnTool,
    IntoPrompt, IntoToolResult, Message, Outcome, QueueMode, Response, ResultPatch, Run, RunFuture, ScriptedModel,
    StreamFn, ToolContext, ToolResult, json_tool,
};

use super::drive::{Task, drive};
use super::rules::{Nesting, sendable};

/// An event in the shorthand of the cases.
///
/// - `as` agent start, `ae[n]` agent end with n messages, `ts` turn start, `te(stop)[n]` turn end with n results;
/// - `ms(x)`, `me(x)`, `mu` message start, end, update;
/// - `xs(id)`, `xu(id)`, `xe(id)` tool execution start, update, end; `xe(id!)` an error.
///
/// Messages are named as by [`name`]; one that begins has no stop reason yet.
pub(crate) fn show<M: AgentMessage>(event: &AgentEvent<M>) -> String {
    match event {
        AgentEvent::AgentStart => "as".into(),
        AgentEvent::AgentEnd { messages } => format!("ae[{}]", messages.len()),
        AgentEvent::TurnStart => "ts".into(),
        AgentEvent::TurnEnd { message, tool_results } => {
            format!("te({})[{}]", &name(&**message)["a/".len()..], tool_results.len())
        }
        AgentEvent::MessageStart { message, .. } if message.role() == "assistant" => "ms(a)".into(),
        AgentEvent::MessageStart { message, .. } => format!("ms({})", name(&**message)),
        AgentEvent::MessageUpdate { .. } => "mu".into(),
        AgentEvent::MessageEnd { message } => format!("me({})", name(&**message)),
        AgentEvent::ToolExecutionStart { call, .. } => format!("xs({})", call.id),
        AgentEvent::ToolExecutionUpdate { call, .. } => format!("xu({})", call.id),
        AgentEvent::ToolExecutionEnd { call, result, .. } => {
            format!("xe({}{})", call.id, if result.is_error { "!" } else { "" })
        }
        _ => panic!("an event of which the cases know nothing"),
    }
}

/// A message in the shorthand of the cases: `u` the user's "go", `u x` another text of the user, `a/stop` the
/// assistant's with its stop reason, `r id` a tool result; a custom message by its role.
pub(crate) fn name<M: AgentMessage>(message: &M) -> String {
    match message.as_message() {
        Some(Message::User(user)) if user.content.text() == "go" => "u".into(),
        Some(Message::User(user)) => format!("u {}", user.content.text()),
        Some(Message::Assistant(answer)) => {
            let reason = serde_json::to_value(answer.stop_reason).unwrap();
            format!("a/{}", reason.as_str().unwrap())
        }
        Some(Message::ToolResult(result)) => format!("r {}", result.tool_call_id),
        None => message.role().into(),
    }
}

/// Messages by [`name`], with commas.
pub(crate) fn names<'a, M: AgentMessage>(messages: impl IntoIterator<Item = &'a Arc<M>>) -> String {
    let names: Vec<_> = messages.into_iter().map(|message| name(&**message)).collect();
    names.join(", ")
}

/// What an agent told, in the order told.
pub(crate) struct Log<M: AgentMessage = Message> {
    events: Arc<Mutex<Vec<AgentEvent<M>>>>,
    nesting: Arc<Mutex<Nesting<M>>>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl<M: AgentMessage> Log<M> {
    /// Listens to an agent from now on.
    pub(crate) fn of(agent: &Agent<M>) -> Self {
        let log = Self {
            events: Arc::default(),
            nesting: Arc::default(),
            wrong: Arc::default(),
        };
        let (events, nesting, wrong) = (log.events.clone(), log.nesting.clone(), log.wrong.clone());
        agent.subscribe(move |event, cx| {
            events.lock().unwrap().push(event.clone());
            if let Err(error) = nesting.lock().unwrap().check(event) {
                wrong.lock().unwrap().push(error);
            }
            if !cx.agent().is_streaming() {
                wrong.lock().unwrap().push(format!("idle at {}", event.kind()));
            }
        });
        log
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<AgentEvent<M>> {
        self.events.lock().unwrap().clone()
    }

    /// The events in shorthand, without updates of messages.
    pub(crate) fn line(&self) -> String {
        let shown = self
            .events()
            .iter()
            .map(show)
            .filter(|event| event != "mu")
            .collect::<Vec<_>>();
        shown.join(" ")
    }

    /// The same with the updates.
    pub(crate) fn full_line(&self) -> String {
        self.events().iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn clear(&self) {
        self.events.lock().unwrap().clear();
    }
}

/// Gives tools and hooks the agent they belong to, which is made after them.
pub(crate) struct Hand<M: AgentMessage = Message>(Arc<Mutex<Option<Agent<M>>>>);

impl<M: AgentMessage> Clone for Hand<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: AgentMessage> Hand<M> {
    /// The agent.
    pub(crate) fn agent(&self) -> Agent<M> {
        self.0.lock().unwrap().clone().expect("the rig is built")
    }
}

/// An agent under test.
pub(crate) struct Rig<M: AgentMessage = Message> {
    pub(crate) agent: Agent<M>,
    pub(crate) model: ScriptedModel,
    pub(crate) log: Log<M>,
    hand: Hand<M>,
}

impl<M: AgentMessage> Rig<M> {
    /// An agent whose model answers by the script; `build` adds tools and hooks.
    pub(crate) fn of(
        script: impl IntoIterator<Item = Response>,
        build: impl FnOnce(AgentBuilder<M>, Hand<M>) -> AgentBuilder<M>,
    ) -> Self {
        let model = script.into_iter().fold(ScriptedModel::new(), ScriptedModel::reply);
        let hand = Hand(Arc::default());
        let builder = AgentBuilder::new("scripted-1", model.clone()).clock(|| 7);
        let agent = build(builder, hand.clone()).build();
        *hand.0.lock().unwrap() = Some(agent.clone());
        let log = Log::of(&agent);
        Self {
            agent,
            model,
            log,
            hand,
        }
    }

    /// Begins a run, not polled yet.
    #[track_caller]
    pub(crate) fn start(&self, prompt: impl IntoPrompt<M>) -> Task<RunFuture<M>> {
        Task::new(IntoFuture::into_future(
            self.agent.prompt(prompt).expect("the agent is idle"),
        ))
    }

    /// A whole run.
    #[track_caller]
    pub(crate) fn prompt(&self, prompt: impl IntoPrompt<M>) -> Outcome<M> {
        self.start(prompt).finish()
    }

    /// A whole run that goes on.
    #[track_caller]
    pub(crate) fn go_on(&self) -> Outcome<M> {
        drive(self.agent.continue_run().expect("something to continue"))
    }

    /// Does something the first time this event is told.
    pub(crate) fn at(&self, event: &str, act: impl FnOnce(&Agent<M>) + Send + 'static) {
        let (event, act) = (event.to_owned(), Mutex::new(Some(act)));
        self.agent.subscribe(move |told, cx| {
            if show(told) == event
                && let Some(act) = act.lock().unwrap().take()
            {
                act(&cx.agent());
            }
        });
    }

    /// The events told since the last look are these (updates of messages left out).
    #[track_caller]
    pub(crate) fn saw(&self, events: &str) {
        assert_eq!(self.log.line(), words(events));
        self.log.clear();
    }

    /// The events told since the last look end with these (updates of messages left out).
    #[track_caller]
    pub(crate) fn saw_at_last(&self, events: &str) {
        let line = self.log.line();
        assert!(line.ends_with(&words(events)), "{line}");
        self.log.clear();
    }

    /// Has another stream function answer, one that is given the agent.
    pub(crate) fn set_stream_fn<S: StreamFn>(&self, make: impl FnOnce(Hand<M>) -> S) {
        self.agent.set_stream_fn(make(self.hand.clone()));
    }

    /// The transcript, by names.
    pub(crate) fn transcript(&self) -> String {
        names(self.agent.transcript().iter())
    }

    /// The text of the last result of this call.
    #[track_caller]
    pub(crate) fn result(&self, id: &str) -> String {
        let transcript = self.agent.transcript();
        let results = transcript
            .iter()
            .filter_map(|message| message.as_message()?.as_tool_result());
        let last = results.filter(|result| result.tool_call_id == id).last();
        last.expect("a result").text()
    }

    /// The text of the last message.
    pub(crate) fn last_text(&self) -> String {
        let transcript = self.agent.transcript();
        transcript
            .last()
            .and_then(|last| Some(last.as_message()?.text()))
            .unwrap_or_default()
    }

    /// What the `n`th request sent, by names.
    pub(crate) fn sent(&self, n: usize) -> String {
        names(self.model.requests()[n].messages.iter())
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> usize {
        self.model.requests().len()
    }

    fn check(&self) {
        assert_eq!(
            *self.log.wrong.lock().unwrap(),
            Vec::<String>::new(),
            "I1, I5: {}",
            self.log.full_line()
        );
        for (n, request) in self.model.requests().iter().enumerate() {
            let sent = sendable(request.messages.iter().map(|message| &**message));
            assert_eq!(sent, Ok(()), "P1 in request {n}: {}", names(request.messages.iter()));
        }
        assert!(!self.agent.is_streaming(), "P2: still streaming");
        assert!(self.agent.streaming_message().is_none(), "P2: a message streams");
        assert!(self.agent.pending_tool_calls().is_empty(), "P2: a call is pending");
        assert_eq!(drive(self.agent.wait_for_idle()), Ok(()), "P2");
    }
}

impl Rig {
    /// As [`of`](Rig::of), with the messages of models.
    pub(crate) fn new(
        script: impl IntoIterator<Item = Response>,
        build: impl FnOnce(AgentBuilder, Hand) -> AgentBuilder,
    ) -> Self {
        Self::of(script, build)
    }
}

impl<M: AgentMessage> Drop for Rig<M> {
    fn drop(&mut self) {
        self.hand.0.lock().unwrap().take();
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Polls a run until it has told this event, and no further.
#[track_caller]
pub(crate) fn until<M: AgentMessage>(run: &mut Run<M>, event: &str) {
    loop {
        let told = drive(run.next()).expect("the run ended before the event");
        if show(&told) == event {
            return;
        }
    }
}

/// One space between words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A response of tool calls, `id:tool` each, with `{}` as arguments.
pub(crate) fn calls(list: &str) -> Response {
    list.split_whitespace().fold(Response::new(), |response, call| {
        let (id, tool) = call.split_once(':').expect("id:tool");
        response.call_with_id(id, tool, json!({}))
    })
}

/// The same with a stop reason of its own.
pub(crate) fn calls_but(list: &str, stop: DoneReason) -> Response {
    calls(list).stop(stop)
}

/// A response of text.
pub(crate) fn say(text: &str) -> Response {
    Response::new().text(text)
}

/// A tool that takes any object.
pub(crate) fn tool<F, Fut>(name: &str, run: F) -> FnTool
where
    F: Fn(ValidatedArguments, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoToolResult> + Send + 'static,
{
    json_tool(name, name, json!({"type": "object"}), run)
}

/// A tool that answers at once: `ID ok`.
pub(crate) fn quick(name: &str) -> FnTool {
    tool(name, async |_, cx| format!("{} ok", cx.call_id()))
}

/// A tool that does something with the agent, and then answers: `ID ok`.
pub(crate) fn doing<M: AgentMessage>(
    name: &str,
    hand: &Hand<M>,
    act: impl Fn(&Agent<M>) + Clone + Send + Sync + 'static,
) -> FnTool {
    let hand = hand.clone();
    tool(name, move |_, cx| {
        let (hand, act) = (hand.clone(), act.clone());
        async move {
            act(&hand.agent());
            format!("{} ok", cx.call_id())
        }
    })
}

/// A tool that answers (`ID ok`) when the gate opens, and does not notice an abort.
pub(crate) fn gated(name: &str, gate: &CancellationToken) -> FnTool {
    let gate = gate.clone();
    tool(name, move |_, cx| {
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            format!("{} ok", cx.call_id())
        }
    })
}

/// A tool that never answers and does not notice an abort.
pub(crate) fn stuck(name: &str) -> FnTool {
    tool(name, async |_, _| std::future::pending::<String>().await)
}

/// A tool that answers with this result.
pub(crate) fn giving(name: &str, result: ToolResult) -> FnTool {
    tool(name, move |_, _| std::future::ready(result.clone()))
}

/// A tool that fails with this text.
pub(crate) fn failing(name: &str, text: &'static str) -> FnTool {
    tool(name, move |_, _| std::future::ready(Err::<String, _>(text)))
}

/// Notes in the order taken, from anywhere.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Takes a note.
    pub(crate) fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    /// All notes.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A tool that takes a note (its call's id) and answers at once.
    pub(crate) fn tool(&self, name: &str) -> FnTool {
        let notes = self.clone();
        tool(name, move |_, cx| {
            let notes = notes.clone();
            async move {
                notes.add(cx.call_id());
                format!("{} ok", cx.call_id())
            }
        })
    }
}

/// The hooks, in the order in which a run with one tool call asks them.
pub(crate) const HOOKS: [&str; 7] = ["prepare", "transform", "convert", "key", "before", "after", "stop"];

/// Sets every hook to one that decides nothing, but does `act` first; `act` is told which hook it is.
pub(crate) fn every_hook<F, Fut>(agent: AgentBuilder, act: F) -> AgentBuilder
where
    F: Fn(&'static str) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let [prepare, transform, convert, key, before, after, stop] = std::array::from_fn(|_| act.clone());
    agent
        .prepare_request(move |cx| prepare("prepare").map(|done| done.map(|()| cx.plan)))
        .transform_context(move |cx| transform("transform").map(|done| done.map(|()| cx.transcript)))
        .convert_to_llm(move |cx| convert("convert").map(move |done| done.map(|()| cx.transcript.request())))
        .resolve_api_key(move |_| key("key").map(|done| done.map(|()| None)))
        .before_tool_call(move |_| before("before").map(|done| done.map(|()| Decision::Allow)))
        .after_tool_call(move |_| after("after").map(|done| done.map(|()| ResultPatch::keep())))
        .should_stop_after_turn(move |_| stop("stop").map(|done| done.map(|()| false)))
}

/// The same for one of them; the others decide nothing at once.
pub(crate) fn one_hook<F, Fut>(agent: AgentBuilder, place: &'static str, act: F) -> AgentBuilder
where
    F: Fn() -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    every_hook(agent, move |at| {
        // A panic of `act` is the hook's.
        let act = (at == place).then(&act);
        async move {
            match act {
                Some(act) => act.await,
                None => Ok(()),
            }
        }
    })
}

/// Both queue modes.
pub(crate) const MODES: [QueueMode; 2] = [QueueMode::OneAtATime, QueueMode::All];

/// Messages from their JSON.
pub(crate) fn messages(json: Value) -> Vec<Message> {
    serde_json::from_value(json).expect("messages")
}

/// Takes a note when it is dropped.
pub(crate) struct OnDrop(pub(crate) Notes, pub(crate) &'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add(self.1);
    }
}
