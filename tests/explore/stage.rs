//! The model and the tools of an explored agent: they wait until they are let go on.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use serde_json::{Value, json};
use turnstate::{
    AssistantEvent, BoxError, BoxFuture, CancellationToken, DoneReason, Message, Messages, Request, StreamFn, Tool,
    ToolContext, ToolResult, ToolSet, ValidatedArguments,
};

use crate::words::{calls_then, text};

/// Who waits at a gate.
#[derive(Debug, Default)]
enum Gate {
    #[default]
    Nobody,
    Waits(Waker),
    Open,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many answers still call tools.
    calling: usize,
    model: Gate,
    tools: [Gate; 2],
    begun: usize,
    requests: Vec<Messages<Message>>,
    /// What is left of the answer.
    answer: usize,
    alive: usize,
}

/// A handle of both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage(Arc<Mutex<Inner>>);

/// Counts a foreign future or stream as long as it lives.
struct Life(Stage);

impl Gate {
    fn pass(&mut self, cx: &Context<'_>) -> Poll<()> {
        if let Self::Open = self {
            *self = Self::Nobody;
            return Poll::Ready(());
        }
        *self = Self::Waits(cx.waker().clone());
        Poll::Pending
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Waits(_))
    }

    fn open(&mut self) -> Option<Waker> {
        match std::mem::replace(self, Self::Open) {
            Self::Waits(waker) => Some(waker),
            _ => None,
        }
    }
}

impl Stage {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// A model whose first answers, so many, call both tools.
    pub(crate) fn new(calling: usize) -> Self {
        let stage = Self::default();
        stage.inner().calling = calling;
        stage
    }

    fn life(&self) -> Life {
        self.inner().alive += 1;
        Life(self.clone())
    }

    /// The tools. One set serves all worlds, as it is dear to make: they work on the stage that was
    /// [entered](Self::enter) last.
    pub(crate) fn tools() -> ToolSet {
        static TOOLS: LazyLock<ToolSet> = LazyLock::new(|| {
            let tool = |index, name| GatedTool {
                index,
                name,
                parameters: json!({"type": "object"}),
            };
            ToolSet::new().with(tool(0, "a")).with(tool(1, "b"))
        });
        TOOLS.clone()
    }

    /// What happens from here on happens on this stage.
    pub(crate) fn enter(&self) {
        ENTERED.set(Some(self.clone()));
    }

    pub(crate) fn alive(&self) -> usize {
        self.inner().alive
    }

    /// How many requests were made and tools begun.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.requests.len(), inner.begun)
    }

    pub(crate) fn requests(&self) -> Vec<Messages<Message>> {
        self.inner().requests.clone()
    }

    pub(crate) fn model_waits(&self) -> bool {
        self.inner().model.waits()
    }

    pub(crate) fn tools_that_wait(&self) -> impl Iterator<Item = usize> {
        let waits = self.inner().tools.each_ref().map(Gate::waits);
        (0..2).filter(move |index| waits[*index])
    }

    pub(crate) fn let_model_go_on(&self) {
        let waker = self.inner().model.open();
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn let_tool_end(&self, index: usize) {
        let waker = self.inner().tools[index].open();
        waker.into_iter().for_each(Waker::wake);
    }

    /// What is to come depends on it.
    pub(crate) fn state(&self) -> String {
        let inner = self.inner();
        let gate = |gate: &Gate| match gate {
            Gate::Nobody => '.',
            Gate::Waits(_) => 'w',
            Gate::Open => 'o',
        };
        let gates: String = inner.tools.iter().chain([&inner.model]).map(gate).collect();
        format!("{gates} {} {}", inner.calling, inner.answer)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.inner().alive -= 1;
    }
}

impl StreamFn for Stage {
    type Stream = Answer;

    fn stream(&self, request: Request, _: CancellationToken) -> Answer {
        let life = self.life();
        let mut inner = self.inner();
        inner.requests.push(request.messages);
        inner.model = Gate::Nobody;
        let calls = inner.calling > 0;
        inner.calling = inner.calling.saturating_sub(1);
        let events = if calls {
            let mut events = calls_then(&["a", "b"], AssistantEvent::done(DoneReason::ToolUse));
            events[2] = AssistantEvent::tool_call_start(1, "b", "b");
            events[1] = AssistantEvent::tool_call_start(0, "a", "a");
            events
        } else {
            text()
        };
        inner.answer = events.len();
        Answer {
            stage: self.clone(),
            events: events.into_iter(),
            _life: life,
        }
    }
}

/// Waits before its first event and before its last.
pub(crate) struct Answer {
    stage: Stage,
    events: std::vec::IntoIter<AssistantEvent>,
    _life: Life,
}

impl Stream for Answer {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let first = matches!(self.events.as_slice().first(), Some(AssistantEvent::Start { .. }));
        if (first || self.events.len() == 1) && self.stage.inner().model.pass(cx).is_pending() {
            return Poll::Pending;
        }
        let event = self.events.next();
        self.stage.inner().answer = self.events.len();
        Poll::Ready(event)
    }
}

thread_local! {
    static ENTERED: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// A tool that ends when it is let.
struct GatedTool {
    index: usize,
    name: &'static str,
    parameters: Value,
}

impl Tool for GatedTool {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &'static str {
        "waits"
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn execute(
        self: Arc<Self>,
        _: ValidatedArguments,
        _: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
        let stage = ENTERED.with_borrow(Clone::clone).expect("a stage was entered");
        let life = stage.life();
        Box::pin(async move {
            stage.inner().begun += 1;
            stage.inner().tools[self.index] = Gate::Nobody;
            std::future::poll_fn(|cx| stage.inner().tools[self.index].pass(cx)).await;
            drop(life);
            Ok(ToolResult::text("done"))
        })
    }
}
