//! The model's stream: however it begins, breaks and ends, there is one message, and one end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures_util::stream::{self, StreamExt};
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AgentBuilder, AgentMessage, AssistantEvent, CancellationToken, DoneReason, ErrorReason, Message, QueueKind,
    Request, Response,
};

use super::drive::{Task, drive};
use super::harness::{Notes, OnDrop, Rig, calls, calls_but, quick, say};

fn text(pieces: &[&str]) -> Vec<AssistantEvent> {
    let start = AssistantEvent::TextStart { content_index: 0 };
    let deltas = pieces.iter().map(|piece| AssistantEvent::text_delta(0, *piece));
    std::iter::once(start).chain(deltas).collect()
}

fn events(parts: impl IntoIterator<Item = Vec<AssistantEvent>>) -> Response {
    Response::from_events(parts.into_iter().flatten())
}

fn start() -> Vec<AssistantEvent> {
    vec![AssistantEvent::start()]
}

fn done() -> Vec<AssistantEvent> {
    vec![AssistantEvent::done(DoneReason::Stop)]
}

/// C014: a stream that ends without saying how is a failure; what came is kept.
#[test]
fn c014_a_stream_without_a_terminal_event_fails() {
    for (answer, kept) in [
        (events([start()]), ""),
        (events([start(), text(&["hi"])]), "hi"),
        (events([text(&["hi"])]), "hi"),
        (events([]), ""),
    ] {
        let rig = Rig::new([answer], |agent, _| agent);
        assert_eq!(rig.prompt("go").end, RunEnd::Failed);
        rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
        assert_eq!(rig.last_text(), kept);
        assert!(rig.agent.error_message().is_some());
    }
}

/// C062: calls are run whatever the stop reason says.
#[test]
fn c062_stop_with_tool_calls_still_executes() {
    let rig = Rig::new([calls_but("a:t", DoneReason::Stop), say("END")], |agent, _| {
        agent.tool(quick("t"))
    });
    rig.prompt("go");
    rig.saw(
        "as ts ms(u) me(u) ms(a) me(a/stop) xs(a) xe(a) ms(r a) me(r a) te(stop)[1] ts ms(a) me(a/stop) te(stop)[0] \
         ae[4]",
    );
}

/// C063: `toolUse` without calls does not loop; a follow-up is delivered.
#[test]
fn c063_tool_use_without_calls_does_not_loop() {
    for follow_up in [false, true] {
        let rig = Rig::new([say("pre").stop(DoneReason::ToolUse), say("END")], |agent, _| agent);
        if follow_up {
            rig.agent.follow_up("f");
        }
        rig.prompt("go");
        let rest = if follow_up {
            "ts ms(u f) me(u f) ms(a) me(a/stop) te(stop)[0] ae[4]"
        } else {
            "ae[2]"
        };
        rig.saw(&format!("as ts ms(u) me(u) ms(a) me(a/toolUse) te(toolUse)[0] {rest}"));
        assert_eq!(rig.requests(), 1 + usize::from(follow_up));
    }
}

/// C064: complete calls of a failed message are not run, and not sent again.
#[test]
fn c064_calls_of_a_failed_message_are_not_run() {
    let notes = Notes::default();
    let ended = AssistantEvent::ToolCallEnd {
        content_index: 0,
        tool_call: None,
    };
    let rig = Rig::new([calls("a:write").event(ended).fail("refused"), say("2")], |agent, _| {
        agent.tool(notes.tool("write"))
    });
    assert_eq!(rig.prompt("go").end, RunEnd::Failed);
    rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
    assert_eq!(notes.all(), [""; 0]);
    assert_eq!(
        rig.agent.transcript()[1].as_assistant().unwrap().tool_calls().count(),
        1
    );
    rig.prompt("next");
    assert_eq!(rig.sent(1), "u, u next");
}

/// C066: without a start there are no updates, and one message start and end at the terminal event.
#[test]
fn c066_no_start_event() {
    for (answer, stop) in [
        (events([text(&["h", "i"]), done()]), "stop"),
        (events([vec![AssistantEvent::error("down")]]), "error"),
        (events([text(&["hi"]), vec![AssistantEvent::error("down")]]), "error"),
        (events([done()]), "stop"),
    ] {
        let rig = Rig::new([answer], |agent, _| agent);
        rig.prompt("go");
        assert_eq!(
            rig.log.full_line(),
            format!("as ts ms(u) me(u) ms(a) me(a/{stop}) te({stop})[0] ae[2]")
        );
    }
}

