//! Hooks of tool calls, and hooks that never return.

use serde_json::json;
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{CancellationToken, Content, Decision, Response, ResultPatch, ToolResult, json_tool};

use super::harness::{HOOKS, Notes, Rig, calls, doing, giving, names, one_hook, quick, say, show};

const MODES: [ExecutionMode; 2] = [ExecutionMode::Parallel, ExecutionMode::Sequential];

/// C050: a failing `after_tool_call` is the result of that call alone.
#[test]
fn c050_a_failing_after_hook_fails_its_own_call() {
    for mode in MODES {
        let rig = Rig::new([calls("a:t b:t"), say("END")], |agent, _| {
            agent
                .execution_mode(mode)
                .tool(quick("t"))
                .after_tool_call(async |call| match &*call.cx.call.id {
                    "a" => Err("cannot redact"),
                    _ => Ok(ResultPatch::keep()),
                })
        });
        assert_eq!(rig.prompt("go").end, RunEnd::Completed);
        assert!(rig.log.line().contains("xe(a!)") && rig.log.line().contains("xe(b)"));
        assert_eq!(
            (rig.result("a"), rig.result("b")),
            ("cannot redact".into(), "b ok".into())
        );
    }
}

/// What a patch makes of a result; `None` keeps it.
fn patched(given: &ToolResult, patch: &ResultPatch) -> (ToolResult, Vec<serde_json::Value>) {
    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
        let patch = patch.clone();
        agent
            .tool(giving("t", given.clone()))
            .after_tool_call(move |_| std::future::ready(patch.clone()))
    });
    rig.prompt("go");
    let mut result = None;
    let mut messages = Vec::new();
    for event in rig.log.events() {
        match &event {
            turnstate::AgentEvent::ToolExecutionEnd { result: ended, .. } => result = Some((**ended).clone()),
            turnstate::AgentEvent::TurnEnd { tool_results, .. } => {
                messages.extend(
                    tool_results
                        .iter()
                        .map(|message| serde_json::to_value(&**message).unwrap()),
                );
            }
            turnstate::AgentEvent::MessageEnd { message } if message.role() == "toolResult" => {
                messages.push(serde_json::to_value(&**message).unwrap());
            }
            _ => {}
        }
    }
    (result.unwrap(), messages)
}

/// C051: the hook replaces whole fields, and nothing else; the end event, the message and the turn show the same.
#[test]
fn c051_the_after_hook_replaces_field_by_field() {
    let given = ToolResult::text("text")
        .with_details(json!({"k": 1, "l": 2}))
        .with_terminate(true);
    let failed = ToolResult {
        is_error: true,
        ..given.clone()
    };
    let content = vec![Content::text("other")];
    let keep = ResultPatch::keep;
    let table = [
        (&given, keep(), given.clone()),
        (&given, keep().is_error(true), failed.clone()),
        (
            &failed,
            keep().is_error(false).content(content.clone()),
            ToolResult {
                content,
                ..given.clone()
            },
        ),
        (
            &given,
            keep().content(vec![]),
            ToolResult {
                content: vec![],
                ..given.clone()
            },
        ),
        (
            &given,
            keep().details(json!({"k": 3})),
            given.clone().with_details(json!({"k": 3})),
        ),
        (
            &given,
            keep().details(json!(null)),
            given.clone().with_details(json!(null)),
        ),
        (&given, keep().terminate(false), given.clone().with_terminate(false)),
        (&failed, keep(), failed.clone()),
    ];
    for (given, patch, expected) in table {
        let (result, messages) = patched(given, &patch);
        assert_eq!(result, expected, "{patch:?}");
        assert_eq!(messages.len(), 2);
        for message in messages {
            assert_eq!(
                message["content"],
                serde_json::to_value(&expected.content).unwrap(),
                "{patch:?}"
            );
            assert_eq!(
                message["details"],
                expected.details.clone().unwrap_or_default(),
                "{patch:?}"
            );
            assert_eq!(message["isError"], json!(expected.is_error), "{patch:?}");
        }
    }
}

