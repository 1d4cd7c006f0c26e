//! Scenarios in which this crate keeps a contract of its own, so that there is nothing to record: chiefly aborts.
//!
//! Each runs on every engine. Their events are compared with a short form of what the contract says, and with each
//! other in full.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use crate::compare::{Observed, compare};
use crate::fixture::{Expect, ExpectedOutcome, Fixture};
use crate::{engine_agent, engine_boxed_loop, engine_machine, engine_static_loop};

type EngineFn = fn(&Fixture) -> Observed;

/// The first gives what the others are compared with.
const ENGINES: [(&str, EngineFn); 4] = [
    ("machine", engine_machine::run),
    ("static loop", engine_static_loop::run),
    ("boxed loop", engine_boxed_loop::run),
    ("agent", engine_agent::run),
];

/// A scenario, and its events in short: `as`/`ae`, `ts`/`te`, `ms`/`me` with the message (`u:go`: the user says `go`; `a/stop`: the
/// assistant, with its stop reason; `r:a`: the result of call `a`), `xs`/`xu`/`xe` with the call (`a!`: an error). Updates of messages are
/// left out. Runs are told apart by `|`.
struct Contract {
    name: &'static str,
    scenario: Value,
    events: &'static str,
    requests: usize,
}

/// Runs a contract on every engine.
fn check(
    Contract {
        name,
        mut scenario,
        events,
        requests,
    }: Contract,
) {
    scenario["name"] = json!(name);
    scenario["expect"] = json!({ "events": [], "requests": [], "outcomes": [], "state": {
        "messages": [], "isStreaming": false, "streaming": false, "pendingToolCalls": [], "errorMessage": null } });
    let mut fixture: Fixture = serde_json::from_value(scenario).unwrap();
    for (index, (engine, run)) in ENGINES.into_iter().enumerate() {
        let Ok(observed) = catch_unwind(AssertUnwindSafe(|| run(&fixture))) else {
            panic!("{name}: the {engine} panicked (see above)");
        };
        assert_eq!(short(&observed.events), events, "{name}: {engine}");
        assert_eq!(observed.requests.len(), requests, "{name}: {engine}: requests");
        if index == 0 {
            fixture.expect = expect(observed);
        } else if let Err(report) = compare(&fixture, observed) {
            panic!("{engine} differs from {}: {report}", ENGINES[0].0);
        }
    }
}

fn expect(observed: Observed) -> Expect {
    let outcomes = observed.outcomes.iter().map(|outcome| ExpectedOutcome {
        nested: outcome.nested,
        accepted: outcome.accepted,
        events: Some(outcome.events),
    });
    Expect {
        outcomes: outcomes.collect(),
        events: observed.events,
        requests: observed.requests,
        state: observed.state,
    }
}

fn short(events: &[Value]) -> String {
    let words: Vec<_> = events.iter().filter_map(word).collect();
    words.join(" ").replace("ae as", "ae | as")
}

fn word(event: &Value) -> Option<String> {
    let kind = event["type"].as_str()?;
    let call = || event["toolCallId"].as_str().unwrap_or_default();
    Some(match kind {
        "agent_start" => "as".to_owned(),
        "agent_end" => "ae".to_owned(),
        "turn_start" => "ts".to_owned(),
        "turn_end" => "te".to_owned(),
        "message_start" => format!("ms({})", speaker(&event["message"], false)),
        "message_end" => format!("me({})", speaker(&event["message"], true)),
        "tool_execution_start" => format!("xs({})", call()),
        "tool_execution_update" => format!("xu({})", call()),
        "tool_execution_end" if event["isError"] == true => format!("xe({}!)", call()),
        "tool_execution_end" => format!("xe({})", call()),
        _ => return None,
    })
}

fn speaker(message: &Value, ended: bool) -> String {
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    match text("role") {
        "assistant" if ended => format!("a/{}", text("stopReason")),
        "assistant" => "a".to_owned(),
        "toolResult" => format!("r:{}", text("toolCallId")),
        "user" => format!("u:{}", message["content"][0]["text"].as_str().unwrap_or_default()),
        role => role.to_owned(),
    }
}

/// A response that says something.
fn says(text: &str) -> Value {
    json!([
        { "type": "start" },
        { "type": "text_start", "contentIndex": 0 },
        { "type": "text_delta", "contentIndex": 0, "delta": text },
        { "type": "text_end", "contentIndex": 0 },
        { "type": "done", "reason": "stop" },
    ])
}

