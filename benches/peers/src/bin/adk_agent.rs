//! adk-agent, through `LlmAgent::run`, streaming.
//!
//! The model gives a stream that makes a partial response per word and a last one without content, or one complete response
//! with all calls. The context is the least its traits allow: no runner, no session store, no plugins. The crate asks it for
//! the history as a list of its own, which is a copy.

use std::collections::HashMap;
use std::sync::Arc;

use adk_agent::{LlmAgent, LlmAgentBuilder};
use adk_core::{
    Agent, Artifacts, CallbackContext, Content, FinishReason, InvocationContext, Llm, LlmRequest, LlmResponse,
    LlmResponseStream, Memory, Part, ReadonlyContext, Result, RunConfig, Session, State, Tool, ToolContext,
    ToolExecutionStrategy,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use peers::{Clock, NOOP, Ran, Reply, Role, Script, WORD, arguments, measure, schema};
use serde_json::Value;

fn text(role: &str, text: impl Into<String>) -> Content {
    Content { role: role.to_owned(), parts: vec![Part::Text { text: text.into() }] }
}

fn complete(content: Option<Content>) -> LlmResponse {
    LlmResponse { content, turn_complete: true, finish_reason: Some(FinishReason::Stop), ..LlmResponse::default() }
}

struct Model(Script);

#[async_trait]
impl Llm for Model {
    fn name(&self) -> &str {
        "m"
    }

    async fn generate_content(&self, _: LlmRequest, _: bool) -> Result<LlmResponseStream> {
        Ok(match self.0.reply() {
            Reply::Words(n) => {
                let word =
                    |_| LlmResponse { content: Some(text("model", WORD)), partial: true, ..LlmResponse::default() };
                let end = std::iter::once_with(|| complete(None));
                stream::iter((0..n).map(word).chain(end).map(Ok)).boxed()
            }
            Reply::Calls(numbers) => {
                let calls = numbers.map(|number| Part::FunctionCall {
                    name: NOOP.to_owned(),
                    args: arguments(),
                    id: Some(number.to_string()),
                    thought_signature: None,
                });
                let content = Content { role: "model".to_owned(), parts: calls.collect() };
                stream::iter([Ok(complete(Some(content)))]).boxed()
            }
        })
    }
}

struct Noop(Script);

#[async_trait]
impl Tool for Noop {
    fn name(&self) -> &str {
        NOOP
    }

    fn description(&self) -> &str {
        ""
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(schema())
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, _: Value) -> Result<Value> {
        self.0.called();
        Ok(Value::from("ok"))
    }
}

/// All that `run` asks for, in one.
struct Invocation {
    agent: Arc<LlmAgent>,
    prompt: Content,
    history: Vec<Content>,
    config: RunConfig,
}

impl ReadonlyContext for Invocation {
    fn invocation_id(&self) -> &str {
        "i"
    }

    fn agent_name(&self) -> &str {
        "a"
    }

    fn user_id(&self) -> &str {
        "u"
    }

    fn app_name(&self) -> &str {
        "p"
    }

    fn session_id(&self) -> &str {
        "s"
    }

    fn branch(&self) -> &str {
        ""
    }

    fn user_content(&self) -> &Content {
        &self.prompt
    }
}

impl CallbackContext for Invocation {
    fn artifacts(&self) -> Option<Arc<dyn Artifacts>> {
        None
    }
}

impl InvocationContext for Invocation {
    fn agent(&self) -> Arc<dyn Agent> {
        self.agent.clone()
    }

    fn memory(&self) -> Option<Arc<dyn Memory>> {
        None
    }

    fn session(&self) -> &dyn Session {
        self
    }

    fn run_config(&self) -> &RunConfig {
        &self.config
    }

    fn end_invocation(&self) {}

    fn ended(&self) -> bool {
        false
    }
}

impl Session for Invocation {
    fn id(&self) -> &str {
        "s"
    }

    fn app_name(&self) -> &str {
        "p"
    }

    fn user_id(&self) -> &str {
        "u"
    }

    fn state(&self) -> &dyn State {
        self
    }

    fn conversation_history(&self) -> Vec<Content> {
        self.history.clone()
    }
}

impl State for Invocation {
    fn get(&self, _: &str) -> Option<Value> {
        None
    }

    fn set(&mut self, _: String, _: Value) {}

    fn all(&self) -> HashMap<String, Value> {
        HashMap::new()
    }
}

async fn run(script: Script) -> Ran {
    let agent = LlmAgentBuilder::new("a")
        .model(Arc::new(Model(script.clone())))
        .tool(Arc::new(Noop(script.clone())))
        .tool_execution_strategy(ToolExecutionStrategy::Parallel)
        .max_iterations(script.max_turns().try_into().expect("a moderate workload"))
        .build();
    let agent = Arc::new(agent.expect("an agent"));
    let backlog = script.backlog().map(|(role, said)| match role {
        Role::User => text("user", said),
        Role::Assistant => text("model", said),
    });
    let context: Arc<dyn InvocationContext> = Arc::new(Invocation {
        agent: Arc::clone(&agent),
        prompt: text("user", "hi"),
        // Its runner puts the prompt there, too.
        history: backlog.chain([text("user", "hi")]).collect(),
        config: RunConfig::default(),
    });
    let (mut events, mut answer) = (0, 0);
    let clock = Clock::start();
    let mut stream = agent.run(context).await.expect("a run");
    while let Some(event) = stream.next().await {
        events += 1;
        let response = event.expect("no failure").llm_response;
        if let Some(content) = response.content.filter(|_| !response.partial) {
            let texts = content.parts.iter().map(|part| if let Part::Text { text } = part { text.len() } else { 0 });
            answer = texts.sum();
        }
    }
    let elapsed = clock.stop();
    Ran { elapsed, events, answer }
}

fn main() {
    measure("adk-agent", run);
}