/// C052: only calls that executed reach `after_tool_call`; immediate errors end in the preflight, before later starts.
#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn c052_the_after_hook_sees_only_calls_that_executed() {
    for cap in [None, Some(1.try_into().unwrap())] {
        let notes = Notes::default();
        let rig = Rig::new([calls("a:t b:nope c:strict d:rm e:t2"), say("never")], |agent, hand| {
            let seen = notes.clone();
            let schema = json!({"type": "object", "required": ["x"]});
            let agent = match cap {
                Some(cap) => agent.max_concurrent_tools(cap),
                None => agent,
            };
            let agent = agent
                .tool(doing("t", &hand, turnstate::Agent::abort))
                .tool(quick("rm"))
                .tool(notes.tool("t2"));
            let agent = agent.tool(json_tool("strict", "", schema, async |_, _| "ran"));
            let agent = agent.before_tool_call(async |call| match call.name() {
                "rm" => Decision::block("no"),
                _ => Decision::Allow,
            });
            agent.after_tool_call(move |call| {
                seen.add(format!("after {}", call.cx.call.id));
                std::future::ready(ResultPatch::keep())
            })
        });
        rig.prompt("go");
        assert_eq!(notes.all(), ["after a"]);
        rig.saw(
            "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xs(b) xe(b!) xs(c) xe(c!) xs(d) xe(d!) xs(e) xe(a) xe(e!) \
             ms(r a) me(r a) ms(r b) me(r b) ms(r c) me(r c) ms(r d) me(r d) ms(r e) me(r e) te(toolUse)[5] \
             ts ms(a) me(a/aborted) te(aborted)[0] ae[8]",
        );
        let results = ["a", "d", "e"].map(|id| rig.result(id));
        assert_eq!(results, ["a ok", "no", "Operation aborted"]);
    }
}

/// C054: a hook that never returns is dropped when the run is aborted; or with the run.
#[test]
fn c054_a_hook_that_never_returns_does_not_hold_the_run() {
    let tools = "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a)";
    let closing = "te(toolUse)[1] ts ms(a) me(a/aborted) te(aborted)[0] ae[4]";
    for place in HOOKS {
        for dropped in [false, true] {
            let rig = Rig::new([calls("a:t"), say("never")], |agent, _| {
                one_hook(agent.tool(quick("t")), place, std::future::pending)
            });
            let mut run = rig.start("go");
            run.stall();
            if dropped {
                drop(run);
            } else {
                rig.agent.abort();
                assert_eq!(run.finish().end, RunEnd::Aborted);
            }
            match place {
                "before" | "after" => {
                    rig.saw(&format!("{tools} xe(a!) ms(r a) me(r a) {closing}"));
                    assert_eq!(rig.result("a"), "Operation aborted");
                }
                "stop" => rig.saw(&format!("{tools} xe(a) ms(r a) me(r a) {closing}")),
                _ => rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]"),
            }
            assert!(rig.requests() <= 1);
        }
    }
}

/// C054: pending `after_tool_call` of one call does not lose the result of another, nor does a grace wait for it.
#[test]
fn c054_a_pending_after_hook_loses_only_its_own_result() {
    for grace in [false, true] {
        let rig = Rig::new([calls("a:t b:t")], |agent, _| {
            let agent = if grace {
                agent.grace(std::future::pending)
            } else {
                agent
            };
            agent.tool(quick("t")).after_tool_call(async |call| {
                if call.cx.call.id == "a" {
                    std::future::pending::<()>().await;
                }
                ResultPatch::keep()
            })
        });
        let mut run = rig.start("go");
        run.stall();
        rig.agent.abort();
        run.finish();
        assert_eq!(
            (rig.result("a"), rig.result("b")),
            ("Operation aborted".into(), "b ok".into())
        );
    }
}

/// C054: what `after_tool_call` says after the abort comes too late: it might have said less before.
#[test]
fn c054_a_hook_that_answers_after_the_abort_is_too_late() {
    let gate = CancellationToken::new();
    let rig = Rig::new([calls("a:t")], |agent, _| {
        let gate = gate.clone();
        agent.tool(quick("t")).after_tool_call(move |_| {
            let gate = gate.clone();
            async move {
                gate.cancelled().await;
                ResultPatch::keep()
            }
        })
    });
    let mut run = rig.start("go");
    run.stall();
    rig.agent.abort();
    gate.cancel();
    run.finish();
    assert_eq!(rig.result("a"), "Operation aborted");
}

