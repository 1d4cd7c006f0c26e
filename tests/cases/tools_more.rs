//! Tools: arguments on their way from the model to the tool, and the bounds of running side by side.

use serde_json::json;
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AssistantEvent, CancellationToken, Decision, DoneReason, FnTool, Response, ResultPatch, json_tool,
};

use super::drive::yield_now;
use super::harness::{Notes, Rig, calls, calls_but, gated, quick, say, show, tool};

/// A response with a call of `t` whose arguments are this text, and a sound call of `t`.
fn raw(text: &str, ended: bool) -> Response {
    let mut events = vec![
        AssistantEvent::start(),
        AssistantEvent::tool_call_start(0, "a", "t"),
        AssistantEvent::tool_call_delta(0, text),
    ];
    if ended {
        events.push(AssistantEvent::ToolCallEnd {
            content_index: 0,
            tool_call: None,
        });
    }
    events.push(AssistantEvent::tool_call_start(1, "b", "t"));
    events.push(AssistantEvent::done(DoneReason::ToolUse));
    Response::from_events(events)
}

/// C004: calls in a message that the output limit cut are answered one after the other, and none is run.
#[test]
fn c004_calls_of_a_cut_message_are_not_run() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let notes = Notes::default();
        let rig = Rig::new(
            [calls_but("a:write b:t c:nope", DoneReason::Length), say("END")],
            |agent, _| {
                let [before, after] = std::array::from_fn(|_| notes.clone());
                let agent = agent
                    .execution_mode(mode)
                    .tool(notes.tool("write"))
                    .tool(notes.tool("t"));
                let agent = agent.before_tool_call(move |_| {
                    before.add("before");
                    std::future::ready(Decision::Allow)
                });
                agent.after_tool_call(move |_| {
                    after.add("after");
                    std::future::ready(ResultPatch::keep())
                })
            },
        );
        assert_eq!(rig.prompt("go").end, RunEnd::Completed);
        rig.saw(
            "as ts ms(u) me(u) ms(a) me(a/length) xs(a) xe(a!) ms(r a) me(r a) xs(b) xe(b!) ms(r b) me(r b) \
             xs(c) xe(c!) ms(r c) me(r c) te(length)[3] ts ms(a) me(a/stop) te(stop)[0] ae[6]",
        );
        assert_eq!(notes.all(), [""; 0]);
        for id in ["a", "b", "c"] {
            let text = rig.result(id);
            assert!(
                text.contains("not executed") && text.contains("limit") && text.contains("again"),
                "{text}"
            );
        }
        assert_eq!(rig.sent(1), "u, a/length, r a, r b, r c");
    }
}

/// C004 beside an abort: at any event of the batch all calls are answered, and the run closes.
#[test]
fn c004_abort_while_a_cut_message_is_answered() {
    for event in [
        "me(a/length)",
        "xs(a)",
        "xe(a!)",
        "me(r a)",
        "xs(b)",
        "me(r b)",
        "te(length)[2]",
    ] {
        let rig = Rig::new([calls_but("a:t b:t", DoneReason::Length)], |agent, _| {
            agent.tool(quick("t"))
        });
        rig.at(event, Agent::abort);
        assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
        rig.saw_at_last("te(length)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]");
    }
}

/// C004 without calls: a cut answer is an answer.
#[test]
fn c004_a_cut_answer_without_calls_ends_the_run() {
    let rig = Rig::new([say("and so").stop(DoneReason::Length)], |agent, _| agent);
    assert_eq!(rig.prompt("go").end, RunEnd::Completed);
    rig.saw("as ts ms(u) me(u) ms(a) me(a/length) te(length)[0] ae[2]");
}

