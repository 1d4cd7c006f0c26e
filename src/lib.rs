//! The turns of a tool-using LLM agent as an explicit, typed state machine.
//!
//! **A run works while it is polled and at no other time. Each poll hands out at most one event, and whatever the
//! model, the tools and the hooks do, events pair and nest, every tool call gets exactly one result, no queued message
//! is lost or doubled, and an abort ends the run.**
//!
//! To run an agent:
//!
//! 1. Make an [`Agent`] of a model and a [`StreamFn`], which calls it, of tools and of hooks.
//! 2. Begin a run by [`prompt`](Agent::prompt). The agent is busy from here on.
//! 3. Poll the [`Run`] for its next [`AgentEvent`], and show it.
//! 4. Meanwhile, from anywhere, [`steer`](Agent::steer) the run, queue a [`follow_up`](Agent::follow_up), or
//!    [`abort`](Agent::abort).
//! 5. Go on with 3 until the run has no more events.
//! 6. Await the run for its [`Outcome`], and begin the next one.
//!
#![cfg_attr(feature = "schemars", doc = "```")]
#![cfg_attr(not(feature = "schemars"), doc = "```ignore")]
//! use serde_json::json;
//! use turnstate::{Agent, AgentEvent, AssistantEvent, BoxError, ScriptedModel, ToolContext, schemars, tool};
//!
//! /// Two numbers.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Pair {
//!     a: i64,
//!     b: i64,
//! }
//!
//! async fn add(pair: Pair, _cx: ToolContext) -> Result<String, BoxError> {
//!     Ok(pair.a.checked_add(pair.b).ok_or("too large")?.to_string())
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), BoxError> {
//!     // A model that says what it is told to. Yours is any function from a request to a stream of events.
//!     let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 3})).text("It is 5.");
//!     let agent = Agent::builder("scripted-1", model)
//!         .tool(tool("add", "Adds two numbers", add))
//!         .build();
//!
//!     let mut run = agent.prompt("What is 2 + 3?")?;
//!     while let Some(event) = run.next().await {
//!         match event {
//!             AgentEvent::MessageUpdate { event: AssistantEvent::TextDelta { delta, .. } } => print!("{delta}"),
//!             AgentEvent::ToolExecutionEnd { call, result, .. } => println!("{}: {:?}", call.name, result.content),
//!             _ => {}
//!         }
//!     }
//!     let outcome = run.await.into_result()?;
//!     assert_eq!(outcome.text(), "It is 5.");
//!     assert_eq!(agent.transcript().len(), 4); // prompt, call, result, answer
//!     Ok(())
//! }
//! ```
//!
//! # What a run does
//!
//! 1. It calls the model with the transcript and streams the answer.
//! 2. It runs the tools that the answer calls, side by side, and puts their results into the transcript in call order.
//! 3. It takes the steering messages that were queued. If there are any, or results to answer, it begins again.
//! 4. It takes the follow-up messages that were queued. If there are any, it begins again; else the run is over.
//!
//! Every step is announced by [events](AgentEvent); hooks may change or refuse most of them. The order is exact, and is
//! the same as that of the Pi agent runtime, whose JSON the data model speaks; where it differs on purpose is
//! written in [`docs::decisions`].
//!
//! # Three ways in
//!
//! | | is | for |
//! |---|---|---|
//! | [`Agent`] | a handle with state, queues, listeners; one run at a time | most programs |
//! | [`AgentLoop`] | one run as a [`Stream`](futures_core::Stream), generic over model and hooks, without state of its own | programs that keep the transcript themselves |
//! | [`machine`] | the phases of a run as types, synchronous and pure | other drivers: another runtime, a simulation, a test |
//!
//! Each is made of the next. None spawns a task or has a timer, so they run on any executor.
//!
//! # Modules
//!
//! A module imports only from those above it.
//!
//! | | |
//! |---|---|
//! | [`partial_json`] | tool arguments while they stream, and the strict parse at their end |
//! | [`schema`] | validation and coercion of tool arguments |
//! | [`message`] | messages, what a model streams, the transcript |
//! | [`event`] | what a run tells |
//! | [`queue`] | steering and follow-up messages on their way |
//! | [`machine`] | the phases of a run |
//! | [`mod@tool`] | tools: of functions, or by hand |
//! | [`hooks`] | where an app decides |
//! | [`stream_fn`] | how a model is called; a scripted model for tests |
//! | [`mod@agent_loop`] | the loop |
//! | `proxy` | a model over HTTP, both ends; with their features |
//! | [`agent`] | the agent |
//!
//! # Features
//!
//! The first two are on by default.
//!
//! - `jsonschema`: tool arguments are validated, and coerced, by the tool's JSON Schema. Without it they only have to be
//!   an object, and typed tools refuse what does not deserialise.
//! - `schemars`: the functions `tool` and `tool_with`, which take the JSON Schema from a struct.
//! - `proxy`: a model behind a proxy server, over plain HTTP; with `proxy-rustls` or `proxy-native-tls` over HTTPS.
//! - `proxy-server`: the proxy server, for any web framework.
//! - `tokio`: `Retry::tokio`, which waits by tokio's timer. [`Retry`] itself takes any.

// Here and not in the manifest: tests and examples fail by panicking.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod agent;
pub mod agent_loop;
pub mod event;
pub mod hooks;
pub mod machine;
pub mod message;
pub mod partial_json;
#[cfg(any(feature = "proxy", feature = "proxy-server"))]
pub mod proxy;
pub mod queue;
pub mod schema;
pub mod stream_fn;
mod sync;
pub mod tool;

#[doc(inline)]
pub use agent::{Agent, AgentBuilder, AgentState, Run};
pub use agent::{
    AsyncListenerContext, IntoMessage, IntoPrompt, ListenerContext, RunFuture, Subscription, WaitInsideListener,
};
#[doc(inline)]
pub use agent_loop::{AgentLoop, LoopConfig, Outcome, RunError, StartError, agent_loop};
pub use agent_loop::{
    BoxedAgentLoop, Clock, Grace, ListenerError, NextStep, Start, agent_loop_continue, agent_loop_from, system_clock,
};
#[doc(inline)]
pub use event::AgentEvent;
pub use event::JsonEvent;
pub use hooks::{
    BoxedHooks, CallContext, CallOutcome, HookFns, IntoHookResult, PrepareRequest, RequestContext, RequestPlan,
    ResultPatch, TurnSummary,
};
#[doc(inline)]
pub use hooks::{Decision, Hooks};
pub use machine::{ExecutionMode, Limits, RunEnd};
#[doc(inline)]
pub use message::{AgentMessage, AssistantEvent, AssistantMessage, Message, Model, Transcript};
pub use message::{
    ApiKey, AssistantContent, CacheRetention, Content, Cost, CustomMessage, CustomRole, DoneReason, ErrorReason,
    Failure, FoldError, ImageContent, InputKind, Messages, ModelCost, PartialMessage, ResponseHead, StopReason,
    StreamOptions, TextContent, ThinkingBudgets, ThinkingContent, ThinkingLevel, ToolCall, ToolCallPatch, ToolResult,
    ToolResultMessage, Transport, Usage, UserContent, UserMessage,
};
pub use queue::{Delivery, Lease, QueueId, QueueKind, QueueMode, Queued, Queues, RunId, RunTicket};
pub use schema::ValidatedArguments;
pub use stream_fn::{BoxedStream, BoxedStreamFn, Request, Response, RetryAttempt, RetryStream, ScriptedStream};
#[doc(inline)]
pub use stream_fn::{Retry, ScriptedModel, StreamFn};
pub use tokio_util::sync::CancellationToken;
#[cfg(feature = "schemars")]
#[doc(inline)]
pub use tool::tool;
pub use tool::{BoxError, BoxFuture, FnTool, IntoToolResult, RegisteredTool, ToolUpdates, json_tool, json_tool_with};
#[doc(inline)]
pub use tool::{Tool, ToolContext, ToolSet};
#[cfg(feature = "schemars")]
pub use tool::{schemars, tool_with};

/// The long-form documents.
#[cfg(doc)]
pub mod docs {
    #[doc = include_str!("docs/contract.md")]
    pub mod contract {}

    #[doc = include_str!("docs/architecture.md")]
    pub mod architecture {}

    #[doc = include_str!("docs/decisions.md")]
    pub mod decisions {}

    #[doc = include_str!("docs/performance.md")]
    pub mod performance {}

    #[doc = include_str!("docs/verification.md")]
    pub mod verification {}
}

/// Compiles the programs of the README.
#[cfg(all(doctest, feature = "schemars"))]
#[doc = include_str!("../README.md")]
struct Readme;
