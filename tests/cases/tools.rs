//! Tools: each call is answered, once, in call order, whatever tools do (I3).

use std::sync::{Arc, Mutex};

use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{Agent, CancellationToken, Decision, ResultPatch, ToolContext, ToolResult};

use super::drive::{block_on, drive, yield_now};
use super::harness::{
    Hand, Notes, OnDrop, Rig, calls, doing, failing, gated, giving, name, names, quick, say, show, tool, until,
};

const MODES: [ExecutionMode; 2] = [ExecutionMode::Parallel, ExecutionMode::Sequential];

/// C017: a panic before, in and behind the tool's first poll is the result of that call alone.
#[test]
fn c017_a_panicking_tool_fails_its_own_call() {
    for mode in MODES {
        for place in ["call", "poll", "later"] {
            let rig = Rig::new([calls("a:bad b:ok"), say("END"), say("again")], |agent, _| {
                let bad = tool("bad", move |_, cx| {
                    assert!(place != "call", "oh no");
                    async move {
                        assert!(place != "poll", "oh no");
                        yield_now().await;
                        cx.progress("so far");
                        panic!("oh no");
                        #[expect(unreachable_code, reason = "it tells the type")]
                        ""
                    }
                });
                agent.execution_mode(mode).tool(bad).tool(quick("ok"))
            });
            assert_eq!(rig.prompt("go").end, RunEnd::Completed);
            let line = rig.log.line();
            assert!(line.contains("xe(a!)") && line.contains("xe(b)"), "{line}");
            assert_eq!(
                (rig.result("a"), rig.result("b")),
                ("Tool bad panicked: oh no".into(), "b ok".into())
            );
            assert_eq!(rig.prompt("once more").text(), "again");
        }
    }
}

/// C017: the same for what is asked around the tool.
#[test]
fn c017_a_panic_around_a_tool_fails_its_own_call() {
    for mode in MODES {
        for place in ["prepare", "before", "before, later", "after", "after, later"] {
            let rig = Rig::new([calls("a:t b:ok"), say("END"), say("again")], |agent, _| {
                let prepared = quick("t").with_prepare(move |arguments| {
                    assert!(place != "prepare", "oh no");
                    Ok(arguments.into())
                });
                let agent = agent.execution_mode(mode).tool(prepared).tool(quick("ok"));
                let agent = agent.before_tool_call(move |call| {
                    let mine = call.call.id == "a";
                    assert!(!(mine && place == "before"), "oh no");
                    async move {
                        yield_now().await;
                        assert!(!(mine && place == "before, later"), "oh no");
                        Decision::Allow
                    }
                });
                agent.after_tool_call(move |call| {
                    let mine = call.cx.call.id == "a";
                    assert!(!(mine && place == "after"), "oh no");
                    async move {
                        yield_now().await;
                        assert!(!(mine && place == "after, later"), "oh no");
                        ResultPatch::keep()
                    }
                })
            });
            assert_eq!(rig.prompt("go").end, RunEnd::Completed);
            assert!(rig.log.line().contains("xe(a!)"), "{place}");
            assert!(rig.result("a").ends_with("panicked: oh no"), "{}", rig.result("a"));
            assert_eq!(rig.result("b"), "b ok");
            assert_eq!(rig.prompt("once more").text(), "again");
        }
    }
}

/// C018: a report after the result is ignored: in the same run, when idle, in a later run, from another thread.
#[test]
fn c018_a_late_update_is_ignored() {
    let kept: Arc<Mutex<Vec<ToolContext>>> = Arc::default();
    let rig = Rig::new([calls("a:t"), say("1"), calls("a:t"), say("2")], |agent, _| {
        let kept = Arc::clone(&kept);
        agent.tool(tool("t", move |_, cx| {
            cx.progress("in time");
            kept.lock().unwrap().push(cx);
            std::future::ready("ok")
        }))
    });
    let report = |kept: &Mutex<Vec<ToolContext>>| kept.lock().unwrap()[0].progress("late");
    let late = Arc::clone(&kept);
    rig.agent.subscribe(move |event, _| {
        if event.kind() != "tool_execution_update" && !late.lock().unwrap().is_empty() {
            report(&late);
        }
    });
    rig.prompt("go");
    rig.saw_at_last("xs(a) xu(a) xe(a) ms(r a) me(r a) te(toolUse)[1] ts ms(a) me(a/stop) te(stop)[0] ae[4]");
    report(&kept);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..100).for_each(|_| report(&kept)));
    });
    rig.saw("");
    rig.prompt("go");
    rig.saw_at_last("xs(a) xu(a) xe(a) ms(r a) me(r a) te(toolUse)[1] ts ms(a) me(a/stop) te(stop)[0] ae[4]");
}

