//! Answers of the model.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::stream::{self, FusedStream};
use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::json;
use turnstate::proxy::ProxyServer;
use turnstate::{
    AssistantContent, AssistantEvent, AssistantMessage, CancellationToken, DoneReason, ErrorReason, Model, Request,
    Response, ScriptedModel, Usage,
};

use crate::support::{ask, events, items};

#[test]
fn events_are_sent_one_by_one_as_they_are() {
    let script = Response::new()
        .thinking("hm")
        .text("two\nlines \u{2028}")
        .call_with_id("c1", "read", json!({"path": "/etc"}))
        .chunk_chars(usize::MAX);
    let server = ProxyServer::open(ScriptedModel::new().reply(script));
    let answer = ask(&server);
    assert_eq!(answer.status(), 200);
    assert_eq!(
        answer.headers(),
        [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no")
        ]
    );
    assert!(answer.refusal().is_none());
    let usage = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.0}}"#;
    let expected = [
        r#"{"type":"start"}"#.to_owned(),
        r#"{"type":"thinking_start","contentIndex":0}"#.to_owned(),
        r#"{"type":"thinking_delta","contentIndex":0,"delta":"hm"}"#.to_owned(),
        r#"{"type":"thinking_end","contentIndex":0}"#.to_owned(),
        r#"{"type":"text_start","contentIndex":1}"#.to_owned(),
        "{\"type\":\"text_delta\",\"contentIndex\":1,\"delta\":\"two\\nlines \u{2028}\"}".to_owned(),
        r#"{"type":"text_end","contentIndex":1}"#.to_owned(),
        r#"{"type":"toolcall_start","contentIndex":2,"id":"c1","toolName":"read"}"#.to_owned(),
        r#"{"type":"toolcall_delta","contentIndex":2,"delta":"{\"path\":\"/etc\"}"}"#.to_owned(),
        r#"{"type":"toolcall_end","contentIndex":2}"#.to_owned(),
        format!(r#"{{"type":"done","reason":"toolUse","usage":{usage}}}"#),
    ];
    assert_eq!(items(answer), expected.map(|event| format!("data: {event}\n\n")));
}

#[test]
fn nothing_is_held_back_and_nothing_is_sent_early() {
    let server = ProxyServer::open(ScriptedModel::new().reply(Response::new().text("a b").pending_between()));
    let mut answer = ask(&server);
    let mut sent = 0;
    loop {
        match answer.next().now_or_never() {
            Some(Some(_)) => sent += 1,
            Some(None) => break,
            None => {}
        }
    }
    assert_eq!(sent, 6);
    assert!(answer.is_terminated());
}

#[test]
fn a_failure_of_the_model_is_an_event() {
    let server = ProxyServer::open(ScriptedModel::new().fail("overloaded"));
    let events = events(ask(&server));
    assert_eq!(events[1]["errorMessage"], "overloaded");
    assert_eq!((events.len(), &events[1]["reason"]), (2, &json!("error")));
}

/// C094.
#[test]
fn an_abort_of_the_model_stays_an_abort() {
    let aborted = AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: None,
        usage: Box::default(),
        message: None,
        failure: None,
    };
    let server = ProxyServer::open(ScriptedModel::new().reply(Response::from_events([aborted])));
    let events = events(ask(&server));
    assert_eq!(
        (&events[0]["type"], &events[0]["reason"]),
        (&json!("error"), &json!("aborted"))
    );
}

#[test]
fn a_panic_half_way_is_an_error_event() {
    let server = ProxyServer::open(ScriptedModel::new().reply(Response::new().text("Hel").panic("secret")));
    let events = events(ask(&server));
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["reason"]), (&json!("error"), &json!("error")));
    assert_eq!(last["errorMessage"], "the model's answer panicked");
    assert_eq!(events[2]["delta"], "Hel");
}

#[test]
fn an_early_end_is_an_error_event() {
    for script in [Response::new().text("Hel").end_early(), Response::from_events([])] {
        let server = ProxyServer::open(ScriptedModel::new().reply(script));
        let last = events(ask(&server)).pop().unwrap();
        assert_eq!(last["type"], "error");
        assert_eq!(last["errorMessage"], "the model's answer ended before it was complete");
    }
}

