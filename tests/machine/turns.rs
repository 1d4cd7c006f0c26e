//! Turns, queues, ends: every transition between the phases that does not abort.

use std::num::NonZeroU32;
use std::sync::Arc;

use turnstate::machine::{AfterSteering, AwaitingSteering, Limits, RunEnd};
use turnstate::{
    AgentMessage, AssistantEvent, CustomMessage, CustomRole, DoneReason, Message, Model, QueueKind, StopReason,
    Transcript,
};

use crate::script::Script;
use crate::words::{calls, calls_then, line, names, result, said, text, text_then, user};

/// A run of this script, as heard, and its end.
fn heard(mut script: Script) -> (String, RunEnd) {
    let end = script.prompt().end;
    (script.heard(), end)
}

#[test]
fn a_run_with_one_tool() {
    let (heard, end) = heard(Script::answers([calls(&["a"]), text()]));
    assert_eq!(
        heard,
        "as ts ms(u go) me(u go) ?steering ?model(u go) ms(a) me(a/toolUse) xs(a) ?check(a) ?run(a) xe(a) \
         ms(r a) me(r a) te(toolUse)[1] ?stop ?steering ts ?model(u go, a/toolUse, r a) ms(a) me(a/stop) te(stop)[0] \
         ?stop ?steering ?follow_ups ae[4]"
    );
    assert_eq!(end, RunEnd::Completed);
}

/// I5: what a phase had not told when it was left counts in the next, which tells it first.
#[test]
fn what_was_not_told_counts_all_the_same() {
    let run = || AwaitingSteering::prompt(Transcript::new(), vec![user("go")], Limits::default());
    let AfterSteering::Requesting(mut request) = run().handle_steering(vec![user("s")]) else {
        panic!("the first turn is open")
    };
    assert_eq!(names(request.transcript().iter()), "u go");
    let told: Vec<_> = std::iter::from_fn(|| request.poll_event()).collect();
    assert_eq!(line(&told), "as ts ms(u go) me(u go) ms(u s) me(u s)");
    assert_eq!(names(request.transcript().iter()), "u go, u s");

    let AfterSteering::Requesting(request) = run().handle_steering(vec![]) else {
        panic!("the first turn is open")
    };
    let (transcript, added) = request.fail(&Model::new("m"), "no".into(), 0).into_parts();
    assert_eq!(
        (names(transcript.iter()), names(&added)),
        ("u go, a/error".into(), "u go, a/error".into())
    );
}

/// C040, C041: what is said during a batch waits for its results.
#[test]
fn steering_enters_before_the_next_request() {
    let mut script = Script::answers([calls(&["a", "b"]), text(), text()]);
    script.steering = [vec![], vec![user("s1")], vec![user("s2"), user("s3")]].into();
    assert_eq!(
        names(&script.prompt().added),
        "u go, a/toolUse, r a, r b, u s1, a/stop, u s2, u s3, a/stop"
    );
    let after_batch = script
        .heard()
        .split_once("te(toolUse)[2] ")
        .map(|(_, rest)| rest.to_owned());
    assert_eq!(
        after_batch.as_deref(),
        Some(
            "?stop ?steering ts ms(u s1) me(u s1) ?model(u go, a/toolUse, r a, r b, u s1) ms(a) me(a/stop) te(stop)[0] \
             ?stop ?steering ts ms(u s2) me(u s2) ms(u s3) me(u s3) \
             ?model(u go, a/toolUse, r a, r b, u s1, a/stop, u s2, u s3) ms(a) me(a/stop) te(stop)[0] \
             ?stop ?steering ?follow_ups ae[9]"
        )
    );
}

/// C042: one steering poll per turn, follow-ups only when there is no steering and nothing to answer.
#[test]
fn follow_ups_begin_a_turn_without_another_poll() {
    let mut script = Script::answers([text(), text(), text()]);
    script.steering = [vec![], vec![user("s")]].into();
    script.follow_ups = [vec![user("f")]].into();
    let (heard, end) = heard(script);
    assert_eq!(
        heard,
        "as ts ms(u go) me(u go) ?steering ?model(u go) ms(a) me(a/stop) te(stop)[0] \
         ?stop ?steering ts ms(u s) me(u s) ?model(u go, a/stop, u s) ms(a) me(a/stop) te(stop)[0] \
         ?stop ?steering ?follow_ups ts ms(u f) me(u f) ?model(u go, a/stop, u s, a/stop, u f) ms(a) me(a/stop) \
         te(stop)[0] ?stop ?steering ?follow_ups ae[6]"
    );
    assert_eq!(end, RunEnd::Completed);
}

