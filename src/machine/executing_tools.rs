//! The phase in which the tool calls of an answer are run.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::event::AgentEvent;
use crate::message::{AgentMessage, ToolCall, ToolResult, ToolResultMessage, Transcript};
use crate::schema::ValidatedArguments;

use super::core::Core;
use super::{ABORTED_CALL, AllowedCall, ExecutionMode, PreflightCall, RunningCall, TurnEnd, tells_events};

/// The result of a call in a message that the output limit cut.
const TRUNCATED: &str = "Tool call was not executed: the response hit the output token limit, so its arguments may \
                         be incomplete. Please call the tool again.";

/// The tool calls of one answer. Each gets exactly one result, in call order, whatever happens (I3).
///
/// ```text
///               poll_action                    poll_action
///   (announced) ----------> PreflightCall        (allowed) ---> AllowedCall
///                             | allow ---------------^             | start
///                             | reject                             v
///                             v                                RunningCall
///                         (answered) <------- complete ------------+
///
///   ExecutingTools ---- finish ----> TurnEnd
/// ```
///
/// [`poll_action`](Self::poll_action) says what is next, and so keeps the order (§4.4): in parallel, all calls are
/// announced and checked one after the other, and only then run side by side; in sequence, each is announced,
/// checked, run and answered with its result message before the next. If the output limit cut the message, all calls
/// are answered from the start and none is handed out.
#[derive(Debug, Clone)]
pub struct ExecutingTools<M> {
    core: Box<Core<M>>,
    message: Arc<M>,
    /// The transcript with the message last: results of the batch are not visible in it.
    before: Transcript<M>,
    calls: Vec<Slot<M>>,
    mode: ExecutionMode,
    max_concurrent: Option<NonZeroUsize>,
    /// The first call that was not announced yet.
    unannounced: usize,
    /// The first call that may still have to be started.
    unstarted: usize,
    running: usize,
    answered: usize,
    aborted: bool,
}

#[derive(Debug, Clone)]
struct Slot<M> {
    call: Arc<ToolCall>,
    progress: Progress<M>,
}

#[derive(Debug, Clone)]
enum Progress<M> {
    Waiting,
    Announced,
    Checking,
    Allowed(ValidatedArguments),
    Running,
    Answered { message: Arc<M>, terminate: bool },
}

/// What [`ExecutingTools::poll_action`] wants done.
#[derive(Debug)]
#[must_use]
pub enum ToolAction {
    /// Tell the events first.
    Tell,
    /// Check this call, then [allow](ExecutingTools::allow) or [reject](ExecutingTools::reject) it.
    Preflight(PreflightCall),
    /// Run this call, then [complete](ExecutingTools::complete) it.
    Execute(AllowedCall),
    /// Go on with what is under way.
    Wait,
    /// All calls are answered: [finish](ExecutingTools::finish).
    Finish,
}

tells_events!(ExecutingTools);

impl<M: AgentMessage> ExecutingTools<M> {
    pub(super) fn new(core: Box<Core<M>>, message: Arc<M>, calls: Vec<Arc<ToolCall>>) -> Self {
        let mut before = core.transcript.clone();
        before.push(Arc::clone(&message));
        let calls = calls.into_iter().map(|call| Slot {
            call,
            progress: Progress::Waiting,
        });
        Self {
            calls: calls.collect(),
            core,
            message,
            before,
            mode: ExecutionMode::default(),
            max_concurrent: None,
            unannounced: 0,
            unstarted: 0,
            running: 0,
            answered: 0,
            aborted: false,
        }
    }

    /// The output limit cut the message: answers all calls one by one, as a sequential batch does.
    pub(super) fn refuse_truncated(&mut self, now: u64) {
        self.mode = ExecutionMode::Sequential;
        for index in 0..self.calls.len() {
            self.announce(index);
            self.answer(index, ToolResult::error(TRUNCATED), now);
        }
    }