/// C018: a report after the result is not taken for one of the call that has the same place in a later batch.
#[test]
fn c018_a_late_update_is_not_that_of_a_later_batch() {
    for mode in MODES {
        let (kept, gate) = (Arc::new(Mutex::new(None)), CancellationToken::new());
        let rig = Rig::new([calls("a:t"), calls("b:slow"), say("END")], |agent, _| {
            let kept = Arc::clone(&kept);
            let keeping = tool("t", move |_, cx| {
                kept.lock().unwrap().replace(cx);
                std::future::ready("ok")
            });
            agent.execution_mode(mode).tool(keeping).tool(gated("slow", &gate))
        });
        let mut run = rig.start("go");
        run.stall();
        kept.lock().unwrap().take().unwrap().progress("late");
        assert!(run.run().is_none());
        gate.cancel();
        run.finish();
        assert!(!rig.log.line().contains("xu"), "{}", rig.log.line());
    }
}

/// C018: the tool has settled with its result, not with what a hook makes of it.
#[test]
fn c018_an_update_while_the_hook_is_asked_is_late() {
    let (kept, gate) = (Arc::new(Mutex::new(None)), CancellationToken::new());
    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
        let (kept, gate) = (Arc::clone(&kept), gate.clone());
        let keeping = tool("t", move |_, cx| {
            kept.lock().unwrap().replace(cx);
            std::future::ready("ok")
        });
        agent.tool(keeping).after_tool_call(move |_| {
            let gate = gate.clone();
            async move {
                gate.cancelled().await;
                ResultPatch::keep()
            }
        })
    });
    let mut run = rig.start("go");
    run.stall();
    kept.lock().unwrap().take().unwrap().progress("late");
    assert!(run.run().is_none());
    gate.cancel();
    run.finish();
    assert!(!rig.log.line().contains("xu"), "{}", rig.log.line());
}

/// C018: what a tool reports is told when it reports it, though it goes on, and wherever it does it.
#[test]
fn c018_progress_is_told_while_the_tool_goes_on() {
    let kept = Arc::new(Mutex::new(None));
    let rig = Rig::new([calls("a:t")], |agent, _| {
        let kept = Arc::clone(&kept);
        agent.tool(tool("t", move |_, cx| {
            let kept = Arc::clone(&kept);
            async move {
                cx.progress("from within");
                kept.lock().unwrap().replace(cx);
                std::future::pending::<&str>().await
            }
        }))
    });
    let mut run = rig.start("go");
    run.stall();
    assert!(rig.log.line().ends_with("xs(a) xu(a)"), "{}", rig.log.line());
    kept.lock().unwrap().take().unwrap().progress("from elsewhere");
    run.stall();
    assert!(rig.log.line().ends_with("xs(a) xu(a) xu(a)"), "{}", rig.log.line());
    rig.agent.abort();
    run.finish();
}