/// C005, C006: a call whose arguments cannot be read is not run, nor is anything asked about it; its sibling is. So if
/// the call was still open at the end.
#[test]
fn c005_c006_unreadable_arguments_are_an_error_result() {
    for ended in [true, false] {
        for text in [
            r#"{"path":"/etc"#,
            r#"{"a":1,,}"#,
            r#"{"a":1}{"b":2}"#,
            r#"{"a":1} junk"#,
            "[1]",
            "42",
        ] {
            let notes = Notes::default();
            let rig = Rig::new([raw(text, ended), say("END")], |agent, _| {
                let [before, prepare] = std::array::from_fn(|_| notes.clone());
                let prepared = notes.tool("t").with_prepare(move |arguments| {
                    prepare.add("prepare");
                    Ok(arguments.into())
                });
                agent.tool(prepared).before_tool_call(move |call| {
                    before.add(format!("before {}", call.call.id));
                    std::future::ready(Decision::Allow)
                })
            });
            rig.prompt("go");
            rig.saw(
                "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a!) xs(b) xe(b) ms(r a) me(r a) ms(r b) me(r b) \
                 te(toolUse)[2] ts ms(a) me(a/stop) te(stop)[0] ae[5]",
            );
            assert!(rig.result("a").contains(text), "{}", rig.result("a"));
            assert_eq!(notes.all(), ["prepare", "before b", "b"]);
            let call = serde_json::to_value(&*rig.agent.transcript()[1]).unwrap()["content"][0].clone();
            let fields: Vec<_> = call.as_object().unwrap().keys().cloned().collect();
            assert_eq!(
                fields,
                ["type", "id", "name", "arguments", "argumentsError"],
                "no scratch field"
            );
            assert_eq!(call["arguments"], json!({}));
        }
    }
}