/// A response that calls the tool `t`, once for each id, and ends as said.
fn calls(ids: &[&str], end: &Value) -> Value {
    let mut items = vec![json!({ "type": "start" })];
    for (index, id) in ids.iter().enumerate() {
        items.extend([
            json!({ "type": "toolcall_start", "contentIndex": index, "id": id, "toolName": "t" }),
            json!({ "type": "toolcall_delta", "contentIndex": index, "delta": "{}" }),
            json!({ "type": "toolcall_end", "contentIndex": index }),
        ]);
    }
    items.push(end.clone());
    items.into()
}

fn tool_use() -> Value {
    json!({ "type": "done", "reason": "toolUse" })
}

/// Operations at the n-th event of a kind.
fn at(event: &str, nth: usize, operations: &Value) -> Value {
    json!({ "on": { "event": event, "nth": nth }, "do": operations })
}

fn abort() -> Value {
    json!([{ "abort": true }])
}

#[test]
fn an_abort_at_the_start_of_a_turn_takes_nothing_from_the_queue() {
    // I4, I6: the message was leased, but not told; `continue` finds it at its place, before what came later.
    check(Contract {
        name: "abort-at-turn-start",
        scenario: json!({
            "responses": [says("one"), says("two"), says("three")],
            "triggers": [
                at("message_update", 1, &json!([{ "steer": "s1" }])),
                at("turn_start", 2, &json!([{ "steer": "s2" }, { "abort": true }])),
            ],
            "steps": [{ "prompt": "go" }, { "continue": true }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/stop) te ts ms(a) me(a/aborted) te ae | \
                 as ts ms(u:s1) me(u:s1) ms(a) me(a/stop) te ts ms(u:s2) me(u:s2) ms(a) me(a/stop) te ae",
        requests: 3,
    });
}

#[test]
fn an_abort_while_messages_are_told_keeps_those_that_were_begun() {
    check(Contract {
        name: "abort-while-injecting",
        scenario: json!({
            "setup": { "steeringMode": "all" },
            "responses": [says("one"), says("two")],
            "triggers": [
                at("message_update", 1, &json!([{ "steer": "s1" }, { "steer": "s2" }])),
                at("message_start", 3, &abort()),
            ],
            "steps": [{ "prompt": "go" }, { "continue": true }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/stop) te ts ms(u:s1) me(u:s1) ms(a) me(a/aborted) te ae | \
                 as ts ms(u:s2) me(u:s2) ms(a) me(a/stop) te ae",
        requests: 2,
    });
}

#[test]
fn an_abort_at_the_last_turn_end_leaves_the_follow_up_queued() {
    check(Contract {
        name: "abort-at-last-turn-end",
        scenario: json!({
            "responses": [says("one"), says("two")],
            "triggers": [at("turn_end", 1, &json!([{ "followUp": "f1" }, { "abort": true }]))],
            "steps": [{ "prompt": "go" }, { "continue": true }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/stop) te ae | as ts ms(u:f1) me(u:f1) ms(a) me(a/stop) te ae",
        requests: 2,
    });
}

#[test]
fn an_abort_before_the_request_is_aborted_not_failed() {
    // C069
    let aborted_at = |event: &str| {
        json!({
            "responses": [says("never")],
            "triggers": [at(event, 1, &abort())],
            "steps": [{ "prompt": "go" }],
        })
    };
    for event in ["agent_start", "turn_start", "message_start", "message_end"] {
        check(Contract {
            name: "abort-before-request",
            scenario: aborted_at(event),
            events: "as ts ms(u:go) me(u:go) ms(a) me(a/aborted) te ae",
            requests: 0,
        });
    }
}

#[test]
fn an_abort_while_the_model_speaks_keeps_what_it_said() {
    // C011
    for (event, nth) in [("message_start", 2), ("message_update", 1), ("message_update", 2)] {
        check(Contract {
            name: "abort-while-streaming",
            scenario: json!({
                "responses": [says("one")],
                "triggers": [at(event, nth, &abort())],
                "steps": [{ "prompt": "go" }],
            }),
            events: "as ts ms(u:go) me(u:go) ms(a) me(a/aborted) te ae",
            requests: 1,
        });
    }
}

#[test]
fn an_abort_after_the_answer_runs_none_of_its_calls() {
    check(Contract {
        name: "abort-at-answer-end",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }] },
            "responses": [calls(&["a", "b"], &tool_use())],
            "triggers": [at("message_end", 2, &abort())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xe(a!) xs(b) xe(b!) \
                 ms(r:a) me(r:a) ms(r:b) me(r:b) te ts ms(a) me(a/aborted) te ae",
        requests: 1,
    });
}

#[test]
fn an_abort_during_the_preflight_starts_no_tool() {
    // C007
    check(Contract {
        name: "abort-in-preflight",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }] },
            "responses": [calls(&["a", "b"], &tool_use())],
            "triggers": [at("tool_execution_start", 2, &abort())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xs(b) xe(a!) xe(b!) \
                 ms(r:a) me(r:a) ms(r:b) me(r:b) te ts ms(a) me(a/aborted) te ae",
        requests: 1,
    });
}

#[test]
fn an_abort_in_a_sequential_batch_starts_no_further_tool() {
    // C008, C012, C013: the real result is kept, no model is asked, no queue is drained.
    check(Contract {
        name: "abort-in-sequential-batch",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }], "toolExecution": "sequential" },
            "responses": [calls(&["a", "b"], &tool_use()), says("two"), says("three")],
            "triggers": [at("tool_execution_end", 1, &json!([{ "steer": "s1" }, { "followUp": "f1" }, { "abort": true }]))],
            "steps": [{ "prompt": "go" }, { "continue": true }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xe(a) ms(r:a) me(r:a) xs(b) xe(b!) ms(r:b) me(r:b) te \
                 ts ms(a) me(a/aborted) te ae | \
                 as ts ms(u:s1) me(u:s1) ms(a) me(a/stop) te ts ms(u:f1) me(u:f1) ms(a) me(a/stop) te ae",
        requests: 3,
    });
}

