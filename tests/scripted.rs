//! The scripted model: what each response streams, when it is pending, and what is recorded.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed assumption in a test is the test's failure"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::FusedStream;
use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::{Value, json};
use turnstate::{
    AssistantContent, AssistantEvent, AssistantMessage, CancellationToken, DoneReason, ErrorReason, Message, Model,
    PartialMessage, Request, Response, ResponseHead, ScriptedModel, ScriptedStream, StopReason, StreamFn, Usage,
};

/// An event as the tests below write it: kind, content index, what it says.
fn show(event: &AssistantEvent) -> String {
    let mut json = serde_json::to_value(event).unwrap();
    let fields = json.as_object_mut().unwrap();
    let usage: Usage = fields
        .remove("usage")
        .map_or(Usage::default(), |usage| serde_json::from_value(usage).unwrap());
    let mut words: Vec<String> = fields
        .values()
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .collect();
    if usage.total_tokens > 0 {
        words.push(format!("({} tokens)", usage.total_tokens));
    }
    words.join(" ")
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task without a runtime: polls a stream, and counts how often it was woken.
struct Task {
    stream: ScriptedStream,
    wakes: Arc<Wakes>,
    cancel: CancellationToken,
}

impl Task {
    fn new(model: &ScriptedModel) -> Self {
        let cancel = CancellationToken::new();
        Self {
            stream: model.stream(Request::new("scripted-1"), cancel.clone()),
            wakes: Arc::default(),
            cancel,
        }
    }

    fn of(response: impl Into<Response>) -> Self {
        Self::new(&ScriptedModel::new().reply(response))
    }

    /// One poll: the event, `end` or `pending`.
    fn poll(&mut self) -> String {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.stream.poll_next_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(event)) => show(&event),
            Poll::Ready(None) => "end".into(),
            Poll::Pending => "pending".into(),
        }
    }

    /// Polls while it is ready or has been woken. The last item is `end`, or the `pending` nobody wakes from.
    fn run(&mut self) -> String {
        let mut lines = Vec::new();
        loop {
            assert!(lines.len() < 100, "{lines:#?}");
            let line = self.poll();
            let woken = self.wakes.0.swap(0, Ordering::Relaxed) > 0;
            let stops = line == "end" || line == "pending" && !woken;
            lines.push(line);
            if stops {
                return lines.join(" | ");
            }
        }
    }

    fn woken(&self) -> bool {
        self.wakes.0.load(Ordering::Relaxed) > 0
    }
}

/// What a model streams in answer to an empty request.
fn events(model: &ScriptedModel) -> Vec<AssistantEvent> {
    let stream = model.stream(Request::new("scripted-1"), CancellationToken::new());
    stream.collect().now_or_never().expect("it is never pending")
}

/// The message the events fold to.
fn fold(events: &[AssistantEvent]) -> AssistantMessage {
    let mut partial = PartialMessage::new(&Model::new("scripted-1"), 0);
    for event in events {
        partial.apply(event).unwrap();
        match event.clone() {
            AssistantEvent::Done { reason, usage, message } => {
                return partial.done(reason, *usage, message.map(|m| *m));
            }
            AssistantEvent::Error {
                reason,
                error_message,
                usage,
                message,
                failure: _,
            } => return partial.broken(reason, error_message, *usage, message.map(|m| *m)),
            _ => {}
        }
    }
    partial.message().clone()
}

fn usage(total_tokens: u64) -> Usage {
    Usage {
        total_tokens,
        ..Usage::default()
    }
}

#[track_caller]
fn assert_streams(response: impl Into<Response>, expected: &str) {
    assert_eq!(Task::of(response).run(), expected);
}