/// C025.
#[test]
fn nothing_is_sent_after_the_terminal_event() {
    let late = [
        AssistantEvent::start(),
        AssistantEvent::done(DoneReason::Stop),
        AssistantEvent::start(),
        AssistantEvent::error("late"),
    ];
    let server = ProxyServer::open(move |_: Request, _| stream::iter(late.clone()));
    assert_eq!(events(ask(&server)).len(), 2);
}

/// Clients that know only the fold find usage and error where they look for them.
#[test]
fn a_whole_message_is_told_twice() {
    let usage = Usage {
        output: 7,
        ..Usage::default()
    };
    let whole = AssistantMessage {
        content: vec![AssistantContent::text("hi")],
        usage,
        error_message: Some("cut".into()),
        ..AssistantMessage::new(&Model::new("m"), 0)
    };
    let done = AssistantEvent::Done {
        reason: DoneReason::Stop,
        usage: Box::default(),
        message: Some(Box::new(whole.clone())),
    };
    let error = AssistantEvent::Error {
        reason: ErrorReason::Error,
        error_message: None,
        usage: Box::default(),
        message: Some(Box::new(whole)),
        failure: None,
    };
    let model = ScriptedModel::new()
        .reply(Response::from_events([done]))
        .reply(Response::from_events([error]));
    let server = ProxyServer::open(model);
    let done = events(ask(&server)).pop().unwrap();
    assert_eq!(
        (&done["usage"]["output"], &done["message"]["content"][0]["text"]),
        (&json!(7), &json!("hi"))
    );
    let error = events(ask(&server)).pop().unwrap();
    assert_eq!(
        (&error["usage"]["output"], &error["errorMessage"]),
        (&json!(7), &json!("cut"))
    );
}

/// Writes down when it is dropped, and whether its token is cancelled then.
struct Probe {
    events: Vec<AssistantEvent>,
    cancel: CancellationToken,
    dropped: Arc<Mutex<Option<bool>>>,
}

impl Stream for Probe {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        self.events
            .pop()
            .map_or(Poll::Pending, |event| Poll::Ready(Some(event)))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap() = Some(self.cancel.is_cancelled());
    }
}

fn probed(
    events: Vec<AssistantEvent>,
) -> (
    ProxyServer<impl turnstate::StreamFn<Stream = Probe>>,
    Arc<Mutex<Option<bool>>>,
) {
    let dropped = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&dropped);
    let server = ProxyServer::open(move |_: Request, cancel| Probe {
        events: events.clone(),
        cancel,
        dropped: Arc::clone(&seen),
    });
    (server, dropped)
}

#[test]
fn dropping_the_answer_cancels_the_model() {
    for polls in 0..3 {
        let (server, dropped) = probed(vec![AssistantEvent::start()]);
        let mut answer = ask(&server);
        for _ in 0..polls {
            let _ = answer.next().now_or_never();
        }
        assert_eq!(*dropped.lock().unwrap(), None);
        drop(answer);
        assert_eq!(*dropped.lock().unwrap(), Some(true));
    }
}

/// C001: the model's stream goes at its terminal event, not with the connection.
#[test]
fn the_terminal_event_drops_the_model_without_cancelling() {
    let (server, dropped) = probed(vec![AssistantEvent::done(DoneReason::Stop)]);
    let mut answer = ask(&server);
    assert!(answer.next().now_or_never().flatten().is_some());
    assert_eq!(*dropped.lock().unwrap(), Some(false));
    assert_eq!(answer.next().now_or_never(), Some(None));
}

#[test]
fn auto_traits() {
    fn server<T: Send + Sync + Clone + 'static>() {}
    fn answer<T: Send + Unpin + 'static>() {}
    server::<ProxyServer<ScriptedModel>>();
    answer::<turnstate::proxy::ProxyAnswer<turnstate::ScriptedStream>>();
}
