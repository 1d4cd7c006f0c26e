//! A batch of tool calls.

use std::num::NonZeroUsize;

use turnstate::machine::{
    AfterAnswer, AfterSteering, AwaitingSteering, ExecutingTools, ExecutionMode, Limits, PreflightCall, RunningCall,
    ToolAction,
};
use turnstate::{AgentEvent, AssistantEvent, DoneReason, Message, ToolResult, Transcript};

use crate::driver::model;
use crate::script::Script;
use crate::words::{calls, calls_then, line, names, no_arguments, text, user};

/// What was heard of the first batch.
fn batch(mut script: Script) -> String {
    script.prompt();
    let heard = script.heard();
    let begin = heard.find("xs(").expect("a call was announced");
    let end = heard.find("te(").expect("the turn ended");
    heard[begin..end].trim_end().to_owned()
}

fn script(ids: &[&str], mode: ExecutionMode) -> Script {
    let mut script = Script::answers([calls(ids), text()]);
    script.mode = mode;
    script
}

/// C039: ends in completion order, results in call order; nothing runs before all are checked.
#[test]
fn in_parallel() {
    let mut script = script(&["a", "b", "c"], ExecutionMode::Parallel);
    script.last_first = true;
    assert_eq!(
        batch(script),
        "xs(a) ?check(a) xs(b) ?check(b) xs(c) ?check(c) ?run(a) ?run(b) ?run(c) xe(c) xe(b) xe(a) \
         ms(r a) me(r a) ms(r b) me(r b) ms(r c) me(r c)"
    );
}

/// C052: what is not allowed ends before the next is announced.
#[test]
fn a_rejected_call_ends_during_preflight() {
    let mut script = script(&["a", "b", "c"], ExecutionMode::Parallel);
    script.rejected = vec!["b"];
    assert_eq!(
        batch(script),
        "xs(a) ?check(a) xs(b) ?check(b) xe(b!) xs(c) ?check(c) ?run(a) ?run(c) xe(a) xe(c) \
         ms(r a) me(r a) ms(r b!) me(r b!) ms(r c) me(r c)"
    );
}

/// C071: each call whole, with its result, before the next.
#[test]
fn in_sequence() {
    let mut script = script(&["a", "b", "c"], ExecutionMode::Sequential);
    script.rejected = vec!["b"];
    assert_eq!(
        batch(script),
        "xs(a) ?check(a) ?run(a) xe(a) ms(r a) me(r a) xs(b) ?check(b) xe(b!) ms(r b!) me(r b!) \
         xs(c) ?check(c) ?run(c) xe(c) ms(r c) me(r c)"
    );
}

#[test]
fn a_cap_bounds_how_many_run_at_once() {
    let mut script = script(&["a", "b", "c"], ExecutionMode::Parallel);
    script.cap = NonZeroUsize::new(2);
    script.last_first = true;
    assert_eq!(
        batch(script),
        "xs(a) ?check(a) xs(b) ?check(b) xs(c) ?check(c) ?run(a) ?run(b) xe(b) ?run(c) xe(c) xe(a) \
         ms(r a) me(r a) ms(r b) me(r b) ms(r c) me(r c)"
    );
}

/// C004: a message that the output limit cut has its calls answered one by one, and none is asked about.
#[test]
fn calls_of_a_cut_message_are_not_run() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let cut = calls_then(&["a", "b"], AssistantEvent::done(DoneReason::Length));
        let mut script = Script::answers([cut, text()]);
        script.mode = mode;
        let over = script.prompt();
        assert_eq!(
            script.heard(),
            "as ts ms(u go) me(u go) ?steering ?model(u go) ms(a) me(a/length) xs(a) xe(a!) ms(r a!) me(r a!) \
             xs(b) xe(b!) ms(r b!) me(r b!) te(length)[2] ?stop ?steering ts ?model(u go, a/length, r a!, r b!) \
             ms(a) me(a/stop) te(stop)[0] ?stop ?steering ?follow_ups ae[5]"
        );
        let result = over.added[2].as_tool_result().expect("a result");
        assert!(result.text().contains("output token limit"), "{}", result.text());
        assert_eq!(result.details, Some(serde_json::json!({})));
    }
}

/// C018: updates come in the order reported, and those of a call that does not run are dropped.
#[test]
fn late_news_is_no_news() {
    let mut script = script(&["a", "b"], ExecutionMode::Sequential);
    script.updates = [0, 1, 0, 5].into();
    assert_eq!(
        batch(script),
        "xs(a) ?check(a) ?run(a) xu(a) xu(a) xe(a) ms(r a) me(r a) xs(b) ?check(b) ?run(b) xe(b) ms(r b) me(r b)"
    );
}

