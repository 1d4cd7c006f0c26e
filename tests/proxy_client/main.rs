//! The client end of the proxy: the decoder alone, and the stream function against a server on a loopback socket.
//!
//! The `cNNN` in a test's name is the case it covers.
#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed assumption of a helper is its test's failure

mod abort;
mod agent;
mod decode;
mod lines;
mod properties;
mod request;
mod server;

use serde_json::{Value, json};
use turnstate::proxy::ProxyDecoder;
use turnstate::{AssistantEvent, AssistantMessage, Model, PartialMessage};

/// The message of an answer that the server does not complete.
const CLOSED: &str = "Connection closed by proxy server before the response completed";

/// A body with these events.
fn px(events: &[Value]) -> Vec<u8> {
    events
        .iter()
        .flat_map(|event| format!("data: {event}\n\n").into_bytes())
        .collect()
}

fn start() -> Value {
    json!({"type": "start"})
}

fn text_start(index: u64) -> Value {
    json!({"type": "text_start", "contentIndex": index})
}

fn text_delta(index: u64, delta: &str) -> Value {
    json!({"type": "text_delta", "contentIndex": index, "delta": delta})
}

fn call_start(index: u64, id: &str) -> Value {
    json!({"type": "toolcall_start", "contentIndex": index, "id": id, "toolName": "t"})
}

fn call_delta(index: u64, delta: &str) -> Value {
    json!({"type": "toolcall_delta", "contentIndex": index, "delta": delta})
}

fn call_end(index: u64) -> Value {
    json!({"type": "toolcall_end", "contentIndex": index})
}

fn done(reason: &str) -> Value {
    json!({"type": "done", "reason": reason, "usage": {"input": 1, "output": 2, "totalTokens": 3}})
}

/// `start`, and a text block with `text`.
fn said(text: &str) -> Vec<Value> {
    vec![start(), text_start(0), text_delta(0, text)]
}

/// What the decoder makes of a body in one piece.
fn decode(body: impl AsRef<[u8]>) -> Vec<AssistantEvent> {
    decode_pieces([body])
}

fn decode_pieces(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<AssistantEvent> {
    let mut decoder = ProxyDecoder::default();
    pieces.into_iter().for_each(|piece| decoder.push(piece.as_ref()));
    decoder.end();
    std::iter::from_fn(|| decoder.next_event()).collect()
}

/// The final message of an answer, every event of which must fit.
fn fold(events: Vec<AssistantEvent>) -> AssistantMessage {
    let mut partial = PartialMessage::new(&Model::new("m"), 0);
    for event in events {
        partial.apply(&event).unwrap();
        match event {
            AssistantEvent::Done { reason, usage, message } => {
                return partial.done(reason, *usage, message.map(|message| *message));
            }
            AssistantEvent::Error {
                reason,
                error_message,
                usage,
                message,
                failure: _,
            } => return partial.broken(reason, error_message, *usage, message.map(|message| *message)),
            _ => {}
        }
    }
    panic!("no terminal event");
}

/// The message of the error that an answer ends with, which is its only terminal event.
fn error_of(events: &[AssistantEvent]) -> String {
    let (last, before) = events.split_last().unwrap();
    assert!(!before.iter().any(AssistantEvent::is_terminal), "{before:?}");
    match last {
        AssistantEvent::Error {
            error_message: Some(message),
            ..
        } => message.clone(),
        other => panic!("no error: {other:?}"),
    }
}