#[test]
fn steering_of_the_first_turn_follows_the_prompt() {
    let mut script = Script::answers([text()]);
    script.steering = [vec![user("s")]].into();
    let (heard, _) = heard(script);
    assert!(
        heard.starts_with("as ts ms(u go) me(u go) ?steering ms(u s) me(u s) ?model(u go, u s) "),
        "{heard}"
    );
}

/// C044: `continue` that took steering stands for the first poll; one that took follow-ups does not.
#[test]
fn a_run_of_queued_messages() {
    let transcript: Transcript<Message> = vec![user("q"), said(StopReason::Stop, &[])].into();
    let start = |from| AwaitingSteering::queued(transcript.clone(), vec![user("x")], from, Limits::default());
    for (from, first) in [
        (QueueKind::Steering, "as ts ms(u x) me(u x) ?model(u q, a/stop, u x) "),
        (
            QueueKind::FollowUp,
            "as ts ms(u x) me(u x) ?steering ms(u s) me(u s) ?model(u q, a/stop, u x, u s) ",
        ),
    ] {
        let mut script = Script::answers([text(), text()]);
        script.steering = [vec![user("s")]].into();
        let run = start(from);
        assert_eq!(run.wants_steering(), from == QueueKind::FollowUp);
        let over = script.drive(run);
        assert!(script.heard().starts_with(first), "{}", script.heard());
        let added = ["u x, a/stop, u s, a/stop", "u x, u s, a/stop"][usize::from(from == QueueKind::FollowUp)];
        assert_eq!(names(&over.added), added);
    }
}

#[test]
fn a_run_that_answers_what_is_there() {
    let transcript: Transcript<Message> = vec![user("q"), said(StopReason::ToolUse, &["a"]), result("a")].into();
    let mut script = Script::answers([text()]);
    let over = script.drive(AwaitingSteering::resume(transcript, Limits::default()));
    assert_eq!(
        script.heard(),
        "as ts ?steering ?model(u q, a/toolUse, r a) ms(a) me(a/stop) te(stop)[0] ?stop ?steering ?follow_ups ae[1]"
    );
    assert_eq!(over.transcript.len(), 4);
}

/// C045, C064: a failed answer ends the run; its calls are not run, nobody looks at the queues.
#[test]
fn a_failed_answer_ends_the_run() {
    for (answer, added) in [
        (text_then(AssistantEvent::error("overloaded")), "u go, a/error"),
        (calls_then(&["a"], AssistantEvent::error("overloaded")), "u go, a/error"),
        (vec![AssistantEvent::error("overloaded")], "u go, a/error"),
    ] {
        let mut script = Script::answers([answer]);
        script.follow_ups = [vec![user("f")]].into();
        let over = script.prompt();
        assert_eq!(
            script.heard(),
            "as ts ms(u go) me(u go) ?steering ?model(u go) ms(a) me(a/error) te(error)[0] ae[2]"
        );
        assert_eq!((names(&over.added).as_str(), over.end), (added, RunEnd::Failed));
        assert_eq!(over.answer().error_message.as_deref(), Some("overloaded"));
    }
}

/// C047: the stop hook is asked before any poll.
#[test]
fn a_stopped_run_looks_at_no_queue() {
    let mut script = Script::answers([calls(&["a"]), text()]);
    script.stops = [true].into();
    script.steering = [vec![], vec![user("s")]].into();
    let (heard, end) = heard(script);
    assert!(heard.ends_with("me(r a) te(toolUse)[1] ?stop ae[3]"), "{heard}");
    assert_eq!(end, RunEnd::Stopped);
}

#[test]
fn the_limit_counts_turns_and_only_matters_where_the_run_would_go_on() {
    let table = [
        (
            1,
            vec![calls(&["a"])],
            false,
            RunEnd::Limit,
            "te(toolUse)[1] ?stop ae[3]",
        ),
        (
            1,
            vec![text()],
            false,
            RunEnd::Completed,
            "te(stop)[0] ?stop ?queued ae[2]",
        ),
        (1, vec![text()], true, RunEnd::Limit, "te(stop)[0] ?stop ?queued ae[2]"),
        (
            2,
            vec![calls(&["a"]), calls(&["b"])],
            true,
            RunEnd::Limit,
            "te(toolUse)[1] ?stop ae[5]",
        ),
        (
            3,
            vec![calls(&["a"]), text()],
            false,
            RunEnd::Completed,
            "?stop ?steering ?follow_ups ae[4]",
        ),
    ];
    for (turns, answers, queued, end, tail) in table {
        let mut script = Script::answers(answers);
        script.limits = Limits::max_turns(NonZeroU32::new(turns).expect("at least one"));
        script.follow_ups.extend(queued.then(|| vec![user("f")]));
        let (heard, ended) = heard(script);
        assert!(heard.ends_with(tail), "{heard}");
        assert_eq!(ended, end, "{heard}");
    }
}

