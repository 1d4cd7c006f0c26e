//! Runs that are dropped half-way: nothing works on, and the agent is as sound as after an abort.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use futures_util::StreamExt;
use futures_util::stream;
use turnstate::{Agent, AssistantEvent, CancellationToken, Delivery, Request, StartError};

use super::drive::{Task, drive};
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

/// A waker that goes on with the agent at once, inside the very call that wakes it.
struct GoOn(Agent, Mutex<Option<Result<Delivery, StartError>>>);

impl Wake for GoOn {
    fn wake(self: Arc<Self>) {
        let begun = self.0.continue_run().map(|run| {
            // Another message queued now is for this run.
            let delivery = self.0.follow_up("f2").delivery;
            drive(run);
            delivery
        });
        *self.1.lock().unwrap() = Some(begun);
    }
}

/// Next to C020: a run that was never polled leaves nothing behind, not even for the moment in which the agent is
/// idle again: what `continue` took is back before anybody can notice.
#[test]
fn c020_a_run_never_polled_returns_what_it_took_before_the_agent_is_idle() {
    let rig = Rig::new([say("1"), say("2"), say("3")], |agent, _| agent);
    rig.prompt("go");
    rig.agent.follow_up("f1");
    let run = rig.agent.continue_run().unwrap();
    let waiter = Arc::new(GoOn(rig.agent.clone(), Mutex::default()));
    let mut idle = std::pin::pin!(rig.agent.wait_for_idle());
    let waker = Waker::from(Arc::clone(&waiter));
    assert!(
        idle.as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
            .is_pending()
    );
    drop(run);
    assert_eq!(*waiter.1.lock().unwrap(), Some(Ok(Delivery::ThisRun)));
    assert_eq!(rig.transcript(), "u, a/stop, u f1, a/stop, u f2, a/stop");

    // And nobody is told that the run that is gone will look at the queue.
    let run = rig.agent.prompt("never said").unwrap();
    drop(run);
    assert_eq!(rig.agent.steer("s").delivery, Delivery::NextRun);
}
