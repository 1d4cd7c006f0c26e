//! How an aborted run closes, by the rules of §4.6 of the design, worked out from what was told before the abort.

use std::sync::Arc;

use turnstate::machine::ExecutionMode;
use turnstate::{AgentEvent, AssistantMessage, Message, StopReason};

/// An event in shorthand, with what the rules are about.
pub(crate) fn shape(event: &AgentEvent) -> String {
    match event {
        AgentEvent::AgentStart => "as".into(),
        AgentEvent::AgentEnd { .. } => "ae".into(),
        AgentEvent::TurnStart => "ts".into(),
        AgentEvent::TurnEnd { tool_results, .. } => format!("te[{}]", tool_results.len()),
        AgentEvent::MessageStart { message, .. } => format!("ms({})", message.role()),
        AgentEvent::MessageUpdate { .. } => "mu".into(),
        AgentEvent::MessageEnd { message } => match &**message {
            Message::Assistant(answer) if answer.stop_reason == StopReason::Aborted => "me(aborted)".into(),
            message => format!("me({})", message.role()),
        },
        AgentEvent::ToolExecutionStart { index, .. } => format!("xs({index})"),
        AgentEvent::ToolExecutionUpdate { index, .. } => format!("xu({index})"),
        AgentEvent::ToolExecutionEnd { index, result, .. } if result.is_error => format!("xe({index}!)"),
        AgentEvent::ToolExecutionEnd { index, .. } => format!("xe({index})"),
        other => panic!("an event of which the rules know nothing: {other:?}"),
    }
}

/// Events in shorthand.
pub(crate) fn shapes(events: &[AgentEvent]) -> Vec<String> {
    events.iter().map(shape).collect()
}

/// What was told of the last turn.
#[derive(Default)]
struct Turn<'a> {
    open: bool,
    /// A message that began but did not end.
    begun: Option<&'a Arc<Message>>,
    answer: Option<&'a AssistantMessage>,
    announced: Vec<usize>,
    ended: Vec<(usize, bool)>,
    results_begun: usize,
    results_ended: usize,
}

impl<'a> Turn<'a> {
    fn of(told: &'a [AgentEvent]) -> Self {
        let mut turn = Turn::default();
        for event in told {
            match event {
                AgentEvent::TurnStart => {
                    turn = Turn {
                        open: true,
                        ..Turn::default()
                    }
                }
                AgentEvent::TurnEnd { .. } => turn.open = false,
                AgentEvent::MessageStart { message, .. } => {
                    turn.begun = Some(message);
                    turn.results_begun += usize::from(message.role() == "toolResult");
                }
                AgentEvent::MessageEnd { message } => {
                    turn.begun = None;
                    turn.answer = message.as_assistant().or(turn.answer);
                    turn.results_ended += usize::from(message.role() == "toolResult");
                }
                AgentEvent::ToolExecutionStart { index, .. } => turn.announced.push(*index),
                AgentEvent::ToolExecutionEnd { index, result, .. } => turn.ended.push((*index, result.is_error)),
                _ => {}
            }
        }
        turn
    }

    /// What is still to be told of the calls of the answer; those without a result are aborted.
    fn rest_of_calls(&self, calls: usize, mode: ExecutionMode) -> Vec<String> {
        let (mut executions, mut results) = (Vec::new(), Vec::new());
        for index in 0..calls {
            if !self.announced.contains(&index) {
                executions.push(format!("xs({index})"));
            }
            if self.ended.iter().all(|(ended, _)| *ended != index) {
                executions.push(format!("xe({index}!)"));
            }
            let messages = match mode {
                ExecutionMode::Parallel => &mut results,
                ExecutionMode::Sequential => &mut executions,
            };
            if index >= self.results_begun {
                messages.push("ms(toolResult)".into());
            }
            if index >= self.results_ended {
                messages.push("me(toolResult)".into());
            }
        }
        executions.extend(results);
        executions
    }
}

/// Checks what was told of a run that was aborted after its first `told` events. Calls that run side by side may end
/// in any order, and what they reported before the abort may come after it.
#[track_caller]
pub(crate) fn check_closing(all: &[AgentEvent], told: usize, mode: ExecutionMode) {
    compare(all, told, mode, |shape| shape);
}

/// The same for a run that was aborted before it had told all it knew: calls whose end was not told may have finished.
#[track_caller]
pub(crate) fn check_closing_of_busy(all: &[AgentEvent], told: usize, mode: ExecutionMode) {
    compare(all, told, mode, |shape| shape.replace('!', ""));
}

#[track_caller]
fn compare(all: &[AgentEvent], told: usize, mode: ExecutionMode, of_interest: fn(String) -> String) {
    let (told, rest) = all.split_at(told);
    let expected = closing(told, mode).into_iter().map(of_interest);
    let rest = shapes(rest).into_iter().map(of_interest);
    let (mut expected, mut rest): (Vec<_>, Vec<_>) = (expected.collect(), rest.collect());
    rest.retain(|shape| !shape.starts_with("xu"));
    if mode == ExecutionMode::Parallel {
        by_call(&mut expected);
        by_call(&mut rest);
    }
    assert_eq!(rest, expected, "after {:?}", shapes(told));
}

/// Sorts the executions at the front by call: of each its start, then its end.
fn by_call(shapes: &mut [String]) {
    let executions = shapes.iter().take_while(|shape| shape.starts_with('x')).count();
    shapes[..executions].sort_by_key(|shape| (shape.as_bytes()[3], shape.starts_with("xe")));
}

/// What is told after `told` of a run with one prompt message that is aborted there, while nothing foreign moves.
fn closing(told: &[AgentEvent], mode: ExecutionMode) -> Vec<String> {
    let mut rest: Vec<String> = Vec::new();
    let mut tell = |events: &[&str]| rest.extend(events.iter().map(|event| (*event).to_owned()));
    let turn = Turn::of(told);
    match told.last() {
        Some(AgentEvent::AgentEnd { .. }) => return rest,
        // The prompt is told whatever happens.
        Some(AgentEvent::AgentStart) => tell(&["ts", "ms(user)", "me(user)"]),
        Some(AgentEvent::TurnStart) if told.len() == 2 => tell(&["ms(user)", "me(user)"]),
        _ => {}
    }
    match turn.begun.map(|message| message.role()) {
        Some("user") => tell(&["me(user)"]),
        Some("assistant") => {
            tell(&["me(aborted)", "te[0]", "ae"]);
            return rest;
        }
        _ => {}
    }
    let calls = turn.answer.map_or(0, |answer| answer.tool_calls().count());
    match (turn.open || told.len() == 1, turn.answer) {
        (true, None) => tell(&["ms(assistant)", "me(aborted)", "te[0]", "ae"]),
        (true, Some(_)) if calls == 0 => tell(&["te[0]", "ae"]),
        (true, Some(_)) => {
            let results = format!("te[{calls}]");
            rest.extend(turn.rest_of_calls(calls, mode));
            rest.push(results);
            rest.extend(["ts", "ms(assistant)", "me(aborted)", "te[0]", "ae"].map(str::to_owned));
        }
        (false, _) if calls > 0 => tell(&["ts", "ms(assistant)", "me(aborted)", "te[0]", "ae"]),
        (false, _) => tell(&["ae"]),
    }
    rest
}
