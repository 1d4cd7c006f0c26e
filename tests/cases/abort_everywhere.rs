//! Abort and drop at every event of a run with tools and queued messages: nothing is lost, nothing begins afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnstate::QueueMode;
use turnstate::machine::{ExecutionMode, RunEnd};

use super::drive::drive;
use super::harness::{Notes, Rig, calls, say};

/// A run of three turns: two calls, an answer to steering, an answer to a follow-up.
fn rig(mode: ExecutionMode, queue: QueueMode, notes: &Notes) -> Rig {
    let answers = [calls("a:t b:t"), say("1"), say("2"), say("3"), say("4"), say("5")];
    let rig = Rig::new(answers, |agent, _| {
        let agent = agent.execution_mode(mode).tool(notes.tool("t"));
        agent.steering_mode(queue).follow_up_mode(queue)
    });
    rig.agent.steer("s1");
    rig.agent.steer("s2");
    rig.agent.follow_up("f1");
    rig.agent.follow_up("f2");
    rig
}

/// What the user said, in the order delivered.
fn said(rig: &Rig) -> Vec<String> {
    let transcript = rig.agent.transcript();
    let users = transcript.iter().filter(|message| message.role() == "user");
    users.map(|message| message.text()).collect()
}

/// Each queued message is delivered by now, once, and those of one queue in their order.
fn nothing_lost(rig: &Rig, place: &str) {
    rig.prompt("next");
    let said = said(rig);
    let of = |queue: char| {
        said.iter()
            .filter(|text| text.starts_with(queue))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of('s'), of('f')),
        (vec!["s1".into(), "s2".into()], vec!["f1".into(), "f2".into()]),
        "{place}"
    );
    assert!(!rig.agent.has_queued(), "{place}");
}

const SETTINGS: [(ExecutionMode, QueueMode); 4] = [
    (ExecutionMode::Parallel, QueueMode::OneAtATime),
    (ExecutionMode::Parallel, QueueMode::All),
    (ExecutionMode::Sequential, QueueMode::OneAtATime),
    (ExecutionMode::Sequential, QueueMode::All),
];

/// C013, I1, I3, I4, I6: aborted in a listener at the n-th event, for every n.
#[test]
fn c013_abort_at_every_event_loses_nothing_and_starts_nothing() {
    for (mode, queue) in SETTINGS {
        for n in 0.. {
            let notes = Notes::default();
            let rig = rig(mode, queue, &notes);
            let (told, model, tools) = (AtomicUsize::new(0), rig.model.clone(), notes.clone());
            let at_abort = Arc::new(std::sync::Mutex::new(None));
            let noted = Arc::clone(&at_abort);
            rig.agent.subscribe(move |_, cx| {
                if told.fetch_add(1, Ordering::Relaxed) == n {
                    cx.agent().abort();
                    *noted.lock().unwrap() = Some((model.requests().len(), tools.all().len()));
                }
            });
            let end = rig.prompt("go").end;
            let place = format!("{mode:?} {queue:?} {n}: {}", rig.log.line());
            let Some(before) = at_abort.lock().unwrap().take() else {
                assert_eq!(end, RunEnd::Completed, "{place}");
                break;
            };
            assert_eq!((rig.requests(), notes.all().len()), before, "something began: {place}");
            let last = rig.log.events().len() == n + 1;
            assert_eq!(end, if last { RunEnd::Completed } else { RunEnd::Aborted }, "{place}");
            nothing_lost(&rig, &place);
        }
    }
}

/// C013, C020: dropped behind the n-th event, for every n.
#[test]
fn c020_drop_at_every_event_loses_nothing_and_starts_nothing() {
    for (mode, queue) in SETTINGS {
        for n in 0.. {
            let notes = Notes::default();
            let rig = rig(mode, queue, &notes);
            let mut run = rig.agent.prompt("go").unwrap();
            let told = (0..n).take_while(|_| drive(run.next()).is_some()).count();
            let before = (rig.requests(), notes.all().len());
            drop(run);
            let place = format!("{mode:?} {queue:?} {n}: {}", rig.log.line());
            assert_eq!((rig.requests(), notes.all().len()), before, "something began: {place}");
            assert!(!rig.agent.is_streaming());
            nothing_lost(&rig, &place);
            if told < n {
                break;
            }
        }
    }
}

/// Next to it: the run is stopped softly at the n-th event; it ends with the turn's end, and nothing is lost.
#[test]
fn c047_a_soft_stop_at_every_event_loses_nothing() {
    for (mode, queue) in SETTINGS {
        for n in 0.. {
            let notes = Notes::default();
            let rig = rig(mode, queue, &notes);
            let told = AtomicUsize::new(0);
            rig.agent.subscribe(move |_, cx| {
                if told.fetch_add(1, Ordering::Relaxed) == n {
                    cx.agent().stop_after_turn();
                }
            });
            let end = rig.prompt("go").end;
            let line = rig.log.line();
            let told = rig.log.events().len();
            if told <= n {
                assert_eq!(end, RunEnd::Completed, "{n}: {line}");
                break;
            }
            // Its turn is the last; without a turn left to end, only the run's own end was ahead.
            let events = rig.log.events();
            let turns = events[n..].iter().filter(|event| event.kind() == "turn_end").count();
            assert_eq!(
                (end, turns),
                if turns == 1 {
                    (RunEnd::Stopped, 1)
                } else {
                    (RunEnd::Completed, 0)
                },
                "{n}"
            );
            // It is forgotten when the run ends.
            assert_eq!(rig.prompt("again").end, RunEnd::Completed);
            nothing_lost(&rig, &line);
        }
    }
}