#[test]
fn good_responses() {
    assert_streams(Response::new(), "start | done stop | end");
    assert_streams(
        "Take an\numbrella",
        "start | text_start 0 | text_delta 0 Take  | text_delta 0 an\n | text_delta 0 umbrella | text_end 0 | \
         done stop | end",
    );
    assert_streams(String::new(), "start | text_start 0 | text_end 0 | done stop | end");
    assert_streams(
        Response::new()
            .thinking("Rain?")
            .text("Wait.")
            .call("weather", json!({"name": "Oslo", "at": [1, 2]}))
            .call_with_id("", "time", json!({}))
            .call("time", Value::Null)
            .usage(usage(7)),
        "start | thinking_start 0 | thinking_delta 0 Rain? | thinking_end 0 | text_start 1 | \
         text_delta 1 Wait. | text_end 1 | toolcall_start 2 call_1 weather | toolcall_delta 2 {\"name\": | \
         toolcall_delta 2 \"Oslo\", | toolcall_delta 2 \"at\": | toolcall_delta 2 [1, | toolcall_delta 2 2]} | \
         toolcall_end 2 | toolcall_start 3  time | toolcall_delta 3 {} | toolcall_end 3 | \
         toolcall_start 4 call_2 time | toolcall_delta 4 null | toolcall_end 4 | done toolUse (7 tokens) | end",
    );
    assert_streams(Response::new().stop(DoneReason::Length), "start | done length | end");
}

#[test]
fn responses_that_break_off_leave_their_block_open() {
    let begun = || Response::new().text("Hel");
    for (response, rest) in [
        (begun().fail("no more"), "error error no more | end"),
        (begun().usage(usage(3)).fail("no"), "error error no (3 tokens) | end"),
        (begun().end_early(), "end"),
        (begun().silence(), "pending"),
        (begun().deaf().silence(), "pending"),
        (begun().silence().text("never"), "pending"),
    ] {
        assert_streams(response, &format!("start | text_start 0 | text_delta 0 Hel | {rest}"));
    }
    // Not so what merely dawdles.
    assert_streams(
        Response::from_events([]).text("Hel").pending_once().text("lo"),
        "text_start 0 | text_delta 0 Hel | pending | text_end 0 | text_start 1 | text_delta 1 lo | end",
    );
}

#[test]
fn raw_events() {
    let delta = AssistantEvent::text_delta(5, "x");
    let done = AssistantEvent::done(DoneReason::Stop);
    let text_end = AssistantEvent::TextEnd {
        content_index: 0,
        content_signature: Some("s".into()),
    };
    let head = AssistantEvent::Start {
        head: Some(Box::new(ResponseHead {
            model: Some("m".into()),
            ..ResponseHead::default()
        })),
    };

    assert_streams(vec![], "end");
    assert_streams(vec![done.clone(), delta.clone()], "done stop | text_delta 5 x | end");
    assert_streams(Response::from_events([]).silence(), "pending");
    assert_streams(Response::from_events([]).end_early().fail("no"), "error error no | end");
    assert_streams(
        Response::from_events([delta.clone()]).text("a"),
        "text_delta 5 x | text_start 6 | text_delta 6 a | end",
    );
    assert_streams(Response::new().event(head), "start m | done stop | end");
    assert_streams(Response::new().event(done), "start | done stop | end");
    assert_streams(
        Response::new().text("a").event(delta).event(text_end).text("b"),
        "start | text_start 0 | text_delta 0 a | text_delta 5 x | text_end 0 s | text_start 6 | \
         text_delta 6 b | text_end 6 | done stop | end",
    );
    let start = AssistantEvent::tool_call_start(0, "id", "t");
    assert_streams(
        Response::new()
            .event(start)
            .event(AssistantEvent::tool_call_delta(0, "{}")),
        "start | toolcall_start 0 id t | toolcall_delta 0 {} | done toolUse | end",
    );
}

#[test]
fn chunks_are_characters() {
    fn deltas(model: &ScriptedModel) -> Vec<String> {
        let deltas = events(model).into_iter().filter_map(|event| match event {
            AssistantEvent::TextDelta { delta, .. } | AssistantEvent::ToolCallDelta { delta, .. } => Some(delta),
            _ => None,
        });
        deltas.collect()
    }
    for (chars, expected) in [
        (0, ["ä", "€", "𝄞", "z", " "].as_slice()),
        (1, &["ä", "€", "𝄞", "z", " "]),
        (2, &["ä€", "𝄞z", " "]),
        (5, &["ä€𝄞z "]),
        (usize::MAX, &["ä€𝄞z "]),
    ] {
        assert_eq!(deltas(&ScriptedModel::new().chunk_chars(chars).text("ä€𝄞z ")), expected);
        assert_eq!(
            deltas(&ScriptedModel::new().reply(Response::new().text("ä€𝄞z ").chunk_chars(chars))),
            expected
        );
    }
    let own = ScriptedModel::new()
        .chunk_chars(1)
        .reply(Response::new().chunk_chars(9).call("t", json!({"a": 1})));
    assert_eq!(deltas(&own), ["{\"a\":1}"]);
    let later = ScriptedModel::new().text("a b").chunk_chars(1);
    assert_eq!(deltas(&later), ["a ", "b"]);
}

