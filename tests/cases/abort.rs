//! Abort: the run ends although nobody cooperates, and nothing is begun after it (I6).

use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, Stream};
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AssistantEvent, CancellationToken, Decision, LoopConfig, Message, QueueKind, Request, ScriptedModel,
    agent_loop,
};

use super::drive::drive;
use super::harness::{Notes, OnDrop, Rig, calls, doing, gated, quick, say, show, stuck, tool, until};

/// How an aborted run ends behind its batch.
const CLOSING: &str = "ts ms(a) me(a/aborted) te(aborted)[0]";

/// C007: aborted in the preflight of `b`, `a` does not start either; whatever the hook then says.
#[test]
fn c007_abort_in_the_preflight_of_a_later_call_starts_none() {
    for fails in [false, true] {
        let notes = Notes::default();
        let rig = Rig::new([calls("a:t b:t"), say("never")], |agent, hand| {
            let after = notes.clone();
            agent
                .tool(notes.tool("t"))
                .before_tool_call(move |call| {
                    if call.call.id == "b" {
                        hand.agent().abort();
                    }
                    std::future::ready(if fails { Err("too late") } else { Ok(Decision::Allow) })
                })
                .after_tool_call(move |call| {
                    after.add(format!("after {}", call.cx.call.id));
                    std::future::ready(turnstate::ResultPatch::keep())
                })
        });
        let outcome = rig.prompt("go");
        if fails {
            // The hook failed for `a` in earnest, before the abort.
            assert_eq!(rig.result("a"), "too late");
        } else {
            rig.saw(&format!(
                "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xs(b) xe(b!) xe(a!) ms(r a) me(r a) ms(r b) me(r b) \
                 te(toolUse)[2] {CLOSING} ae[5]"
            ));
            assert_eq!(rig.result("a"), "Operation aborted");
        }
        assert_eq!(rig.result("b"), "Operation aborted");
        assert_eq!(notes.all(), [""; 0]);
        assert_eq!((outcome.end, rig.requests()), (RunEnd::Aborted, 1));
    }
}

/// C008: aborted by the first tool of a sequential batch, the second does not start; the first keeps its result.
#[test]
fn c008_abort_inside_the_first_tool_of_a_sequence() {
    let notes = Notes::default();
    let rig = Rig::new([calls("a:t1 b:t2")], |agent, hand| {
        let agent = agent.execution_mode(ExecutionMode::Sequential);
        agent.tool(doing("t1", &hand, Agent::abort)).tool(notes.tool("t2"))
    });
    rig.prompt("go");
    rig.saw(&format!(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) xs(b) xe(b!) ms(r b) me(r b) \
         te(toolUse)[2] {CLOSING} ae[5]"
    ));
    assert_eq!(
        (rig.result("a"), rig.result("b")),
        ("a ok".into(), "Operation aborted".into())
    );
    assert_eq!(notes.all(), [""; 0]);
}

/// C008 in parallel: aborted by the first tool, at its call or at its first poll, no other tool's code begins (I6).
#[test]
fn c008_abort_inside_the_first_tool_of_a_parallel_batch() {
    for (at_call, goes_on) in [(true, false), (false, false), (false, true)] {
        let notes = Notes::default();
        let rig = Rig::new([calls("a:t1 b:t2")], |agent, hand| {
            let first = tool("t1", move |_, cx| {
                let hand = hand.clone();
                if at_call {
                    hand.agent().abort();
                }
                async move {
                    hand.agent().abort();
                    if goes_on {
                        std::future::pending::<()>().await;
                    }
                    format!("{} ok", cx.call_id())
                }
            });
            agent.tool(first).tool(notes.tool("t2"))
        });
        rig.prompt("go");
        assert_eq!(notes.all(), [""; 0], "at the call: {at_call}, goes on: {goes_on}");
        assert_eq!(rig.result("b"), "Operation aborted");
        rig.saw_at_last(&format!(
            "ms(r a) me(r a) ms(r b) me(r b) te(toolUse)[2] {CLOSING} ae[5]"
        ));
    }
}

