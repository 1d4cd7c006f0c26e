//! A model that hands out what was made before, and who drives the loop with it.

use std::ops::{ControlFlow, Range};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::vec;

use futures_core::Stream;
use futures_util::stream::{self, Iter};
use serde_json::json;
use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AwaitingSteering, Ended, Limits, TurnEnd,
};
use turnstate::{
    Agent, AgentEvent, AssistantContent, AssistantEvent, AssistantMessage, CancellationToken, DoneReason, FnTool,
    LoopConfig, Message, Model, Request, StreamFn, ToolCall, Transcript, json_tool,
};

/// A model whose answers are there already.
pub(crate) struct Answers(Mutex<vec::IntoIter<Vec<AssistantEvent>>>);

impl Answers {
    pub(crate) fn new(answers: Vec<Vec<AssistantEvent>>) -> Self {
        Self(Mutex::new(answers.into_iter()))
    }
}

impl StreamFn for Answers {
    type Stream = Iter<vec::IntoIter<AssistantEvent>>;

    fn stream(&self, _: Request, _: CancellationToken) -> Self::Stream {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        stream::iter(answer.expect("an answer for each request"))
    }
}

/// An answer of `n` deltas.
pub(crate) fn text(n: usize) -> Vec<AssistantEvent> {
    let mut events = Vec::with_capacity(n + 4);
    events.push(AssistantEvent::start());
    events.push(AssistantEvent::TextStart { content_index: 0 });
    events.extend((0..n).map(|_| AssistantEvent::text_delta(0, "delta")));
    events.push(AssistantEvent::TextEnd {
        content_index: 0,
        content_signature: None,
    });
    events.push(AssistantEvent::done(DoneReason::Stop));
    events
}