/// C018 with a thread that reports on and on: no update behind the call's end (I1 checks that), none in a later run.
#[test]
fn c018_updates_of_a_thread_stop_at_the_end_of_the_call() {
    for _ in 0..20 {
        let (reported, over) = (CancellationToken::new(), CancellationToken::new());
        let rig = Rig::new([calls("a:t"), calls("b:quick"), say("END")], |agent, _| {
            let (reported, over) = (reported.clone(), over.clone());
            let chatty = tool("t", move |_, cx| {
                let (reporting, over) = (reported.clone(), over.clone());
                std::thread::spawn(move || {
                    while !over.is_cancelled() {
                        cx.progress("x");
                        reporting.cancel();
                        std::thread::yield_now();
                    }
                });
                let reported = reported.clone();
                async move {
                    reported.cancelled().await;
                    "ok"
                }
            });
            agent.tool(chatty).tool(quick("quick"))
        });
        block_on(rig.agent.prompt("go").unwrap());
        over.cancel();
        assert!(rig.log.line().contains("xu(a) xe(a)"));
    }
}

/// C023: nothing of a batch works on once the run is over, however it ends; a listener's failure ends nothing.
#[test]
fn c023_no_sibling_outlives_the_run() {
    for way in ["listener fails", "abort", "drop"] {
        let (notes, gate) = (Notes::default(), CancellationToken::new());
        let rig = Rig::new([calls("a:t b:slow"), say("END")], |agent, _| {
            let (notes, gate) = (notes.clone(), gate.clone());
            let slow = tool("slow", move |_, _| {
                let (guard, notes, gate) = (OnDrop(notes.clone(), "slow gone"), notes.clone(), gate.clone());
                async move {
                    let _guard = guard;
                    gate.cancelled().await;
                    notes.add("slow worked");
                    "slow"
                }
            });
            agent.tool(quick("t")).tool(slow)
        });
        let noted = notes.clone();
        rig.agent.subscribe(move |event, _| match event.kind() {
            "agent_end" => noted.add("over"),
            "tool_execution_end" => assert!(way != "listener fails", "no"),
            _ => {}
        });
        let mut run = rig.start("go");
        run.stall();
        let expected: &[&str] = match way {
            "abort" => {
                rig.agent.abort();
                run.finish();
                &["slow gone", "over"]
            }
            "drop" => {
                drop(run);
                &["slow gone", "over"]
            }
            _ => {
                gate.cancel();
                assert_eq!(run.finish().listener_errors.len(), 2);
                &["slow worked", "slow gone", "over"]
            }
        };
        gate.cancel();
        assert_eq!(notes.all(), expected, "{way}");
    }
}

/// C035: what a sibling has finished is kept when the run is aborted, or dropped, over another.
#[test]
fn c035_finished_results_survive_an_abort() {
    for dropped in [false, true] {
        let rig = Rig::new([calls("a:slow b:fast")], |agent, _| {
            agent.tool(gated("slow", &CancellationToken::new())).tool(quick("fast"))
        });
        let mut run = rig.agent.prompt("go").unwrap();
        until(&mut run, "xe(b)");
        assert_eq!(rig.agent.pending_tool_calls().len(), 1);
        if dropped {
            drop(run);
        } else {
            rig.agent.abort();
            drive(run);
        }
        rig.saw(
            "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xs(b) xe(b) xe(a!) ms(r a) me(r a) ms(r b) me(r b) \
             te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
        );
        assert_eq!(
            (rig.result("a"), rig.result("b")),
            ("Operation aborted".into(), "b ok".into())
        );
    }
}

/// C039: ends in completion order, result messages and the turn's results in call order.
#[test]
fn c039_result_order_under_parallel_completion() {
    let gate = CancellationToken::new();
    let rig = Rig::new([calls("a:slow b:fast"), say("END")], |agent, _| {
        agent.tool(gated("slow", &gate)).tool(quick("fast"))
    });
    let mut run = rig.start("go");
    run.stall();
    gate.cancel();
    run.finish();
    let events = rig.log.events();
    let results = events.iter().find_map(|event| match event {
        turnstate::AgentEvent::TurnEnd { tool_results, .. } => Some(names(tool_results)),
        _ => None,
    });
    assert_eq!(results.as_deref(), Some("r a, r b"));
    rig.saw(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xs(b) xe(b) xe(a) ms(r a) me(r a) ms(r b) me(r b) \
         te(toolUse)[2] ts ms(a) me(a/stop) te(stop)[0] ae[5]",
    );
}

