//! The agent's other verbs: retry, stop after this turn, the limit of turns.

use turnstate::machine::RunEnd;
use turnstate::{Agent, Message, StartError};

use super::drive::drive;
use super::harness::{Rig, calls, messages, quick, say, until};

/// Retry drops the failed or aborted answer, whatever is queued, and goes on from before it.
#[test]
fn s47_retry_goes_on_from_before_the_failure() {
    for aborted in [false, true] {
        for queued in [false, true] {
            let broken = if aborted {
                say("half").silence()
            } else {
                say("half").fail("down")
            };
            let rig = Rig::new([broken, say("1"), say("2"), say("3")], |agent, _| agent);
            let mut run = rig.start("go");
            if aborted {
                run.stall();
                rig.agent.abort();
            }
            run.finish();
            rig.saw(&format!(
                "as ts ms(u) me(u) ms(a) me(a/{0}) te({0})[0] ae[2]",
                if aborted { "aborted" } else { "error" }
            ));
            if queued {
                rig.agent.follow_up("f");
                rig.agent.steer("s");
            }
            drive(rig.agent.retry().unwrap());
            if queued {
                rig.saw(
                    "as ts ms(u s) me(u s) ms(a) me(a/stop) te(stop)[0] ts ms(u f) me(u f) ms(a) me(a/stop) te(stop)[0] \
                     ae[4]",
                );
                assert_eq!(rig.transcript(), "u, u s, a/stop, u f, a/stop");
            } else {
                rig.saw("as ts ms(a) me(a/stop) te(stop)[0] ae[1]");
                assert_eq!(rig.transcript(), "u, a/stop");
            }
            assert_eq!(rig.agent.error_message(), None);
            assert_eq!(rig.agent.retry().unwrap_err(), StartError::NothingToRetry);
        }
    }
}

/// Retry behind an abort among tools answers their results.
#[test]
fn s47_retry_answers_the_results_of_an_aborted_batch() {
    let rig = Rig::new([calls("a:t"), say("END")], |agent, _| agent.tool(quick("t")));
    rig.at("xs(a)", Agent::abort);
    rig.prompt("go");
    assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/aborted");
    drive(rig.agent.retry().unwrap());
    assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/stop");
    assert_eq!(rig.sent(1), "u, a/toolUse, r a");
}

/// Retry that fails again can be retried; one that is dropped unpolled has dropped nothing.
#[test]
fn s47_retry_of_a_retry() {
    let rig = Rig::new([say("x").fail("1"), say("x").fail("2"), say("END")], |agent, _| agent);
    rig.prompt("go");
    drop(rig.agent.retry().unwrap());
    assert_eq!(
        (rig.transcript(), rig.agent.error_message().as_deref()),
        ("u, a/error".into(), Some("1"))
    );
    drive(rig.agent.retry().unwrap());
    assert_eq!(
        (rig.transcript(), rig.agent.error_message().as_deref()),
        ("u, a/error".into(), Some("2"))
    );
    drive(rig.agent.retry().unwrap());
    assert_eq!(rig.transcript(), "u, a/stop");
}

/// Retry of an answer behind another answer (the stop hook failed): what is queued, else a typed error; nothing changed.
#[test]
fn s47_retry_with_nothing_to_go_on_from() {
    let rig = Rig::new([say("1"), say("2")], |agent, _| {
        agent.should_stop_after_turn(async |turn| match turn.transcript.len() {
            2 => Err("cannot tell"),
            _ => Ok(false),
        })
    });
    rig.prompt("go");
    rig.saw("as ts ms(u) me(u) ms(a) me(a/stop) te(stop)[0] ts ms(a) me(a/error) te(error)[0] ae[3]");
    assert_eq!(rig.agent.retry().unwrap_err(), StartError::NothingToContinue);
    assert_eq!(rig.transcript(), "u, a/stop, a/error");
    assert_eq!(rig.agent.error_message().as_deref(), Some("cannot tell"));
    rig.agent.follow_up("f");
    drive(rig.agent.retry().unwrap());
    assert_eq!(rig.transcript(), "u, a/stop, u f, a/stop");
}

