//! Queues: what is queued is delivered exactly once, in order, or still there (I4).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AgentEvent, AssistantEvent, CancellationToken, Delivery, DoneReason, LoopConfig, Message, QueueKind,
    QueueMode, Queues, Request, ScriptedModel, StartError, agent_loop,
};

use super::drive::{block_on, drive};
use super::harness::{HOOKS, MODES, Rig, calls, doing, gated, one_hook, quick, say, show, until};

/// The ending of a run that is aborted while its tool `a` runs.
const ABORTED_IN_TOOL: &str = "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) te(toolUse)[1] \
                               ts ms(a) me(a/aborted) te(aborted)[0] ae[4]";

/// C013, with the abort inside the tool and between batch and poll; taken up again by `continue` and by a prompt.
#[test]
fn c013_what_is_queued_outlives_an_aborted_run() {
    for in_tool in [true, false] {
        for by_prompt in [true, false] {
            let act = |agent: &Agent| {
                agent.steer("s1");
                agent.follow_up("f1");
                agent.abort();
            };
            let answers = [calls("a:t"), say("1"), say("2"), say("3")];
            let rig = Rig::new(answers, |agent, hand| {
                agent.tool(if in_tool { doing("t", &hand, act) } else { quick("t") })
            });
            if !in_tool {
                rig.at("te(toolUse)[1]", act);
            }
            assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
            rig.saw(ABORTED_IN_TOOL);
            assert_eq!(rig.requests(), 1);
            assert!(rig.agent.has_queued());

            rig.agent.steer("late");
            if by_prompt {
                rig.prompt("again");
            } else {
                rig.go_on();
            }
            let again = if by_prompt { "u again, " } else { "" };
            assert_eq!(
                rig.transcript(),
                format!("u, a/toolUse, r a, a/aborted, {again}u s1, a/stop, u late, a/stop, u f1, a/stop")
            );
            assert!(!rig.agent.has_queued());
        }
    }
}

/// C013 at the narrowest place: taken from the queue, not told yet. Each event from the turn's start to the last
/// message's start, in both modes, for steering, follow-ups and what `continue` takes.
#[test]
fn c013_taken_but_not_told_returns_when_the_run_is_aborted() {
    for (event, told) in [("ts", 0), ("ms(u s1)", 1), ("me(u s1)", 1), ("ms(u s2)", 2)] {
        for kind in [QueueKind::Steering, QueueKind::FollowUp] {
            let rig = Rig::new([say("1"), say("2")], |agent, _| {
                agent.steering_mode(QueueMode::All).follow_up_mode(QueueMode::All)
            });
            // The second turn takes both.
            let event = event.to_owned();
            rig.at("te(stop)[0]", move |agent| {
                for text in ["s1", "s2"] {
                    match kind {
                        QueueKind::Steering => agent.steer(text),
                        QueueKind::FollowUp => agent.follow_up(text),
                    };
                }
                let once = AtomicBool::new(false);
                agent.subscribe(move |seen, cx| {
                    if show(seen) == event && !once.swap(true, Ordering::Relaxed) {
                        cx.agent().abort();
                    }
                });
            });
            assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
            let injected = ["ms(u s1) me(u s1)", "ms(u s2) me(u s2)"][..told].join(" ");
            rig.saw(&format!(
                "as ts ms(u) me(u) ms(a) me(a/stop) te(stop)[0] \
                 ts {injected} ms(a) me(a/aborted) te(aborted)[0] ae[{}]",
                3 + told
            ));
            assert_eq!(rig.agent.peek(kind).len(), 2 - told, "{kind:?}");
            assert_eq!(rig.requests(), 1);
        }
    }
}

