//! An answer while it streams.

use std::ops::ControlFlow;
use std::sync::Arc;

use turnstate::machine::{AfterAnswer, AfterSteering, AnswerEnd, AwaitingSteering, Limits, RunEnd, Streaming};
use turnstate::{
    AgentEvent, AgentState, AssistantEvent, AssistantMessage, DoneReason, ErrorReason, Message, StopReason, Transcript,
};

use crate::driver::{Over, model};
use crate::script::Script;
use crate::words::{line, text, user};

fn text_start(content_index: usize) -> AssistantEvent {
    AssistantEvent::TextStart { content_index }
}

fn done() -> AssistantEvent {
    AssistantEvent::done(DoneReason::Stop)
}

/// A run of one answer: what it told behind the prompt, and how it went.
fn answered(answer: Vec<AssistantEvent>) -> (String, Over) {
    let over = Script::answers([answer]).prompt();
    (line(&over.told[4..]), over)
}

/// A run whose request was just sent, with everything told.
fn streaming() -> Streaming<Message> {
    let mut run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], Limits::default());
    while run.poll_event().is_some() {}
    let AfterSteering::Requesting(request) = run.handle_steering(vec![]) else {
        panic!("the first turn is open")
    };
    request.stream(&model(), 100)
}

/// What an event of the model makes the run tell, if it does not end the answer.
fn tells(run: &mut Streaming<Message>, event: AssistantEvent) -> Option<AgentEvent> {
    match run.handle(event) {
        ControlFlow::Continue(event) => event,
        ControlFlow::Break(end) => panic!("the answer ended: {end:?}"),
    }
}

#[test]
fn each_event_is_an_update() {
    let answer = vec![
        AssistantEvent::start(),
        AssistantEvent::ThinkingStart { content_index: 0 },
        AssistantEvent::thinking_delta(0, "hm"),
        text_start(1),
        AssistantEvent::text_delta(1, "hi"),
        done(),
    ];
    let (told, over) = answered(answer.clone());
    assert_eq!(told, "ms(a) mu mu mu mu me(a/stop) te(stop)[0] ae[2]");
    let updates = over.told.into_iter().filter_map(|event| match event {
        AgentEvent::MessageUpdate { event } => Some(event),
        _ => None,
    });
    assert!(
        updates.eq(answer[1..5].iter().cloned()),
        "updates carry the model's own events"
    );
}

/// C066: without a start there are no updates, and the message is told at its end.
#[test]
fn no_start() {
    let (told, over) = answered(vec![text_start(0), AssistantEvent::text_delta(0, "hi"), done()]);
    assert_eq!(told, "ms(a) me(a/stop) te(stop)[0] ae[2]");
    assert_eq!(over.answer().text(), "hi");
    let (told, _) = answered(vec![AssistantEvent::error("no")]);
    assert_eq!(told, "ms(a) me(a/error) te(error)[0] ae[2]");
}

#[test]
fn a_late_start_announces_what_is_there_and_a_second_one_is_ignored() {
    let mut run = streaming();
    let mut state = AgentState::new(run.transcript().clone());
    for early in [text_start(0), AssistantEvent::text_delta(0, "he")] {
        assert_eq!(tells(&mut run, early), None);
    }
    assert_eq!(run.partial(), None, "it was not announced");
    let Some(started) = tells(&mut run, AssistantEvent::start()) else {
        panic!("a start tells")
    };
    let AgentEvent::MessageStart { message, folded } = &started else {
        panic!("a start tells the start of the message")
    };
    assert_eq!((message.text().as_str(), folded.is_some()), ("he", true));
    state.apply(&started);
    assert_eq!(tells(&mut run, AssistantEvent::start()), None);
    for event in [
        AssistantEvent::text_delta(0, "llo"),
        AssistantEvent::tool_call_start(1, "a", "t"),
    ] {
        state.apply(&tells(&mut run, event).expect("an update"));
        assert_eq!(state.partial(), run.partial());
    }
    assert_eq!(run.partial().map(AssistantMessage::text).as_deref(), Some("hello"));
}

