//! The comparison itself, tried on recorded fixtures that were tampered with, and on small batches.

use serde_json::{Value, json};

use crate::batch::ParallelBatch;
use crate::compare::{Observed, Outcome, compare, compare_events};
use crate::fixture::{Fixture, Setup};
use crate::loader::load_own;

fn fixtures() -> Vec<Fixture> {
    let loaded = load_own("loop").unwrap();
    loaded.into_iter().map(|one| one.fixture).collect()
}

fn fixture(name: &str) -> Fixture {
    let mut fixtures = fixtures().into_iter();
    fixtures.find(|fixture| fixture.name == name).unwrap()
}

/// The observation of an engine that does exactly what the fixture expects.
fn as_expected(fixture: &Fixture) -> Observed {
    let expect = &fixture.expect;
    let outcomes = expect.outcomes.iter().map(|outcome| Outcome {
        nested: outcome.nested,
        accepted: outcome.accepted,
        events: outcome.events.unwrap_or(0),
    });
    Observed {
        events: expect.events.clone(),
        requests: expect.requests.clone(),
        outcomes: outcomes.collect(),
        state: expect.state.clone(),
    }
}

type Mistake = fn(&mut Observed);

/// What the comparison says to an engine that does the expected with a mistake.
fn with_mistake(fixture: &Fixture, mistake: impl FnOnce(&mut Observed)) -> Result<(), String> {
    let mut observed = as_expected(fixture);
    mistake(&mut observed);
    compare(fixture, observed)
}

#[test]
fn every_fixture_agrees_with_itself() {
    for fixture in fixtures() {
        compare(&fixture, as_expected(&fixture)).unwrap();
    }
}

#[test]
fn no_dropped_or_doubled_event_passes() {
    for fixture in fixtures() {
        let expected = &fixture.expect.events;
        let refused = |got: &[Value]| compare_events(&fixture.setup, expected, got).is_err();
        let mut got = expected.clone();
        for (index, event) in expected.iter().enumerate() {
            got.insert(index, event.clone());
            assert!(refused(&got), "{}: twice {index}", fixture.name);
            got.drain(index..index + 2);
            assert!(refused(&got), "{}: without {index}", fixture.name);
            got.insert(index, event.clone());
        }
    }
}

/// Swapping neighbours passes only if both are tool events of different calls of a parallel batch.
#[test]
fn no_swap_passes_outside_of_a_parallel_batch() {
    let mut passed = 0;
    for fixture in fixtures() {
        let expected = &fixture.expect.events;
        let mut got = expected.clone();
        for index in 1..expected.len() {
            let (a, b) = (&expected[index - 1], &expected[index]);
            got.swap(index - 1, index);
            if a != b && compare_events(&fixture.setup, expected, &got).is_ok() {
                assert!(is_tool(a) && is_tool(b), "{}: {index}", fixture.name);
                assert_ne!(a["toolCallId"], b["toolCallId"], "{}: {index}", fixture.name);
                passed += 1;
            }
            got.swap(index - 1, index);
        }
    }
    assert!(passed > 0, "the freedom was never used");
}

fn is_tool(event: &Value) -> bool {
    event["type"].as_str().unwrap().starts_with("tool_execution_")
}

#[test]
fn a_sequential_batch_has_one_order() {
    let fixture = fixture("sequential-config");
    let second_starts_early = with_mistake(&fixture, |observed| {
        let events = &mut observed.events;
        let is_start = |event: &Value| event["type"] == "tool_execution_start";
        let first = events.iter().position(is_start).unwrap();
        let second = events.iter().rposition(is_start).unwrap();
        events[first + 1..=second].rotate_right(1);
    });
    assert!(second_starts_early.unwrap_err().contains("events["));
}

#[test]
fn the_report_names_the_place() {
    let fixture = fixture("text-reply");
    let report = with_mistake(&fixture, |observed| {
        observed.events[2]["message"]["content"][0]["text"] = json!("other");
    });
    let report = report.unwrap_err();
    assert!(report.starts_with("text-reply"), "{report}");
    assert!(
        report.contains("events[2] differs at `/message/content/0/text`"),
        "{report}"
    );
    assert!(report.contains("\"other\""), "{report}");
}

#[test]
fn requests_outcomes_and_state_are_compared() {
    let fixture = fixture("two-prompts");
    let mistakes: [(&str, Mistake); 5] = [
        ("requests[1]", |seen| seen.requests.truncate(1)),
        ("requests[0]", |seen| seen.requests[0].messages.clear()),
        ("outcomes", |seen| seen.outcomes[0].events += 1),
        ("outcomes", |seen| seen.outcomes[1].accepted = false),
        ("state", |seen| seen.state.is_streaming = true),
    ];
    for (part, mistake) in mistakes {
        let report = with_mistake(&fixture, mistake).unwrap_err();
        assert!(report.contains(part), "{part}: {report}");
    }
}