/// The typed errors of an agent with nothing to say.
#[test]
fn s47_what_cannot_begin() {
    let rig = Rig::new([], |agent, _| agent);
    assert_eq!(rig.agent.continue_run().unwrap_err(), StartError::EmptyTranscript);
    assert_eq!(rig.agent.retry().unwrap_err(), StartError::NothingToRetry);
    assert_eq!(
        rig.agent.prompt(Vec::<Message>::new()).unwrap_err(),
        StartError::EmptyPrompt
    );
    rig.saw("");
    assert!(!rig.agent.is_streaming());
}

/// `continue` with an empty transcript is refused though something is queued, which stays.
#[test]
fn c044_continue_from_nothing() {
    let rig = Rig::new([], |agent, _| agent);
    rig.agent.steer("s");
    assert_eq!(rig.agent.continue_run().unwrap_err(), StartError::EmptyTranscript);
    assert!(rig.agent.has_queued());
}

/// `continue` behind a user message or a result goes on as is, and polls steering.
#[test]
fn c044_continue_behind_a_user_message_or_a_result() {
    let call = serde_json::json!({"type": "toolCall", "id": "a", "name": "t", "arguments": {}});
    let answer = serde_json::json!({"role": "assistant", "stopReason": "toolUse", "content": [call]});
    let result = serde_json::json!({"role": "toolResult", "toolCallId": "a", "toolName": "t", "content": []});
    for history in [vec![], vec![answer, result]] {
        let user = serde_json::json!({"role": "user", "content": "go"});
        let history = messages(std::iter::once(user).chain(history).collect());
        let len = history.len();
        let rig = Rig::new([say("END")], |agent, _| agent.transcript(history));
        rig.agent.steer("s");
        rig.go_on();
        rig.saw("as ts ms(u s) me(u s) ms(a) me(a/stop) te(stop)[0] ae[2]");
        assert_eq!(rig.agent.transcript().len(), len + 2);
    }
}

/// Stop after this turn is the run's, and forgotten with it; without a run it is nothing.
#[test]
fn c047_stop_after_turn_is_forgotten_when_the_run_ends() {
    let rig = Rig::new([calls("a:t"), calls("b:t"), say("2"), say("3")], |agent, _| {
        agent.tool(quick("t"))
    });
    rig.agent.stop_after_turn();
    rig.at("xs(a)", Agent::stop_after_turn);
    assert_eq!(rig.prompt("go").end, RunEnd::Stopped);
    rig.saw_at_last("te(toolUse)[1] ae[3]");
    // Called when the run was over but its last listeners were not.
    rig.at("ae[3]", Agent::stop_after_turn);
    assert_eq!(rig.go_on().end, RunEnd::Completed);
    assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/toolUse, r b, a/stop");
    // Called before the first poll it counts.
    let run = rig.agent.prompt("go").unwrap();
    rig.agent.stop_after_turn();
    rig.agent.follow_up("f");
    assert_eq!(drive(run).end, RunEnd::Stopped);
}

/// The limit ends a run where it would go on, and only there.
#[test]
fn i2_the_limit_of_turns() {
    let script = || [calls("a:t"), say("1"), say("2")];
    for (max, end) in [(1, RunEnd::Limit), (2, RunEnd::Completed), (3, RunEnd::Completed)] {
        let rig = Rig::new(script(), |agent, _| {
            agent.tool(quick("t")).max_turns(max.try_into().unwrap())
        });
        assert_eq!(rig.prompt("go").end, end, "{max}");
    }
    for queued in ["s", "f"] {
        let rig = Rig::new(script(), |agent, _| {
            agent.tool(quick("t")).max_turns(2.try_into().unwrap())
        });
        rig.at("ms(r a)", |_| {});
        let mut run = rig.agent.prompt("go").unwrap();
        until(&mut run, "me(a/stop)");
        match queued {
            "s" => rig.agent.steer("x"),
            _ => rig.agent.follow_up("x"),
        };
        assert_eq!(drive(run).end, RunEnd::Limit);
        rig.saw_at_last("me(a/stop) te(stop)[0] ae[4]");
        assert!(rig.agent.has_queued());
        // And the next run has its own turns.
        rig.go_on();
        assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/stop, u x, a/stop");
    }
}