/// C048: only a batch of which every final result says so ends the run; the queues are served all the same.
#[test]
fn c048_terminate_needs_every_result() {
    let ends = || giving("ends", ToolResult::text("x").with_terminate(true));
    let not = || giving("not", ToolResult::text("x").with_terminate(false));
    for mode in MODES {
        // (a), and both orders; (c) blocked by the hook; an unknown tool; a hook that takes it back.
        for batch in [
            "a:ends b:not",
            "a:not b:ends",
            "a:ends b:rm",
            "a:ends b:nope",
            "a:ends b:undone",
        ] {
            let rig = Rig::new([calls(batch), say("END")], |agent, _| {
                let undone = giving("undone", ToolResult::text("x").with_terminate(true));
                let agent = agent
                    .execution_mode(mode)
                    .tool(ends())
                    .tool(not())
                    .tool(undone)
                    .tool(quick("rm"));
                let agent = agent.before_tool_call(async |call| match call.name() {
                    "rm" => Decision::block("no"),
                    _ => Decision::Allow,
                });
                agent.after_tool_call(async |call| match call.name() {
                    "undone" => ResultPatch::keep().terminate(false),
                    _ => ResultPatch::keep(),
                })
            });
            assert_eq!(rig.prompt("go").end, RunEnd::Completed, "{batch}");
            assert_eq!(rig.requests(), 2, "{batch}");
        }
    }
}

/// C048 (b): all say so; a follow-up, or steering, starts a turn in the same run.
#[test]
fn c048_a_terminated_batch_still_serves_the_queues() {
    for queue in ["none", "follow-up", "steering"] {
        let rig = Rig::new([calls("a:ends b:ends"), say("END")], |agent, _| {
            agent.tool(giving("ends", ToolResult::text("x").with_terminate(true)))
        });
        rig.at("xs(a)", move |agent| {
            match queue {
                "follow-up" => agent.follow_up("more"),
                "steering" => agent.steer("more"),
                _ => return,
            };
        });
        let end = rig.prompt("go").end;
        if queue == "none" {
            rig.saw_at_last("te(toolUse)[2] ae[4]");
            assert_eq!((end, rig.requests()), (RunEnd::Terminated, 1));
        } else {
            rig.saw_at_last("te(toolUse)[2] ts ms(u more) me(u more) ms(a) me(a/stop) te(stop)[0] ae[6]");
            assert_eq!((end, rig.requests()), (RunEnd::Completed, 2));
        }
    }
}

/// C049: a failing sibling cancels nobody.
#[test]
fn c049_a_failing_call_does_not_cancel_its_siblings() {
    let gates = [CancellationToken::new(), CancellationToken::new()];
    let rig = Rig::new([calls("a:err b:slow c:slower"), say("END")], |agent, _| {
        agent
            .tool(failing("err", "no luck"))
            .tool(gated("slow", &gates[0]))
            .tool(gated("slower", &gates[1]))
    });
    let mut run = rig.start("go");
    run.stall();
    gates[1].cancel();
    run.stall();
    gates[0].cancel();
    run.finish();
    assert!(
        rig.log
            .line()
            .contains("xs(a) xs(b) xs(c) xe(a!) xe(c) xe(b) ms(r a) me(r a) ms(r b)")
    );
    let results = ["a", "b", "c"].map(|id| rig.result(id));
    assert_eq!(results, ["no luck", "b ok", "c ok"]);
}

/// C061: unknown and empty names are told verbatim; of two tools of a name the first counts.
#[test]
fn c061_unknown_empty_and_duplicate_names() {
    let rig = Rig::new([calls("a:nope b: c:t"), say("END")], |agent, _| {
        agent
            .tool(giving("t", "first".into()))
            .tool(giving("t", "second".into()))
    });
    rig.prompt("go");
    let results = ["a", "b", "c"].map(|id| rig.result(id));
    assert_eq!(results, ["Tool nope not found", "Tool  not found", "first"]);
    assert!(rig.log.line().contains("xs(a) xe(a!) xs(b) xe(b!) xs(c) xe(c)"));
    assert_eq!(rig.model.requests()[0].tools.len(), 1);
}

