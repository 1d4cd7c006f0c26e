//! The agent: a transcript, a model, tools, and one run at a time.

mod builder;
mod input;
mod listener;
mod run;
mod settings;
mod shared;
mod state;

use std::fmt;
use std::sync::Arc;

use crate::agent_loop::{LoopConfig, Start, StartError};
use crate::event::AgentEvent;
use crate::hooks::{BoxedHooks, Hooks, IntoHookResult};
use crate::machine::ExecutionMode;
use crate::message::{AgentMessage, Message, Model, StreamOptions, ThinkingLevel, ToolCall, Transcript};
use crate::queue::{QueueId, QueueKind, QueueMode, Queued};
use crate::stream_fn::StreamFn;
use crate::tool::ToolSet;

pub use builder::AgentBuilder;
pub use input::{IntoMessage, IntoPrompt};
pub use listener::{AsyncListenerContext, ListenerContext, Subscription};
pub use run::{Run, RunFuture};
pub use state::AgentState;

use listener::{Call, Listening};
use run::Inner;
use settings::{Following, RunHooks, RunStreamFn};
use shared::{Shared, lock};

/// An agent: talks to a model, runs its tools, keeps the transcript. A cheap handle: copies are the same agent.
///
/// One run is active at a time; [`prompt`](Self::prompt) and its kin refuse a second one with
/// [`StartError::Busy`]. Meanwhile anybody may [`steer`](Self::steer), queue a [`follow_up`](Self::follow_up) or
/// [`abort`](Self::abort). Everything but the messages can be set at any time and takes effect at the next turn.
///
/// ```
/// use serde_json::json;
/// use turnstate::{Agent, ScriptedModel, json_tool};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 3})).text("It is 5.");
/// let add = json_tool("add", "Adds two numbers", json!({"type": "object"}), async |args, _cx| {
///     let sum = args.as_value()["a"].as_i64().unwrap_or(0) + args.as_value()["b"].as_i64().unwrap_or(0);
///     sum.to_string()
/// });
/// let agent = Agent::builder("scripted-1", model).tool(add).build();
/// let outcome = agent.prompt("2 + 3?")?.await.into_result()?;
/// assert_eq!(outcome.text(), "It is 5.");
/// assert_eq!(agent.transcript().len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Agent<M: AgentMessage = Message> {
    shared: Arc<Shared<M>>,
}

/// Waiting was refused: a listener that waits for the end of its own run would wait for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[error("a listener cannot wait for the end of the run that waits for it")]
pub struct WaitInsideListener;

impl Agent<Message> {
    /// Begins an agent that calls `model` by `stream_fn`.
    pub fn builder(model: impl Into<Model>, stream_fn: impl StreamFn) -> AgentBuilder<Message> {
        AgentBuilder::new(model, stream_fn)
    }
}

/// Runs.
impl<M: AgentMessage> Agent<M> {
    /// Begins a run with something to say. The agent is busy from here on; the work is done by polling the run.
    ///
    /// # Errors
    /// [`StartError`] if a run is active or the prompt has no messages. Nothing has changed then.
    ///
    /// A text is stamped with the time; a message is taken as it is.
    pub fn prompt(&self, prompt: impl IntoPrompt<M>) -> Result<Run<M>, StartError> {
        let messages = prompt.into_prompt((self.shared.fixed.clock)());
        self.begin(|transcript| Ok((Start::Prompt(messages), transcript, None)))
    }

    /// Begins a run that goes on from the transcript. If its last message is the assistant's, with what is queued:
    /// steering messages, else follow-ups.
    ///
    /// # Errors
    /// [`StartError`] if a run is active, the transcript is empty, or the last message is the assistant's and nothing
    /// is queued. Nothing has changed then.
    pub fn continue_run(&self) -> Result<Run<M>, StartError> {
        self.begin(|transcript| Ok((self.going_on(&transcript)?, transcript, None)))
    }

    /// Drops a trailing assistant message that failed or was aborted, and goes on from before it. It is dropped when
    /// the run is first polled.
    ///
    /// # Errors
    /// [`StartError`] if a run is active, the last message is none such, or there is nothing before it to go on from.
    /// Nothing has changed then.
    pub fn retry(&self) -> Result<Run<M>, StartError> {
        self.begin(|transcript| {
            let last = transcript
                .last()
                .and_then(|last| last.as_message())
                .and_then(Message::as_assistant);
            if !last.is_some_and(|answer| answer.stop_reason.is_failure()) {
                return Err(StartError::NothingToRetry);
            }
            // On storage of its own: the old one holds what is dropped, and would be let go under a lock, at a push.
            let kept: Transcript<M> = transcript.iter().take(transcript.len() - 1).cloned().collect();
            Ok((self.going_on(&kept)?, kept.clone(), Some(kept)))
        })
    }

