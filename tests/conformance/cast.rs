//! Model, tools and hooks of a scenario, as an engine that runs by itself is given them.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use serde_json::{Map, Value};
use turnstate::machine::ExecutionMode;
use turnstate::schema::ValidatedArguments;
use turnstate::{
    ApiKey, BoxError, BoxFuture, CallContext, CallOutcome, Decision, Hooks, Message, Messages, RequestContext,
    Response, ResultPatch, ScriptedModel, Tool, ToolContext, ToolResult, ToolSet, Transcript, TurnSummary,
};

use crate::custom::Msg;
use crate::fixture::{self, Fixture, ModelItem};
use crate::script::{Performance, Script, model_event};

/// Everything foreign that a scenario has.
#[derive(Debug)]
pub(crate) struct Cast {
    /// Their answers.
    pub(crate) script: Arc<Script>,
    /// Which calls have ended.
    pub(crate) ends: Ends,
    /// The tools.
    pub(crate) tools: ToolSet,
}

impl Cast {
    /// The cast, at the beginning of the scenario.
    pub(crate) fn new(fixture: &Fixture) -> Self {
        let script = Arc::new(Script::new(&fixture.setup));
        let ends = Ends::default();
        let tools = fixture.setup.tools.iter();
        let tools = tools.map(|tool| Arc::new(FixtureTool::new(tool, &script, &ends)) as Arc<dyn Tool>);
        Self {
            tools: tools.collect(),
            script,
            ends,
        }
    }

    /// The hooks.
    pub(crate) fn hooks(&self) -> FixtureHooks {
        FixtureHooks(Arc::clone(&self.script))
    }
}

/// The model of a scenario.
pub(crate) fn scripted_model(fixture: &Fixture) -> ScriptedModel {
    let play = |response: Response, item: &ModelItem| match item {
        ModelItem::WaitAbort => response.silence(),
        ModelItem::Event(event) => response.event(model_event(event)),
    };
    let model = ScriptedModel::new();
    for items in &fixture.responses {
        model.push(items.iter().fold(Response::from_events([]), play));
    }
    model
}

/// The calls whose `tool_execution_end` was seen, over the whole scenario. A cheap handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    call_ids: HashSet<String>,
    waiting: Vec<Waker>,
}

impl Ends {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The end of a call was seen.
    pub(crate) fn saw(&self, call_id: &str) {
        let waiting = self.with(|seen| {
            seen.call_ids.insert(call_id.to_owned());
            std::mem::take(&mut seen.waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the end of a call was seen.
    pub(crate) fn has(&self, call_id: &str) -> bool {
        self.with(|seen| seen.call_ids.contains(call_id))
    }

    /// Waits until the end of a call was seen.
    async fn wait_for(&self, call_id: &str) {
        poll_fn(|cx| {
            self.with(|seen| {
                if seen.call_ids.contains(call_id) {
                    return Poll::Ready(());
                }
                // Woken by the next end that is seen, whichever it is.
                seen.waiting.push(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
    }
}

/// A scripted tool.
#[derive(Debug)]
struct FixtureTool {
    name: String,
    description: String,
    parameters: Value,
    execution_mode: Option<ExecutionMode>,
    script: Arc<Script>,
    ends: Ends,
}

impl FixtureTool {
    fn new(tool: &fixture::Tool, script: &Arc<Script>, ends: &Ends) -> Self {
        Self {
            name: tool.name.clone(),
            description: tool.description().to_owned(),
            parameters: tool.parameters.clone(),
            execution_mode: tool.execution_mode.map(Into::into),
            script: Arc::clone(script),
            ends: ends.clone(),
        }
    }
}

impl Tool for FixtureTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn execution_mode(&self) -> Option<ExecutionMode> {
        self.execution_mode
    }

    fn prepare_arguments(&self, arguments: Map<String, Value>) -> Result<Value, BoxError> {
        Ok(self.script.prepare_arguments(&self.name, arguments))
    }

    fn execute(
        self: Arc<Self>,
        arguments: ValidatedArguments,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
        Box::pin(async move {
            let Performance {
                updates,
                after,
                until_abort,
                result,
            } = self.script.perform(&self.name, cx.call_id(), arguments.as_value());
            for update in updates {
                cx.update(update);
            }
            if let Some(call_id) = after {
                self.ends.wait_for(&call_id).await;
            }
            if until_abort {
                cx.cancellation_token().cancelled().await;
            }
            Ok(result?)
        })
    }
}

/// The scripted hooks.
#[derive(Clone, Debug)]
pub(crate) struct FixtureHooks(Arc<Script>);

impl Hooks<Msg> for FixtureHooks {
    async fn transform_context(&self, cx: RequestContext<Msg>) -> Result<Transcript<Msg>, BoxError> {
        Ok(self.0.transform(cx.transcript))
    }

    async fn convert_to_llm(&self, cx: RequestContext<Msg>) -> Result<Messages<Message>, BoxError> {
        Ok(self.0.convert(&cx.transcript))
    }

    async fn api_key(&self, _provider: String) -> Result<Option<ApiKey>, BoxError> {
        Ok(self.0.next_api_key())
    }

    async fn before_tool_call(&self, cx: CallContext<Msg>) -> Result<Decision, BoxError> {
        self.0.before_tool_call(&cx.call.id)
    }

    async fn after_tool_call(&self, outcome: CallOutcome<Msg>) -> Result<ResultPatch, BoxError> {
        self.0.after_tool_call(&outcome.cx.call.id)
    }

    async fn should_stop_after_turn(&self, _turn: TurnSummary<Msg>) -> Result<bool, BoxError> {
        Ok(self.0.next_stop())
    }
}