/// C048: the batch ends the run only if every result asks for it, and the queues are served all the same.
#[test]
fn a_batch_terminates_the_run() {
    let terminating = |ids: &[&'static str], follow_ups: &[&str]| {
        let mut script = Script::answers([calls(&["a", "b"]), text()]);
        script.terminating = ids.to_vec();
        script.follow_ups = follow_ups.iter().map(|text| vec![user(text)]).collect();
        let over = script.prompt();
        (names(&over.added), over.end)
    };
    let go_on = "u go, a/toolUse, r a, r b, a/stop".to_owned();
    assert_eq!(terminating(&["a"], &[]), (go_on, RunEnd::Completed));
    let ended = "u go, a/toolUse, r a, r b".to_owned();
    assert_eq!(terminating(&["a", "b"], &[]), (ended.clone(), RunEnd::Terminated));
    assert_eq!(
        terminating(&["a", "b"], &["f"]),
        (format!("{ended}, u f, a/stop"), RunEnd::Completed)
    );
}

/// C062, C063: calls are run whatever the stop reason says, and without calls there is nothing to wait for.
#[test]
fn the_calls_count_not_the_stop_reason() {
    let stop = calls_then(&["a"], AssistantEvent::done(DoneReason::Stop));
    let over = Script::answers([stop, text()]).prompt();
    assert_eq!(names(&over.added), "u go, a/stop, r a, a/stop");
    let tool_use = text_then(AssistantEvent::done(DoneReason::ToolUse));
    let mut script = Script::answers([tool_use, text()]);
    script.follow_ups = [vec![user("f")]].into();
    assert_eq!(names(&script.prompt().added), "u go, a/toolUse, u f, a/stop");
}

/// C016: a hook that fails gives the run a complete end, in the open turn or one of its own.
#[test]
fn a_failing_hook_ends_the_run_with_all_events() {
    for (phase, line) in [
        (
            "requesting",
            "as ts ms(u go) me(u go) ms(a) me(a/error) te(error)[0] ae[2]",
        ),
        (
            "turn_end",
            "as ts ms(u go) me(u go) ms(a) mu me(a/stop) te(stop)[0] ts ms(a) me(a/error) te(error)[0] ae[3]",
        ),
    ] {
        let mut script = Script::answers([text()]);
        script.failing = phase;
        let over = script.prompt();
        assert_eq!((over.line().as_str(), over.end), (line, RunEnd::Failed));
        let answer = serde_json::to_value(over.answer()).expect("a message is JSON");
        assert_eq!(answer["content"], serde_json::json!([{ "type": "text", "text": "" }]));
        assert_eq!(
            (&answer["errorMessage"], &answer["model"]),
            (&"hook".into(), &"m".into())
        );
    }
}

#[test]
fn a_replaced_transcript_is_what_later_requests_are_made_of() {
    let mut run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], Limits::default());
    while run.poll_event().is_some() {}
    let AfterSteering::Requesting(mut request) = run.handle_steering(vec![]) else {
        panic!("the first turn is open")
    };
    request.replace_transcript(vec![user("summary")].into());
    assert_eq!(names(request.transcript().request().iter()), "u summary");
    let mut ended = request.fail(&Model::new("m"), "x".into(), 0);
    while ended.poll_event().is_some() {}
    let (transcript, added) = ended.into_parts();
    assert_eq!(
        (names(&*transcript).as_str(), names(&added).as_str()),
        ("u summary, a/error", "u go, a/error")
    );
}

/// Messages of the app's own enter the transcript like any other, and are not sent.
#[test]
fn custom_messages_run_through_the_machine() {
    #[derive(Debug, Clone, PartialEq)]
    struct Notice;
    impl CustomRole for Notice {
        fn role(&self) -> &'static str {
            "notice"
        }
    }
    let prompt = vec![CustomMessage::Custom(Notice).into(), Arc::new("go".into())];
    let mut run = AwaitingSteering::prompt(Transcript::new(), prompt, Limits::default());
    while run.poll_event().is_some() {}
    let roles = |run: &AwaitingSteering<CustomMessage<Notice>>| {
        run.transcript()
            .iter()
            .map(|message| message.role().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(roles(&run), ["notice", "user"]);
    assert_eq!(run.transcript().request().len(), 1);
    let mut ended = run.abort(&Model::new("m"), 0);
    while ended.poll_event().is_some() {}
    assert_eq!(ended.transcript().last().map(|last| last.role()), Some("assistant"));
}
