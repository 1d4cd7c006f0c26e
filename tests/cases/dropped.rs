//! Runs that are dropped half-way: nothing works on, and the agent is as sound as after an abort.

use futures_util::StreamExt;
use futures_util::stream;
use turnstate::{Agent, AssistantEvent, CancellationToken, Request};

use super::drive::Task;
use super::harness::{Notes, OnDrop, Rig, calls, quick, say, tool};

/// C020: dropped while a tool runs: calls are closed, the agent is idle, the next request is sound.
#[test]
fn c020_a_run_dropped_while_a_tool_runs() {
    let notes = Notes::default();
    let rig = Rig::new([calls("b:fast a:stuck"), say("END")], |agent, _| {
        let dropped = notes.clone();
        let stuck = tool("stuck", move |_, cx| {
            let guard = OnDrop(dropped.clone(), "dropped");
            async move {
                let _guard = guard;
                cx.cancellation_token().cancelled().await;
                "no more polls"
            }
        });
        agent.tool(stuck).tool(quick("fast"))
    });
    let mut run = rig.start("go");
    run.stall();
    assert!(rig.agent.is_streaming());
    drop(run);
    assert!(!rig.agent.is_streaming());
    assert_eq!(notes.all(), ["dropped"]);
    rig.saw(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(b) xs(a) xe(b) xe(a!) ms(r b) me(r b) ms(r a) me(r a) \
         te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    );
    assert_eq!(
        (rig.result("a"), rig.result("b")),
        ("Operation aborted".into(), "b ok".into())
    );
    rig.prompt("again");
    assert_eq!(rig.sent(1), "u, a/toolUse, r b, r a, u again");
}

/// C020: dropped while the model streams, while a hook is asked, while a listener is awaited, before the first poll.
#[test]
fn c020_a_run_dropped_anywhere_else() {
    let rig = Rig::new([say("half").silence().deaf(), say("END")], |agent, _| agent);
    let mut run = rig.start("go");
    run.stall();
    drop(run);
    rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
    assert_eq!(rig.last_text(), "half");

    drop(rig.start("never said"));
    rig.saw("");
    assert_eq!(rig.transcript(), "u, a/aborted");

    let held = rig
        .agent
        .subscribe_async(async |_, _| std::future::pending::<()>().await);
    let mut run = rig.start("held");
    run.stall();
    drop(run);
    held.unsubscribe();
    rig.saw("as ts ms(u held) me(u held) ms(a) me(a/aborted) te(aborted)[0] ae[2]");

    let rig = Rig::new([say("END")], |agent, _| {
        agent.transform_context(async |cx| {
            std::future::pending::<()>().await;
            cx.transcript
        })
    });
    let mut run = rig.start("go");
    run.stall();
    drop(run);
    rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
    assert_eq!(rig.requests(), 0);
}

/// A model that never answers, and notes the drop of its stream.
fn deaf_model(notes: Notes) -> impl Fn(Request, CancellationToken) -> stream::BoxStream<'static, AssistantEvent> {
    move |_, _| {
        let guard = OnDrop(notes.clone(), "stream dropped");
        let start = stream::iter([AssistantEvent::start()]);
        let never = stream::once(async move {
            let _guard = guard;
            std::future::pending().await
        });
        start.chain(never).boxed()
    }
}

/// C020: dropping the last handles stops model and tools.
#[test]
fn c020_dropping_all_handles_stops_the_work() {
    let notes = Notes::default();
    let agent = Agent::builder("scripted-1", deaf_model(notes.clone())).build();
    let run = agent.prompt("go").unwrap();
    drop(agent);
    let mut run = Task::new(run.collect::<Vec<_>>());
    run.stall();
    assert_eq!(notes.all(), [""; 0]);
    drop(run);
    assert_eq!(notes.all(), ["stream dropped"]);
}