/// Ids need not be unique, nor there at all: calls are told apart by position.
#[test]
fn calls_of_one_id_are_answered_by_position() {
    let mut script = script(&["x", "x", ""], ExecutionMode::Parallel);
    script.last_first = true;
    let over = script.prompt();
    let ends = over.told.iter().filter_map(|event| match event {
        AgentEvent::ToolExecutionEnd { index, .. } => Some(*index),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(names(&over.added), "u go, a/toolUse, r x, r x, r , a/stop");
}

/// A batch of calls with these ids that was just begun, and everything told before it.
fn begun(ids: &[&str], mode: ExecutionMode) -> ExecutingTools<Message> {
    let mut run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], Limits::default());
    while run.poll_event().is_some() {}
    let AfterSteering::Requesting(request) = run.handle_steering(vec![]) else {
        panic!("the first turn is open")
    };
    let mut streaming = request.stream(&model(), 0);
    let end = calls(ids)
        .into_iter()
        .find_map(|event| streaming.handle(event).break_value());
    let AfterAnswer::ExecutingTools(batch) = streaming.finish(end.expect("the answer ends"), 0) else {
        panic!("the answer has calls")
    };
    let mut batch = batch.with_mode(mode, None);
    while batch.poll_event().is_some() {}
    batch
}

fn told(batch: &mut ExecutingTools<Message>) -> String {
    line(&std::iter::from_fn(|| batch.poll_event()).collect::<Vec<_>>())
}

/// The next call to be checked; its start is told.
fn check(batch: &mut ExecutingTools<Message>) -> PreflightCall {
    // What the call before left to tell, and the start of this one.
    for _ in 0..3 {
        match batch.poll_action() {
            ToolAction::Tell => assert_ne!(told(batch), "", "there is something to tell"),
            ToolAction::Preflight(call) => return call,
            other => panic!("no call to check but {other:?}"),
        }
    }
    panic!("no call to check")
}

/// The next call to be run.
fn run(batch: &mut ExecutingTools<Message>) -> RunningCall {
    match batch.poll_action() {
        ToolAction::Execute(call) => call.start().0,
        other => panic!("no call to run but {other:?}"),
    }
}

/// A batch whose calls all run (in sequence: whose first call runs).
fn running(ids: &[&str], mode: ExecutionMode) -> (ExecutingTools<Message>, Vec<RunningCall>) {
    let mut batch = begun(ids, mode);
    let first = if mode == ExecutionMode::Sequential {
        1
    } else {
        ids.len()
    };
    for _ in 0..first {
        let call = check(&mut batch);
        batch.allow(call, no_arguments());
    }
    let running = (0..first).map(|_| run(&mut batch)).collect();
    (batch, running)
}

/// C072: hooks see the message with the calls last, in sequence too.
#[test]
fn results_of_the_batch_are_not_in_its_context() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let (mut batch, running) = running(&["a", "b"], mode);
        assert_eq!(names(batch.context().iter()), "u go, a/toolUse");
        for call in running {
            batch.complete(call, "done".into(), 0);
        }
        while batch.poll_event().is_some() {}
        assert_eq!(names(batch.context().iter()), "u go, a/toolUse");
    }
}

#[test]
fn the_mode_is_fixed_once_a_call_was_announced() {
    let mut batch = begun(&["a", "b"], ExecutionMode::Parallel);
    let call = check(&mut batch);
    batch = batch.with_mode(ExecutionMode::Sequential, None);
    batch.allow(call, no_arguments());
    assert!(matches!(batch.poll_action(), ToolAction::Tell));
    assert_eq!(
        told(&mut batch),
        "xs(b)",
        "the second is announced before the first is run"
    );
}

/// Calls are checked one after the other, and a witness says which it is.
#[test]
fn nothing_happens_while_a_call_is_checked() {
    for mode in [ExecutionMode::Parallel, ExecutionMode::Sequential] {
        let mut batch = begun(&["a", "a", "a"], mode);
        for index in 0..3 {
            let call = check(&mut batch);
            assert_eq!(call.index(), index);
            assert!(matches!(batch.poll_action(), ToolAction::Wait));
            assert_eq!(told(&mut batch), "");
            batch.reject(call, ToolResult::error("no"), 0);
        }
        assert!(matches!(batch.poll_action(), ToolAction::Tell));
    }
}