/// C071: one sequential tool makes the batch sequential, wherever it stands.
#[test]
fn c071_one_sequential_tool_makes_the_batch_sequential() {
    for batch in ["a:par b:seq c:par", "a:seq b:par c:par", "a:par b:par c:seq"] {
        let rig = Rig::new([calls(batch), say("END")], |agent, _| {
            agent.tool(quick("par")).tool(quick("seq").sequential())
        });
        rig.prompt("go");
        rig.saw(
            "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) xs(b) xe(b) ms(r b) me(r b) \
             xs(c) xe(c) ms(r c) me(r c) te(toolUse)[3] ts ms(a) me(a/stop) te(stop)[0] ae[6]",
        );
    }
}

/// C071, the other way round: a tool that says parallel does not change a sequential agent.
#[test]
fn c071_a_parallel_tool_does_not_make_a_batch_parallel() {
    let rig = Rig::new([calls("a:t b:t"), say("END")], |agent, _| {
        let parallel = quick("t").with_execution_mode(ExecutionMode::Parallel);
        agent.execution_mode(ExecutionMode::Sequential).tool(parallel)
    });
    rig.prompt("go");
    assert!(rig.log.line().contains("xs(a) xe(a) ms(r a) me(r a) xs(b)"));
}

/// C074: a result from JSON without content, or with null, has none, everywhere.
#[test]
fn c074_missing_content_is_empty_everywhere() {
    for json in ["{}", r#"{"content":null}"#, r#"{"content":[]}"#] {
        let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
            agent.tool(giving("t", serde_json::from_str(json).unwrap()))
        });
        rig.prompt("go");
        for event in rig.log.events() {
            let json = serde_json::to_value(event.json(None)).unwrap();
            let content = match show(&event).as_str() {
                "xe(a)" => &json["result"]["content"],
                "me(r a)" => &json["message"]["content"],
                "te(toolUse)[1]" => &json["toolResults"][0]["content"],
                _ => continue,
            };
            assert_eq!(content, &serde_json::json!([]), "{}", show(&event));
        }
    }
}

/// I3: ids that repeat, within a message and over turns, or are empty: answered by position.
#[test]
fn i3_repeated_ids_are_answered_by_position() {
    for mode in MODES {
        let count = Notes::default();
        let rig = Rig::new([calls("a:t a:t :t"), calls("a:t"), say("END")], |agent, _| {
            let count = count.clone();
            let nth = tool("t", move |_, _| {
                count.add("");
                std::future::ready(format!("nr {}", count.all().len()))
            });
            agent.execution_mode(mode).tool(nth)
        });
        rig.at("me(a/toolUse)", |agent: &Agent| {
            assert_eq!(agent.pending_tool_calls().len(), 0);
        });
        rig.prompt("go");
        let transcript = rig.agent.transcript();
        let results = transcript.iter().filter(|message| message.role() == "toolResult");
        let results: Vec<_> = results
            .map(|result| format!("{}: {}", name(&**result), result.text()))
            .collect();
        assert_eq!(results, ["r a: nr 1", "r a: nr 2", "r : nr 3", "r a: nr 4"]);
        assert_eq!(rig.sent(2), "u, a/toolUse, r a, r a, r , a/toolUse, r a");
    }
}

/// Prompting from inside a tool is refused; the tool's own run goes on.
#[test]
fn c057_a_tool_cannot_prompt_its_own_agent() {
    let notes = Notes::default();
    let seen = notes.clone();
    let rig = Rig::new([calls("a:t"), say("END")], |agent, hand: Hand| {
        agent.tool(doing("t", &hand, move |agent| {
            seen.add(agent.prompt("more").unwrap_err().to_string());
        }))
    });
    assert_eq!(rig.prompt("go").end, RunEnd::Completed);
    assert_eq!(notes.all(), [turnstate::StartError::Busy.to_string()]);
}
