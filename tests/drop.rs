//! A run may be dropped anywhere: after each poll of several scenarios, and in odd places.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod robust_support;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use robust_support::closing::{check_closing, shapes};
use robust_support::drive::drive;
use robust_support::gate::Mode;
use robust_support::world::{KINDS, Kind, World};
use turnstate::machine::ExecutionMode;
use turnstate::{
    Agent, AgentEvent, AssistantMessage, Delivery, Message, QueueMode, Response, Run, ScriptedModel, StartError,
};

/// Polls a run `polls` times, whatever it says. Whether it is at its end.
fn poll_times(run: &mut Run, polls: usize) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(Pin::new(&mut *run).poll_next(&mut cx), Poll::Ready(None)))
}

/// What holds after a run was dropped after any number of polls.
fn check_dropped(world: &World, polls: usize) {
    // Dropped unpolled, it leaves nothing behind, not even an event.
    let runs = usize::from(polls > 0);
    let before = world.gate.polls();
    world.check_settled(runs);
    world.check_cancelled();
    assert_eq!(world.gate.polls(), before, "work goes on");
    world.check_next_prompt(runs + 1);
}

#[test]
fn a_run_may_be_dropped_after_each_poll() {
    for kind in KINDS {
        let mut polls = 0;
        loop {
            let world = World::new(kind);
            world.gate.set(Mode::Yield);
            let mut run = world.agent.prompt("go").unwrap();
            let over = poll_times(&mut run, polls);
            let before = world.gate.polls();
            drop(run);
            assert_eq!(world.gate.polls(), before, "the drop polls something foreign");
            check_dropped(&world, polls);
            if over {
                break;
            }
            polls += 1;
        }
        assert!(polls > 60, "the scenario is short: {polls} polls");
    }
}

#[test]
fn a_run_that_awaits_may_be_dropped_after_each_poll() {
    for kind in KINDS {
        for polls in 0.. {
            let world = World::new(kind);
            world.gate.set(Mode::Yield);
            let mut run = Box::pin(world.agent.prompt("go").unwrap().into_future());
            let mut cx = Context::from_waker(Waker::noop());
            let over = (0..polls).any(|_| run.as_mut().poll(&mut cx).is_ready());
            drop(run);
            check_dropped(&world, polls);
            if over {
                assert!(polls > 20, "the scenario is short: {polls} polls");
                break;
            }
        }
    }
}

#[test]
fn what_a_run_of_queued_messages_took_returns() {
    let kind = Kind::default();
    for polls in 0.. {
        let world = World::after(kind, vec![AssistantMessage::default().into()]);
        world.gate.set(Mode::Yield);
        let mut run = world.agent.continue_run().unwrap();
        let over = poll_times(&mut run, polls);
        drop(run);
        world.check_settled(usize::from(polls > 0));
        world.check_next_prompt(usize::from(polls > 0) + 1);
        if over {
            break;
        }
    }
}

#[test]
fn the_closing_events_are_those_of_an_abort() {
    let world = World::new(Kind {
        mode: ExecutionMode::Parallel,
        hooks: false,
        listener: false,
        queues: QueueMode::All,
    });
    world.gate.set(Mode::Yield);
    let mut run = world.agent.prompt("go").unwrap();
    // Until both tools run.
    while world.gate.alive() < 2 {
        poll_times(&mut run, 1);
    }
    let told = world.watch.events().len();
    drop(run);
    let all = world.watch.events();
    check_closing(&all, told, ExecutionMode::Parallel);
    assert_eq!(shapes(&all[told..told + 2]), ["xe(0!)", "xe(1!)"]);
}

#[test]
fn the_rest_of_the_listeners_hear_the_event_that_was_awaited() {
    let agent = Agent::builder("m", ScriptedModel::new().text("hi")).build();
    let heard = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let listen = |place: usize| {
        let heard = Arc::clone(&heard);
        agent.subscribe(move |event, _| heard.lock().unwrap()[place].push(event.kind()));
    };
    listen(0);
    agent.subscribe_async(async |_, _| std::future::pending::<()>().await);
    listen(1);
    let mut run = agent.prompt("go").unwrap();
    assert!(!poll_times(&mut run, 3));
    drop(run);
    let [first, second] = &*heard.lock().unwrap();
    assert_eq!(first, second);
    assert_eq!((first[0], *first.last().unwrap()), ("agent_start", "agent_end"));
    assert!(!agent.is_streaming());
}

#[test]
fn what_listeners_queue_while_a_run_is_dropped_is_for_the_next() {
    // §4.2: after an abort, "the active run" is the next one.
    let agent = Agent::builder("m", ScriptedModel::new().text("hi").text("ho")).build();
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let dropping = Arc::new(AtomicBool::new(false));
    agent.subscribe_async(async |_, _| std::future::pending::<()>().await);
    let (log, now) = (Arc::clone(&delivered), Arc::clone(&dropping));
    agent.subscribe(move |_, cx| {
        if now.load(Ordering::SeqCst) {
            log.lock().unwrap().push(cx.agent().follow_up("late").delivery);
            assert!(matches!(cx.agent().prompt("no"), Err(StartError::Busy)));
        }
    });
    let mut run = agent.prompt("go").unwrap();
    assert!(!poll_times(&mut run, 1));
    dropping.store(true, Ordering::SeqCst);
    drop(run);
    let delivered = delivered.lock().unwrap();
    assert!(delivered.len() > 2);
    assert!(
        delivered.iter().all(|delivery| *delivery == Delivery::NextRun),
        "{delivered:?}"
    );
}