/// A batch in short: `"S1"`, `"U1"`, `"E1"` are start, update and end of call `1`; `"E1x"` is an end with result `x`,
/// and `"R1x"` the result message.
fn events(short: &str) -> Vec<Value> {
    let event = |word: &str| {
        let (kind, id, rest) = (&word[..1], &word[1..2], &word[2..]);
        let text = json!([{ "type": "text", "text": rest }]);
        match kind {
            "S" => {
                json!({ "type": "tool_execution_start", "toolCallId": id, "toolName": "t", "args": { "a": rest } })
            }
            "U" => {
                json!({ "type": "tool_execution_update", "toolCallId": id, "toolName": "t", "args": { "a": "" }, "partialResult": rest })
            }
            "E" => {
                json!({ "type": "tool_execution_end", "toolCallId": id, "toolName": "t", "result": { "content": text }, "isError": false })
            }
            _ => {
                json!({ "type": "message_start", "message": { "role": "toolResult", "content": text, "isError": false } })
            }
        }
    };
    short.split_whitespace().map(event).collect()
}

/// Whether the batch may come in the order of `got`; if not, the index where it fails.
fn order(expected: &str, got: &str, calls: &Value) -> Result<(), usize> {
    let setup = json!({ "tools": [{ "name": "t", "calls": calls }] });
    let setup: Setup = serde_json::from_value(setup).unwrap();
    let expected = events(expected);
    let batch = ParallelBatch::at(&expected, 0).unwrap();
    batch.accepts(&setup, &events(got))
}

#[test]
fn a_parallel_batch_may_be_permuted() {
    let expected = "S1 S2 S3 U2x U2y E1 E3 E2";
    for got in ["S1 E1 S2 U2x S3 U2y E2 E3", "S1 S2 S3 E3 E1 U2x U2y E2", expected] {
        assert_eq!(order(expected, got, &json!({})), Ok(()), "{got}");
    }
}

#[test]
fn starts_and_each_call_keep_their_order() {
    let expected = "S1 S2 U1x U1y E1 E2";
    for (got, index) in [
        ("S2 S1 U1x U1y E1 E2", 0),
        ("S1 S2 U1y U1x E1 E2", 2),
        ("S1 S2 U1x E1 U1y E2", 3),
        ("S1 E2 S2 U1x U1y E1", 1),
        ("S1 S2 U1x U1y E1", 5),
        ("S1 S2 U1x U1y E1 E1", 5),
    ] {
        assert_eq!(order(expected, got, &json!({})), Err(index), "{got}");
    }
}

#[test]
fn a_call_ends_after_the_one_it_waits_for() {
    let calls = json!({ "1": { "after": "2" }, "2": { "after": "0" } });
    assert_eq!(order("S1 S2 E2 E1", "S1 S2 E2 E1", &calls), Ok(()));
    assert_eq!(order("S1 S2 E2 E1", "S1 S2 E1 E2", &calls), Err(2));
}

#[test]
fn calls_with_the_same_id_are_told_apart_by_what_they_do() {
    // The ends carry no arguments; the result messages tell whose they are.
    let expected = "S1 S1z U1x E1a E1b R1b R1a";
    assert_eq!(order(expected, "S1 S1z E1a U1x E1b", &json!({})), Ok(()));
    assert_eq!(order(expected, "S1 S1z E1b U1x E1a", &json!({})), Err(2));
    // Calls that are wholly alike: any attribution will do, if there is one.
    let expected = "S1 S1 U1x U1y U1x U1x U1y U1x E1 E1";
    for (got, accepted) in [
        ("S1 U1x U1y U1x E1 S1 U1x U1y U1x E1", true),
        ("S1 S1 U1x U1y U1x U1y U1x E1 U1x E1", true),
        ("S1 S1 U1x U1x U1y U1y U1x U1x E1 E1", true),
        ("S1 S1 U1x U1x U1x U1y U1y U1x E1 E1", false),
        ("S1 S1 U1x U1y E1 U1x U1x U1y U1x E1", false),
    ] {
        assert_eq!(order(expected, got, &json!({})).is_ok(), accepted, "{got}");
    }
}

#[test]
fn one_call_at_a_time_is_no_parallel_batch() {
    for sequential in ["S1 U1x E1 R1 S2 E2 R2", "S1 E1", "E1 S1 S2 E2", "R1", ""] {
        assert!(ParallelBatch::at(&events(sequential), 0).is_none(), "{sequential}");
    }
}
