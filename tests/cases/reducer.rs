//! The agent's state and life: what listeners see, one run at a time, and when it is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AgentMessage, CancellationToken, Message, QueueKind, QueueMode, Run, ScriptedModel, StartError,
    ThinkingLevel, Transcript,
};

use super::drive::{Task, block_on, drive, yield_now};
use super::harness::{Log, Notes, Rig, calls, quick, say, show, until};

/// The events of `prompt("go")` with one tool call and an answer.
const BASELINE: &str = "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) te(toolUse)[1] \
                        ts ms(a) me(a/stop) te(stop)[0] ae[4]";

/// C016: a conversion that fails is told in full; state and error are what the events say. (All hooks: `hooks_more`.)
#[test]
fn c016_a_failing_conversion_is_told_in_full() {
    let rig = Rig::new([], |agent, _| agent.convert_to_llm(async |_| Err("cannot convert")));
    let outcome = rig.prompt("go");
    rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
    assert_eq!(rig.transcript(), "u, a/error");
    assert_eq!(rig.agent.error_message().as_deref(), Some("cannot convert"));
    assert_eq!(
        outcome.into_result().unwrap_err().to_string(),
        "the run failed: cannot convert"
    );
}

/// C022: a listener that fails, in whatever way, at every event: the others hear all, the run is not touched.
#[test]
fn c022_a_failing_listener_starves_nobody() {
    for way in ["error", "panic", "async error", "async panic", "async panic, later"] {
        let agent = Agent::builder(
            "scripted-1",
            ScriptedModel::new()
                .reply(calls("a:t"))
                .text("END")
                .reply(calls("a:t"))
                .text("END"),
        );
        let (reported, counted) = (Arc::new(AtomicUsize::new(0)), Notes::default());
        let (reports, notes) = (Arc::clone(&reported), counted.clone());
        let agent = agent.tool(quick("t")).on_listener_error(move |error| {
            reports.fetch_add(1, Ordering::Relaxed);
            notes.add(error.to_string());
            panic!("the report fails, too");
        });
        let agent = agent.build();
        match way {
            "error" => agent.subscribe(|_, _| Err::<(), _>("oh no")),
            "panic" => agent.subscribe(|_, _| assert_eq!("", "oh no")),
            "async error" => agent.subscribe_async(async |_, _| Err::<(), _>("oh no")),
            "async panic" => agent.subscribe_async(|_, _| {
                assert_eq!("", "oh no");
                std::future::ready(())
            }),
            _ => agent.subscribe_async(async |_, _| {
                yield_now().await;
                assert_eq!("", "oh no");
            }),
        };
        let log = Log::of(&agent);
        for n in 1..=2 {
            let outcome = drive(agent.prompt("go").unwrap());
            let told = log.events().len();
            assert_eq!(log.line(), [BASELINE; 2][..n].join(" "), "{way}");
            assert_eq!(outcome.end, RunEnd::Completed);
            assert_eq!(outcome.listener_errors.len(), told / n);
            assert_eq!(reported.load(Ordering::Relaxed), told);
            assert!(counted.all()[0].contains("agent_start"), "{:?}", counted.all()[0]);
            assert!(!agent.is_streaming());
        }
    }
}

/// C033 (a): a run that is awaited, not drained: its listener hears each event when it happens.
#[test]
fn c033_an_awaited_run_tells_its_listeners_as_it_goes() {
    let rig = Rig::new(
        [say(&"x".repeat(1_000)).chunk_chars(1).pending_between()],
        |agent, _| agent,
    );
    let (deltas, wrong) = (Arc::new(AtomicUsize::new(0)), Notes::default());
    let (count, notes) = (Arc::clone(&deltas), wrong.clone());
    rig.agent.subscribe(move |event, cx| {
        if let turnstate::AgentEvent::MessageUpdate {
            event: turnstate::AssistantEvent::TextDelta { .. },
        } = event
        {
            let seen = count.fetch_add(1, Ordering::Relaxed) + 1;
            if cx.partial().map(|partial| partial.text().len()) != Some(seen) {
                notes.add(format!("delta {seen}"));
            }
        }
    });
    let mut run = rig.start("go");
    // Each poll tells one event of the model, no less.
    let mut before = 0;
    while let Some(std::task::Poll::Pending) = run.poll() {
        let told = rig.log.events().len();
        assert!(told > before, "{told}");
        before = told;
    }
    assert_eq!((deltas.load(Ordering::Relaxed), wrong.all()), (1_000, vec![]));
    assert!(rig.log.line().ends_with("te(stop)[0] ae[2]"));
}

