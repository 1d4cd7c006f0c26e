//! Abort at every position of a run (§4.6).

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use turnstate::machine::{AfterAnswer, AfterSteering, AfterTurn, AwaitingSteering, ExecutionMode, Limits, RunEnd};
use turnstate::{Message, QueueKind, StopReason, Transcript};

use crate::driver::model;
use crate::script::Script;
use crate::words::{calls, line, names, result, said, text, user};

/// A batch, then steering, then a follow-up.
fn script(mode: ExecutionMode) -> Script {
    let mut script = Script::answers([calls(&["a", "b"]), text(), text()]);
    script.steering = [vec![], vec![user("s1"), user("s2")]].into();
    script.follow_ups = [vec![user("f")]].into();
    script.mode = mode;
    script
}

/// Where an abort strikes: behind how many told events. And what it still makes the run tell.
type Tails = &'static [(RangeInclusive<usize>, &'static str)];

/// Behind `as ts ms(u go) me(u go) ms(a) mu mu`: the open turn gets its answer.
const FIRST_REQUEST: Tails = &[
    (
        0..=0,
        "as ts ms(u go) me(u go) ms(a) me(a/aborted) te(aborted)[0] ae[2]",
    ),
    (1..=1, "ts ms(u go) me(u go) ms(a) me(a/aborted) te(aborted)[0] ae[2]"),
    (2..=2, "ms(u go) me(u go) ms(a) me(a/aborted) te(aborted)[0] ae[2]"),
    (3..=3, "me(u go) ms(a) me(a/aborted) te(aborted)[0] ae[2]"),
    (4..=4, "ms(a) me(a/aborted) te(aborted)[0] ae[2]"),
    (5..=7, "me(a/aborted) te(aborted)[0] ae[2]"),
];