/// C010: a tool that ignores the token is dropped; its sibling keeps its result, the queue its message.
#[test]
fn c010_a_tool_that_ignores_the_token_does_not_hold_the_run() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let notes = Notes::default();
        let rig = Rig::new([calls("b:fast a:stuck")], |agent, _| {
            let dropped = notes.clone();
            let stuck = tool("stuck", move |_, cx| {
                let guard = OnDrop(dropped.clone(), "dropped");
                async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                    cx.progress("never");
                    "never"
                }
            });
            agent.execution_mode(mode).tool(stuck).tool(quick("fast"))
        });
        rig.agent.follow_up("f");
        let mut run = rig.start("go");
        run.stall();
        rig.agent.abort();
        assert_eq!(run.finish().end, RunEnd::Aborted);
        assert_eq!(notes.all(), ["dropped"]);
        assert_eq!(
            (rig.result("a"), rig.result("b")),
            ("Operation aborted".into(), "b ok".into())
        );
        rig.saw_at_last(&format!("te(toolUse)[2] {CLOSING} ae[5]"));
        assert_eq!(rig.agent.peek(QueueKind::FollowUp).len(), 1);
    }
}

/// C010: what the tool's threads report after the abort is no news.
#[test]
fn c010_reports_after_the_abort_are_ignored() {
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let rig = Rig::new([calls("a:t"), say("2")], |agent, _| {
        let kept = kept.clone();
        agent.tool(tool("t", move |_, cx| {
            kept.lock().unwrap().replace(cx);
            std::future::pending::<&str>()
        }))
    });
    let mut run = rig.start("go");
    run.stall();
    rig.agent.abort();
    run.finish();
    let before = rig.transcript();
    kept.lock().unwrap().take().unwrap().progress("late");
    assert_eq!(rig.transcript(), before);
    assert!(!rig.log.line().contains("xu"));
}

/// C010: a tool that heeds the token gives its own result in its last poll, and the hook sees that.
#[test]
fn c010_a_tool_that_heeds_the_token_gives_its_own_result() {
    let notes = Notes::default();
    let rig = Rig::new([calls("a:polite b:stuck")], |agent, _| {
        let seen = notes.clone();
        let polite = tool("polite", async |_, cx| {
            cx.cancellation_token().cancelled().await;
            cx.progress("stopping");
            "stopped half-way"
        });
        agent.tool(polite).tool(stuck("stuck")).after_tool_call(move |call| {
            seen.add(call.cx.call.id.as_str());
            std::future::ready(turnstate::ResultPatch::keep())
        })
    });
    let mut run = rig.start("go");
    run.stall();
    rig.agent.abort();
    run.finish();
    assert_eq!(
        (rig.result("a"), rig.result("b")),
        ("stopped half-way".into(), "Operation aborted".into())
    );
    assert_eq!(notes.all(), ["a"]);
    rig.saw_at_last(&format!(
        "xs(a) xs(b) xu(a) xe(a) xe(b!) ms(r a) me(r a) ms(r b) me(r b) te(toolUse)[2] {CLOSING} ae[5]"
    ));
}

/// C010 with a grace: tools are polled until it is over, whatever wakes them.
#[test]
fn c010_a_grace_waits_for_tools_that_need_time_to_stop() {
    for opened in ["none", "one", "both"] {
        let (over, gates) = (
            CancellationToken::new(),
            [CancellationToken::new(), CancellationToken::new()],
        );
        let rig = Rig::new([calls("a:first b:second")], |agent, _| {
            let over = over.clone();
            let agent = agent.tool(gated("first", &gates[0])).tool(gated("second", &gates[1]));
            agent.grace(move || over.clone().cancelled_owned())
        });
        let mut run = rig.start("go");
        run.stall();
        rig.agent.abort();
        run.stall();
        // The second first, so that the other is polled in vain in between.
        for gate in gates.iter().rev().take(match opened {
            "none" => 0,
            "one" => 1,
            _ => 2,
        }) {
            if rig.log.line().contains("xe") {
                run.stall();
            }
            gate.cancel();
        }
        let text = |open| if open { "ok" } else { "aborted" };
        if opened != "both" {
            run.stall();
            over.cancel();
        }
        run.finish();
        let ends = [rig.result("a"), rig.result("b")].map(|result| result.ends_with("ok"));
        assert_eq!(
            ends.map(text),
            [opened == "both", opened != "none"].map(text),
            "{opened}"
        );
    }
}

