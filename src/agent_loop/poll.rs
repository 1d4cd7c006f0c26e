//! What a poll of the loop does.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::event::AgentEvent;
use crate::hooks::Hooks;
use crate::machine::{AnswerEnd, Ended, ExecutingTools, PreflightCall, Streaming, ToolAction};
use crate::message::{AgentMessage, Model};
use crate::queue::QueueKind;
use crate::stream_fn::StreamFn;
use crate::tool::BoxFuture;

use super::effect::{Effect, NextStep, Step};
use super::executor::Executor;
use super::foreign::catch;
use super::{AgentLoop, Control, Outcome, Work, WorkOwned, WorkProj};

/// How often a poll goes round without an event before it lets others run: a model that streams blocks before its
/// start, say, has nothing to tell.
const QUIET_ROUNDS: usize = 128;

/// What came of one round; `E` is how the phase is left.
enum Round<M, E> {
    /// An event.
    Event(AgentEvent<M>),
    /// Nothing to tell yet.
    Again,
    /// Nothing to do until something wakes the task.
    Wait,
    /// The phase is over.
    Leave(E),
}

/// How the tools phase is left: for a look at a call, or for good.
enum ToolsExit {
    Preflight(PreflightCall),
    Done,
}

impl<M, H, S, F> Stream for AgentLoop<M, H, S, F>
where
    M: AgentMessage,
    H: Hooks<M>,
    S: StreamFn,
    F: Future<Output = NextStep<M, S::Stream>>,
{
    type Item = AgentEvent<M>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent<M>>> {
        let mut this = self.project();
        for _ in 0..QUIET_ROUNDS {
            // A phase is left by taking it out of its place; the next is put there in the same arm.
            match this.work.as_mut().project() {
                WorkProj::Step(None) => return Poll::Ready(None),
                WorkProj::Step(slot) => {
                    let event = match slot.as_mut() {
                        // Messages that were taken but not told stay untold: `decide` ends the run (I4, I6).
                        Some(step) if step.is_revocable() && this.ctl.env.cancel.is_cancelled() => None,
                        step => step.and_then(Step::poll_event),
                    };
                    if let Some(event) = &event {
                        this.ctl.told(event);
                    }
                    // With its last event a run is over: nobody need poll once more to see its outcome.
                    if matches!(event, None | Some(AgentEvent::AgentEnd { .. })) {
                        let next = slot.take().map_or(Work::Step(None), |step| this.ctl.decide(step));
                        this.work.set(next);
                    }
                    if event.is_some() {
                        return Poll::Ready(event);
                    }
                }
                WorkProj::Effect(effect) => match effect.poll(cx) {
                    Poll::Ready(NextStep(step)) => this.work.set(this.ctl.enter(step)),
                    // Woken by the hook, or by the token, which the effect waits for as well.
                    Poll::Pending => return Poll::Pending,
                },
                WorkProj::Streaming { state, stream } => {
                    match this.ctl.poll_model(state, stream, this.cancelled.as_mut(), cx) {
                        Round::Event(event) => return Poll::Ready(Some(event)),
                        Round::Again => {}
                        Round::Wait => return Poll::Pending,
                        Round::Leave(end) => {
                            let left = this.work.as_mut().project_replace(Work::Step(None));
                            if let WorkOwned::Streaming { state, .. } = left {
                                this.work.set(this.ctl.leave_streaming(state, end));
                            }
                        }
                    }
                }
                WorkProj::ExecutingTools { state, grace } => {
                    match this
                        .ctl
                        .poll_tools(state, grace, this.executor, this.cancelled.as_mut(), cx)
                    {
                        Round::Event(event) => return Poll::Ready(Some(event)),
                        Round::Again => {}
                        Round::Wait => return Poll::Pending,
                        Round::Leave(exit) => {
                            let left = this.work.as_mut().project_replace(Work::Step(None));
                            if let WorkOwned::ExecutingTools { state, .. } = left {
                                this.work.set(this.ctl.leave_tools(state, exit));
                            }
                        }
                    }
                }
            }
        }
        // Nothing else wakes a task that has merely had its rounds.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<M, H, S, F> FusedStream for AgentLoop<M, H, S, F>
where
    M: AgentMessage,
    H: Hooks<M>,
    S: StreamFn,
    F: Future<Output = NextStep<M, S::Stream>>,
{
    fn is_terminated(&self) -> bool {
        matches!(self.work, Work::Step(None))
    }
}

impl<M, H, S, F> AgentLoop<M, H, S, F>
where
    M: AgentMessage,
    H: Hooks<M>,
    S: StreamFn,
    F: Future<Output = NextStep<M, S::Stream>>,
{
    /// Ends the run now, without polling anything foreign again: for a run that is dropped half-way. Its closing
    /// events go to `each`.
    pub(crate) fn close(mut self: Pin<&mut Self>, mut each: impl FnMut(AgentEvent<M>)) {
        let this = self.as_mut().project();
        this.ctl.closing = true;
        this.ctl.env.cancel.cancel();
        // Cancelled, every effect resolves at its next poll, and so nothing is pending.
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = self.as_mut().poll_next(&mut cx) {
            each(event);
        }
    }

    /// Gives back what the run took from its queues: for one that is dropped before its first poll.
    pub(crate) fn release(self: Pin<&mut Self>) {
        let this = self.project();
        this.ctl.ticket.close();
        this.ctl.lease = None;
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: StreamFn, F> Control<M, H, S, F> {
    fn now(&self) -> u64 {
        self.env.clock.now()
    }

    /// An event is handed out: what came from a queue and is in the transcript now, is no longer queued.
    fn told(&mut self, event: &AgentEvent<M>) {
        match event {
            AgentEvent::MessageEnd { message } => {
                if let Some(lease) = &mut self.lease {
                    lease.commit(message);
                }
            }
            // Whatever the run took and did not tell is queued again before anybody hears that it is over.
            AgentEvent::AgentEnd { .. } => self.lease = None,
            _ => {}
        }
    }

    /// Goes to a step; a run that is over does not look at its queues again.
    fn enter(&mut self, step: Step<M, S::Stream>) -> Work<M, S::Stream, F> {
        if let Step::Ended(_) = step {
            self.ticket.close();
        }
        Work::Step(Some(step))
    }

    fn effect(&self, effect: Effect<M>) -> Work<M, S::Stream, F> {
        Work::Effect((self.perform)(effect, Arc::clone(&self.env)))
    }

    /// All of a step was told: what comes next. An abort comes first (I6).
    #[inline(never)] // not on the way of a delta
    fn decide(&mut self, step: Step<M, S::Stream>) -> Work<M, S::Stream, F> {
        let aborted = self.env.cancel.is_cancelled();
        match step {
            Step::AwaitingSteering(state) if aborted => self.end(|model, now| state.abort(model, now)),
            Step::Requesting(state) if aborted => self.end(|model, now| state.abort(model, now)),
            Step::TurnEnd(state) if aborted => self.end(|model, now| state.abort(model, now)),
            Step::AtLimit(state) if aborted => self.end(|model, now| state.abort(model, now)),
            Step::FollowUp(state) if aborted => self.end(|model, now| state.abort(model, now)),
            Step::AwaitingSteering(state) => {
                let messages = if state.wants_steering() {
                    let lease = self.ticket.lease(QueueKind::Steering);
                    self.lease.insert(lease).messages()
                } else {
                    Vec::new()
                };
                self.enter(state.handle_steering(messages).into())
            }
            Step::Requesting(state) => self.effect(Effect::Request(state, self.plan.clone())),
            Step::Streaming(state, stream, plan) => {
                self.plan = plan;
                Work::Streaming {
                    state,
                    stream: Some(stream),
                }
            }
            Step::ToolCalls(state) => {
                let mode = self.plan.tools.execution_mode(state.calls(), self.plan.execution_mode);
                Work::ExecutingTools {
                    state: state.with_mode(mode, self.max_concurrent_tools),
                    grace: None,
                }
            }
            Step::ExecutingTools(state) => Work::ExecutingTools { state, grace: None },
            Step::TurnEnd(state) => self.effect(Effect::Stop(state, Arc::clone(&self.plan.model))),
            Step::AtLimit(state) => {
                let queued = self.ticket.close_at_limit();
                self.enter(Step::Ended(state.handle_queued(queued)))
            }
            Step::FollowUp(state) => match self.ticket.last_look_unless_closed() {
                Some(lease) => {
                    let messages = self.lease.insert(lease).messages();
                    self.enter(state.handle_messages(messages).into())
                }
                // An abort closes the ticket first and cancels the token then; this is in between. To complete would
                // strand what was queued for this run.
                None => self.end(|model, now| state.abort(model, now)),
            },
            Step::Ended(state) => {
                let end = state.end();
                let (transcript, messages) = state.into_parts();
                self.finished = Some((transcript, Outcome::new(end, messages)));
                Work::Step(None)
            }
        }
    }

    fn end(&mut self, end: impl FnOnce(&Model, u64) -> Ended<M>) -> Work<M, S::Stream, F> {
        let ended = end(&self.plan.model, self.now());
        self.enter(Step::Ended(ended))
    }

    #[inline(never)]
    fn leave_streaming(&mut self, state: Streaming<M>, end: AnswerEnd) -> Work<M, S::Stream, F> {
        let next = state.finish(end, self.now());
        self.enter(next.into())
    }

    fn poll_model(
        &mut self,
        state: &mut Streaming<M>,
        mut stream: Pin<&mut Option<S::Stream>>,
        cancelled: Pin<&mut WaitForCancellationFutureOwned>,
        cx: &mut Context<'_>,
    ) -> Round<M, AnswerEnd> {
        let mut polled = Poll::Ready(None);
        let end = if self.env.cancel.is_cancelled() {
            AnswerEnd::aborted()
        } else if let Err(panic) = catch(|| {
            if let Some(stream) = stream.as_mut().as_pin_mut() {
                polled = stream.poll_next(cx);
            }
        }) {
            AnswerEnd::failed(format!("model stream {panic}"))
        } else {
            match polled {
                // `handle` would do as well, but a delta costs less where it lies.
                Poll::Ready(Some(event)) if state.fold_delta(&event) => {
                    return Round::Event(AgentEvent::MessageUpdate { event });
                }
                Poll::Ready(Some(event)) => match state.handle(event) {
                    ControlFlow::Continue(event) => return event.map_or(Round::Again, Round::Event),
                    ControlFlow::Break(end) => end,
                },
                // Woken by the model's stream, or by the token.
                Poll::Pending => return wait(cancelled, cx),
                Poll::Ready(None) => AnswerEnd::cut(),
            }
        };
        // Foreign code, too; and at once, so that a connection does not outlive its answer.
        let _ = catch(|| stream.set(None));
        // The token tells an abort from a failure, not what the model made of it.
        let aborted = self.env.cancel.is_cancelled();
        Round::Leave(if aborted { end.under_abort() } else { end })
    }

    #[inline(never)] // not on the way of a delta
    fn poll_tools(
        &mut self,
        state: &mut ExecutingTools<M>,
        grace: &mut Option<BoxFuture<'static, ()>>,
        executor: &mut Executor<M, H, S>,
        cancelled: Pin<&mut WaitForCancellationFutureOwned>,
        cx: &mut Context<'_>,
    ) -> Round<M, ToolsExit> {
        if let Some(event) = state.poll_event() {
            return Round::Event(event);
        }
        if self.env.cancel.is_cancelled() {
            return self.abort_tools(state, grace, executor, cx);
        }
        match state.poll_action() {
            ToolAction::Tell => Round::Again,
            ToolAction::Preflight(call) => Round::Leave(ToolsExit::Preflight(call)),
            ToolAction::Execute(call) => {
                executor.start(call, state, &self.plan.tools, &self.env);
                Round::Again
            }
            ToolAction::Wait => match executor.poll(cx, state, self.env.clock) {
                Poll::Ready(()) => Round::Again,
                // Woken by what the executor says, or by the token.
                Poll::Pending => wait(cancelled, cx),
            },
            ToolAction::Finish => {
                // The next batch numbers its calls anew.
                executor.clear();
                Round::Leave(ToolsExit::Done)
            }
        }
    }

    /// The run is aborted while tools run (§4.6).
    fn abort_tools(
        &mut self,
        state: &mut ExecutingTools<M>,
        grace: &mut Option<BoxFuture<'static, ()>>,
        executor: &mut Executor<M, H, S>,
        cx: &mut Context<'_>,
    ) -> Round<M, ToolsExit> {
        if !state.is_aborted() {
            state.abort(self.now());
            if !self.closing {
                *grace = self.grace.as_ref().and_then(|grace| catch(|| grace()).ok());
                let _ = executor.poll_all(cx, state, self.env.clock);
            }
            return Round::Again;
        }
        let over = matches!(state.poll_action(), ToolAction::Finish) || self.closing;
        if let Some(patience) = grace
            && !over
            && let Ok(Poll::Pending) = catch(|| patience.as_mut().poll(cx))
        {
            return match executor.poll_all(cx, state, self.env.clock) {
                Poll::Ready(()) => Round::Again,
                // Woken by what the executor says, or by the grace future.
                Poll::Pending => Round::Wait,
            };
        }
        executor.clear();
        let spent = grace.take();
        let _ = catch(|| drop(spent));
        Round::Leave(ToolsExit::Done)
    }

    #[inline(never)]
    fn leave_tools(&mut self, state: ExecutingTools<M>, exit: ToolsExit) -> Work<M, S::Stream, F> {
        match exit {
            ToolsExit::Preflight(call) => self.effect(Effect::Preflight(state, call, self.plan.tools.clone())),
            ToolsExit::Done => self.enter(Step::TurnEnd(state.finish(self.now()))),
        }
    }
}

/// Waits for the token beside whatever was just found pending.
fn wait<M, E>(cancelled: Pin<&mut WaitForCancellationFutureOwned>, cx: &mut Context<'_>) -> Round<M, E> {
    match cancelled.poll(cx) {
        Poll::Ready(()) => Round::Again,
        Poll::Pending => Round::Wait,
    }
}