/// C066: a late start announces what is there; a second one is ignored. What is lent is the fold of what came (I7).
#[test]
fn c066_a_late_start_announces_what_is_there() {
    let answer = events([
        text(&["He", "l"]),
        start(),
        vec![AssistantEvent::text_delta(0, "l")],
        start(),
        done(),
    ]);
    let rig = Rig::new([answer], |agent, _| agent);
    let notes = Notes::default();
    let seen = notes.clone();
    rig.agent.subscribe(move |event, cx| {
        if let Some(partial) = cx.partial() {
            let streaming = cx.agent().streaming_message().unwrap();
            assert_eq!(streaming.text(), partial.text(), "I5");
            seen.add(format!("{} {}", super::harness::show(event), partial.text()));
        }
    });
    rig.prompt("go");
    assert_eq!(
        rig.log.full_line(),
        "as ts ms(u) me(u) ms(a) mu me(a/stop) te(stop)[0] ae[2]"
    );
    assert_eq!(notes.all(), ["ms(a) Hel", "mu Hell"]);
    assert_eq!(rig.last_text(), "Hell");
}

/// C068: what comes behind the terminal event does not count; the stream is dropped at once.
#[test]
fn c068_events_behind_the_terminal_one_are_ignored() {
    for terminal in [AssistantEvent::done(DoneReason::Stop), AssistantEvent::error("down")] {
        let notes = Notes::default();
        let rig = Rig::new([], |agent, _| agent);
        let (dropped, end) = (notes.clone(), terminal.clone());
        rig.agent.set_stream_fn(move |_: Request, _: CancellationToken| {
            let guard = OnDrop(dropped.clone(), "stream dropped");
            let late = [
                AssistantEvent::text_delta(0, "LATE"),
                AssistantEvent::error("LATE"),
                end.clone(),
            ];
            let answer = [start(), text(&["hi"]), vec![end.clone()], late.to_vec()].concat();
            stream::iter(answer).inspect(move |_| {
                let _ = &guard;
            })
        });
        let told = notes.clone();
        rig.agent.subscribe(move |event, _| {
            if event.kind() == "turn_end" {
                told.add("turn end");
            }
        });
        rig.prompt("go");
        assert_eq!(rig.last_text(), "hi");
        assert_eq!(notes.all(), ["stream dropped", "turn end"]);
    }
}

/// C094: an abort the server reports is an abort, and not a failure; its calls are not run.
#[test]
fn c094_a_server_may_report_an_abort() {
    let notes = Notes::default();
    let aborted = AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: Some("cancelled by the server".into()),
        usage: Box::default(),
        message: None,
        failure: None,
    };
    let rig = Rig::new([calls("a:t").event(aborted)], |agent, _| agent.tool(notes.tool("t")));
    rig.agent.follow_up("f");
    let outcome = rig.prompt("go");
    rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
    assert_eq!(outcome.end, RunEnd::Aborted);
    assert_eq!(outcome.error.as_deref(), Some("cancelled by the server"));
    assert_eq!(notes.all(), [""; 0]);
    assert!(rig.agent.has_queued());
}

/// Next to C014: a stream function, or stream, that panics, and a delta that does not fit: a failure with the partial.
#[test]
fn c014_a_panic_or_a_misfit_is_a_failure_that_keeps_the_partial() {
    for answer in [
        say("hi").panic("oops"),
        events([start(), text(&["hi"]), vec![AssistantEvent::text_delta(7, "?")], done()]),
        events([
            start(),
            text(&["hi"]),
            vec![AssistantEvent::thinking_delta(0, "?")],
            done(),
        ]),
    ] {
        let rig = Rig::new([answer, say("again")], |agent, _| agent);
        assert_eq!(rig.prompt("go").end, RunEnd::Failed);
        rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
        assert_eq!(rig.last_text(), "hi");
        assert_eq!(rig.prompt("once more").text(), "again");
    }
}