/// C010 with a grace: the hook of a call that ends within it is polled once, so that one that never answers does not
/// spend the grace.
#[test]
fn c010_a_grace_does_not_wait_for_a_hook() {
    let gate = CancellationToken::new();
    let rig = Rig::new([calls("a:slow")], |agent, _| {
        let agent = agent.tool(gated("slow", &gate)).grace(std::future::pending);
        agent.after_tool_call(|_| std::future::pending::<turnstate::ResultPatch>())
    });
    let mut run = rig.start("go");
    run.stall();
    rig.agent.abort();
    run.stall();
    gate.cancel();
    run.finish();
    assert_eq!(rig.result("a"), "Operation aborted");
}

/// C011: a stalled model is dropped; the partial is kept.
#[test]
fn c011_a_stalled_model_is_dropped_and_the_partial_kept() {
    let rig = Rig::new([say("half an ans").silence().deaf()], |agent, _| agent);
    let mut run = rig.start("go");
    run.stall();
    rig.agent.abort();
    run.finish();
    rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
    assert_eq!(rig.last_text(), "half an ans");
    assert_eq!(rig.agent.error_message().as_deref(), Some("Request was aborted"));
}

/// C011 before `start`, with nothing to keep; and with a call that was still open.
#[test]
fn c011_a_model_that_stalls_early_or_in_a_call() {
    let nothing = turnstate::Response::from_events([]).silence().deaf();
    let call = turnstate::Response::new()
        .call_with_id("a", "t", "no object")
        .silence()
        .deaf();
    for answer in [nothing, call] {
        let rig = Rig::new([answer, say("2")], |agent, _| agent.tool(quick("t")));
        let mut run = rig.start("go");
        run.stall();
        rig.agent.abort();
        run.finish();
        rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
        rig.prompt("next");
        assert_eq!(rig.sent(1), "u, u next");
    }
}

/// C012: after an abort in a tool nothing is prepared for, and nothing is asked of, the model; nor the stop hook.
#[test]
fn c012_after_an_abort_in_a_tool_the_model_is_not_asked() {
    let notes = Notes::default();
    let rig = Rig::new([calls("a:t"), say("never")], |agent, hand| {
        let [prepare, transform, stop] = std::array::from_fn(|_| notes.clone());
        agent
            .tool(doing("t", &hand, Agent::abort))
            .prepare_request(move |cx| {
                prepare.add("prepare");
                std::future::ready(cx.plan)
            })
            .transform_context(move |cx| {
                transform.add("transform");
                std::future::ready(cx.transcript)
            })
            .should_stop_after_turn(move |_| {
                stop.add("stop");
                std::future::ready(false)
            })
    });
    rig.prompt("go");
    rig.saw(&format!(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) te(toolUse)[1] {CLOSING} ae[4]"
    ));
    assert_eq!(notes.all(), ["prepare", "transform"]);
    assert_eq!(rig.requests(), 1);
    let last = rig.agent.transcript().last().unwrap().as_assistant().unwrap().clone();
    assert_eq!((last.content.len(), last.text()), (1, String::new()));
    assert_eq!(
        (last.api.as_str(), last.provider.as_str(), last.model.as_str()),
        ("unknown", "unknown", "scripted-1")
    );
    assert_eq!(last.error_message.as_deref(), Some("Request was aborted"));
}