    /// Sets how the calls are run: their mode, and how many at once at most. To be said before the first
    /// [`poll_action`](Self::poll_action); what is under way is not changed by it.
    #[must_use]
    pub fn with_mode(mut self, mode: ExecutionMode, max_concurrent: Option<NonZeroUsize>) -> Self {
        if self.unannounced == 0 {
            self.mode = mode;
            self.max_concurrent = max_concurrent;
        }
        self
    }

    /// The assistant message with the calls.
    pub fn message(&self) -> &Arc<M> {
        &self.message
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = &Arc<ToolCall>> {
        self.calls.iter().map(|slot| &slot.call)
    }

    /// The transcript as hooks see it: the message with the calls is last, results of the batch are not in it.
    pub fn context(&self) -> &Transcript<M> {
        &self.before
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> ToolAction {
        if !self.core.is_told() {
            return ToolAction::Tell;
        }
        if self.answered == self.calls.len() {
            return ToolAction::Finish;
        }
        if self.aborted {
            return ToolAction::Wait;
        }
        if let Some(index) = self.unannounced.checked_sub(1) {
            let slot = &mut self.calls[index];
            match slot.progress {
                Progress::Announced => {
                    slot.progress = Progress::Checking;
                    let call = Arc::clone(&slot.call);
                    return ToolAction::Preflight(PreflightCall { index, call });
                }
                Progress::Checking => return ToolAction::Wait,
                Progress::Allowed(_) | Progress::Running if self.mode == ExecutionMode::Sequential => {
                    return self.start_next();
                }
                _ => {}
            }
        }
        if self.unannounced < self.calls.len() {
            self.announce(self.unannounced);
            return ToolAction::Tell;
        }
        self.start_next()
    }

    fn start_next(&mut self) -> ToolAction {
        if self.max_concurrent.is_some_and(|max| self.running >= max.get()) {
            return ToolAction::Wait;
        }
        while let Some(slot) = self.calls.get_mut(self.unstarted) {
            if let Progress::Waiting | Progress::Announced | Progress::Checking = slot.progress {
                break;
            }
            self.unstarted += 1;
            if let Progress::Allowed(_) = slot.progress
                && let Progress::Allowed(arguments) = std::mem::replace(&mut slot.progress, Progress::Running)
            {
                self.running += 1;
                let running = RunningCall {
                    index: self.unstarted - 1,
                    call: Arc::clone(&slot.call),
                };
                return ToolAction::Execute(AllowedCall { running, arguments });
            }
        }
        ToolAction::Wait
    }

    /// The call may run with these arguments.
    #[expect(clippy::needless_pass_by_value, reason = "a witness is spent")]
    pub fn allow(&mut self, call: PreflightCall, arguments: ValidatedArguments) {
        if matches!(self.progress(call.index, &call.call), Some(Progress::Checking)) {
            self.calls[call.index].progress = Progress::Allowed(arguments);
        }
    }

    /// The call is not run: `result`, an error, is its answer, given at `now` (milliseconds since the Unix epoch).
    #[expect(clippy::needless_pass_by_value, reason = "a witness is spent")]
    pub fn reject(&mut self, call: PreflightCall, result: ToolResult, now: u64) {
        if matches!(self.progress(call.index, &call.call), Some(Progress::Checking)) {
            self.answer(call.index, result, now);
        }
    }

    /// A running call reports progress. Ignored, and `false`, if the call does not run: late news is no news.
    pub fn update(&mut self, index: usize, partial_result: ToolResult) -> bool {
        let Some(Slot {
            call,
            progress: Progress::Running,
        }) = self.calls.get(index)
        else {
            return false;
        };
        let call = Arc::clone(call);
        let partial_result = Box::new(partial_result);
        self.core.tell(AgentEvent::ToolExecutionUpdate {
            index,
            call,
            partial_result,
        });
        true
    }

    /// A running call gave its result, at `now` (milliseconds since the Unix epoch).
    #[expect(clippy::needless_pass_by_value, reason = "a witness is spent")]
    pub fn complete(&mut self, call: RunningCall, result: ToolResult, now: u64) {
        if matches!(self.progress(call.index, &call.call), Some(Progress::Running)) {
            self.running -= 1;
            self.answer(call.index, result, now);
            if self.aborted {
                self.answer_idle(now);
            }
        }
    }

    /// The run is aborted: no further call is handed out (I6), and those that do not run are answered; in sequence,
    /// behind the one that runs. Running ones may still be [completed](Self::complete); [`finish`](Self::finish)
    /// answers the rest.
    pub fn abort(&mut self, now: u64) {
        self.aborted = true;
        self.answer_idle(now);
    }

    /// Whether the run was aborted.
    pub fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Ends the batch. Calls without an answer are answered as aborted.
    pub fn finish(mut self, now: u64) -> TurnEnd<M> {
        (0..self.calls.len()).for_each(|index| self.answer_aborted(index, now));
        let results = self.calls.iter().filter_map(|slot| match &slot.progress {
            Progress::Answered { message, terminate } => Some((Arc::clone(message), *terminate)),
            _ => None,
        });
        let (results, wishes): (Vec<_>, Vec<_>) = results.unzip();
        let terminated = !wishes.is_empty() && wishes.iter().all(|wish| *wish);
        TurnEnd::new(self.core, self.message, results, terminated)
    }

    /// How far the call of a witness got; `None` if it is of another batch.
    fn progress(&self, index: usize, call: &Arc<ToolCall>) -> Option<&Progress<M>> {
        let slot = self.calls.get(index).filter(|slot| Arc::ptr_eq(&slot.call, call))?;
        Some(&slot.progress)
    }

    /// Answers what does not run as aborted. In sequence, results must not overtake the call that runs (I3).
    fn answer_idle(&mut self, now: u64) {
        for index in 0..self.calls.len() {
            match (&self.calls[index].progress, self.mode) {
                (Progress::Running, ExecutionMode::Sequential) => return,
                (Progress::Running, ExecutionMode::Parallel) => {}
                _ => self.answer_aborted(index, now),
            }
        }
    }

    /// Answers a call as aborted, if it has no answer.
    fn answer_aborted(&mut self, index: usize, now: u64) {
        match self.calls[index].progress {
            Progress::Answered { .. } => return,
            Progress::Waiting => self.announce(index),
            _ => {}
        }
        self.answer(index, ToolResult::error(ABORTED_CALL), now);
    }

    fn announce(&mut self, index: usize) {
        let slot = &mut self.calls[index];
        slot.progress = Progress::Announced;
        self.unannounced = index + 1;
        let call = Arc::clone(&slot.call);
        self.core.tell(AgentEvent::ToolExecutionStart { index, call });
    }

    /// Answers a call: its end is told now, its result message now or, in parallel, once all calls have theirs.
    fn answer(&mut self, index: usize, result: ToolResult, now: u64) {
        let slot = &mut self.calls[index];
        let message = Arc::new(M::from(ToolResultMessage::new(&slot.call, &result, now).into()));
        slot.progress = Progress::Answered {
            message: Arc::clone(&message),
            terminate: result.terminate == Some(true),
        };
        self.answered += 1;
        let call = Arc::clone(&slot.call);
        let result = Arc::new(result);
        self.core.tell(AgentEvent::ToolExecutionEnd { index, call, result });
        match self.mode {
            ExecutionMode::Sequential => self.core.tell_message(message),
            ExecutionMode::Parallel if self.answered == self.calls.len() => {
                for slot in &self.calls {
                    if let Progress::Answered { message, .. } = &slot.progress {
                        self.core.tell_message(Arc::clone(message));
                    }
                }
            }
            ExecutionMode::Parallel => {}
        }
    }
}