/// C013 for what `continue` takes: aborted, or dropped, before it is told, it is queued as before.
#[test]
fn c013_what_continue_took_returns() {
    for (event, told) in [("as", 0), ("ts", 0), ("ms(u s1)", 1)] {
        for dropped in [false, true] {
            let rig = Rig::new([say("1"), say("2")], |agent, _| agent.steering_mode(QueueMode::All));
            rig.prompt("go");
            rig.agent.steer("s1");
            rig.agent.steer("s2");
            let mut run = rig.agent.continue_run().unwrap();
            until(&mut run, event);
            if dropped {
                drop(run);
            } else {
                rig.agent.abort();
                assert_eq!(drive(run).end, RunEnd::Aborted);
            }
            assert_eq!(
                rig.agent.peek(QueueKind::Steering).len(),
                2 - told,
                "{event}, dropped: {dropped}"
            );
            rig.saw_at_last(&format!("ms(a) me(a/aborted) te(aborted)[0] ae[{}]", 1 + told));
        }
    }
}

/// C013: who queues after an abort is told that this run will not look; what it had taken is free when it says it ended.
#[test]
fn c013_after_an_abort_the_queues_belong_to_the_next_run() {
    let rig = Rig::new([say("1"), say("2")], |agent, _| agent);
    let mut run = rig.agent.prompt("go").unwrap();
    until(&mut run, "te(stop)[0]");
    let taken = rig.agent.steer("taken");
    assert_eq!(taken.delivery, Delivery::ThisRun);
    until(&mut run, "ts");
    rig.agent.abort();
    assert_eq!(rig.agent.steer("late").delivery, Delivery::NextRun);
    assert!(rig.agent.recall(taken.id).is_none(), "the run has it still");
    until(&mut run, "ae[3]");
    assert!(rig.agent.recall(taken.id).is_some());
}

/// C019: an abort from another thread closes the queues first, and cancels the token then. A run whose last look falls
/// in between finds nothing, and must not take itself for complete.
#[test]
fn c019_a_last_look_at_queues_that_an_abort_has_closed_is_an_abort() {
    let queues = Queues::new();
    let mut config = LoopConfig::<Message>::new("m");
    config.queues = queues.clone();
    let model = ScriptedModel::new().text("1").text("2");
    let mut run = pin!(agent_loop(vec![Arc::new("go".into())], config, model, ()).unwrap());
    let mut told = Vec::new();
    while let Some(event) = run.next().now_or_never().flatten() {
        told.push(event.kind());
        if let AgentEvent::TurnEnd { .. } = event {
            let queued = queues.push(QueueKind::FollowUp, Arc::new("more".into()));
            assert_eq!(queued.delivery, Delivery::ThisRun);
            queues.close_run(run.run_id());
        }
    }
    assert_eq!(told[told.len() - 2..], ["turn_end", "agent_end"]);
    assert_eq!(run.outcome().unwrap().end, RunEnd::Aborted);
    assert_eq!(queues.peek(QueueKind::FollowUp).len(), 1);
}

/// C019 (a): queued when the run has just ended, and said so.
#[test]
fn c019_a_message_queued_at_the_end_of_a_run_waits_for_the_next() {
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        let rig = Rig::new([say("1"), say("2"), say("3")], |agent, _| agent);
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&deliveries);
        rig.at("ae[2]", move |agent| {
            for text in ["x", "y"] {
                let queued = match kind {
                    QueueKind::Steering => agent.steer(text),
                    QueueKind::FollowUp => agent.follow_up(text),
                };
                noted.lock().unwrap().push(queued.delivery);
            }
        });
        rig.prompt("go");
        assert_eq!(*deliveries.lock().unwrap(), [Delivery::NextRun; 2]);
        assert!(rig.agent.has_queued());
        rig.go_on();
        assert_eq!(rig.transcript(), "u, a/stop, u x, a/stop, u y, a/stop");
        assert_eq!(rig.agent.continue_run().unwrap_err(), StartError::NothingToContinue);
    }
}

/// A model that answers `ok`, without a script that would grow.
fn parrot(_: Request, _: CancellationToken) -> impl futures_util::Stream<Item = AssistantEvent> {
    stream::iter([AssistantEvent::start(), AssistantEvent::done(DoneReason::Stop)])
}