/// C033 (c): an async listener that takes long holds the run, and changes no order.
#[test]
fn c033_a_slow_listener_holds_the_run() {
    for slow in ["as", "xe(a)", "ae[4]"] {
        let rig = Rig::new([calls("a:t"), say("END")], |agent, _| agent.tool(quick("t")));
        let gate = CancellationToken::new();
        let (opened, slow) = (gate.clone(), slow.to_owned());
        rig.agent.subscribe_async(move |event, _| {
            let wait = (show(&event) == slow).then(|| opened.clone());
            async move {
                if let Some(gate) = wait {
                    gate.cancelled().await;
                }
            }
        });
        // It hears what the slow one has heard.
        let behind = Log::of(&rig.agent);
        let mut run = rig.start("go");
        run.stall();
        assert_eq!(rig.log.events().len(), behind.events().len() + 1);
        gate.cancel();
        run.finish();
        assert_eq!(behind.line(), BASELINE);
        rig.saw(BASELINE);
    }
}

/// C056: what would change the transcript under a run is refused; idle, it works, and keeps the configuration.
#[test]
fn c056_reset_during_a_run_is_refused() {
    let rig = Rig::new([say("x").fail("down"), say("half").silence()], |agent, _| {
        agent
            .steering_mode(QueueMode::All)
            .thinking_level(ThinkingLevel::High)
            .system_prompt("brief")
    });
    rig.prompt("go");
    rig.agent.steer("s");
    rig.agent.follow_up("f");
    let mut run = rig.start("again");
    run.stall();
    let before = rig.transcript();
    assert_eq!(rig.agent.reset(), Err(StartError::Busy));
    assert_eq!(rig.agent.set_transcript(Transcript::new()), Err(StartError::Busy));
    assert_eq!(rig.transcript(), before);
    assert!(rig.agent.has_queued());
    rig.agent.abort();
    run.finish();
    assert!(rig.agent.error_message().is_some());
    rig.agent.reset().unwrap();
    assert_eq!((rig.transcript(), rig.agent.error_message()), (String::new(), None));
    assert!(!rig.agent.has_queued());
    assert_eq!(rig.agent.queue_mode(QueueKind::Steering), QueueMode::All);
    assert_eq!(
        (rig.agent.thinking_level(), &*rig.agent.system_prompt()),
        (ThinkingLevel::High, "brief")
    );
}

/// A message that tells when it goes.
#[derive(Clone)]
struct Farewell(
    Arc<Message>,
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Arc<OnDrop>>,
);

impl From<Message> for Farewell {
    fn from(message: Message) -> Self {
        Self(Arc::new(message), None)
    }
}

impl AgentMessage for Farewell {
    fn role(&self) -> &str {
        self.0.role()
    }

    fn as_message(&self) -> Option<&Message> {
        Some(&self.0)
    }

    fn to_message(this: &Arc<Self>) -> Option<Arc<Message>> {
        Some(Arc::clone(&this.0))
    }
}

type Act = Box<dyn FnOnce() + Send + Sync>;

/// Does something when it is dropped.
struct OnDrop(Mutex<Option<Act>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(act) = self.0.lock().unwrap().take() {
            act();
        }
    }
}

/// C056: a reset is one step: who gets in as soon as the old messages go, in their very drop, loses nothing by it.
#[test]
fn c056_a_reset_does_not_clear_what_comes_behind_it() {
    let rig = Rig::<Farewell>::of([say("1")], |agent, _| agent);
    let begun = Arc::new(Mutex::new(None));
    let (agent, run) = (rig.agent.clone(), Arc::clone(&begun));
    let act: Act = Box::new(move || {
        *run.lock().unwrap() = Some(agent.prompt("go").unwrap());
        agent.steer("s");
    });
    let last = Farewell(
        Arc::new(Message::user("x")),
        Some(Arc::new(OnDrop(Mutex::new(Some(act))))),
    );
    rig.agent.set_transcript(vec![last]).unwrap();
    rig.agent.reset().unwrap();
    drive(begun.lock().unwrap().take().expect("a run"));
    assert_eq!(rig.transcript(), "u, u s, a/stop");
}

/// The ways to begin a run.
fn begin(agent: &Agent) -> [Result<Run, StartError>; 4] {
    [
        agent.prompt("x"),
        agent.prompt(Vec::<Message>::new()),
        agent.continue_run(),
        agent.retry(),
    ]
}

/// C057: during a run none can be begun, and nothing is touched by the attempt.
#[test]
fn c057_a_second_run_is_refused() {
    let rig = Rig::new([say("half").silence()], |agent, _| agent);
    rig.agent.steer("s");
    let mut run = rig.agent.prompt("go").unwrap();
    for event in ["", "ms(u s)", "me(u s)", "ms(a)"] {
        if !event.is_empty() {
            until(&mut run, event);
        }
        let before = (
            rig.transcript(),
            rig.agent.peek(QueueKind::Steering).len(),
            rig.log.full_line(),
        );
        for refused in begin(&rig.agent) {
            assert_eq!(refused.map(|_| ()), Err(StartError::Busy));
        }
        assert_eq!(
            before,
            (
                rig.transcript(),
                rig.agent.peek(QueueKind::Steering).len(),
                rig.log.full_line()
            )
        );
    }
}

