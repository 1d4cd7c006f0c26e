//! I1 and I3, checked on what a run told and left behind. Knows nothing of the machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use turnstate::{AgentEvent, Message, Messages, Transcript};

use crate::words::{line, names};

/// Checks what holds for every run, from the events alone.
///
/// # Panics
/// If it does not hold.
pub(crate) fn check_run(told: &[AgentEvent], before: &Transcript<Message>, after: &Transcript<Message>) {
    let mut reader = Reader::default();
    for (place, event) in told.iter().enumerate() {
        if let Err(reason) = reader.read(event) {
            panic!("I1: {reason} at event {place} of {}", line(told));
        }
    }
    assert!(reader.ended, "I1: no agent_end in {}", line(told));
    let expected: Vec<_> = before.iter().chain(&reader.added).collect();
    assert_eq!(
        names(after.iter()),
        names(expected.iter().copied()),
        "I5: {}",
        line(told)
    );
    assert!(after.iter().eq(expected), "I5: {}", line(told));
    if let Err(reason) = paired(&reader.added) {
        panic!("I3: {reason} in {}", names(&reader.added));
    }
}

/// Reads the events of a run one by one and says where they do not nest.
#[derive(Default)]
struct Reader {
    begun: bool,
    ended: bool,
    turn: Option<Turn>,
    message: Option<Arc<Message>>,
    added: Vec<Arc<Message>>,
}

#[derive(Default)]
struct Turn {
    answer: Option<Arc<Message>>,
    results: Vec<Arc<Message>>,
    /// How many calls began, and which of them run.
    calls: usize,
    running: BTreeSet<usize>,
}

impl Reader {
    fn read(&mut self, event: &AgentEvent) -> Result<(), &'static str> {
        ensure(!self.ended, "something after agent_end")?;
        ensure(
            self.begun != matches!(event, AgentEvent::AgentStart),
            "agent_start is not what comes first, once",
        )?;
        match event {
            AgentEvent::AgentStart => self.begun = true,
            AgentEvent::AgentEnd { messages } => {
                ensure(self.turn.is_none(), "agent_end within a turn")?;
                ensure(
                    messages.iter().eq(&self.added),
                    "agent_end with other messages than were told",
                )?;
                self.ended = true;
            }
            AgentEvent::TurnStart => {
                ensure(self.turn.is_none(), "a turn within a turn")?;
                self.turn = Some(Turn::default());
            }
            AgentEvent::TurnEnd { message, tool_results } => {
                ensure(self.message.is_none(), "a message over the end of a turn")?;
                let turn = self.turn.take().ok_or("the end of no turn")?;
                ensure(turn.running.is_empty(), "a call over the end of a turn")?;
                ensure(turn.answer.as_ref() == Some(message), "turn_end with another answer")?;
                ensure(turn.results == *tool_results, "turn_end with other results")?;
            }
            AgentEvent::MessageStart { message, .. } => {
                let turn = self.turn.as_ref().ok_or("a message outside a turn")?;
                ensure(self.message.is_none(), "a message within a message")?;
                ensure(turn.running.is_empty(), "a message while a call runs")?;
                self.message = Some(Arc::clone(message));
            }
            AgentEvent::MessageUpdate { .. } => {
                let message = self.message.as_ref().ok_or("an update of no message")?;
                ensure(message.as_assistant().is_some(), "an update of another's message")?;
            }
            AgentEvent::MessageEnd { message } => self.end_message(message)?,
            AgentEvent::ToolExecutionStart { index, .. } => {
                ensure(self.message.is_none(), "a call within a message")?;
                let turn = self.turn.as_mut().ok_or("a call outside a turn")?;
                ensure(*index == turn.calls, "calls are not begun in order")?;
                turn.calls += 1;
                turn.running.insert(*index);
            }
            AgentEvent::ToolExecutionUpdate { index, .. } => {
                let running = self.turn.as_ref().is_some_and(|turn| turn.running.contains(index));
                ensure(running, "an update of a call that does not run")?;
            }
            AgentEvent::ToolExecutionEnd { index, .. } => {
                let ran = self.turn.as_mut().is_some_and(|turn| turn.running.remove(index));
                ensure(ran, "the end of a call that does not run")?;
            }
            _ => return Err("an event this reader does not know"),
        }
        Ok(())
    }

    fn end_message(&mut self, message: &Arc<Message>) -> Result<(), &'static str> {
        let started = self.message.take().ok_or("the end of no message")?;
        let turn = self.turn.as_mut().ok_or("a message outside a turn")?;
        ensure(started.role() == message.role(), "the end of another message")?;
        match &**message {
            Message::User(_) => ensure(turn.answer.is_none(), "a user message behind the answer")?,
            Message::Assistant(_) => {
                ensure(
                    turn.answer.replace(Arc::clone(message)).is_none(),
                    "two answers in a turn",
                )?;
            }
            Message::ToolResult(_) => turn.results.push(Arc::clone(message)),
        }
        if message.as_assistant().is_none() {
            ensure(
                Arc::ptr_eq(&started, message),
                "a message that changed without streaming",
            )?;
        }
        self.added.push(Arc::clone(message));
        Ok(())
    }
}

/// Whether each call has exactly one result, in call order, right behind its message, and no result is without a call.
pub(crate) fn paired(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if let Some(result) = message.as_tool_result() {
            if open.first() != Some(&result.tool_call_id.as_str()) {
                return Err(format!(
                    "the result of {:?} where {open:?} are open",
                    result.tool_call_id
                ));
            }
            open.remove(0);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{open:?} without a result"));
        }
        if let Some(answer) = message.as_assistant().filter(|answer| !answer.stop_reason.is_failure()) {
            open.extend(answer.tool_calls().map(|call| call.id.as_str()));
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} without a result"))
    }
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

#[test]
fn a_misplaced_event_is_found() {
    let message = Arc::new(Message::user("u"));
    let start = AgentEvent::MessageStart {
        message: Arc::clone(&message),
        folded: None,
    };
    let end = AgentEvent::MessageEnd { message };
    let wrong = [
        vec![AgentEvent::TurnStart],
        vec![AgentEvent::AgentStart, AgentEvent::AgentStart],
        vec![AgentEvent::AgentStart, start.clone()],
        vec![AgentEvent::AgentStart, AgentEvent::TurnStart, end],
        vec![AgentEvent::AgentStart, AgentEvent::TurnStart, start.clone(), start],
        vec![AgentEvent::AgentStart, AgentEvent::TurnStart, AgentEvent::TurnStart],
        vec![
            AgentEvent::AgentStart,
            AgentEvent::TurnStart,
            AgentEvent::AgentEnd {
                messages: Messages::new(),
            },
        ],
    ];
    for events in wrong {
        let mut reader = Reader::default();
        let (last, before) = events.split_last().expect("there are events");
        for event in before {
            reader.read(event).expect("only the last is wrong");
        }
        assert!(reader.read(last).is_err(), "{}", line(&events));
    }
}
