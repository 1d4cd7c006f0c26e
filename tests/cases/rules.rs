//! Independent checks of the invariants, which hold in every test: I1 on the events as they come, I3 (P1) on what was
//! sent and on what a run added.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use turnstate::{AgentEvent, AgentMessage, Message};

/// I1 and I5, checked event by event: pairs and nesting, and that `ae` carries just the messages that ended.
#[derive(Debug)]
pub(crate) struct Nesting<M> {
    run: bool,
    turn: bool,
    message: bool,
    calls: BTreeSet<usize>,
    ended: Vec<Arc<M>>,
    /// Runs that ended.
    pub(crate) runs: usize,
}

impl<M> Default for Nesting<M> {
    fn default() -> Self {
        Self {
            run: false,
            turn: false,
            message: false,
            calls: BTreeSet::new(),
            ended: Vec::new(),
            runs: 0,
        }
    }
}

impl<M: AgentMessage> Nesting<M> {
    /// What is wrong with this event, if anything.
    pub(crate) fn check(&mut self, event: &AgentEvent<M>) -> Result<(), String> {
        let silent = !self.message && self.calls.is_empty();
        let right = match event {
            AgentEvent::AgentStart => !std::mem::replace(&mut self.run, true),
            AgentEvent::TurnStart => self.run && silent && !std::mem::replace(&mut self.turn, true),
            AgentEvent::TurnEnd { .. } => silent && std::mem::replace(&mut self.turn, false),
            AgentEvent::MessageStart { .. } => self.turn && silent && !std::mem::replace(&mut self.message, true),
            AgentEvent::MessageUpdate { .. } => self.message,
            AgentEvent::MessageEnd { message } => {
                self.ended.push(Arc::clone(message));
                std::mem::replace(&mut self.message, false)
            }
            AgentEvent::ToolExecutionStart { index, .. } => self.turn && !self.message && self.calls.insert(*index),
            AgentEvent::ToolExecutionUpdate { index, .. } => self.calls.contains(index),
            AgentEvent::ToolExecutionEnd { index, .. } => self.calls.remove(index),
            AgentEvent::AgentEnd { messages } => {
                let ended = std::mem::take(&mut self.ended);
                let same = ended.len() == messages.len() && ended.iter().zip(messages).all(|(a, b)| Arc::ptr_eq(a, b));
                pairing(messages.iter().filter_map(|message| message.as_message()))?;
                self.runs += 1;
                same && silent && !self.turn && std::mem::replace(&mut self.run, false)
            }
            _ => false,
        };
        right
            .then_some(())
            .ok_or_else(|| format!("misplaced: {}", event.kind()))
    }
}

/// I3: each call of a message that did not fail has its result behind it, in call order, and no result is alone.
pub(crate) fn pairing<'a>(messages: impl Iterator<Item = &'a Message>) -> Result<(), String> {
    let mut open: VecDeque<&str> = VecDeque::new();
    for message in messages {
        match message {
            Message::ToolResult(result) => {
                let call = open.pop_front();
                if call != Some(result.tool_call_id.as_str()) {
                    return Err(format!("result {:?} where {call:?} is due", result.tool_call_id));
                }
            }
            _ if !open.is_empty() => return Err(format!("no result for {open:?} before a {}", message.role())),
            Message::Assistant(answer) if !answer.stop_reason.is_failure() => {
                open.extend(answer.tool_calls().map(|call| call.id.as_str()));
            }
            _ => {}
        }
    }
    open.is_empty()
        .then_some(())
        .ok_or_else(|| format!("no result for {open:?}"))
}

/// P1 on a request: beside the pairing, no failed answer is sent.
pub(crate) fn sendable<'a>(messages: impl Iterator<Item = &'a Message> + Clone) -> Result<(), String> {
    let failed = |message: &Message| {
        message
            .as_assistant()
            .is_some_and(|answer| answer.stop_reason.is_failure())
    };
    if messages.clone().any(failed) {
        return Err("a failed answer was sent".into());
    }
    pairing(messages)
}

#[test]
fn the_pairing_rule_finds_what_is_wrong() {
    use serde_json::json;
    let message = |json| serde_json::from_value::<Message>(json).unwrap();
    let call = |id: &str, stop: &str| {
        let call = json!({"type": "toolCall", "id": id, "name": "t", "arguments": {}});
        message(json!({"role": "assistant", "content": [call], "stopReason": stop}))
    };
    let result = |id: &str| message(json!({"role": "toolResult", "toolCallId": id, "toolName": "t", "content": []}));
    let user = Message::user("u");
    assert!(pairing([call("a", "toolUse"), result("a"), user.clone()].iter()).is_ok());
    assert!(pairing([call("a", "aborted"), user.clone()].iter()).is_ok());
    for wrong in [
        vec![call("a", "toolUse")],
        vec![result("a")],
        vec![call("a", "toolUse"), user.clone(), result("a")],
        vec![call("a", "toolUse"), result("b")],
        vec![call("a", "toolUse"), result("a"), result("a")],
        vec![call("a", "aborted"), result("a")],
    ] {
        assert!(pairing(wrong.iter()).is_err(), "{wrong:?}");
    }
    assert!(sendable([call("a", "aborted")].iter()).is_err());
}