/// C055: a tool's own error flag counts, and the hook sees it.
#[test]
fn c055_a_tool_may_return_an_error_result() {
    let notes = Notes::default();
    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
        let seen = notes.clone();
        agent
            .tool(giving("t", ToolResult::error("bad")))
            .after_tool_call(move |call| {
                seen.add(call.result.is_error.to_string());
                std::future::ready(ResultPatch::keep())
            })
    });
    rig.prompt("go");
    assert!(rig.log.line().contains("xs(a) xe(a!)"));
    assert_eq!((rig.result("a"), notes.all()), ("bad".into(), vec!["true".into()]));
    let json = serde_json::to_value(&*rig.agent.transcript()[2]).unwrap();
    assert_eq!(json["isError"], json!(true));
}

/// C072: hooks see the calling message last and no result of its batch, in sequence too.
#[test]
fn c072_hooks_see_the_context_as_of_the_batch() {
    for mode in MODES {
        let notes = Notes::default();
        let rig = Rig::new([calls("a:t b:t"), calls("c:t"), say("END")], |agent, _| {
            let [before, after] = std::array::from_fn(|_| notes.clone());
            let agent = agent.execution_mode(mode).tool(quick("t"));
            let agent = agent.before_tool_call(move |call| {
                before.add(format!("{}: {}", call.index, names(call.transcript.iter())));
                assert!(std::sync::Arc::ptr_eq(call.transcript.last().unwrap(), &call.message));
                std::future::ready(Decision::Allow)
            });
            agent.after_tool_call(move |call| {
                after.add(format!("{}: {}", call.cx.index, names(call.cx.transcript.iter())));
                std::future::ready(ResultPatch::keep())
            })
        });
        rig.prompt("go");
        let mut seen = notes.all();
        seen.sort();
        let (first, second) = ("u, a/toolUse", "u, a/toolUse, r a, r b, a/toolUse");
        let expected = [
            ("0", first),
            ("0", first),
            ("0", second),
            ("0", second),
            ("1", first),
            ("1", first),
        ];
        assert_eq!(seen, expected.map(|(index, names)| format!("{index}: {names}")));
    }
}

/// Blocking: the hook's reason or the default text, no details, and a wish to end the run if it says so.
#[test]
fn c048_a_blocked_call_may_end_the_run() {
    for (reason, terminate) in [
        (Some("no"), Some(true)),
        (None, Some(true)),
        (None, None),
        (Some("no"), Some(false)),
    ] {
        let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
            agent.tool(quick("t")).before_tool_call(move |_| {
                let reason = reason.map(str::to_owned);
                // The variant is the only way to say both.
                std::future::ready(block(reason, terminate))
            })
        });
        let end = rig.prompt("go").end;
        assert_eq!(
            end,
            if terminate == Some(true) {
                RunEnd::Terminated
            } else {
                RunEnd::Completed
            }
        );
        assert_eq!(rig.result("a"), reason.unwrap_or("Tool execution was blocked"));
        let ended = rig
            .log
            .events()
            .into_iter()
            .find(|event| show(event) == "xe(a!)")
            .unwrap();
        assert_eq!(
            serde_json::to_value(ended.json(None)).unwrap()["result"]["details"],
            json!({})
        );
    }
}

fn block(reason: Option<String>, terminate: Option<bool>) -> Decision {
    Decision::Block { reason, terminate }
}

/// Arguments replaced for one call do not leak into its sibling.
#[test]
fn c116_replaced_arguments_are_those_of_one_call() {
    let notes = Notes::default();
    let answer = Response::new()
        .call_with_id("a", "t", json!({"n": 1}))
        .call_with_id("b", "t", json!({"n": 2}));
    let rig = Rig::new([answer, say("END")], |agent, _| {
        let seen = notes.clone();
        let noting = super::harness::tool("t", move |arguments, _| {
            seen.add(arguments.as_value()["n"].to_string());
            std::future::ready("ok")
        });
        agent.tool(noting).before_tool_call(async |call| match call.index {
            0 => Decision::Replace(json!({"n": 7})),
            _ => Decision::Allow,
        })
    });
    rig.prompt("go");
    assert_eq!(notes.all(), ["7", "2"]);
}