    fn going_on(&self, transcript: &Transcript<M>) -> Result<Start<M>, StartError> {
        let Some(last) = transcript.last() else {
            return Err(StartError::EmptyTranscript);
        };
        if last.role() != "assistant" {
            return Ok(Start::Continue);
        }
        for kind in [QueueKind::Steering, QueueKind::FollowUp] {
            let lease = self.shared.queues.lease(kind);
            if !lease.is_empty() {
                return Ok(Start::Queued(lease));
            }
        }
        Err(StartError::NothingToContinue)
    }

    fn begin(
        &self,
        start: impl FnOnce(Transcript<M>) -> Result<(Start<M>, Transcript<M>, Option<Transcript<M>>), StartError>,
    ) -> Result<Run<M>, StartError> {
        let shared = &self.shared;
        shared.begin(|active| {
            let (start, transcript, keep) = start(self.transcript())?;
            let settings = shared.settings();
            let mut config = LoopConfig::new(Model::default());
            config.plan = settings.plan(transcript);
            config.queues = shared.queues.clone();
            config.cancel = active.cancel.clone();
            config.limits = shared.fixed.limits;
            config.max_concurrent_tools = shared.fixed.max_concurrent_tools;
            config.grace.clone_from(&shared.fixed.grace);
            config.clock = shared.fixed.clock;
            let following = Arc::new(Following::new(Arc::clone(shared), Arc::clone(active), settings));
            let (stream_fn, hooks) = (RunStreamFn(Arc::clone(&following)), RunHooks(following));
            let inner = Inner::with_boxed_effects(start, config, stream_fn, hooks)?;
            let id = inner.run_id();
            Ok((Run::new(inner, Arc::clone(shared), Arc::clone(active), keep), id))
        })
    }

    /// Aborts the active run, if there is one. It ends although nobody cooperates, and its holder is woken for that.
    /// What is queued stays so for the next run; [`clear_queues`](Self::clear_queues) drops it.
    pub fn abort(&self) {
        self.shared.abort();
    }

    /// Has the active run, if there is one, stop after its turn, as if the stop hook said so.
    pub fn stop_after_turn(&self) {
        self.shared.stop_after_turn();
    }

    /// Whether a run is active: from the call that began it until the listeners of its `AgentEnd` are done.
    pub fn is_streaming(&self) -> bool {
        self.shared.active().is_some()
    }

    /// Waits until the run that is active now, if any, has ended and its listeners are done.
    ///
    /// # Errors
    /// [`WaitInsideListener`] where it is polled by a listener of that run.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub fn wait_for_idle(&self) -> impl Future<Output = Result<(), WaitInsideListener>> + Send + use<M> {
        let active = self.shared.active();
        async move {
            let Some(active) = active else { return Ok(()) };
            let mut done = std::pin::pin!(active.done.cancelled());
            std::future::poll_fn(|cx| {
                if Listening::is_inside(active.id) && !active.done.is_cancelled() {
                    return std::task::Poll::Ready(Err(WaitInsideListener));
                }
                done.as_mut().poll(cx).map(Ok)
            })
            .await
        }
    }

    /// Clears the transcript, the error and both queues; modes and configuration stay.
    ///
    /// # Errors
    /// [`StartError::Busy`] while a run is active.
    pub fn reset(&self) -> Result<(), StartError> {
        let Shared { state, queues, .. } = &*self.shared;
        let kinds = [QueueKind::Steering, QueueKind::FollowUp];
        let before = self.shared.while_idle(|| {
            let cleared = kinds.map(|kind| queues.clear(kind));
            (std::mem::take(&mut *lock(state)), cleared)
        })?;
        // What goes may be the last copy of something foreign: dropped without a lock.
        drop(before);
        Ok(())
    }

    /// Replaces the transcript, and clears the error.
    ///
    /// # Errors
    /// [`StartError::Busy`] while a run is active.
    pub fn set_transcript(&self, transcript: impl Into<Transcript<M>>) -> Result<(), StartError> {
        let state = AgentState::new(transcript.into());
        let before = self
            .shared
            .while_idle(|| std::mem::replace(&mut *lock(&self.shared.state), state))?;
        // What goes may be the last copy of something foreign: dropped without a lock.
        drop(before);
        Ok(())
    }
}