/// C057: of several threads that prompt at once one wins; the others change nothing.
#[test]
fn c057_of_concurrent_prompts_one_wins() {
    let agent = Agent::builder("scripted-1", ScriptedModel::new().fallback(|_| "ok")).build();
    let log = Log::of(&agent);
    for n in 0..1_000 {
        let barrier = std::sync::Barrier::new(2);
        let begun = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    // Held until both have tried.
                    let run = agent.prompt("go");
                    begun.lock().unwrap().push(run);
                });
            }
        });
        let (won, lost): (Vec<_>, Vec<_>) = begun.into_inner().unwrap().into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1));
        assert!(lost.into_iter().all(|run| run.err() == Some(StartError::Busy)));
        for run in won {
            block_on(run.unwrap());
        }
        assert_eq!(agent.transcript().len(), 2 * (n + 1));
    }
    assert_eq!(log.line().matches("as").count(), 1_000);
    assert_eq!(log.line().matches("ae[2]").count(), 1_000);
}

/// C058: what listeners see at each event: the state with the event in it.
#[test]
fn c058_listeners_see_the_state_with_the_event_in_it() {
    let rig = Rig::new([say("x").fail("down"), calls("a:t b:t"), say("hi")], |agent, _| {
        agent.tool(quick("t"))
    });
    rig.prompt("go");
    assert_eq!(rig.agent.error_message().as_deref(), Some("down"));
    rig.agent.reset().unwrap();
    let notes = Notes::default();
    let seen = notes.clone();
    rig.agent.subscribe(move |event, cx| {
        let agent = cx.agent();
        let role = agent.streaming_message().map_or("-", |message| message.role());
        let (len, pending) = (cx.transcript().len(), agent.pending_tool_calls().len());
        assert!(agent.is_streaming() && agent.error_message().is_none());
        if event.kind() != "message_update" {
            seen.add(format!("{}: {len} {role} {pending}", show(event)));
        }
    });
    rig.prompt("go");
    assert_eq!(
        notes.all(),
        [
            "as: 0 - 0",
            "ts: 0 - 0",
            "ms(u): 0 user 0",
            "me(u): 1 - 0",
            "ms(a): 1 assistant 0",
            "me(a/toolUse): 2 - 0",
            "xs(a): 2 - 1",
            "xs(b): 2 - 2",
            "xe(a): 2 - 1",
            "xe(b): 2 - 0",
            "ms(r a): 2 toolResult 0",
            "me(r a): 3 - 0",
            "ms(r b): 3 toolResult 0",
            "me(r b): 4 - 0",
            "te(toolUse)[2]: 4 - 0",
            "ts: 4 - 0",
            "ms(a): 4 assistant 0",
            "me(a/stop): 5 - 0",
            "te(stop)[0]: 5 - 0",
            "ae[5]: 5 - 0",
        ]
    );
    assert!(!rig.agent.is_streaming());
}

/// C058: the error stays until the next run starts, and no longer.
#[test]
fn c058_the_error_is_cleared_at_the_next_start() {
    let rig = Rig::new([say("x").fail("down"), say("ok")], |agent, _| agent);
    rig.prompt("go");
    assert_eq!(rig.agent.error_message().as_deref(), Some("down"));
    let mut run = rig.agent.prompt("go").unwrap();
    assert_eq!(rig.agent.error_message().as_deref(), Some("down"));
    until(&mut run, "as");
    assert_eq!(rig.agent.error_message(), None);
    drive(run);
}

/// C130: the run, and whoever waits, are done when the listeners of `agent_end` are.
#[test]
fn c130_agent_end_is_not_settled() {
    let rig = Rig::new([say("hi")], |agent, _| agent);
    let gate = CancellationToken::new();
    let opened = gate.clone();
    rig.agent.subscribe_async(move |event, _| {
        let wait = (event.kind() == "agent_end").then(|| opened.clone());
        async move {
            if let Some(gate) = wait {
                gate.cancelled().await;
            }
        }
    });
    let mut run = rig.start("go");
    let mut idle = Task::new(rig.agent.wait_for_idle());
    idle.stall();
    run.stall();
    assert!(rig.log.line().ends_with("te(stop)[0] ae[2]"));
    assert!(idle.run().is_none() && rig.agent.is_streaming());
    assert_eq!(rig.agent.prompt("more").unwrap_err(), StartError::Busy);
    gate.cancel();
    run.finish();
    assert_eq!(idle.finish(), Ok(()));
    assert!(!rig.agent.is_streaming());
}

/// C130: who waits in another thread misses no wake-up.
#[test]
fn c130_waiters_miss_no_wake_up() {
    let agent = Agent::builder("scripted-1", ScriptedModel::new().fallback(|_| "ok")).build();
    for _ in 0..500 {
        let run = agent.prompt("go").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| block_on(agent.wait_for_idle()).unwrap());
            block_on(run);
        });
    }
}
