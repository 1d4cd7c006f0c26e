//! Running the tool calls of a batch side by side.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::hooks::{CallContext, CallOutcome, Hooks, ResultPatch};
use crate::machine::{ABORTED_CALL, AllowedCall, ExecutingTools, RunningCall};
use crate::message::{AgentMessage, ToolResult};
use crate::tool::{BoxError, BoxFuture, ToolContext, ToolSet, UpdateSink, Updates};

use super::effect::Env;
use super::foreign::{Time, catch, error_text};

/// The calls of a batch that run, and what they reported.
pub(super) struct Executor<M, H, S> {
    tasks: FuturesUnordered<Task<M, H, S>>,
    updates: Updates,
}

/// One call: the tool, then the hook that may replace its result. Gives its end once, and then nothing.
struct Task<M, H, S> {
    call: Option<RunningCall>,
    /// Whether the tool was polled, so that its code has begun.
    begun: bool,
    stage: Stage,
    /// For the hook, which takes it.
    context: Option<CallContext<M>>,
    sink: UpdateSink,
    env: Arc<Env<H, S>>,
}

enum Stage {
    Tool(BoxFuture<'static, Result<ToolResult, BoxError>>),
    Hook(Arc<ToolResult>, BoxFuture<'static, Result<ResultPatch, BoxError>>),
    Done,
}

// Nothing in it is pinned in place: the futures are boxed.
impl<M, H, S> Unpin for Task<M, H, S> {}

impl<M, H, S> Executor<M, H, S> {
    pub(super) fn new() -> Self {
        Self {
            tasks: FuturesUnordered::new(),
            updates: Updates::new(),
        }
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: Send + Sync + 'static> Executor<M, H, S> {
    /// Starts a call.
    pub(super) fn start(
        &mut self,
        allowed: AllowedCall,
        state: &mut ExecutingTools<M>,
        tools: &ToolSet,
        env: &Arc<Env<H, S>>,
    ) {
        let (call, arguments) = allowed.start();
        let tool = match tools.tool_of(call.call()) {
            Ok(tool) => tool,
            // The preflight found it in the same set.
            Err(result) => return state.complete(call, *result, env.clock.now()),
        };
        let sink = self.updates.sink(call.index());
        let cx = ToolContext::new(Arc::clone(call.call()), env.cancel.clone(), sink.clone());
        let cancel = env.cancel.clone();
        let context = CallContext::new(state, call.index(), call.call(), arguments.clone(), tool, cancel);
        let tool = Arc::clone(tool.tool());
        match catch(|| tool.execute(arguments, cx)) {
            Ok(running) => self.tasks.push(Task {
                call: Some(call),
                begun: false,
                stage: Stage::Tool(running),
                context: Some(context),
                sink,
                env: Arc::clone(env),
            }),
            Err(panic) => {
                sink.close();
                self.report(state);
                let result = ToolResult::error(format!("Tool {} {panic}", call.call().name));
                state.complete(call, result, env.clock.now());
            }
        }
    }

    /// Moves on what is under way, into `state`. Pending when nothing is to be told yet; the wake-up then comes from
    /// a tool, a hook, or a report of progress.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, state: &mut ExecutingTools<M>, clock: Time) -> Poll<()> {
        let mut any = false;
        // All that are ready, so that each call has begun before the end of another is told.
        while let Poll::Ready(Some(Some((call, result)))) = self.tasks.poll_next_unpin(cx) {
            self.report(state);
            state.complete(call, result, clock.now());
            any = true;
        }
        let reported = self.poll_reports(cx, state);
        if any { Poll::Ready(()) } else { reported }
    }

    /// The same for a run that was aborted: each call is polled, woken or not, so that those that stop by themselves
    /// give their own result.
    pub(super) fn poll_all(&mut self, cx: &mut Context<'_>, state: &mut ExecutingTools<M>, clock: Time) -> Poll<()> {
        // By hand, as the set polls only what was woken; from here on it is never polled itself again. In call order,
        // which is not the set's.
        let mut tasks: Vec<_> = self.tasks.iter_mut().collect();
        tasks.sort_by_key(|task| task.call.as_ref().map(RunningCall::index));
        let ended: Vec<_> = tasks
            .into_iter()
            .filter_map(|task| match Pin::new(task).poll(cx) {
                Poll::Ready(end) => end,
                Poll::Pending => None,
            })
            .collect();
        let reported = self.poll_reports(cx, state);
        if ended.is_empty() {
            return reported;
        }
        for (call, result) in ended {
            state.complete(call, result, clock.now());
        }
        Poll::Ready(())
    }

    /// Takes in what was reported.
    fn poll_reports(&mut self, cx: &mut Context<'_>, state: &mut ExecutingTools<M>) -> Poll<()> {
        // A report that comes after the look wakes the task; one that came before is seen by the look.
        self.updates.register(cx.waker());
        if self.report(state) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Drops whatever still runs, and refuses what it may still report.
    pub(super) fn clear(&mut self) {
        // An empty set is kept: the next batch need not make one.
        if !self.tasks.is_empty() {
            for mut task in std::mem::take(&mut self.tasks) {
                task.enter(Stage::Done);
            }
        }
        self.updates = Updates::new();
    }

    fn report(&mut self, state: &mut ExecutingTools<M>) -> bool {
        let mut any = false;
        for (index, update) in self.updates.take() {
            any |= state.update(index, update);
        }
        any
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: Send + Sync + 'static> Future for Task<M, H, S> {
    type Output = Option<(RunningCall, ToolResult)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.get_mut();
        let aborted = task.env.cancel.is_cancelled();
        let polled = match &mut task.stage {
            Stage::Done => return Poll::Ready(None),
            // Nothing begins after an abort (I6).
            Stage::Tool(_) if aborted && !task.begun => Poll::Ready(ToolResult::error(ABORTED_CALL)),
            Stage::Tool(tool) => {
                task.begun = true;
                // Woken by the tool's own future.
                let result = match catch(|| tool.as_mut().poll(cx)) {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(Ok(result))) => result,
                    Ok(Poll::Ready(Err(error))) => ToolResult::error(error_text(error)),
                    Err(panic) => {
                        let name = task.call.as_ref().map_or("", |running| &running.call().name);
                        ToolResult::error(format!("Tool {name} {panic}"))
                    }
                };
                task.sink.close();
                task.ask_hook(result, cx)
            }
            // The hook might have redacted the result.
            Stage::Hook(..) if aborted => Poll::Ready(ToolResult::error(ABORTED_CALL)),
            Stage::Hook(..) => task.poll_hook(cx),
        };
        let result = match polled {
            Poll::Ready(result) => result,
            // Once the run is aborted, a hook is polled once and no more.
            Poll::Pending if task.env.cancel.is_cancelled() => ToolResult::error(ABORTED_CALL),
            Poll::Pending => return Poll::Pending,
        };
        task.enter(Stage::Done);
        Poll::Ready(task.call.take().map(|call| (call, result)))
    }
}

impl<M: AgentMessage, H: Hooks<M>, S: Send + Sync + 'static> Task<M, H, S> {
    fn ask_hook(&mut self, result: ToolResult, cx: &mut Context<'_>) -> Poll<ToolResult> {
        let Some(context) = self.context.take() else {
            return Poll::Ready(result);
        };
        let result = Arc::new(result);
        let outcome = CallOutcome::new(context, Arc::clone(&result));
        let env = Arc::clone(&self.env);
        let hook = async move { env.hooks.after_tool_call(outcome).await };
        self.enter(Stage::Hook(result, Box::pin(hook)));
        self.poll_hook(cx)
    }

    fn poll_hook(&mut self, cx: &mut Context<'_>) -> Poll<ToolResult> {
        let Stage::Hook(result, hook) = &mut self.stage else {
            return Poll::Pending;
        };
        // Woken by the hook's own future.
        Poll::Ready(match catch(|| hook.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(patch))) => patch.apply(Arc::unwrap_or_clone(std::mem::take(result))),
            Ok(Poll::Ready(Err(error))) => ToolResult::error(error_text(error)),
            Err(panic) => ToolResult::error(format!("after_tool_call {panic}")),
        })
    }
}

impl<M, H, S> Task<M, H, S> {
    /// Goes to another stage. The future of the last one is dropped, which is foreign code, too.
    fn enter(&mut self, stage: Stage) {
        let left = std::mem::replace(&mut self.stage, stage);
        let _ = catch(|| drop(left));
    }
}
