//! Panics of tools and models.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AssistantEvent, BoxError, BoxedStream, CancellationToken, FnTool, Request, Response, ScriptedModel, StreamFn,
};

use super::plant::{Dropped, Ending, Fuse, agent, result, script, survives, tool_of, tool_t};

#[test]
fn of_a_tool() {
    let at_call = |fuse: Fuse| {
        tool_of(move || {
            fuse.blow();
            async { "fine" }.boxed()
        })
    };
    let in_poll = |fuse: Fuse| {
        tool_of(move || {
            let fuse = fuse.clone();
            async move {
                fuse.blow();
                "fine"
            }
            .boxed()
        })
    };
    let prepare = |fuse: Fuse| {
        tool_t().with_prepare(move |arguments| {
            fuse.blow();
            Ok(arguments.into())
        })
    };
    for make in [&at_call as &dyn Fn(Fuse) -> FnTool, &in_poll, &prepare] {
        let fuse = Fuse::new();
        let agent = agent(|builder| builder.tool(make(fuse.clone())));
        let outcome = survives(&agent, &fuse, Ending::Done).unwrap();
        assert_eq!(outcome.end, RunEnd::Completed);
        assert_eq!(result(&outcome), "Tool t panicked: boom");
    }
}

#[test]
fn of_the_drop_of_a_tool() {
    for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let tool = DropTool {
            parameters: json!({"type": "object"}),
            fuse: planted,
            pends: ending != Ending::Done,
        };
        let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, ending);
        if ending == Ending::Done {
            let outcome = outcome.unwrap();
            assert_eq!(outcome.end, RunEnd::Completed);
            assert!(
                outcome.messages.iter().any(|message| message.text() == "fine"),
                "its result counts"
            );
        }
    }
}

/// A tool whose future's drop panics.
struct DropTool {
    parameters: serde_json::Value,
    fuse: Fuse,
    pends: bool,
}

impl turnstate::Tool for DropTool {
    fn name(&self) -> &'static str {
        "t"
    }

    fn description(&self) -> &'static str {
        "t"
    }

    fn parameters(&self) -> &serde_json::Value {
        &self.parameters
    }

    fn execute(
        self: Arc<Self>,
        _: turnstate::schema::ValidatedArguments,
        _: turnstate::ToolContext,
    ) -> BoxFuture<'static, Result<turnstate::ToolResult, BoxError>> {
        let pends = self.pends;
        let run = async move {
            if pends {
                std::future::pending::<()>().await;
            }
            Ok("fine".into())
        };
        Box::pin(Dropped(run.boxed(), self.fuse.clone()))
    }
}

#[test]
fn of_a_model() {
    let fuse = Fuse::new();
    let (planted, model) = (fuse.clone(), script());
    let at_call = move |request: Request, cancel: CancellationToken| {
        planted.blow();
        model.stream(request, cancel)
    };
    let outcome = survives(
        &Agent::builder("m", at_call).tool(tool_t()).build(),
        &fuse,
        Ending::Done,
    )
    .unwrap();
    assert_eq!(outcome.error.as_deref(), Some("stream function panicked: boom"));

    let model = ScriptedModel::new()
        .reply(Response::new().text("so far").panic("boom"))
        .fallback(|_| "ok");
    // The script has a fuse of its own.
    let outcome = survives(&Agent::builder("m", model).build(), &Fuse::spent(), Ending::Done).unwrap();
    assert_eq!(outcome.error.as_deref(), Some("model stream panicked: boom"));
    assert_eq!(outcome.text(), "so far");
}

#[test]
fn of_the_drop_of_a_model() {
    for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let model = script();
        let model = move |request: Request, cancel: CancellationToken| -> BoxedStream {
            let inner = model.stream(request, cancel);
            if planted.blew() {
                return Box::pin(inner);
            }
            let inner: BoxedStream = match ending {
                Ending::Done => Box::pin(inner),
                _ => Box::pin(futures_util::stream::pending::<AssistantEvent>()),
            };
            Box::pin(Dropped(inner, planted.clone()))
        };
        let outcome = survives(&Agent::builder("m", model).tool(tool_t()).build(), &fuse, ending);
        if ending == Ending::Done {
            assert_eq!(outcome.unwrap().end, RunEnd::Completed);
        }
    }
}