/// C012 with a batch that asked for the end: the closing turn all the same. Behind an answer: none.
#[test]
fn c012_how_the_run_closes_depends_on_the_last_message() {
    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
        agent.tool(tool("t", async |_, _| {
            turnstate::ToolResult::text("done").with_terminate(true)
        }))
    });
    rig.at("te(toolUse)[1]", Agent::abort);
    assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
    rig.saw_at_last(&format!("te(toolUse)[1] {CLOSING} ae[4]"));

    rig.at("te(stop)[0]", Agent::abort);
    let outcome = rig.prompt("go");
    rig.saw("as ts ms(u) me(u) ms(a) me(a/stop) te(stop)[0] ae[2]");
    assert_eq!((outcome.end, outcome.error), (RunEnd::Aborted, None));
}

/// C069: aborted before the request, it is aborted, not failed, and nothing is sent.
#[test]
fn c069_aborted_before_the_request() {
    for event in ["", "as", "ts", "ms(u)", "me(u)"] {
        let rig = Rig::new([say("never")], |agent, _| agent);
        let mut run = rig.agent.prompt("go").unwrap();
        if !event.is_empty() {
            until(&mut run, event);
        }
        rig.agent.abort();
        rig.agent.abort();
        assert_eq!(drive(run).end, RunEnd::Aborted);
        rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
        assert_eq!(rig.requests(), 0);
    }
}

/// C069 for a bare loop whose token was cancelled beforehand.
#[test]
fn c069_a_loop_with_a_cancelled_token() {
    let model = ScriptedModel::new().text("never");
    let config = LoopConfig::new("scripted-1");
    config.cancel.cancel();
    let run = agent_loop(vec![Message::user("go").into()], config, model.clone(), ()).unwrap();
    let events: Vec<_> = drive(run.map(|event| show(&event)).collect::<Vec<_>>());
    assert_eq!(
        events.join(" "),
        "as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]"
    );
    assert_eq!(model.requests().len(), 0);
}

/// A stream function whose setup aborts the run it belongs to, if `aborts`, and then breaks in one way or another.
fn broken(
    hand: super::harness::Hand,
    aborts: bool,
    way: &'static str,
) -> impl Fn(Request, CancellationToken) -> stream::BoxStream<'static, AssistantEvent> {
    move |_, _| {
        let hand = hand.clone();
        let fail = move || {
            if aborts {
                hand.agent().abort();
            }
        };
        assert!(
            way != "panics at once" || {
                fail();
                false
            },
            "setup"
        );
        let answer: Box<dyn Stream<Item = AssistantEvent> + Send + Unpin> = match way {
            "ends" => Box::new(stream::once(async move { fail() }.boxed()).filter_map(|()| std::future::ready(None))),
            _ => Box::new(stream::once(
                async move {
                    fail();
                    assert!(way != "panics", "setup");
                    AssistantEvent::error("fetch failed")
                }
                .boxed(),
            )),
        };
        answer.boxed()
    }
}

/// C069: whether a broken request is aborted or failed is the token's to say, not the error's.
#[test]
fn c069_the_token_tells_an_abort_from_a_failure() {
    for way in ["errs", "ends", "panics", "panics at once"] {
        for aborts in [true, false] {
            let rig = Rig::new([], |agent, _| agent);
            rig.set_stream_fn(|hand| broken(hand, aborts, way));
            let stop = if aborts { "aborted" } else { "error" };
            rig.prompt("go");
            rig.saw(&format!("as ts ms(u) me(u) ms(a) me(a/{stop}) te({stop})[0] ae[2]"));
        }
    }
}

/// Abort of an idle agent does nothing to the next run.
#[test]
fn c069_abort_when_idle_is_forgotten() {
    let rig = Rig::new([say("1"), say("2")], |agent, _| agent);
    rig.agent.abort();
    assert_eq!(rig.prompt("go").end, RunEnd::Completed);
    rig.at("ae[2]", Agent::abort);
    assert_eq!(rig.prompt("go").end, RunEnd::Completed);
    assert_eq!(rig.transcript(), "u, a/stop, u, a/stop");
}