/// An answer that calls the no-op tool, with a value that comes in `n` deltas.
pub(crate) fn arguments(n: usize) -> Vec<AssistantEvent> {
    let mut events = Vec::with_capacity(n + 5);
    events.push(AssistantEvent::start());
    events.push(AssistantEvent::tool_call_start(0, "1", "noop"));
    events.push(AssistantEvent::tool_call_delta(0, r#"{"value":""#));
    events.extend((2..n).map(|_| AssistantEvent::tool_call_delta(0, "delta")));
    events.push(AssistantEvent::tool_call_delta(0, r#""}"#));
    events.push(AssistantEvent::tool_call_end(0));
    events.push(AssistantEvent::done(DoneReason::ToolUse));
    events
}

/// An answer that calls the no-op tool, once for each number.
pub(crate) fn calls(numbers: Range<usize>) -> Vec<AssistantEvent> {
    let mut events = vec![AssistantEvent::start()];
    for (content_index, number) in numbers.enumerate() {
        events.push(AssistantEvent::tool_call_start(
            content_index,
            number.to_string(),
            "noop",
        ));
        events.push(AssistantEvent::tool_call_delta(content_index, r#"{"value":"x"}"#));
        events.push(AssistantEvent::ToolCallEnd {
            content_index,
            tool_call: None,
        });
    }
    events.push(AssistantEvent::done(DoneReason::ToolUse));
    events
}

/// The answers of `n` turns of one call, and a last one.
pub(crate) fn one_by_one(n: usize) -> Vec<Vec<AssistantEvent>> {
    (0..n).map(|i| calls(i..i + 1)).chain([text(1)]).collect()
}

/// What those calls become.
pub(crate) fn call(number: usize) -> ToolCall {
    let mut arguments = serde_json::Map::new();
    arguments.insert("value".to_owned(), "x".into());
    ToolCall::new(number.to_string(), "noop", arguments)
}

pub(crate) fn noop() -> FnTool {
    let parameters = json!({
        "type": "object",
        "properties": { "value": { "type": "string" } },
        "required": ["value"],
    });
    json_tool("noop", "Does nothing", parameters, async |_, _| "ok")
}

/// A message of 1 KiB; the user's and the assistant's in turn.
pub(crate) fn kib(i: usize) -> Arc<Message> {
    let text = "x".repeat(1024);
    Arc::new(if i.is_multiple_of(2) {
        Message::user(text)
    } else {
        let content = vec![AssistantContent::text(text)];
        AssistantMessage {
            content,
            ..AssistantMessage::default()
        }
        .into()
    })
}

/// A transcript that shares nothing but the messages with others.
pub(crate) fn transcript(messages: &[Arc<Message>]) -> Transcript<Message> {
    messages.to_vec().into()
}

pub(crate) fn config(transcript: Transcript<Message>) -> LoopConfig {
    let mut config = LoopConfig::new("m");
    config.plan.transcript = transcript;
    config.plan.tools = [noop()].into_iter().collect();
    config
}

/// An agent with a listener.
pub(crate) fn agent(transcript: Transcript<Message>, model: Answers) -> Agent {
    let agent = Agent::builder("m", model).tool(noop()).transcript(transcript).build();
    agent.subscribe(|event, _| {
        std::hint::black_box(event);
    });
    agent
}

/// The next item; whoever is pending here has only had its rounds.
pub(crate) fn next<S: Stream>(mut stream: Pin<&mut S>) -> Option<S::Item> {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(item) = stream.as_mut().poll_next(&mut cx) {
            return item;
        }
    }
}

/// Runs to the end, as a consumer that counts events. Not inlined, so that a profiler can be told to look at it only.
#[inline(never)]
pub(crate) fn drain<S: Stream<Item = AgentEvent>>(mut run: Pin<&mut S>) -> usize {
    let (mut count, mut whole) = (0, false);
    while let Some(event) = next(run.as_mut()) {
        count += 1;
        whole = matches!(event, AgentEvent::AgentEnd { .. });
    }
    assert!(whole);
    count
}

/// What no engine can be faster than: the deltas of a stream, put together.
#[inline(never)]
pub(crate) fn drain_text<S: Stream<Item = AssistantEvent>>(mut deltas: Pin<&mut S>) -> String {
    let mut said = String::new();
    while let Some(event) = next(deltas.as_mut()) {
        if let AssistantEvent::TextDelta { delta, .. } | AssistantEvent::ToolCallDelta { delta, .. } = event {
            said.push_str(&delta);
        }
    }
    said
}

/// One answer through the machine, with no loop.
#[inline(never)]
pub(crate) fn through_machine(answer: Vec<AssistantEvent>) -> Ended<Message> {
    const NOW: u64 = 0;
    let model = Model::new("m");
    let prompt = vec![Arc::new(Message::user("go"))];
    let mut run = AwaitingSteering::prompt(Transcript::new(), prompt, Limits::default());
    while run.poll_event().is_some() {}
    let AfterSteering::Requesting(request) = run.handle_steering(Vec::new()) else {
        panic!("a prompt wants an answer");
    };
    let mut streaming = request.stream(&model, NOW);
    for event in answer {
        match streaming.handle(event) {
            ControlFlow::Continue(event) => drop(event),
            ControlFlow::Break(end) => match streaming.finish(end, NOW) {
                AfterAnswer::TurnEnd(turn) => return complete(turn),
                _ => panic!("the answer is a text"),
            },
        }
    }
    panic!("the answer has no end");
}

fn complete(mut turn: TurnEnd<Message>) -> Ended<Message> {
    while turn.poll_event().is_some() {}
    let AfterTurn::AwaitingSteering(idle) = turn.handle_stop(false) else {
        panic!("nothing stops it");
    };
    let AfterSteering::FollowUp(idle) = idle.handle_steering(Vec::new()) else {
        panic!("nothing is queued");
    };
    let AfterFollowUp::Ended(mut ended) = idle.handle_messages(Vec::new()) else {
        panic!("nothing is queued");
    };
    while ended.poll_event().is_some() {}
    ended
}