/// A waker that goes on with the agent at once, as an executor on another thread might.
struct GoesOn(Agent, AtomicBool);

impl Wake for GoesOn {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.continue_run().is_ok(), Ordering::SeqCst);
    }
}

#[test]
fn who_waits_for_idle_finds_all_that_was_queued() {
    for polls in [0, 1, 2] {
        let answered: Vec<Message> = vec![AssistantMessage::default().into()];
        let agent = Agent::builder("m", ScriptedModel::new()).transcript(answered).build();
        agent.steer("queued");
        let mut run = agent.continue_run().unwrap();
        poll_times(&mut run, polls);
        let goes_on = Arc::new(GoesOn(agent.clone(), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&goes_on));
        let mut idle = std::pin::pin!(agent.wait_for_idle());
        assert!(idle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(run);
        assert!(goes_on.1.load(Ordering::SeqCst), "idle too early, after {polls} polls");
    }
}

#[test]
fn agent_and_run_may_be_dropped_in_any_order() {
    let world = World::new(KINDS[0]);
    world.gate.set(Mode::Yield);
    let World { agent, gate, watch, .. } = world;
    let run = agent.prompt("go").unwrap();
    drop(agent);
    // The run keeps what it needs, and works to its end.
    let outcome = drive(run);
    assert_eq!(outcome.end, turnstate::machine::RunEnd::Completed);
    assert_eq!(gate.alive(), 0);
    assert!(matches!(watch.events().last(), Some(AgentEvent::AgentEnd { .. })));
}

#[test]
fn a_run_that_is_dropped_last_frees_everything() {
    struct Probe(Arc<()>);
    let probe = Arc::new(());
    let in_listener = Probe(Arc::clone(&probe));
    let in_tool = Probe(Arc::clone(&probe));
    let tool = turnstate::json_tool("t", "t", serde_json::json!({"type": "object"}), move |_, _| {
        let _ = &in_tool.0;
        std::future::pending::<String>()
    });
    let model = ScriptedModel::new().reply(Response::new().call("t", serde_json::json!({})));
    let agent = Agent::builder("m", model).tool(tool).build();
    agent.subscribe(move |_, _| {
        let _ = &in_listener.0;
    });
    let mut run = agent.prompt("go").unwrap();
    assert!(!poll_times(&mut run, 50));
    assert_eq!(Arc::strong_count(&probe), 3);
    drop(agent);
    drop(run);
    assert_eq!(Arc::strong_count(&probe), 1, "a cycle");
}

#[test]
fn an_unsubscribed_listener_is_dropped_by_the_next_event_or_at_once_without_a_run() {
    let agent = Agent::builder("m", ScriptedModel::new().text("an answer")).build();
    let listen = || {
        let held = Arc::new(());
        let alive = Arc::downgrade(&held);
        let subscription = agent.subscribe(move |_, _| {
            std::hint::black_box(&held);
        });
        (subscription, alive)
    };
    let (first, first_alive) = listen();
    let (second, second_alive) = listen();
    let mut run = agent.prompt("go").unwrap();
    poll_times(&mut run, 1);
    first.unsubscribe();
    poll_times(&mut run, 1);
    assert!(first_alive.upgrade().is_none());
    assert!(second_alive.upgrade().is_some());
    while !poll_times(&mut run, 1) {}
    // The run is still there, but over.
    second.unsubscribe();
    assert!(second_alive.upgrade().is_none());
}

#[test]
fn a_panic_may_drop_a_run() {
    for polls in [0, 1, 5, 20, 40, 60] {
        let world = World::new(KINDS[0]);
        world.gate.set(Mode::Yield);
        let agent = world.agent.clone();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let mut run = agent.prompt("go").unwrap();
            poll_times(&mut run, polls);
            std::panic::resume_unwind(Box::new("of the holder"));
        }));
        assert!(unwound.is_err());
        check_dropped(&world, polls);
    }
}

#[test]
fn a_run_may_be_dropped_on_another_runtime_or_on_none() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    for on_runtime in [true, false] {
        for polls in [1, 20, 40] {
            let world = World::new(KINDS[2]);
            world.gate.set(Mode::Yield);
            let mut run = runtime().block_on(async {
                let mut run = world.agent.prompt("go").unwrap();
                poll_times(&mut run, polls);
                run
            });
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    if on_runtime {
                        runtime().block_on(async move {
                            poll_times(&mut run, 1);
                            drop(run);
                        });
                    } else {
                        drop(run);
                    }
                });
            });
            check_dropped(&world, polls);
        }
    }
}