/// Behind `me(a/toolUse) xs(a) xs(b) xe(a) xe(b) ms(r a) me(r a) ms(r b) me(r b)`: all calls are answered, and a turn
/// of its own closes the run. What had its result keeps it.
const PARALLEL: Tails = &[
    (
        8..=8,
        "xs(a) xe(a!) xs(b) xe(b!) ms(r a!) me(r a!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        9..=9,
        "xe(a!) xs(b) xe(b!) ms(r a!) me(r a!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        10..=10,
        "xe(a!) xe(b!) ms(r a!) me(r a!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        11..=11,
        "xe(b) ms(r a) me(r a) ms(r b) me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        12..=12,
        "ms(r a) me(r a) ms(r b) me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        13..=13,
        "me(r a) ms(r b) me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        14..=14,
        "ms(r b) me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        15..=15,
        "me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
];

/// Behind `me(a/toolUse) xs(a) xe(a) ms(r a) me(r a) xs(b) xe(b) ms(r b) me(r b)`.
const SEQUENTIAL: Tails = &[
    (
        8..=8,
        "xs(a) xe(a!) ms(r a!) me(r a!) xs(b) xe(b!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        9..=9,
        "xe(a!) ms(r a!) me(r a!) xs(b) xe(b!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        10..=10,
        "ms(r a) me(r a) xs(b) xe(b!) ms(r b!) me(r b!) te(toolUse)[2] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        11..=11,
        "me(r a) xs(b) xe(b!) ms(r b!) me(r b!) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        12..=12,
        "xs(b) xe(b!) ms(r b!) me(r b!) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        13..=13,
        "xe(b!) ms(r b!) me(r b!) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        14..=14,
        "ms(r b) me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
    (
        15..=15,
        "me(r b) te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]",
    ),
];

/// Behind `te(toolUse)[2]`, the turns of the steering messages and of the follow-up. A queued message that has begun is
/// told to its end, what did not begin stays queued; where the last message is an answer, nothing is added to it.
const LATER_TURNS: Tails = &[
    (16..=16, "te(toolUse)[2] ts ms(a) me(a/aborted) te(aborted)[0] ae[5]"),
    (17..=17, "ts ms(a) me(a/aborted) te(aborted)[0] ae[5]"),
    (18..=18, "ms(a) me(a/aborted) te(aborted)[0] ae[5]"),
    (19..=19, "me(u s1) ms(a) me(a/aborted) te(aborted)[0] ae[6]"),
    (20..=20, "ms(a) me(a/aborted) te(aborted)[0] ae[6]"),
    (21..=21, "me(u s2) ms(a) me(a/aborted) te(aborted)[0] ae[7]"),
    (22..=22, "ms(a) me(a/aborted) te(aborted)[0] ae[7]"),
    (23..=24, "me(a/aborted) te(aborted)[0] ae[7]"),
    (25..=25, "te(stop)[0] ae[7]"),
    (26..=26, "ae[7]"),
    (27..=27, "ms(a) me(a/aborted) te(aborted)[0] ae[8]"),
    (28..=28, "me(u f) ms(a) me(a/aborted) te(aborted)[0] ae[9]"),
    (29..=29, "ms(a) me(a/aborted) te(aborted)[0] ae[9]"),
    (30..=31, "me(a/aborted) te(aborted)[0] ae[9]"),
    (32..=32, "te(stop)[0] ae[9]"),
    (33..=33, "ae[9]"),
];

/// C007, C012, C013, C035, C069.
#[test]
fn at_every_position() {
    for (mode, batch) in [
        (ExecutionMode::Parallel, PARALLEL),
        (ExecutionMode::Sequential, SEQUENTIAL),
    ] {
        let whole = script(mode).prompt().told;
        let mut next = 0;
        for (places, tail) in [FIRST_REQUEST, batch, LATER_TURNS].concat() {
            assert_eq!(*places.start(), next, "each position has its line");
            next = places.end() + 1;
            for place in places {
                let mut script = script(mode);
                script.abort_at = Some(place);
                let over = script.prompt();
                let (before, after) = over.told.split_at(place);
                assert_eq!(line(before), line(&whole[..place]));
                assert_eq!(line(after), tail, "aborted after {}", line(before));
                assert_eq!(over.end, RunEnd::Aborted);
            }
        }
        assert_eq!(next, whole.len());
    }
}

/// The message that closes an aborted run is the engine's own, unless an answer was under way.
#[test]
fn what_the_closing_message_says() {
    for (place, content) in [
        (4, serde_json::json!([{ "type": "text", "text": "" }])),
        (5, serde_json::json!([])),
        (18, serde_json::json!([{ "type": "text", "text": "" }])),
        (24, serde_json::json!([{ "type": "text", "text": "" }])),
    ] {
        let mut script = script(ExecutionMode::Parallel);
        script.abort_at = Some(place);
        let answer = serde_json::to_value(script.prompt().answer()).expect("a message is JSON");
        assert_eq!(
            (&answer["content"], &answer["stopReason"]),
            (&content, &"aborted".into())
        );
        assert_eq!(
            (&answer["errorMessage"], &answer["model"]),
            (&"Request was aborted".into(), &"m".into())
        );
    }
}

/// I4: what `continue` took from a queue is not told, unless it had begun.
#[test]
fn queued_messages_of_the_first_turn_are_revoked() {
    let transcript: Transcript<Message> = vec![user("q"), said(StopReason::Stop, &[])].into();
    for (place, added) in [
        (0, "a/aborted"),
        (2, "a/aborted"),
        (3, "u x, a/aborted"),
        (4, "u x, a/aborted"),
        (5, "u x, u y, a/aborted"),
    ] {
        let queued = vec![user("x"), user("y")];
        let run = AwaitingSteering::queued(transcript.clone(), queued, QueueKind::Steering, Limits::default());
        let mut script = Script::default();
        script.abort_at = Some(place);
        assert_eq!(names(&script.drive(run).added), added, "aborted after {place}");
    }
}

/// A terminated batch leaves a tool result last, so the run gets its closing turn; so does a resumed one.
#[test]
fn a_tool_result_is_never_last() {
    let mut script = script(ExecutionMode::Parallel);
    script.terminating = vec!["a", "b"];
    script.abort_at = Some(17);
    assert_eq!(names(&script.prompt().added), "u go, a/toolUse, r a, r b, a/aborted");

    let transcript: Transcript<Message> = vec![user("q"), said(StopReason::ToolUse, &["a"]), result("a")].into();
    let mut script = Script::default();
    script.abort_at = Some(0);
    let over = script.drive(AwaitingSteering::resume(transcript, Limits::default()));
    assert_eq!(over.line(), "as ts ms(a) me(a/aborted) te(aborted)[0] ae[1]");
}

/// The two phases that have nothing to tell: between the last turn and the end of the run.
#[test]
fn behind_the_last_turn() {
    let turn = |limits| {
        let run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], limits);
        let AfterSteering::Requesting(request) = run.handle_steering(vec![]) else {
            panic!("the first turn is open")
        };
        let mut streaming = request.stream(&model(), 0);
        let end = text()
            .into_iter()
            .find_map(|event| streaming.handle(event).break_value());
        let AfterAnswer::TurnEnd(turn) = streaming.finish(end.expect("the answer ends"), 0) else {
            panic!("it has no calls")
        };
        turn.handle_stop(false)
    };
    let AfterTurn::AtLimit(at_limit) = turn(Limits::max_turns(NonZeroU32::MIN)) else {
        panic!("it had its turn")
    };
    let AfterTurn::AwaitingSteering(steering) = turn(Limits::default()) else {
        panic!("it may have more turns")
    };
    let AfterSteering::FollowUp(follow_up) = steering.handle_steering(vec![]) else {
        panic!("there is nothing to do")
    };
    for mut ended in [at_limit.abort(&model(), 0), follow_up.abort(&model(), 0)] {
        let told: Vec<_> = std::iter::from_fn(|| ended.poll_event()).collect();
        assert_eq!(
            line(&told),
            "as ts ms(u go) me(u go) ms(a) mu me(a/stop) te(stop)[0] ae[2]"
        );
        assert_eq!(ended.end(), RunEnd::Aborted);
    }
}

/// §4.6: the stop hook is not asked, no queue is looked at, no request is made once aborted (I6).
#[test]
fn nothing_is_asked_once_aborted() {
    for place in 0..34 {
        let mut script = script(ExecutionMode::Sequential);
        script.abort_at = Some(place);
        script.prompt();
        let (when_aborted, in_all) = script.asked();
        assert_eq!(when_aborted, Some(in_all), "aborted after {place}: {}", script.heard());
    }
}