/// C006: an open call whose text is complete is accepted.
#[test]
fn c006_an_open_call_with_complete_arguments_is_run() {
    for (text, given) in [
        (r#"{"path":"/etc"}"#, json!({"path": "/etc"})),
        ("", json!({})),
        ("null", json!({})),
    ] {
        let notes = Notes::default();
        let rig = Rig::new([raw(text, false), say("END")], |agent, _| {
            let notes = notes.clone();
            agent.tool(tool("t", move |arguments, _| {
                notes.add(arguments.as_value().to_string());
                std::future::ready("ok")
            }))
        });
        rig.prompt("go");
        assert_eq!(notes.all(), [given.to_string(), "{}".into()]);
    }
}

/// A tool that wants a number `n`, and notes what it gets.
fn counting(notes: &Notes) -> FnTool {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let notes = notes.clone();
    json_tool("count", "Counts", schema, move |arguments, cx| {
        let mut arguments = arguments.into_value();
        notes.add(format!("{} {arguments}", cx.call_id()));
        // C116: what it does to them is its own affair.
        arguments["n"] = json!("changed");
        std::future::ready(arguments.to_string())
    })
}

/// C115: arguments that cannot be prepared or are invalid are the result of that call; no hook is asked about it.
#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn c115_what_fails_before_the_hook_is_the_result_of_that_call() {
    for way in ["prepare fails", "prepare gives another shape", "invalid"] {
        let notes = Notes::default();
        let batch = ["a", "b", "c"].into_iter().fold(Response::new(), |response, id| {
            let wrong = way == "invalid" && id == "b";
            response.call_with_id(id, "count", if wrong { json!({"m": 1}) } else { json!({"n": 1}) })
        });
        let rig = Rig::new([batch, say("END")], |agent, _| {
            let (asked, count) = (notes.clone(), std::sync::atomic::AtomicUsize::new(0));
            let prepared = counting(&notes).with_prepare(move |arguments| {
                let second = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
                match way {
                    "prepare fails" if second => Err("no way".into()),
                    "prepare gives another shape" if second => Ok(json!("n=1")),
                    _ => Ok(arguments.into()),
                }
            });
            agent.tool(prepared).before_tool_call(move |call| {
                asked.add(format!("before {}", call.call.id));
                std::future::ready(Decision::Allow)
            })
        });
        assert_eq!(rig.prompt("go").end, RunEnd::Completed);
        assert!(
            rig.log.line().contains("xs(a) xs(b) xe(b!) xs(c) xe(a) xe(c)"),
            "{}",
            rig.log.line()
        );
        assert_eq!(notes.all(), ["before a", "before c", r#"a {"n":1}"#, r#"c {"n":1}"#]);
        let text = rig.result("b");
        assert!(text.contains(if way == "prepare fails" {
            "no way"
        } else {
            "Validation failed for tool \"count\":"
        }));
    }
}

/// C116: the tool gets coerced (or replaced) arguments; message, events and later requests keep the model's own.
#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn c116_the_transcript_keeps_the_arguments_of_the_model() {
    for replaced in [false, true] {
        let notes = Notes::default();
        let answer = Response::new().call_with_id("a", "count", json!({"n": "5"}));
        let rig = Rig::new([answer, say("END")], |agent, _| {
            agent.tool(counting(&notes)).before_tool_call(move |call| {
                assert_eq!(call.arguments.as_value(), &json!({"n": 5}));
                assert_eq!(call.call.arguments["n"], json!("5"));
                let replaced = replaced.then(|| Decision::Replace(json!({"n": "6"})));
                std::future::ready(replaced.unwrap_or(Decision::Allow))
            })
        });
        rig.prompt("go");
        assert_eq!(notes.all(), [if replaced { r#"a {"n":6}"# } else { r#"a {"n":5}"# }]);
        let start = rig
            .log
            .events()
            .into_iter()
            .find(|event| show(event) == "xs(a)")
            .unwrap();
        assert_eq!(
            serde_json::to_value(start.json(None)).unwrap()["args"],
            json!({"n": "5"})
        );
        let sent = &rig.model.requests()[1].messages[1];
        let call = sent.as_assistant().unwrap().tool_calls().next().unwrap().clone();
        assert_eq!(serde_json::Value::Object(call.arguments.clone()), json!({"n": "5"}));
    }
}

/// C116: replaced arguments are validated like the model's.
#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn c116_replaced_arguments_are_validated() {
    let notes = Notes::default();
    let answer = Response::new().call_with_id("a", "count", json!({"n": 5}));
    let rig = Rig::new([answer, say("END")], |agent, _| {
        let agent = agent.tool(counting(&notes));
        agent.before_tool_call(async |_| Decision::Replace(json!({"n": "many"})))
    });
    rig.prompt("go");
    assert!(
        rig.result("a").starts_with("Validation failed for tool \"count\":"),
        "{}",
        rig.result("a")
    );
    assert_eq!(notes.all(), [""; 0]);
}

/// The cap on calls that run at once: started in call order, as others end; an abort starts no more.
#[test]
fn c008_a_capped_batch_starts_calls_as_others_end() {
    for aborts in [false, true] {
        let (notes, gate) = (Notes::default(), CancellationToken::new());
        let rig = Rig::new([calls("a:slow b:t c:t d:t"), say("END")], |agent, _| {
            let agent = agent.max_concurrent_tools(2.try_into().unwrap());
            agent.tool(gated("slow", &gate)).tool(notes.tool("t"))
        });
        if aborts {
            rig.at("xe(b)", Agent::abort);
        }
        let mut run = rig.start("go");
        if aborts {
            run.finish();
            assert_eq!(notes.all(), ["b"]);
            let results = ["a", "b", "c", "d"].map(|id| rig.result(id));
            assert_eq!(
                results,
                ["Operation aborted", "b ok", "Operation aborted", "Operation aborted"]
            );
        } else {
            run.stall();
            assert_eq!(notes.all(), ["b", "c", "d"]);
            gate.cancel();
            run.finish();
            assert!(
                rig.log.line().contains("xs(d) xe(b) xe(c) xe(d) xe(a) ms(r a)"),
                "{}",
                rig.log.line()
            );
        }
    }
}

/// Updates come in the order reported, before the end of their call, and a chatty tool starves nobody.
#[test]
fn c010_a_chatty_tool_starves_nobody() {
    let rig = Rig::new([calls("a:chatty b:quick"), say("END")], |agent, _| {
        let chatty = tool("chatty", async |_, cx| {
            while !cx.is_cancelled() {
                cx.progress("still here");
                yield_now().await;
            }
            "never"
        });
        agent.tool(chatty).tool(quick("quick"))
    });
    rig.at("xe(b)", Agent::abort);
    assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
    assert_eq!(rig.result("b"), "b ok");

    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
        agent.tool(tool("t", async |_, cx| {
            (0..3).for_each(|n| cx.progress(n.to_string()));
            "done"
        }))
    });
    rig.prompt("go");
    let events = rig.log.events();
    let updates = events.iter().filter_map(|event| match event {
        turnstate::AgentEvent::ToolExecutionUpdate { partial_result, .. } => partial_result.content[0].as_text(),
        _ => None,
    });
    assert_eq!(updates.collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(rig.log.line().contains("xs(a) xu(a) xu(a) xu(a) xe(a)"));
}
