//! Panics of what else is foreign: error texts, panic payloads, the grace, the clock, the message type.

use std::cell::Cell;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use turnstate::machine::RunEnd;
use turnstate::{Agent, AgentBuilder, Message, ResultPatch, json_tool};

use super::plant::{Dropped, Ending, Fuse, Unspeakable, agent, result, script, survives, tool_of, tool_t};
use super::robust_support::drive::drive;
use super::robust_support::watch::Watch;

#[test]
fn of_an_error_that_cannot_be_told() {
    let fuse = Fuse::new();
    let planted = fuse.clone();
    let tool = json_tool("t", "t", json!({"type": "object"}), move |_, _| {
        std::future::ready(Err::<String, _>(Unspeakable(planted.clone())))
    });
    let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let prepare = tool_t().with_prepare(move |_| Err(Unspeakable(planted.clone()).into()));
    let outcome = survives(&agent(|builder| builder.tool(prepare)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let hook = move |cx: turnstate::RequestContext| {
        let answer = if planted.blew() {
            Ok(cx.transcript)
        } else {
            Err(Unspeakable(planted.clone()))
        };
        std::future::ready(answer)
    };
    let outcome = survives(&agent(|builder| builder.transform_context(hook)), &fuse, Ending::Done).unwrap();
    assert_eq!(outcome.error.as_deref(), Some("panicked: boom"));

    let fuse = Fuse::new();
    let planted = fuse.clone();
    let hook = move |_: turnstate::CallOutcome| std::future::ready(Err::<ResultPatch, _>(Unspeakable(planted.clone())));
    let outcome = survives(&agent(|builder| builder.after_tool_call(hook)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "panicked: boom");
}

#[test]
fn of_the_payload_of_a_panic() {
    let fuse = Fuse::new();
    let planted = fuse.clone();
    let tool = tool_of(move || {
        if !planted.blew() {
            std::panic::panic_any(Dropped((), planted.clone()));
        }
        async { "fine" }.boxed()
    });
    let outcome = survives(&agent(|builder| builder.tool(tool)), &fuse, Ending::Done).unwrap();
    assert_eq!(result(&outcome), "Tool t panicked: no message");
}

#[test]
fn of_a_grace() {
    for at in 0..3 {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let deaf = tool_of(|| std::future::pending().boxed());
        let agent = agent(|builder| {
            builder.tool(deaf).grace(move || {
                if at == 0 {
                    planted.blow();
                }
                let fuse = planted.clone();
                let grace = async move {
                    if at == 1 {
                        fuse.blow();
                    }
                };
                Dropped(grace.boxed(), if at == 2 { planted.clone() } else { Fuse::spent() })
            })
        });
        let outcome = survives(&agent, &fuse, Ending::Aborted).unwrap();
        assert_eq!(
            (outcome.end, result(&outcome).as_str()),
            (RunEnd::Aborted, "Operation aborted")
        );
    }
}

thread_local! {
    /// How often the clock is read before it panics.
    static READS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A clock of which one reading panics.
fn clock() -> u64 {
    match READS.get() {
        Some(0) => {
            READS.set(None);
            panic!("boom");
        }
        left => {
            READS.set(left.map(|left| left - 1));
            7
        }
    }
}

#[test]
fn of_the_clock() {
    for reads in 0.. {
        let agent = agent(|builder| builder.clock(clock));
        let watch = Watch::new(&agent);
        let prompt = Message::user("go");
        let run = agent.prompt(prompt).unwrap();
        READS.set(Some(reads));
        let outcome = drive(run);
        let unreached = READS.take().is_some();
        assert_eq!((outcome.end, outcome.text().as_str()), (RunEnd::Completed, "done"));
        watch.check(&agent, 1);
        if unreached {
            assert!(reads > 3, "read {reads} times");
            break;
        }
    }
}

/// A message whose look at itself panics, once.
#[derive(Clone)]
struct Touchy(Message);

thread_local! {
    /// How often a [`Touchy`] is looked at before it panics.
    static LOOKS: Cell<Option<usize>> = const { Cell::new(None) };
}

impl From<Message> for Touchy {
    fn from(message: Message) -> Self {
        Self(message)
    }
}

impl turnstate::AgentMessage for Touchy {
    fn role(&self) -> &str {
        self.0.role()
    }

    fn as_message(&self) -> Option<&Message> {
        if LOOKS.get() == Some(0) {
            LOOKS.set(None);
            panic!("boom");
        }
        LOOKS.set(LOOKS.get().map(|left| left - 1));
        Some(&self.0)
    }

    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>> {
        Some(Arc::new(this.0.clone()))
    }
}

#[test]
fn of_a_message_type_is_the_holders_but_no_more() {
    // It is not caught: the engine cannot go on. But it must not end the process, nor leave the agent busy.
    for looks in 0.. {
        let agent: Agent<Touchy> = AgentBuilder::new("m", script()).tool(tool_t()).build();
        let run = agent.prompt(Touchy(Message::user("go"))).unwrap();
        LOOKS.set(Some(looks));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(run)));
        let unreached = LOOKS.take().is_some();
        assert_eq!(ended.is_ok(), unreached, "look {looks}");
        assert!(!agent.is_streaming());
        assert!(agent.streaming_message().is_none());
        assert!(agent.pending_tool_calls().is_empty());
        let next = drive(agent.prompt("again").unwrap());
        assert_eq!(next.end, RunEnd::Completed);
        if unreached {
            assert!(looks > 5, "looked at {looks} times");
            break;
        }
    }
}
