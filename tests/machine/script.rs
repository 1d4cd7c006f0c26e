//! A world that answers by a script, and writes down what it is asked between the events.

use std::collections::VecDeque;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::Arc;

use turnstate::machine::{AwaitingSteering, ExecutionMode, Limits, PreflightCall, RunningCall};
use turnstate::{AgentEvent, AssistantEvent, Message, ToolResult, Transcript};

use crate::driver::{Over, Progress, World, drive};
use crate::words::{names, user, word};

/// What happens in a run. What is not said does not happen: no one steers, all calls are allowed, tools complete in the
/// order they were started, the model's script is empty.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) answers: VecDeque<Vec<AssistantEvent>>,
    /// What each poll gives.
    pub(crate) steering: VecDeque<Vec<Arc<Message>>>,
    pub(crate) follow_ups: VecDeque<Vec<Arc<Message>>>,
    /// What the stop hook says each time.
    pub(crate) stops: VecDeque<bool>,
    pub(crate) limits: Limits,
    pub(crate) mode: ExecutionMode,
    pub(crate) cap: Option<NonZeroUsize>,
    /// Calls that are not allowed.
    pub(crate) rejected: Vec<&'static str>,
    /// Calls whose result asks to terminate.
    pub(crate) terminating: Vec<&'static str>,
    /// Calls that never complete.
    pub(crate) stuck: Vec<&'static str>,
    /// Updates by position that come first whenever the machine waits.
    pub(crate) updates: VecDeque<usize>,
    /// Whether what was started last completes first.
    pub(crate) last_first: bool,
    /// The phase in which a hook fails.
    pub(crate) failing: &'static str,
    /// After how many told events the run is aborted.
    pub(crate) abort_at: Option<usize>,

    told: usize,
    answer: VecDeque<AssistantEvent>,
    words: Vec<String>,
    asked: usize,
    /// How much was asked when the run was aborted.
    asked_before_abort: Option<usize>,
}

impl Script {
    /// A script of these answers.
    pub(crate) fn answers(answers: impl IntoIterator<Item = Vec<AssistantEvent>>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A run with the prompt `go`.
    pub(crate) fn prompt(&mut self) -> Over {
        self.prompt_after(Transcript::new())
    }

    pub(crate) fn prompt_after(&mut self, transcript: Transcript<Message>) -> Over {
        let limits = self.limits;
        self.drive(AwaitingSteering::prompt(transcript, vec![user("go")], limits))
    }

    pub(crate) fn drive(&mut self, run: AwaitingSteering<Message>) -> Over {
        drive(self, run)
    }

    /// What was told, and in `?question`s what the machine asked for, without updates of messages.
    pub(crate) fn heard(&self) -> String {
        let words = self.words.iter().filter(|word| *word != "mu");
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// How often the machine asked for something, when it was aborted and in all.
    pub(crate) fn asked(&self) -> (Option<usize>, usize) {
        (self.asked_before_abort, self.asked)
    }

    fn ask(&mut self, what: impl Display) {
        self.asked += 1;
        self.words.push(format!("?{what}"));
    }
}

impl World for Script {
    fn hear(&mut self, event: &AgentEvent) {
        self.told += 1;
        self.words.push(word(event));
    }

    fn aborts(&mut self) -> bool {
        let aborts = self.abort_at == Some(self.told);
        if aborts {
            self.asked_before_abort = Some(self.asked);
        }
        aborts
    }

    fn fails(&mut self, phase: &'static str) -> bool {
        self.failing == phase
    }

    fn steering(&mut self) -> Vec<Arc<Message>> {
        self.ask("steering");
        self.steering.pop_front().unwrap_or_default()
    }

    fn follow_ups(&mut self) -> Vec<Arc<Message>> {
        self.ask("follow_ups");
        self.follow_ups.pop_front().unwrap_or_default()
    }

    fn queued(&mut self) -> bool {
        self.ask("queued");
        !self.steering.is_empty() || !self.follow_ups.is_empty()
    }

    fn request(&mut self, transcript: &Transcript<Message>) {
        self.ask(format!("model({})", names(transcript.request().iter())));
        self.answer = self.answers.pop_front().unwrap_or_default().into();
    }

    fn model(&mut self) -> Option<AssistantEvent> {
        self.answer.pop_front()
    }

    fn stops(&mut self) -> bool {
        self.ask("stop");
        self.stops.pop_front().unwrap_or_default()
    }

    fn mode(&mut self) -> (ExecutionMode, Option<NonZeroUsize>) {
        (self.mode, self.cap)
    }

    fn rejects(&mut self, call: &PreflightCall) -> Option<ToolResult> {
        let id = call.call().id.as_str();
        self.ask(format_args!("check({id})"));
        self.rejected.contains(&id).then(|| ToolResult::error("no"))
    }

    fn starts(&mut self, call: &RunningCall) {
        self.ask(format!("run({})", call.call().id));
    }

    fn tools(&mut self, running: &[RunningCall], _aborted: bool) -> Option<Progress> {
        if let Some(index) = self.updates.pop_front() {
            return Some(Progress::Update(index));
        }
        let able = |call: &&RunningCall| !self.stuck.contains(&call.call().id.as_str());
        let call = if self.last_first {
            running.iter().rfind(able)
        } else {
            running.iter().find(able)
        }?;
        let place = running.iter().position(|other| other.index() == call.index())?;
        let id = call.call().id.as_str();
        let result = ToolResult::text(format!("{id} done"));
        let wish = self.terminating.contains(&id);
        Some(Progress::Complete(
            place,
            if wish { result.with_terminate(true) } else { result },
        ))
    }
}
