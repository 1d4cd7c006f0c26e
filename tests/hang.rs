//! Nothing that hangs holds a run that is aborted, on real executors and by hand.
//!
//! No test sleeps; [`GUARD`] is only the time after which a hang is a failure.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod robust_support;

use std::future::pending;
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, StreamExt};
use robust_support::GUARD;
use robust_support::closing::{check_closing, check_closing_of_busy};
use robust_support::drive::{Task, drive};
use robust_support::gate::Mode;
use robust_support::watch::Watch;
use robust_support::world::{KINDS, Kind, World};
use serde_json::json;
use tokio::sync::oneshot;
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AgentEvent, FnTool, Outcome, Response, RunFuture, ScriptedModel, WaitInsideListener, json_tool,
};

/// The kinds whose runs an abort ends at once: an async listener is awaited all the same.
fn without_listeners() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| !kind.listener)
}

/// Fails the test if the future takes unreasonably long.
async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let Ok(output) = tokio::time::timeout(GUARD, future).await else {
        panic!("a hang: {what}")
    };
    output
}

/// Runs a world in a task of its own, with everything foreign frozen after `passes` passages of the gate, until it
/// hangs; `abort` is called then. None: it never hung. Otherwise how many events were told before the abort.
async fn freeze_after(world: &World, passes: usize, abort: impl AsyncFnOnce(&Agent)) -> Option<usize> {
    world.gate.set(Mode::OpenFor(passes));
    let run = world.agent.prompt("go").unwrap();
    let idle = world.agent.wait_for_idle();
    let mut task = tokio::spawn(IntoFuture::into_future(run));
    let ended = tokio::select! {
        biased;
        () = world.gate.somebody_is_frozen() => None,
        ended = soon("the run", &mut task) => Some(ended),
    };
    if let Some(ended) = ended {
        assert_eq!(ended.unwrap().end, RunEnd::Completed);
        return None;
    }
    let told = world.watch.events().len();
    assert!(world.agent.is_streaming());
    abort(&world.agent).await;
    let outcome = soon("the aborted run", task).await.unwrap();
    assert_eq!(outcome.end, RunEnd::Aborted);
    assert_eq!(soon("wait_for_idle", idle).await, Ok(()));
    Some(told)
}