#[test]
fn events_fold_to_the_message() {
    let arguments = json!({"z": "ä, :\"", "a": [1, {"b": null}], "m": 1.5});
    let response = Response::new()
        .thinking("so, so")
        .text("Take an umbrella.")
        .call("weather", arguments.clone())
        .call_raw("weather", "{\"a\":")
        .usage(usage(9));
    for chars in [1, 2, 7, usize::MAX] {
        let message = fold(&events(
            &ScriptedModel::new().chunk_chars(chars).reply(response.clone()),
        ));
        assert_eq!(message.text(), "Take an umbrella.");
        assert!(matches!(&message.content[0], AssistantContent::Thinking(block) if block.thinking == "so, so"));
        assert_eq!((message.stop_reason, message.usage), (StopReason::ToolUse, usage(9)));
        let calls: Vec<_> = message.tool_calls().collect();
        assert_eq!((calls[0].id.as_str(), calls[1].id.as_str()), ("call_1", "call_2"));
        // As text, because the order of the keys counts.
        assert_eq!(
            Value::Object(calls[0].arguments.clone()).to_string(),
            arguments.to_string()
        );
        assert!(calls[1].arguments.is_empty() && calls[1].arguments_error.is_some());
    }
    let failed = fold(&events(
        &ScriptedModel::new().reply(Response::new().text("Hel").fail("no more")),
    ));
    assert_eq!((failed.text().as_str(), failed.stop_reason), ("Hel", StopReason::Error));
    assert_eq!(failed.error_message.as_deref(), Some("no more"));
}

#[test]
fn pending_wakes() {
    assert_streams(
        Response::new().pending_once().pending_once(),
        "start | pending | pending | done stop | end",
    );
    assert_streams(
        Response::new().text("Hi").pending_between(),
        "start | pending | text_start 0 | pending | text_delta 0 Hi | pending | text_end 0 | pending | \
         done stop | end",
    );
}

#[test]
fn abort_wakes_silence() {
    let mut task = Task::of(Response::new().silence());
    assert_eq!(task.run(), "start | pending");
    assert_eq!(task.run(), "pending"); // not woken, however often it is polled
    assert!(!task.stream.is_terminated());
    task.cancel.cancel();
    assert!(task.woken());
    assert_eq!(task.run(), "error aborted Request was aborted | end");
    assert!(task.stream.is_terminated());
}

#[test]
fn abort_ends_a_response_at_its_next_poll() {
    // However many events it has streamed, as long as some are left.
    for polls in 0..4 {
        for response in [
            Response::new().text("a b").fail("no"),
            Response::new().text("a b").panic("no"),
        ] {
            let mut task = Task::of(response);
            for _ in 0..polls {
                task.poll();
            }
            task.cancel.cancel();
            assert_eq!(task.run(), "error aborted Request was aborted | end");
        }
    }
    // A response that is over stays so.
    let mut task = Task::of("Hi");
    task.run();
    task.cancel.cancel();
    assert_eq!(task.run(), "end");
}

#[test]
fn the_deaf_do_not_notice_an_abort() {
    let mut silent = Task::of(Response::new().silence().deaf());
    silent.run();
    silent.cancel.cancel();
    assert!(!silent.woken());
    assert_eq!(silent.run(), "pending");

    let mut talking = Task::of(Response::new().deaf());
    talking.cancel.cancel();
    assert_eq!(talking.run(), "start | done stop | end");
}

#[test]
fn panics() {
    let mut task = Task::of(Response::new().panic("scripted panic"));
    assert_eq!(task.poll(), "start");
    let payload = catch_unwind(AssertUnwindSafe(|| task.poll())).unwrap_err();
    assert_eq!(payload.downcast_ref::<String>().unwrap(), "scripted panic");
    assert_eq!(task.run(), "end");

    // A fallback that panics does so in the call, and breaks nothing.
    let model = ScriptedModel::new().fallback(|_| -> Response { panic!("scripted panic") });
    catch_unwind(AssertUnwindSafe(|| Task::new(&model))).err().unwrap();
    assert_eq!(model.requests().len(), 1);
    model.push("Hi");
    assert_eq!(fold(&events(&model)).text(), "Hi");
}