/// C019 (b): a thread queues while runs end. Each message is delivered once, in order; what was promised to the active
/// run was delivered by it.
#[test]
fn c019_threads_that_queue_while_runs_end_lose_nothing() {
    const MESSAGES: usize = 10_000;
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        let agent = Agent::builder("scripted-1", parrot).build();
        let (other, done) = (agent.clone(), Arc::new(AtomicBool::new(false)));
        let promised = Arc::new(Mutex::new(VecDeque::new()));
        let (finished, noted) = (Arc::clone(&done), Arc::clone(&promised));
        let thread = thread::spawn(move || {
            for n in 0..MESSAGES {
                let queued = match kind {
                    QueueKind::Steering => other.steer(n.to_string()),
                    QueueKind::FollowUp => other.follow_up(n.to_string()),
                };
                if queued.delivery == Delivery::ThisRun {
                    noted.lock().unwrap().push_back(queued.id);
                }
            }
            finished.store(true, Ordering::Release);
        });
        let mut behind = 0;
        while !done.load(Ordering::Acquire) || agent.has_queued() {
            behind += usize::from(done.load(Ordering::Acquire));
            assert!(behind <= 2, "a run ends with messages queued");
            block_on(agent.prompt("go").unwrap());
            for id in promised.lock().unwrap().drain(..) {
                assert!(agent.recall(id).is_none(), "promised to a run, and not delivered by it");
            }
        }
        thread.join().unwrap();
        let transcript = agent.transcript();
        let said = transcript
            .iter()
            .filter(|message| message.role() == "user")
            .map(|message| message.text());
        let numbers: Vec<usize> = said.filter_map(|text| text.parse().ok()).collect();
        assert!(numbers.iter().copied().eq(0..MESSAGES), "{} delivered", numbers.len());
    }
}

/// C040, C041: what is steered while a batch runs waits for the next request; the batch runs to its end.
#[test]
fn c040_c041_steering_never_splits_or_cuts_a_batch() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let gate = CancellationToken::new();
        let rig = Rig::new([calls("a:slow b:t"), say("END")], |agent, _| {
            agent.execution_mode(mode).tool(gated("slow", &gate)).tool(quick("t"))
        });
        let mut run = rig.start("go");
        run.stall();
        assert_eq!(rig.agent.steer("s").delivery, Delivery::ThisRun);
        gate.cancel();
        run.finish();
        rig.saw(match mode {
            ExecutionMode::Parallel => {
                "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xs(b) xe(b) xe(a) ms(r a) me(r a) ms(r b) me(r b) \
                 te(toolUse)[2] ts ms(u s) me(u s) ms(a) me(a/stop) te(stop)[0] ae[6]"
            }
            ExecutionMode::Sequential => {
                "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) xs(b) xe(b) ms(r b) me(r b) \
                 te(toolUse)[2] ts ms(u s) me(u s) ms(a) me(a/stop) te(stop)[0] ae[6]"
            }
        });
        assert_eq!(rig.sent(1), "u, a/toolUse, r a, r b, u s");
        assert_eq!((rig.result("a"), rig.result("b")), ("a ok".into(), "b ok".into()));
    }
}

/// C042 (a): one at a time, steering before follow-ups.
#[test]
fn c042_one_at_a_time_each_message_has_its_turn() {
    let rig = Rig::new([calls("a:t"), say("1"), say("2"), say("3")], |agent, hand| {
        agent.tool(doing("t", &hand, |agent| {
            agent.follow_up("f1");
            agent.steer("s1");
            agent.steer("s2");
        }))
    });
    rig.prompt("go");
    rig.saw(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) te(toolUse)[1] \
         ts ms(u s1) me(u s1) ms(a) me(a/stop) te(stop)[0] \
         ts ms(u s2) me(u s2) ms(a) me(a/stop) te(stop)[0] \
         ts ms(u f1) me(u f1) ms(a) me(a/stop) te(stop)[0] ae[9]",
    );
}