#[tokio::test]
async fn an_abort_ends_a_run_whatever_hangs() {
    for kind in without_listeners() {
        for passes in 0.. {
            let world = World::new(kind);
            let Some(told) = freeze_after(&world, passes, async |agent| agent.abort()).await else {
                assert!(passes > 20, "{passes} passages");
                break;
            };
            // On this executor the run has told all it could when the abort comes.
            check_closing(&world.watch.events(), told, kind.mode);
            world.check_settled(1);
            world.check_cancelled();
            world.check_next_prompt(2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_from_any_thread_ends_a_run_whatever_hangs() {
    for kind in without_listeners() {
        for passes in 0.. {
            let world = World::new(kind);
            let from_thread = async |agent: &Agent| {
                let agent = agent.clone();
                let thread = std::thread::spawn(move || agent.abort());
                tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
            };
            if freeze_after(&world, passes, from_thread).await.is_none() {
                break;
            }
            world.check_settled(1);
            world.check_cancelled();
            world.check_next_prompt(2);
        }
    }
}

#[test]
fn an_abort_at_each_event_ends_a_run_though_what_comes_next_hangs() {
    for kind in without_listeners() {
        for told in 1.. {
            let world = World::new(kind);
            world.gate.set(Mode::Yield);
            let mut run = world.agent.prompt("go").unwrap();
            let heard = drive(run.by_ref().take(told).collect::<Vec<_>>());
            if heard.len() < told {
                assert!(told > 40, "the scenario is short: {told} events");
                break;
            }
            world.gate.set(Mode::Frozen);
            world.agent.abort();
            world.agent.abort();
            drive(run);
            check_closing_of_busy(&world.watch.events(), told, kind.mode);
            world.check_settled(1);
            world.check_next_prompt(2);
        }
    }
}

#[tokio::test]
async fn an_abort_at_each_event_ends_a_run_that_hangs_after_it() {
    for kind in without_listeners() {
        for at in 1.. {
            let world = World::new(kind);
            let mut run = world.agent.prompt("go").unwrap();
            let idle = world.agent.wait_for_idle();
            let gate = world.gate.clone();
            let mut holder = tokio::spawn(async move {
                let mut heard = 0;
                while run.next().await.is_some() {
                    heard += 1;
                    if heard == at {
                        gate.set(Mode::Frozen);
                    }
                }
                heard
            });
            let heard = tokio::select! {
                biased;
                () = world.gate.somebody_is_frozen() => None,
                heard = soon("the run", &mut holder) => Some(heard.unwrap()),
            };
            if let Some(heard) = heard {
                // Nothing foreign comes after this event.
                world.check_settled(1);
                if heard < at {
                    break;
                }
                continue;
            }
            let told = world.watch.events().len();
            assert!(told >= at);
            world.agent.abort();
            soon("the aborted run", holder).await.unwrap();
            assert_eq!(soon("wait_for_idle", idle).await, Ok(()));
            check_closing(&world.watch.events(), told, kind.mode);
            world.check_settled(1);
            world.check_next_prompt(2);
        }
    }
}

/// A tool of which each call waits for what `wait` gives, whatever happens to the run.
fn tool<F>(name: &str, wait: impl Fn() -> F + Send + Sync + 'static) -> FnTool
where
    F: Future<Output = &'static str> + Send + 'static,
{
    json_tool(name, name, json!({"type": "object"}), move |_, _| wait())
}

/// An agent that calls `a` and `b`, then says "done".
fn two_calls(a: FnTool, b: FnTool, grace: impl Fn() -> oneshot::Receiver<()> + Send + Sync + 'static) -> Agent {
    let model = ScriptedModel::new()
        .reply(Response::new().call("a", json!({})).call("b", json!({})))
        .text("done");
    let grace = move || {
        let end = grace();
        async move {
            // A dropped sender is no end.
            if end.await.is_err() {
                pending::<()>().await;
            }
        }
    };
    Agent::builder("m", model).tool(a).tool(b).grace(grace).build()
}

/// A run, driven by hand.
fn start(agent: &Agent) -> Task<RunFuture> {
    Task::new(IntoFuture::into_future(agent.prompt("go").unwrap()))
}

/// A receiver that never gets anything.
fn never<T>() -> oneshot::Receiver<T> {
    oneshot::channel().1
}

/// The texts of the results of an outcome.
fn results(outcome: &Outcome) -> Vec<String> {
    let results = outcome.messages.iter().filter_map(|message| message.as_tool_result());
    results.map(turnstate::ToolResultMessage::text).collect()
}

#[tokio::test]
async fn a_grace_that_never_ends_waits_only_as_long_as_a_tool_runs() {
    // The tools finish once they are told, one after the other, each from another task.
    let (end_a, end_b) = (oneshot::channel(), oneshot::channel());
    let waiting = |end| {
        let end = Mutex::new(Some(end));
        move || {
            let end: oneshot::Receiver<()> = end.lock().unwrap().take().unwrap();
            async move {
                end.await.unwrap();
                "in time"
            }
        }
    };
    let agent = two_calls(tool("a", waiting(end_a.1)), tool("b", waiting(end_b.1)), never);
    let watch = Watch::new(&agent);
    let mut run = agent.prompt("go").unwrap();
    while !matches!(run.next().await, Some(AgentEvent::ToolExecutionStart { index: 1, .. })) {}
    let mut task = Task::new(IntoFuture::into_future(run));
    task.stall();
    agent.abort();
    task.stall();
    end_b.0.send(()).unwrap();
    task.stall();
    end_a.0.send(()).unwrap();
    let outcome = task.finish();
    assert_eq!(
        (outcome.end, results(&outcome)),
        (RunEnd::Aborted, vec!["in time".into(), "in time".into()])
    );
    watch.check(&agent, 1);
}

#[tokio::test]
async fn a_grace_ends_the_wait_for_a_tool_that_hangs() {
    let (end, ended) = oneshot::channel();
    let ended = Mutex::new(Some(ended));
    let agent = two_calls(tool("a", pending), tool("b", async || "fine"), move || {
        ended.lock().unwrap().take().unwrap()
    });
    let watch = Watch::new(&agent);
    let mut task = start(&agent);
    task.stall();
    agent.abort();
    task.stall();
    end.send(()).unwrap();
    let outcome = task.finish();
    assert_eq!(
        (outcome.end, results(&outcome)),
        (RunEnd::Aborted, vec!["Operation aborted".into(), "fine".into()])
    );
    watch.check(&agent, 1);
}

#[tokio::test]
async fn dropping_the_run_ends_a_grace_that_never_ends() {
    let agent = two_calls(tool("a", pending), tool("b", pending), never);
    let watch = Watch::new(&agent);
    let mut task = start(&agent);
    task.stall();
    agent.abort();
    task.stall();
    drop(task);
    assert!(!agent.is_streaming());
    watch.check(&agent, 1);
}

#[tokio::test]
async fn dropping_the_run_is_the_way_out_of_a_deaf_listener() {
    for at in [
        "agent_start",
        "message_end",
        "message_update",
        "tool_execution_start",
        "turn_end",
        "agent_end",
    ] {
        let agent = two_calls(tool("a", async || "fine"), tool("b", pending), never);
        let watch = Watch::new(&agent);
        let deaf = agent.subscribe_async(move |event, _| async move {
            if event.kind() == at {
                pending::<()>().await;
            }
        });
        if at == "turn_end" || at == "agent_end" {
            // The tool that hangs would keep the run from getting there.
            agent.set_tools([tool("a", async || "fine"), tool("b", async || "fine")]);
        }
        let mut waiting = Task::new(agent.wait_for_idle());
        assert_eq!(waiting.finish(), Ok(()));
        let mut task = start(&agent);
        let mut idle = Task::new(agent.wait_for_idle());
        task.stall();
        idle.stall();
        assert_eq!(watch.events().last().unwrap().kind(), at);
        agent.abort();
        assert!(task.run().is_none(), "it does not wait for its listener");
        assert!(agent.is_streaming());
        drop(task);
        assert_eq!(idle.finish(), Ok(()));
        watch.check(&agent, 1);
        deaf.unsubscribe();
        agent.set_stream_fn(ScriptedModel::new().text("ok"));
        assert_eq!(drive(agent.prompt("again").unwrap()).end, RunEnd::Completed);
        watch.check(&agent, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_idle_ends_with_the_run_however_early_it_began() {
    for _ in 0..100 {
        let agent = Agent::builder("m", ScriptedModel::new().fallback(|_| "ok")).build();
        // Before any run: nothing to wait for.
        assert_eq!(agent.wait_for_idle().now_or_never(), Some(Ok(())));
        let run = agent.prompt("go").unwrap();
        let waiters: Vec<_> = (0..4).map(|_| tokio::spawn(agent.wait_for_idle())).collect();
        // Made during the run, polled only after it.
        let late = agent.wait_for_idle();
        let run = tokio::spawn(IntoFuture::into_future(run));
        for waiter in waiters {
            assert_eq!(soon("wait_for_idle", waiter).await.unwrap(), Ok(()));
        }
        assert!(!agent.is_streaming(), "idle means idle");
        assert_eq!(soon("wait_for_idle", late).await, Ok(()));
        assert_eq!(soon("the run", run).await.unwrap().end, RunEnd::Completed);
        assert_eq!(agent.wait_for_idle().now_or_never(), Some(Ok(())));
    }
}

#[tokio::test]
async fn waiting_for_idle_is_for_the_run_that_was_active() {
    // A waiter must not be held by the runs that follow its own.
    let agent = Agent::builder("m", ScriptedModel::new().fallback(|_| "ok")).build();
    let run = agent.prompt("go").unwrap();
    let mut waiting = Task::new(agent.wait_for_idle());
    waiting.stall();
    drive(run);
    let next = agent.prompt("again").unwrap();
    assert_eq!(waiting.finish(), Ok(()));
    drop(next);
}

#[tokio::test]
async fn waiting_for_idle_inside_a_listener_is_refused_at_each_event() {
    let agent = Agent::builder("m", ScriptedModel::new().text("done")).build();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&answers);
    agent.subscribe(move |_, cx| {
        let answer = cx.agent().wait_for_idle().now_or_never();
        log.lock().unwrap().push(answer);
    });
    let log = Arc::clone(&answers);
    agent.subscribe_async(move |_, cx| {
        let log = Arc::clone(&log);
        async move {
            // Also where the listener is polled again.
            tokio::task::yield_now().await;
            let answer = cx.agent().wait_for_idle().await;
            log.lock().unwrap().push(Some(answer));
        }
    });
    let watch = Watch::new(&agent);
    let outcome = soon("the run", IntoFuture::into_future(agent.prompt("go").unwrap())).await;
    assert_eq!(outcome.end, RunEnd::Completed);
    let answers = answers.lock().unwrap();
    assert_eq!(answers.len(), 2 * watch.events().len());
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Some(Err(WaitInsideListener { .. })))),
        "{answers:?}"
    );
}

#[tokio::test]
async fn waiting_for_idle_beside_a_listener_is_not() {
    let agent = Agent::builder("m", ScriptedModel::new().text("done")).build();
    let other = Agent::builder("m", ScriptedModel::new().text("other")).build();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (log, of_other) = (Arc::clone(&waits), other.clone());
    agent.subscribe_async(move |event, cx| {
        let (log, other) = (Arc::clone(&log), of_other.clone());
        async move {
            if event.kind() == "agent_start" {
                // A task that the listener begins is not the listener.
                log.lock().unwrap().push(tokio::spawn(cx.agent().wait_for_idle()));
                // Nor is the run of another agent its own: it may be driven and waited for.
                let run = other.prompt("go").unwrap();
                let idle = other.wait_for_idle();
                run.await;
                assert_eq!(idle.await, Ok(()));
            }
        }
    });
    let outcome = soon("the run", IntoFuture::into_future(agent.prompt("go").unwrap())).await;
    assert_eq!((outcome.end, outcome.listener_errors), (RunEnd::Completed, vec![]));
    assert_eq!(other.transcript().len(), 2);
    let waits = std::mem::take(&mut *waits.lock().unwrap());
    assert_eq!(waits.len(), 1);
    for wait in waits {
        assert_eq!(soon("wait_for_idle", wait).await.unwrap(), Ok(()));
    }
}