/// C007: abort during the preflight of a later call: none is run.
#[test]
fn abort_during_preflight() {
    let mut batch = begun(&["a", "b", "c"], ExecutionMode::Parallel);
    let call = check(&mut batch);
    batch.allow(call, no_arguments());
    let second = check(&mut batch);
    assert!(!batch.is_aborted());
    batch.abort(0);
    assert!(batch.is_aborted());
    assert_eq!(
        told(&mut batch),
        "xe(a!) xe(b!) xs(c) xe(c!) ms(r a!) me(r a!) ms(r b!) me(r b!) ms(r c!) me(r c!)"
    );
    batch.allow(second, no_arguments());
    assert!(
        matches!(batch.poll_action(), ToolAction::Finish),
        "an answer that comes late changes nothing"
    );
}

/// C010, C035: what runs at an abort may give its result; what does not is answered; what is finished stays.
#[test]
fn abort_while_calls_run() {
    let (mut batch, mut calls) = running(&["a", "b", "c"], ExecutionMode::Parallel);
    batch.complete(calls.remove(1), "b".into(), 0);
    batch.abort(0);
    assert!(matches!(batch.poll_action(), ToolAction::Tell));
    assert_eq!(told(&mut batch), "xe(b)");
    assert!(matches!(batch.poll_action(), ToolAction::Wait));
    batch.complete(calls.remove(1), "c".into(), 0);
    assert_eq!(told(&mut batch), "xe(c)");
    let mut turn = batch.finish(0);
    let events: Vec<_> = std::iter::from_fn(|| turn.poll_event()).collect();
    assert_eq!(
        line(&events),
        "xe(a!) ms(r a!) me(r a!) ms(r b) me(r b) ms(r c) me(r c) te(toolUse)[3]"
    );
    assert_eq!(names(turn.new_messages()), "u go, a/toolUse, r a!, r b, r c");
    let aborted = turn.tool_results()[0].as_tool_result().expect("a result");
    assert_eq!(
        (aborted.text().as_str(), &aborted.details),
        ("Operation aborted", &Some(serde_json::json!({})))
    );
}

/// C008, I3: in sequence a later call is answered behind the one that runs, whether that one completes or not.
#[test]
fn abort_while_a_call_runs_in_sequence() {
    for completes in [true, false] {
        let (mut batch, mut calls) = running(&["a", "b", "c"], ExecutionMode::Sequential);
        batch.abort(0);
        assert_eq!(told(&mut batch), "");
        let mark = if completes {
            batch.complete(calls.remove(0), "a".into(), 0);
            ""
        } else {
            "!"
        };
        let mut turn = batch.finish(0);
        let events: Vec<_> = std::iter::from_fn(|| turn.poll_event()).collect();
        assert_eq!(
            line(&events),
            format!(
                "xe(a{mark}) ms(r a{mark}) me(r a{mark}) xs(b) xe(b!) ms(r b!) me(r b!) xs(c) xe(c!) ms(r c!) me(r c!) \
                 te(toolUse)[3]"
            )
        );
    }
}

/// I3: witnesses of one batch mean nothing to another.
#[test]
fn a_witness_of_another_batch_is_ignored() {
    let stale = || {
        let (_, mut calls) = running(&["a"], ExecutionMode::Parallel);
        calls.remove(0)
    };
    let (mut batch, mut calls) = running(&["a"], ExecutionMode::Parallel);
    batch.complete(stale(), "stale".into(), 0);
    assert_eq!(told(&mut batch), "");
    batch.complete(calls.remove(0), "fresh".into(), 0);
    let answers: Vec<_> = std::iter::from_fn(|| batch.poll_event()).collect();
    assert_eq!(line(&answers), "xe(a) ms(r a) me(r a)");

    let mut batch = begun(&["a"], ExecutionMode::Parallel);
    let call = check(&mut batch);
    batch.reject(
        check(&mut begun(&["a"], ExecutionMode::Parallel)),
        ToolResult::error("stale"),
        0,
    );
    batch.allow(check(&mut begun(&["a"], ExecutionMode::Parallel)), no_arguments());
    assert!(
        matches!(batch.poll_action(), ToolAction::Wait),
        "its own check is still open"
    );
    batch.allow(call, no_arguments());
    assert!(matches!(batch.poll_action(), ToolAction::Execute(_)));
}