/// C042 (b): all at once; (c) the mode is switched after queueing, and counts at the next drain.
#[test]
fn c042_all_at_once_and_switched_on_the_way() {
    for switched in [false, true] {
        let rig = Rig::new([calls("a:t"), say("1"), say("2")], |agent, hand| {
            let mode = if switched {
                QueueMode::OneAtATime
            } else {
                QueueMode::All
            };
            let agent = agent.steering_mode(mode).follow_up_mode(mode);
            agent.tool(doing("t", &hand, move |agent| {
                for text in ["s1", "s2"] {
                    agent.steer(text);
                }
                for text in ["f1", "f2"] {
                    agent.follow_up(text);
                }
                if switched {
                    agent.set_queue_mode(QueueKind::Steering, QueueMode::All);
                    agent.set_queue_mode(QueueKind::FollowUp, QueueMode::All);
                }
            }))
        });
        rig.prompt("go");
        rig.saw_at_last(
            "te(toolUse)[1] ts ms(u s1) me(u s1) ms(u s2) me(u s2) ms(a) me(a/stop) te(stop)[0] \
             ts ms(u f1) me(u f1) ms(u f2) me(u f2) ms(a) me(a/stop) te(stop)[0] ae[9]",
        );
    }
}

/// C042: follow-ups wait until no tool call and no steering is left, whatever turns that takes.
#[test]
fn c042_follow_ups_come_last() {
    let rig = Rig::new([calls("a:t"), calls("b:t"), say("1"), say("2")], |agent, _| {
        agent.tool(quick("t"))
    });
    rig.agent.follow_up("f");
    rig.at("xs(b)", |agent| {
        agent.steer("s");
    });
    rig.prompt("go");
    assert_eq!(
        rig.transcript(),
        "u, a/toolUse, r a, a/toolUse, r b, u s, a/stop, u f, a/stop"
    );
}

/// A message steered while `turn_start` is told waits for the next poll; one at a time and all.
#[test]
fn c042_steered_at_turn_start_waits_for_the_next_poll() {
    for mode in MODES {
        let rig = Rig::new([say("1"), say("2"), say("3")], |agent, _| agent.steering_mode(mode));
        rig.agent.steer("s1");
        rig.at("te(stop)[0]", |agent| {
            agent.steer("s2");
            let once = AtomicBool::new(false);
            agent.subscribe(move |event, cx| {
                if event.kind() == "turn_start" && !once.swap(true, Ordering::Relaxed) {
                    cx.agent().steer("s3");
                }
            });
        });
        rig.prompt("go");
        assert_eq!(rig.transcript(), "u, u s1, a/stop, u s2, a/stop, u s3, a/stop");
    }
}

/// C044: `continue` behind an assistant message takes what is queued, one at a time; the turn takes no second helping.
#[test]
fn c044_continue_behind_an_answer_takes_what_is_queued() {
    let rig = Rig::new([say("0"), say("1"), say("2"), say("3")], |agent, _| agent);
    rig.prompt("go");
    rig.saw("as ts ms(u) me(u) ms(a) me(a/stop) te(stop)[0] ae[2]");
    assert_eq!(rig.agent.continue_run().unwrap_err(), StartError::NothingToContinue);
    rig.saw("");
    assert!(!rig.agent.is_streaming());
    rig.agent.follow_up("f1");
    rig.agent.steer("s1");
    rig.agent.steer("s2");
    rig.go_on();
    rig.saw(
        "as ts ms(u s1) me(u s1) ms(a) me(a/stop) te(stop)[0] ts ms(u s2) me(u s2) ms(a) me(a/stop) te(stop)[0] \
         ts ms(u f1) me(u f1) ms(a) me(a/stop) te(stop)[0] ae[6]",
    );
}

/// C044 with only follow-ups: they come first, and the first poll for steering is not skipped.
#[test]
fn c044_continue_with_a_follow_up_still_looks_for_steering() {
    let rig = Rig::new([say("0"), say("1")], |agent, _| agent);
    rig.prompt("go");
    rig.agent.follow_up("f1");
    rig.at("ms(u f1)", |agent| {
        agent.steer("s1");
    });
    rig.go_on();
    assert_eq!(rig.transcript(), "u, a/stop, u f1, u s1, a/stop");
}

/// C045, and its neighbours: whatever ends a run early leaves the queues alone.
#[test]
fn c045_a_failed_turn_leaves_the_queues_alone() {
    for answer in [
        say("x").fail("overloaded"),
        say("x").end_early(),
        say("x").panic("oops"),
    ] {
        let rig = Rig::new([answer], |agent, _| agent);
        rig.agent.follow_up("f");
        rig.at("ms(a)", |agent| {
            agent.steer("s");
        });
        assert_eq!(rig.prompt("go").end, RunEnd::Failed);
        rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
        assert_eq!(rig.agent.peek(QueueKind::FollowUp).len(), 1);
        assert_eq!(rig.agent.peek(QueueKind::Steering).len(), 1);
        assert_eq!(rig.requests(), 1);
    }
}