#[test]
fn an_abort_keeps_the_result_of_a_call_that_has_ended() {
    // C010, C035: `b` never ends.
    check(Contract {
        name: "abort-beside-stuck-tool",
        scenario: json!({
            "setup": { "tools": [{ "name": "t", "calls": { "b": { "after": "never" } } }] },
            "responses": [calls(&["a", "b"], &tool_use())],
            "triggers": [at("tool_execution_end", 1, &abort())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xs(b) xe(a) xe(b!) \
                 ms(r:a) me(r:a) ms(r:b) me(r:b) te ts ms(a) me(a/aborted) te ae",
        requests: 1,
    });
}

#[test]
fn an_abort_takes_the_result_that_a_tool_gives_at_once() {
    // Both have begun when the second reports; the first ends when it is told to, the second never.
    check(Contract {
        name: "abort-with-cooperative-tool",
        scenario: json!({
            "setup": { "tools": [{ "name": "t", "calls": {
                "a": { "untilAbort": true },
                "b": { "updates": ["begun"], "after": "never" },
            } }] },
            "responses": [calls(&["a", "b"], &tool_use())],
            "triggers": [at("tool_execution_update", 1, &abort())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xs(b) xu(b) xe(a) xe(b!) \
                 ms(r:a) me(r:a) ms(r:b) me(r:b) te ts ms(a) me(a/aborted) te ae",
        requests: 1,
    });
}

#[test]
fn an_abort_while_results_are_told_tells_them_all() {
    for (event, nth) in [
        ("message_start", 3),
        ("message_end", 3),
        ("message_end", 4),
        ("turn_end", 1),
    ] {
        check(Contract {
            name: "abort-while-results-are-told",
            scenario: json!({
                "setup": { "tools": [{ "name": "t" }] },
                "responses": [calls(&["a", "b"], &tool_use())],
                "triggers": [at(event, nth, &abort())],
                "steps": [{ "prompt": "go" }],
            }),
            events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xs(b) xe(a) xe(b) \
                     ms(r:a) me(r:a) ms(r:b) me(r:b) te ts ms(a) me(a/aborted) te ae",
            requests: 1,
        });
    }
}

#[test]
fn an_abort_of_a_terminated_batch_closes_the_run_too() {
    let result = json!({ "content": [], "details": {}, "terminate": true });
    check(Contract {
        name: "abort-of-terminated-batch",
        scenario: json!({
            "setup": { "tools": [{ "name": "t", "calls": { "a": { "result": result } } }] },
            "responses": [calls(&["a"], &tool_use())],
            "triggers": [at("turn_end", 1, &abort())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xe(a) ms(r:a) me(r:a) te ts ms(a) me(a/aborted) te ae",
        requests: 1,
    });
}

#[test]
fn calls_that_the_output_limit_cut_are_answered_one_by_one_and_not_run() {
    // C004
    check(Contract {
        name: "length-with-calls",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }] },
            "responses": [calls(&["a", "b"], &json!({ "type": "done", "reason": "length" })), says("END")],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/length) xs(a) xe(a!) ms(r:a) me(r:a) xs(b) xe(b!) ms(r:b) me(r:b) te \
                 ts ms(a) me(a/stop) te ae",
        requests: 2,
    });
}

#[test]
fn the_calls_count_and_not_the_stop_reason() {
    // C062, C063, C064
    check(Contract {
        name: "stop-with-calls",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }] },
            "responses": [calls(&["a"], &json!({ "type": "done", "reason": "stop" })), calls(&[], &tool_use())],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/stop) xs(a) xe(a) ms(r:a) me(r:a) te ts ms(a) me(a/toolUse) te ae",
        requests: 2,
    });
    let failure = json!({ "type": "error", "reason": "error", "errorMessage": "refused" });
    check(Contract {
        name: "error-with-calls",
        scenario: json!({
            "setup": { "tools": [{ "name": "t" }] },
            "responses": [calls(&["a"], &failure)],
            "triggers": [at("turn_end", 1, &json!([{ "steer": "s1" }]))],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/error) te ae",
        requests: 1,
    });
}

#[test]
fn odd_streams_end_in_one_message() {
    // C014, C066, C068, C085
    let (start, done) = (json!({ "type": "start" }), json!({ "type": "done", "reason": "stop" }));
    let open = json!({ "type": "text_start", "contentIndex": 0 });
    let delta = json!({ "type": "text_delta", "contentIndex": 0, "delta": "x" });
    for (name, response, stop) in [
        ("no-terminal-event", json!([start, open, delta]), "error"),
        ("nothing", json!([]), "error"),
        ("no-start", json!([open, delta, done]), "stop"),
        ("late-start", json!([open, start, delta, start, done]), "stop"),
        (
            "after-the-end",
            json!([start, open, done, delta, { "type": "error", "reason": "error" }]),
            "stop",
        ),
        ("delta-without-block", json!([start, delta, done]), "error"),
    ] {
        let events = match stop {
            "stop" => "as ts ms(u:go) me(u:go) ms(a) me(a/stop) te ae",
            _ => "as ts ms(u:go) me(u:go) ms(a) me(a/error) te ae",
        };
        check(Contract {
            name,
            scenario: json!({ "responses": [response], "steps": [{ "prompt": "go" }] }),
            events,
            requests: 1,
        });
    }
}

#[test]
fn arguments_that_cannot_be_read_are_an_error_of_their_call_alone() {
    // C005, C006, C087
    let call = |id: &str, index: usize, text: &str| {
        [
            json!({ "type": "toolcall_start", "contentIndex": index, "id": id, "toolName": "t" }),
            json!({ "type": "toolcall_delta", "contentIndex": index, "delta": text }),
        ]
    };
    let mut items = vec![json!({ "type": "start" })];
    items.extend(call("a", 0, r#"{"path":"/etc"#));
    items.push(json!({ "type": "toolcall_end", "contentIndex": 0 }));
    items.extend(call("b", 1, " "));
    items.push(json!({ "type": "toolcall_end", "contentIndex": 1 }));
    // Still open at the end.
    items.extend(call("c", 2, r#"{"path":"/etc"}"#));
    items.push(tool_use());
    check(Contract {
        name: "unreadable-arguments",
        scenario: json!({
            "setup": { "tools": [{ "name": "t", "calls": { "b": { "after": "a" }, "c": { "after": "b" } } }] },
            "responses": [items, says("END")],
            "steps": [{ "prompt": "go" }],
        }),
        events: "as ts ms(u:go) me(u:go) ms(a) me(a/toolUse) xs(a) xe(a!) xs(b) xs(c) xe(b) xe(c) \
                 ms(r:a) me(r:a) ms(r:b) me(r:b) ms(r:c) me(r:c) te ts ms(a) me(a/stop) te ae",
        requests: 2,
    });
}