/// Queues.
impl<M: AgentMessage> Agent<M> {
    /// Queues a steering message: it enters the transcript before the next request.
    pub fn steer(&self, message: impl IntoMessage<M>) -> Queued {
        self.push(QueueKind::Steering, message)
    }

    /// Queues a follow-up: it enters the transcript when the run would otherwise end.
    pub fn follow_up(&self, message: impl IntoMessage<M>) -> Queued {
        self.push(QueueKind::FollowUp, message)
    }

    fn push(&self, kind: QueueKind, message: impl IntoMessage<M>) -> Queued {
        let message = message.into_message((self.shared.fixed.clock)());
        self.shared.queues.push(kind, message)
    }

    /// Takes a queued message back. `None` if a run has it, or it was taken back or cleared before.
    pub fn recall(&self, id: QueueId) -> Option<Arc<M>> {
        self.shared.queues.recall(id)
    }

    /// Takes back all that is queued, but for what a run has taken.
    pub fn clear_queue(&self, kind: QueueKind) -> Vec<Arc<M>> {
        self.shared.queues.clear(kind)
    }

    /// Drops all that is queued, but for what a run has taken.
    pub fn clear_queues(&self) {
        drop([QueueKind::Steering, QueueKind::FollowUp].map(|kind| self.clear_queue(kind)));
    }

    /// Whether anything is queued, or taken by a run but not yet in the transcript.
    pub fn has_queued(&self) -> bool {
        self.shared.queues.has_queued()
    }

    /// What the next look at a queue would give.
    pub fn peek(&self, kind: QueueKind) -> Vec<Arc<M>> {
        self.shared.queues.peek(kind)
    }

    /// How many messages a look takes.
    pub fn queue_mode(&self, kind: QueueKind) -> QueueMode {
        self.shared.queues.mode(kind)
    }

    /// Sets how many messages the next look takes.
    pub fn set_queue_mode(&self, kind: QueueKind, mode: QueueMode) {
        self.shared.queues.set_mode(kind, mode);
    }
}

