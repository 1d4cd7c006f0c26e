//! The reducer: what the agent's state is after each event.

use std::sync::Arc;

use serde_json::{Map, json};
use turnstate::{
    AgentEvent, AgentState, AssistantContent, AssistantEvent, AssistantMessage, CustomMessage, CustomRole, Message,
    Messages, PartialMessage, StopReason, ToolCall, ToolResult, ToolResultMessage, Transcript,
};

fn start(message: &Arc<Message>) -> AgentEvent {
    AgentEvent::MessageStart {
        message: Arc::clone(message),
        folded: None,
    }
}

fn end(message: &Arc<Message>) -> AgentEvent {
    AgentEvent::MessageEnd {
        message: Arc::clone(message),
    }
}

fn update(event: AssistantEvent) -> AgentEvent {
    AgentEvent::MessageUpdate { event }
}

fn turn_end(message: &Arc<Message>) -> AgentEvent {
    AgentEvent::TurnEnd {
        message: Arc::clone(message),
        tool_results: Vec::new(),
    }
}

fn agent_end() -> AgentEvent {
    AgentEvent::AgentEnd {
        messages: Messages::new(),
    }
}

fn answer(stop_reason: StopReason, error_message: Option<&str>) -> Arc<Message> {
    let message = AssistantMessage {
        stop_reason,
        error_message: error_message.map(str::to_owned),
        ..AssistantMessage::default()
    };
    Arc::new(message.into())
}

/// The role of the message that has begun but not ended, or `-`.
fn streaming(state: &AgentState) -> &'static str {
    state.streaming_message().map_or("-", |message| message.role())
}

/// C058: how many messages there are and which one streams, after each event of a text turn.
#[test]
fn what_listeners_see_at_each_event() {
    let user = Arc::new(Message::user("hi"));
    let empty = answer(StopReason::Stop, None);
    let whole = Arc::new(Message::from(AssistantMessage {
        content: vec![AssistantContent::text("yo")],
        ..AssistantMessage::default()
    }));
    let table = [
        (AgentEvent::AgentStart, (0, "-", None)),
        (AgentEvent::TurnStart, (0, "-", None)),
        (start(&user), (0, "user", None)),
        (end(&user), (1, "-", None)),
        (start(&empty), (1, "assistant", Some(""))),
        (
            update(AssistantEvent::TextStart { content_index: 0 }),
            (1, "assistant", Some("")),
        ),
        (update(AssistantEvent::text_delta(0, "y")), (1, "assistant", Some("y"))),
        (update(AssistantEvent::text_delta(0, "o")), (1, "assistant", Some("yo"))),
        (end(&whole), (2, "-", None)),
        (turn_end(&whole), (2, "-", None)),
        (agent_end(), (2, "-", None)),
    ];
    let mut state = AgentState::default();
    for (event, (len, role, text)) in table {
        state.apply(&event);
        assert_eq!(
            (state.transcript().len(), streaming(&state)),
            (len, role),
            "{}",
            event.kind()
        );
        assert_eq!(
            state.partial().map(AssistantMessage::text).as_deref(),
            text,
            "{}",
            event.kind()
        );
    }
    assert_eq!(state.transcript(), &Transcript::from(vec![user, whole]));
}