/// C047: the stop hook, the softer verb and the limit of turns end the run before a queue is looked at.
#[test]
fn c047_a_graceful_stop_leaves_the_queues_alone() {
    for (way, end) in [
        ("hook", RunEnd::Stopped),
        ("verb", RunEnd::Stopped),
        ("limit", RunEnd::Limit),
    ] {
        for answer in [say("1"), calls("a:t")] {
            let rig = Rig::new([answer], |agent, _| {
                let agent = agent.tool(quick("t"));
                match way {
                    "hook" => agent.should_stop_after_turn(async |_| true),
                    "limit" => agent.max_turns(1.try_into().unwrap()),
                    _ => agent,
                }
            });
            let verb = way == "verb";
            rig.at("ms(a)", move |agent| {
                agent.steer("s");
                agent.follow_up("f");
                if verb {
                    agent.stop_after_turn();
                }
            });
            assert_eq!(rig.prompt("go").end, end);
            let line = rig.log.line();
            assert!(
                line.contains("te(stop)[0] ae[2]") || line.contains("te(toolUse)[1] ae[3]"),
                "{line}"
            );
            assert_eq!(rig.agent.peek(QueueKind::Steering).len(), 1);
            assert_eq!(rig.agent.peek(QueueKind::FollowUp).len(), 1);
            assert_eq!(rig.requests(), 1);
        }
    }
}

/// Steering from inside each hook arrives with the next poll, and never breaks a batch.
#[test]
fn c040_steering_from_inside_any_hook() {
    for place in HOOKS {
        let rig = Rig::new([calls("a:t b:t"), say("1"), say("2")], |agent, hand| {
            let once = Arc::new(AtomicBool::new(false));
            one_hook(agent.tool(quick("t")), place, move || {
                if !once.swap(true, Ordering::Relaxed) {
                    assert_eq!(hand.agent().steer("s").delivery, Delivery::ThisRun);
                }
                std::future::ready(Ok(()))
            })
        });
        rig.prompt("go");
        assert_eq!(rig.transcript(), "u, a/toolUse, r a, r b, u s, a/stop", "{place}");
    }
}

/// Recalled, a message is not delivered; once a run has it, it cannot be recalled or cleared.
#[test]
fn i4_recall_and_clear_stop_where_a_run_has_the_message() {
    let rig = Rig::new([say("1"), say("2")], |agent, _| agent);
    let queued = rig.agent.steer("gone");
    let kept = rig.agent.steer("kept");
    assert!(rig.agent.recall(queued.id).is_some());
    assert!(rig.agent.recall(queued.id).is_none());
    let mut run = rig.agent.prompt("go").unwrap();
    until(&mut run, "ms(u kept)");
    assert!(rig.agent.recall(kept.id).is_none());
    assert!(rig.agent.has_queued());
    rig.agent.clear_queues();
    until(&mut run, "me(u kept)");
    assert!(!rig.agent.has_queued());
    drive(run);
    assert_eq!(rig.transcript(), "u, u kept, a/stop");
}

/// C013 for a run that is dropped between drain and injection.
#[test]
fn c013_a_dropped_run_returns_what_it_took() {
    for (event, told) in [("ts", 0), ("ms(u s1)", 1), ("me(u s1)", 1)] {
        let rig = Rig::new([say("1")], |agent, _| agent.steering_mode(QueueMode::All));
        let mut run = rig.agent.prompt("go").unwrap();
        until(&mut run, "te(stop)[0]");
        rig.agent.steer("s1");
        rig.agent.steer("s2");
        until(&mut run, event);
        drop(run);
        assert_eq!(rig.agent.peek(QueueKind::Steering).len(), 2 - told, "{event}");
        rig.saw_at_last(&format!("ms(a) me(a/aborted) te(aborted)[0] ae[{}]", 3 + told));
    }
}