/// Listeners.
impl<M: AgentMessage> Agent<M> {
    /// Has `listener` called with every event of every run, from the next event on, after the state was reduced and
    /// before the event is yielded. It may return nothing or a `Result`; its failure or panic does not touch the run.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use turnstate::{Agent, ScriptedModel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let agent = Agent::builder("scripted-1", ScriptedModel::new().text("hi")).build();
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let log = Arc::clone(&lines);
    /// let subscription = agent.subscribe(move |event, cx| {
    ///     let json = serde_json::to_string(&event.json(cx.partial()))?; // Pi's JSON of the event
    ///     log.lock().unwrap().push(json);
    ///     Ok::<_, serde_json::Error>(())
    /// });
    /// agent.prompt("hello")?.await;
    /// assert_eq!(lines.lock().unwrap()[0], r#"{"type":"agent_start"}"#);
    /// subscription.unsubscribe();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn subscribe<F, R>(&self, listener: F) -> Subscription<M>
    where
        F: Fn(&AgentEvent<M>, &ListenerContext<'_, M>) -> R + Send + Sync + 'static,
        R: IntoHookResult<()>,
    {
        self.add(Call::Sync(Box::new(move |event, cx| {
            listener(event, cx).into_hook_result()
        })))
    }

    /// The same with an async listener: the run waits for it before the next event. One that never resolves holds its
    /// run; dropping the run is the way out.
    pub fn subscribe_async<F, Fut>(&self, listener: F) -> Subscription<M>
    where
        F: Fn(Arc<AgentEvent<M>>, AsyncListenerContext<M>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoHookResult<()>> + Send + 'static,
    {
        self.add(Call::Async(Box::new(move |event, cx| {
            let heard = listener(event, cx);
            Box::pin(async move { heard.await.into_hook_result() })
        })))
    }

    fn add(&self, call: Call<M>) -> Subscription<M> {
        Subscription {
            listener: self.shared.listeners.add(call),
            shared: Arc::downgrade(&self.shared),
        }
    }
}

/// State and configuration.
impl<M: AgentMessage> Agent<M> {
    fn from_shared(shared: Arc<Shared<M>>) -> Self {
        Self { shared }
    }

    /// The transcript. It is saved and loaded by serde:
    ///
    /// ```
    /// use turnstate::{Agent, Message, ScriptedModel, Transcript};
    /// let agent = Agent::builder("scripted-1", ScriptedModel::new()).transcript(vec![Message::user("hi")]).build();
    /// let saved = serde_json::to_string(&agent.transcript()).unwrap();
    /// let loaded: Transcript<Message> = serde_json::from_str(&saved).unwrap();
    /// agent.set_transcript(loaded).unwrap();
    /// assert_eq!(agent.transcript().len(), 1);
    /// ```
    pub fn transcript(&self) -> Transcript<M> {
        lock(&self.shared.state).transcript().clone()
    }

    /// The message that has begun but not ended, if any. One that streams is copied for it; to follow it, read the
    /// partial that runs and listeners are lent.
    pub fn streaming_message(&self) -> Option<Arc<M>> {
        lock(&self.shared.state).streaming_message()
    }

    /// The tool calls that were taken up but not answered, by position within their message.
    pub fn pending_tool_calls(&self) -> Vec<Arc<ToolCall>> {
        let state = lock(&self.shared.state);
        state.pending_tool_calls().map(|(_, call)| Arc::clone(call)).collect()
    }

    /// What went wrong in the last failed or aborted turn, until the next run begins.
    pub fn error_message(&self) -> Option<String> {
        lock(&self.shared.state).error_message().map(str::to_owned)
    }

    /// The model.
    pub fn model(&self) -> Arc<Model> {
        self.shared.settings().model.clone()
    }

    /// Sets the model.
    pub fn set_model(&self, model: impl Into<Model>) {
        let model = Arc::new(model.into());
        self.shared.set(|settings| &mut settings.model, model);
    }

    /// How much the model shall think.
    pub fn thinking_level(&self) -> ThinkingLevel {
        self.shared.settings().thinking_level
    }

    /// Sets how much the model shall think.
    pub fn set_thinking_level(&self, level: ThinkingLevel) {
        self.shared.set(|settings| &mut settings.thinking_level, level);
    }

    /// The system prompt.
    pub fn system_prompt(&self) -> Arc<str> {
        self.shared.settings().system_prompt.clone()
    }

    /// Sets the system prompt.
    pub fn set_system_prompt(&self, prompt: impl Into<Arc<str>>) {
        let prompt = prompt.into();
        self.shared.set(|settings| &mut settings.system_prompt, prompt);
    }

    /// The tools.
    pub fn tools(&self) -> ToolSet {
        self.shared.settings().tools.clone()
    }

    /// Sets the tools.
    pub fn set_tools(&self, tools: impl Into<ToolSet>) {
        let tools = tools.into();
        self.shared.set(|settings| &mut settings.tools, tools);
    }

    /// How the calls of a message are run.
    pub fn execution_mode(&self) -> ExecutionMode {
        self.shared.settings().execution_mode
    }

    /// Sets how the calls of a message are run.
    pub fn set_execution_mode(&self, mode: ExecutionMode) {
        self.shared.set(|settings| &mut settings.execution_mode, mode);
    }

    /// What every request says beside the context.
    pub fn options(&self) -> Arc<StreamOptions> {
        self.shared.settings().options.clone()
    }

    /// Sets what every request says beside the context, the key included.
    pub fn set_options(&self, options: StreamOptions) {
        let options = Arc::new(options);
        self.shared.set(|settings| &mut settings.options, options);
    }

    /// Sets how models are called.
    pub fn set_stream_fn(&self, stream_fn: impl StreamFn) {
        let stream_fn = stream_fn.boxed();
        self.shared.set(|settings| &mut settings.stream_fn, stream_fn);
    }

    /// Sets the hooks, in place of all that were set before.
    pub fn set_hooks(&self, hooks: impl Hooks<M>) {
        let hooks = BoxedHooks::new(hooks);
        self.shared.set(|settings| &mut settings.hooks, hooks);
    }
}

impl<M: AgentMessage> Clone for Agent<M> {
    fn clone(&self) -> Self {
        Self::from_shared(Arc::clone(&self.shared))
    }
}

impl<M: AgentMessage> fmt::Debug for Agent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.shared.settings();
        f.debug_struct("Agent")
            .field("model", &settings.model.id)
            .field("tools", &settings.tools)
            .field("messages", &self.transcript().len())
            .field("streaming", &self.is_streaming())
            .finish_non_exhaustive()
    }
}