/// A message that was folded before it was announced goes on from there, open calls included.
#[test]
fn an_announced_fold_is_gone_on_with() {
    let mut folded = PartialMessage::new(&"m".into(), 0);
    for event in [
        AssistantEvent::tool_call_start(3, "a", "t"),
        AssistantEvent::tool_call_delta(3, r#"{"n":1"#),
    ] {
        folded.apply(&event).expect("it fits");
    }
    let mut state = AgentState::<Message>::default();
    state.apply(&AgentEvent::MessageStart {
        message: Arc::new(folded.message().clone().into()),
        folded: Some(Box::new(folded)),
    });
    state.apply(&update(AssistantEvent::tool_call_delta(3, "2}")));
    let shown = state
        .partial()
        .and_then(|partial| partial.tool_calls().next())
        .map(|call| json!(call.arguments));
    assert_eq!(shown, Some(json!({ "n": 12 })));
}

/// Pending calls are kept by position, since ids need not be unique.
#[test]
fn calls_of_one_id_are_pending_by_position() {
    let call = Arc::new(ToolCall::new("x", "t", Map::new()));
    let begin = |index| AgentEvent::<Message>::ToolExecutionStart {
        index,
        call: Arc::clone(&call),
    };
    let report = |index| AgentEvent::ToolExecutionUpdate {
        index,
        call: Arc::clone(&call),
        partial_result: Box::new(ToolResult::text("..")),
    };
    let finish = |index| AgentEvent::ToolExecutionEnd {
        index,
        call: Arc::clone(&call),
        result: Arc::new(ToolResult::text("done")),
    };
    let mut state = AgentState::default();
    for (event, pending) in [
        (begin(0), vec![0]),
        (begin(1), vec![0, 1]),
        (begin(2), vec![0, 1, 2]),
        (report(1), vec![0, 1, 2]),
        (finish(1), vec![0, 2]),
        (finish(1), vec![0, 2]),
        (finish(0), vec![2]),
        (agent_end(), vec![]),
    ] {
        state.apply(&event);
        let positions: Vec<_> = state.pending_tool_calls().map(|(index, _)| index).collect();
        assert_eq!(positions, pending, "{event:?}");
    }
}

/// The error message is the one of the last turn that failed or was aborted, until the next run begins.
#[test]
fn the_error_message() {
    let turn = |stop, error| turn_end(&answer(stop, error));
    let mut state = AgentState::default();
    for (event, error) in [
        (AgentEvent::AgentStart, None),
        (turn(StopReason::Stop, Some("not a failure")), None),
        (turn(StopReason::Error, Some("overloaded")), Some("overloaded")),
        (turn(StopReason::Stop, None), Some("overloaded")),
        (
            turn(StopReason::Aborted, Some("Request was aborted")),
            Some("Request was aborted"),
        ),
        (agent_end(), Some("Request was aborted")),
        (AgentEvent::TurnStart, Some("Request was aborted")),
        (AgentEvent::AgentStart, None),
    ] {
        state.apply(&event);
        assert_eq!(state.error_message(), error, "{event:?}");
    }
}

/// What a broken-off run left open does not survive it.
#[test]
fn a_run_begins_settled() {
    let mut state = AgentState::default();
    for last in [AgentEvent::AgentStart, agent_end()] {
        state.apply(&start(&answer(StopReason::Stop, None)));
        state.apply(&AgentEvent::ToolExecutionStart {
            index: 0,
            call: Arc::default(),
        });
        state.apply(&last);
        assert_eq!((streaming(&state), state.pending_tool_calls().count()), ("-", 0));
    }
}

/// Between runs, and the one before is given back.
#[test]
fn the_transcript_can_be_replaced() {
    let transcript = |texts: &[&str]| -> Transcript<Message> {
        texts
            .iter()
            .map(|text| Arc::new(Message::user(*text)))
            .collect::<Vec<_>>()
            .into()
    };
    let mut state = AgentState::new(transcript(&["a"]));
    assert_eq!(state.set_transcript(transcript(&["b", "c"])), transcript(&["a"]));
    assert_eq!(state.transcript(), &transcript(&["b", "c"]));
}

/// An update of no message, or one that does not fit, changes nothing.
#[test]
fn a_stray_update_changes_nothing() {
    let mut state = AgentState::default();
    state.apply(&update(AssistantEvent::text_delta(0, "x")));
    assert!(state.partial().is_none());
    state.apply(&start(&answer(StopReason::Stop, None)));
    state.apply(&update(AssistantEvent::text_delta(0, "x")));
    assert_eq!(state.partial(), Some(&AssistantMessage::default()));
}

/// Messages of the app's own, and results, are folded like any other.
#[test]
fn messages_of_any_role() {
    #[derive(Debug, Clone, PartialEq)]
    struct Notice;
    impl CustomRole for Notice {
        fn role(&self) -> &'static str {
            "notice"
        }
    }
    let result = Message::from(ToolResultMessage::default());
    let messages = [
        CustomMessage::Custom(Notice),
        CustomMessage::from(result),
        CustomMessage::from("hi"),
    ];
    let mut state = AgentState::<CustomMessage<Notice>>::default();
    for message in messages.map(Arc::new) {
        state.apply(&AgentEvent::MessageStart {
            message: Arc::clone(&message),
            folded: None,
        });
        assert_eq!(state.streaming_message(), Some(Arc::clone(&message)));
        assert_eq!(state.partial(), None);
        state.apply(&AgentEvent::MessageEnd {
            message: Arc::clone(&message),
        });
        assert_eq!(state.transcript().last(), Some(&message));
    }
    assert_eq!((state.transcript().len(), state.transcript().request().len()), (3, 1));
}