#[test]
fn pace_delays_each_delta() {
    let (gate, delays) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let model = ScriptedModel::new().text("a b").pace({
        let (gate, delays) = (gate.clone(), Arc::clone(&delays));
        move || {
            delays.fetch_add(1, Ordering::Relaxed);
            gate.clone().cancelled_owned()
        }
    });
    let mut task = Task::new(&model);
    assert_eq!(task.run(), "start | text_start 0 | pending");
    assert_eq!(task.run(), "pending");
    assert_eq!(delays.load(Ordering::Relaxed), 1);
    gate.cancel();
    assert!(task.woken());
    assert_eq!(
        task.run(),
        "text_delta 0 a  | text_delta 0 b | text_end 0 | done stop | end"
    );
    assert_eq!(delays.load(Ordering::Relaxed), 2);
}

#[test]
fn abort_wakes_a_delay_unless_deaf() {
    let model = ScriptedModel::new()
        .pace(std::future::pending)
        .text("a")
        .reply(Response::new().text("a").deaf());
    let mut task = Task::new(&model);
    task.run();
    task.cancel.cancel();
    assert!(task.woken());
    assert_eq!(task.run(), "error aborted Request was aborted | end");

    let mut deaf = Task::new(&model);
    deaf.run();
    deaf.cancel.cancel();
    assert_eq!(deaf.run(), "pending");
}

#[test]
fn requests_are_recorded_and_answered_in_order() {
    let model = ScriptedModel::new().text("one").call("t", json!({}));
    let boxed = model.clone().boxed();
    assert_eq!((model.remaining(), model.requests().len()), (2, 0));
    for prompt in ["a", "b", "c"] {
        let mut request = Request::new(Model::new("m"));
        request.system_prompt = "Be brief.".into();
        request.messages.push(Message::user(prompt).into());
        // Recorded and taken when it is asked, whether or not the answer is read.
        drop(boxed.stream(request, CancellationToken::new()));
    }
    let requests = model.requests();
    assert_eq!(
        requests.iter().map(|r| r.messages[0].text()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    assert!(
        requests
            .iter()
            .all(|r| &*r.system_prompt == "Be brief." && r.model.id == "m")
    );
    assert_eq!(model.remaining(), 0);

    // Ids count on over the script.
    model.push(Response::new().call("t", json!({})));
    assert_eq!(fold(&events(&model)).tool_calls().next().unwrap().id, "call_2");
}

#[test]
fn beyond_the_script() {
    let model = ScriptedModel::new().text("one");
    events(&model);
    for _ in 0..2 {
        assert_eq!(events(&model), [AssistantEvent::error("script exhausted")]);
    }

    let handle = model.clone();
    let model = model.fallback(move |request| {
        // The script can be read and extended from here, and each answer is a response of its own.
        Response::new().call(
            "t",
            json!({"asked": handle.requests().len(), "model": request.model.id}),
        )
    });
    model.push("two");
    assert_eq!(fold(&events(&model)).text(), "two");
    for (id, asked) in [("call_1", 5), ("call_2", 6)] {
        let message = fold(&events(&model));
        let call = message.tool_calls().next().unwrap();
        assert_eq!((call.id.as_str(), &call.arguments["asked"]), (id, &json!(asked)));
    }
}

#[test]
fn an_aborted_request_says_so_first() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let aborted = AssistantEvent::Error {
        reason: ErrorReason::Aborted,
        error_message: Some("Request was aborted".into()),
        usage: Box::default(),
        message: None,
        failure: None,
    };
    let mut stream = pin!(ScriptedModel::new().text("Hi").stream(Request::new("m"), cancel));
    assert_eq!(stream.next().now_or_never(), Some(Some(aborted)));
    assert_eq!(stream.next().now_or_never(), Some(None));
}

#[test]
fn auto_traits() {
    fn stream<T: Stream + FusedStream + Send + Unpin + std::fmt::Debug + 'static>() {}
    fn handle<T: StreamFn + Clone + Send + Sync + Unpin + std::fmt::Debug>() {}
    fn value<T: Clone + PartialEq + Send + Sync + Unpin + std::fmt::Debug>() {}
    stream::<ScriptedStream>();
    handle::<ScriptedModel>();
    value::<Response>();
}