/// C119: a delta does not copy what is finished: the texts of the blocks before stay where they are.
#[test]
fn c119_a_delta_copies_no_finished_block() {
    const BLOCKS: usize = 50;
    const DELTAS: usize = 2_000;
    let block = |index: usize| {
        let start = AssistantEvent::TextStart { content_index: index };
        let end = AssistantEvent::TextEnd {
            content_index: index,
            content_signature: None,
        };
        let deltas = std::iter::repeat_n(AssistantEvent::text_delta(index, "x"), DELTAS);
        std::iter::once(start).chain(deltas).chain([end])
    };
    let answer = std::iter::once(AssistantEvent::start())
        .chain((0..BLOCKS).flat_map(block))
        .chain(done());
    let agent = Agent::builder(
        "scripted-1",
        turnstate::ScriptedModel::new().reply(Response::from_events(answer)),
    )
    .build();
    let (moved, checked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (moves, checks, place) = (Arc::clone(&moved), Arc::clone(&checked), Mutex::new(None));
    agent.subscribe(move |_, cx| {
        let Some(turnstate::AssistantContent::Text(first)) = cx.partial().and_then(|partial| partial.content.first())
        else {
            return;
        };
        if first.text.len() == DELTAS {
            checks.fetch_add(1, Ordering::Relaxed);
            let here = first.text.as_ptr() as usize;
            let before = place.lock().unwrap().replace(here);
            moves.fetch_add(
                usize::from(before.is_some_and(|before| before != here)),
                Ordering::Relaxed,
            );
        }
    });
    let outcome = drive(agent.prompt("go").unwrap());
    assert_eq!(outcome.text().len(), BLOCKS * (DELTAS + 1) - 1);
    assert_eq!(checked.load(Ordering::Relaxed), 1 + 1 + (BLOCKS - 1) * (DELTAS + 2));
    assert_eq!(moved.load(Ordering::Relaxed), 0);
}

/// A message whose copies are counted.
#[derive(Debug)]
struct Counted(Arc<Message>);

static COPIES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Counted {
    fn clone(&self) -> Self {
        COPIES.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl From<Message> for Counted {
    fn from(message: Message) -> Self {
        Self(Arc::new(message))
    }
}

impl AgentMessage for Counted {
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

/// C119: no message is ever copied, in queues, transcript, events and requests.
#[test]
fn c119_messages_are_shared_not_copied() {
    let asked = AtomicUsize::new(0);
    let model = turnstate::ScriptedModel::new().fallback(move |_| {
        assert!(asked.fetch_add(1, Ordering::Relaxed) < 2_000, "asked again and again");
        "ok"
    });
    let agent = AgentBuilder::<Counted>::new("scripted-1", model).build();
    for n in 0..500 {
        agent.steer(n.to_string());
        agent.follow_up(n.to_string());
    }
    assert_eq!(agent.peek(QueueKind::Steering).len(), 1);
    drive(agent.prompt("go").unwrap());
    assert_eq!(agent.transcript().len(), 1 + 2 * 1_000);
    assert_eq!(COPIES.load(Ordering::Relaxed), 0);
}

/// C120: runs that end, are aborted and dropped, and listeners that come and go, leave nothing behind.
#[test]
fn c120_nothing_is_kept_of_runs_that_are_over() {
    let probe = Arc::new(());
    let held = || Arc::strong_count(&probe) - 1;
    let (in_stream, in_tool) = (Arc::clone(&probe), Arc::clone(&probe));
    let asked = AtomicUsize::new(0);
    let model = move |request: Request, _: CancellationToken| {
        assert!(asked.fetch_add(1, Ordering::Relaxed) < 2_000, "asked again and again");
        let kept = Arc::clone(&in_stream);
        let answered = request.messages.last().is_some_and(|last| last.role() == "toolResult");
        let never = stream::pending().map(move |event: AssistantEvent| {
            let _ = &kept;
            event
        });
        let call = vec![
            AssistantEvent::tool_call_start(0, "a", "t"),
            AssistantEvent::done(DoneReason::ToolUse),
        ];
        stream::iter([start(), if answered { vec![] } else { call }].concat()).chain(never)
    };
    let tool = super::harness::tool("t", move |_, cx| {
        let kept = Arc::clone(&in_tool);
        async move {
            let _kept = (kept, cx);
            "ok"
        }
    });
    let agent = Agent::builder("scripted-1", model).tool(tool).build();
    let before = held();
    for n in 0..1_000 {
        let kept = Arc::clone(&probe);
        let listener = agent.subscribe(move |_, _| {
            let _ = &kept;
        });
        let mut run = Task::new(IntoFuture::into_future(agent.prompt("go").unwrap()));
        let mut idle = Task::new(agent.wait_for_idle());
        idle.stall();
        run.stall();
        assert!(held() > before);
        if n % 2 == 0 {
            agent.abort();
            run.finish();
        }
        drop(run);
        idle.finish().unwrap();
        listener.unsubscribe();
        assert_eq!(held(), before, "run {n}");
        agent.reset().unwrap();
    }
    // An agent whose listener is never unsubscribed, and a subscription that outlives it.
    let kept = Arc::clone(&probe);
    let subscription = agent.subscribe(move |_, _| {
        let _ = &kept;
    });
    drop(agent);
    subscription.unsubscribe();
    assert_eq!(held(), 0);
}

/// Next to C033: a run that is awaited lets others run, however ready its model is.
#[test]
fn c033_an_awaited_run_does_not_hold_its_thread() {
    let model = turnstate::ScriptedModel::new().chunk_chars(1).text("x".repeat(50_000));
    let agent = Agent::builder("scripted-1", model).build();
    let mut run = Task::new(IntoFuture::into_future(agent.prompt("go").unwrap()));
    assert!(matches!(run.poll(), Some(Poll::Pending)), "one poll did it all");
    assert_eq!(run.finish().text().len(), 50_000);
}