/// A tool call that began before the start goes on in the state (I5), which has its text from `folded`.
#[test]
fn a_late_start_hands_over_open_calls() {
    let mut run = streaming();
    let mut state = AgentState::new(run.transcript().clone());
    assert_eq!(tells(&mut run, AssistantEvent::tool_call_start(0, "a", "t")), None);
    assert_eq!(tells(&mut run, AssistantEvent::tool_call_delta(0, r#"{"n":"#)), None);
    for event in [AssistantEvent::start(), AssistantEvent::tool_call_delta(0, "1}")] {
        state.apply(&tells(&mut run, event).expect("it tells"));
    }
    assert_eq!(state.partial(), run.partial());
    let calls: Vec<_> = run.partial().expect("it was announced").tool_calls().collect();
    assert_eq!(serde_json::json!(calls[0].arguments), serde_json::json!({ "n": 1 }));
}

/// C068, C025: the terminal event is the last that counts; the stream is not asked again.
#[test]
fn nothing_counts_after_the_terminal_event() {
    let late = [AssistantEvent::text_delta(0, " LATE"), AssistantEvent::error("late")];
    let (told, over) = answered(text().into_iter().chain(late).collect());
    assert_eq!(told, "ms(a) mu me(a/stop) te(stop)[0] ae[2]");
    assert_eq!((over.answer().text().as_str(), over.end), ("", RunEnd::Completed));
}

/// C014, C011, C094: an answer that breaks off keeps what is there.
#[test]
fn a_broken_answer_keeps_its_partial() {
    let begun = [
        AssistantEvent::start(),
        text_start(0),
        AssistantEvent::text_delta(0, "he"),
    ];
    let aborted = AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: None,
        usage: Box::default(),
        message: None,
        failure: None,
    };
    let cut = "the model's stream ended before its answer was complete";
    for (end, stop, told, error) in [
        (
            None,
            RunEnd::Failed,
            "ms(a) mu mu me(a/error) te(error)[0] ae[2]",
            Some(cut),
        ),
        (
            Some(aborted),
            RunEnd::Aborted,
            "ms(a) mu mu me(a/aborted) te(aborted)[0] ae[2]",
            None,
        ),
    ] {
        let (line, over) = answered(begun.iter().cloned().chain(end).collect());
        assert_eq!((line.as_str(), over.end), (told, stop));
        assert_eq!(
            (over.answer().text().as_str(), over.answer().error_message.as_deref()),
            ("he", error)
        );
    }
}

/// C085: what does not fit the message ends it as failed; but a `toolcall_end` is ignored, a second start replaces.
#[test]
fn an_event_that_does_not_fit() {
    let thinking = AssistantEvent::ThinkingStart { content_index: 1 };
    let text_end = AssistantEvent::TextEnd {
        content_index: 1,
        content_signature: None,
    };
    let call_end = AssistantEvent::ToolCallEnd {
        content_index: 0,
        tool_call: None,
    };
    let wrong =
        |kind, index| format!("received {kind} for content index {index}, where no block of its kind has begun");
    let table = [
        (vec![AssistantEvent::text_delta(1, "x")], Some(wrong("text_delta", 1))),
        (vec![thinking, text_end], Some(wrong("text_end", 1))),
        (
            vec![AssistantEvent::tool_call_delta(0, "{}")],
            Some(wrong("toolcall_delta", 0)),
        ),
        (
            vec![text_start(70_000)],
            Some("content index 70000 is out of range".to_owned()),
        ),
        (vec![call_end], None),
        (vec![text_start(0), AssistantEvent::text_delta(0, "hi")], None),
    ];
    for (events, error) in table {
        let begun = [
            AssistantEvent::start(),
            text_start(0),
            AssistantEvent::text_delta(0, "hi"),
        ];
        let (_, over) = answered(begun.into_iter().chain(events).chain([done()]).collect());
        assert_eq!(over.answer().text(), "hi");
        assert_eq!(over.answer().error_message, error);
        assert_eq!(over.end == RunEnd::Failed, error.is_some());
    }
}

/// I7: what the provider says at the end replaces the fold; duration and usage are filled in where they are missing.
#[test]
fn the_final_message() {
    let whole = AssistantMessage {
        response_id: Some("id".into()),
        duration_ms: Some(3),
        ..AssistantMessage::default()
    };
    let with_whole = AssistantEvent::Done {
        reason: DoneReason::Length,
        usage: Box::default(),
        message: Some(Box::new(whole.clone())),
    };
    let with_usage = AssistantEvent::Done {
        reason: DoneReason::Stop,
        usage: Box::new(turnstate::Usage {
            output: 9,
            ..Default::default()
        }),
        message: None,
    };
    let folded = AssistantMessage {
        duration_ms: Some(11),
        usage: turnstate::Usage {
            output: 9,
            ..Default::default()
        },
        ..AssistantMessage::new(&model(), 100)
    };
    let replaced = AssistantMessage {
        stop_reason: StopReason::Length,
        ..whole
    };
    for (end, expected) in [(with_whole, replaced), (with_usage, folded)] {
        let mut run = streaming();
        tells(&mut run, AssistantEvent::start());
        let ControlFlow::Break(end) = run.handle(end) else {
            panic!("done ends the answer")
        };
        let AfterAnswer::TurnEnd(turn) = run.finish(end, 111) else {
            panic!("it has no calls")
        };
        assert_eq!(turn.message().as_assistant(), Some(&expected));
    }
}

/// What failed while the run was aborted was aborted; an answer that was complete stays so.
#[test]
fn an_end_under_abort() {
    let break_by = |event| streaming().handle(event).break_value().expect("it ends the answer");
    for (end, expected) in [
        (AnswerEnd::failed("x"), StopReason::Aborted),
        (AnswerEnd::cut(), StopReason::Aborted),
        (AnswerEnd::aborted(), StopReason::Aborted),
        (break_by(AssistantEvent::error("x")), StopReason::Aborted),
        (break_by(done()), StopReason::Stop),
    ] {
        let about = format!("{end:?}");
        let message = match streaming().finish(end.under_abort(), 0) {
            AfterAnswer::TurnEnd(turn) => Arc::clone(turn.message()),
            AfterAnswer::Ended(ended) => Arc::clone(ended.into_parts().1.last().expect("an answer")),
            AfterAnswer::ExecutingTools(_) => panic!("it has no calls"),
        };
        let answer = message.as_assistant().expect("an answer");
        assert_eq!(answer.stop_reason, expected, "{about}");
        let error = answer.error_message.as_deref();
        assert_eq!(error.unwrap_or("Request was aborted"), "Request was aborted", "{about}");
    }
}

/// I1: a driver that streams before it told what came before gets everything in order all the same.
#[test]
fn events_of_the_model_queue_behind_what_was_not_told() {
    let run = AwaitingSteering::prompt(Transcript::new(), vec![user("go")], Limits::default());
    let AfterSteering::Requesting(request) = run.handle_steering(vec![user("s")]) else {
        panic!("the first turn is open")
    };
    let mut run = request.stream(&model(), 0);
    let mut told: Vec<_> = [AssistantEvent::start(), text_start(0)]
        .into_iter()
        .filter_map(|event| tells(&mut run, event))
        .collect();
    let AfterAnswer::Ended(mut ended) = run.finish(AnswerEnd::failed("x"), 0) else {
        panic!("it failed")
    };
    told.extend(std::iter::from_fn(|| ended.poll_event()));
    assert_eq!(
        line(&told),
        "as ts ms(u go) me(u go) ms(u s) me(u s) ms(a) mu me(a/error) te(error)[0] ae[3]"
    );
}
