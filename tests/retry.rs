//! Asking again: which failures, how often, after which wait, and what is told. Time is virtual.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed assumption in a test is the test's failure"
)]

use std::future::{Ready, pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use turnstate::{
    Agent, AssistantEvent, CancellationToken, DoneReason, Failure, Request, Response, Retry, RetryAttempt, RunEnd,
    ScriptedModel, StreamFn, StreamOptions,
};

fn status(status: u16) -> Failure {
    Failure::Status {
        status,
        retry_after_ms: None,
    }
}

fn asks(retry_after_ms: u64) -> Failure {
    Failure::Status {
        status: 429,
        retry_after_ms: Some(retry_after_ms),
    }
}

fn failed(failure: Failure) -> AssistantEvent {
    AssistantEvent::error("no").with_failure(failure)
}

fn hello() -> Vec<AssistantEvent> {
    vec![
        AssistantEvent::start(),
        AssistantEvent::text_start(0),
        AssistantEvent::text_delta(0, "Hello"),
        AssistantEvent::text_end(0),
        AssistantEvent::done(DoneReason::Stop),
    ]
}

fn model(answers: impl IntoIterator<Item = Vec<AssistantEvent>>) -> ScriptedModel {
    answers.into_iter().fold(ScriptedModel::new(), |model, answer| {
        model.reply(Response::from_events(answer))
    })
}

/// The waits of a retry; each is over at once.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<u128>>>);

impl Waits {
    fn wait(&self) -> impl Fn(Duration) -> Ready<()> + Send + Sync + use<> {
        let waits = self.clone();
        move |delay| {
            waits.0.lock().unwrap().push(delay.as_millis());
            ready(())
        }
    }

    fn taken(&self) -> Vec<u128> {
        self.0.lock().unwrap().clone()
    }
}

fn all(stream: impl Stream<Item = AssistantEvent>) -> Vec<AssistantEvent> {
    stream.collect().now_or_never().expect("nothing waits")
}

fn request(max_retry_delay_ms: Option<u64>) -> Request {
    let mut options = StreamOptions::default();
    options.max_retry_delay_ms = max_retry_delay_ms;
    let mut request = Request::new("m");
    request.options = Arc::new(options);
    request
}

#[test]
fn transient_failures_before_content_are_retried() {
    let long = || failed(asks(61_000));
    let after_start = || vec![AssistantEvent::start(), failed(status(500))];
    let last = |event: AssistantEvent| vec![event];
    // The cap, the answers before `hello`, the waits, and the end that is told if it is not `hello`.
    let cases = [
        (None, vec![vec![failed(Failure::Connect)]], vec![1000], None),
        (None, vec![vec![failed(status(408))]], vec![1000], None),
        (None, vec![vec![failed(status(429))]], vec![1000], None),
        (
            None,
            vec![vec![failed(status(503))], vec![failed(status(529))]],
            vec![1000, 2000],
            None,
        ),
        // A start is told once, and that of the answer.
        (None, vec![after_start(), after_start()], vec![1000, 2000], None),
        // The third retry is the last.
        (
            None,
            vec![vec![failed(status(500))]; 4],
            vec![1000, 2000, 4000],
            Some(last(failed(status(500)))),
        ),
        (
            None,
            vec![after_start(); 4],
            vec![1000, 2000, 4000],
            Some(after_start()),
        ),
        // What the provider asks for counts if it is longer, up to the cap.
        (None, vec![vec![failed(asks(7_500))]], vec![7_500], None),
        (None, vec![vec![failed(asks(10))]], vec![1000], None),
        (None, vec![vec![failed(asks(60_000))]], vec![60_000], None),
        (None, vec![vec![long()]], vec![], Some(last(long()))),
        (Some(0), vec![vec![long()]], vec![61_000], None),
        (
            Some(500),
            vec![vec![failed(asks(501))]],
            vec![],
            Some(last(failed(asks(501)))),
        ),
        // Not transient, or not known.
        (
            None,
            vec![vec![failed(status(400))]],
            vec![],
            Some(last(failed(status(400)))),
        ),
        (
            None,
            vec![vec![failed(status(401))]],
            vec![],
            Some(last(failed(status(401)))),
        ),
        (
            None,
            vec![vec![AssistantEvent::error("?")]],
            vec![],
            Some(last(AssistantEvent::error("?"))),
        ),
        (
            None,
            vec![vec![AssistantEvent::aborted("by the provider")]],
            vec![],
            Some(last(AssistantEvent::aborted("by the provider"))),
        ),
        // Cut off: nobody knows why.
        (
            None,
            vec![vec![AssistantEvent::start()]],
            vec![],
            Some(vec![AssistantEvent::start()]),
        ),
        (None, vec![vec![]], vec![], Some(vec![])),
    ];
    for (cap, answers, expected, end) in cases {
        let waits = Waits::default();
        let case = format!("{cap:?} {answers:?}");
        let model = model(answers.into_iter().chain([hello()]));
        let retry = Retry::new(model.clone(), waits.wait()).jitter(|| 0.0);
        assert_eq!(
            all(retry.stream(request(cap), CancellationToken::new())),
            end.unwrap_or_else(hello),
            "{case}"
        );
        assert_eq!(waits.taken(), expected, "{case}");
        assert_eq!(model.requests().len(), expected.len() + 1, "{case}");
    }
}

#[test]
fn nothing_is_retried_once_a_block_began() {
    for told in [
        AssistantEvent::text_start(0),
        AssistantEvent::thinking_start(0),
        AssistantEvent::tool_call_start(0, "a", "t"),
    ] {
        let waits = Waits::default();
        let answer = vec![AssistantEvent::start(), told, failed(status(503))];
        let model = model([answer.clone(), hello()]);
        let retry = Retry::new(model.clone(), waits.wait());
        assert_eq!(all(retry.stream(Request::new("m"), CancellationToken::new())), answer);
        assert_eq!((waits.taken(), model.requests().len()), (vec![], 1));
    }
}

#[test]
fn each_retry_is_told_and_asks_the_same() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let waits = Waits::default();
    let model = model([vec![failed(status(500))], vec![failed(asks(9_000))], hello()]);
    let retry = Retry::new(model.clone(), waits.wait())
        .jitter(|| 1.0)
        .on_retry(move |retry: &RetryAttempt| told.lock().unwrap().push(retry.clone()));
    let agent = Agent::builder("m", retry).system_prompt("Be brief.").build();
    let run = agent.prompt("Hi").unwrap();
    let outcome = async { run.await }.now_or_never().unwrap();
    assert_eq!(outcome.into_result().unwrap().text(), "Hello");

    let seen: Vec<_> = seen
        .lock()
        .unwrap()
        .drain(..)
        .map(|retry| (retry.retry, retry.delay.as_millis(), retry.failure, retry.error_message))
        .collect();
    let no = Some("no".to_owned());
    assert_eq!(seen, [(1, 750, status(500), no.clone()), (2, 9_000, asks(9_000), no)]);
    assert_eq!(waits.taken(), [750, 9_000]);
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!((&*request.system_prompt, request.messages.len()), ("Be brief.", 1));
    }
}

#[test]
fn the_wait_stops_doubling_and_never_overflows() {
    let waits = Waits::default();
    let model = model(vec![vec![failed(Failure::Connect)]; 70]);
    let retry = Retry::new(model, waits.wait())
        .jitter(|| f64::NAN) // no number from 0 to 1 is none
        .max_retries(69)
        .delays(Duration::from_millis(100), Duration::from_millis(350));
    all(retry.stream(Request::new("m"), CancellationToken::new()));
    let taken = waits.taken();
    assert_eq!(
        (taken.len(), &taken[..2], &taken[2..]),
        (69, &[100, 200][..], &[350; 67][..])
    );
}

#[test]
fn an_abort_ends_the_wait_and_asks_nothing_more() {
    let model = model([vec![failed(status(503))], hello()]);
    let retry = Retry::new(model.clone(), |_| pending());
    let cancel = CancellationToken::new();
    let mut answer = Box::pin(retry.stream(Request::new("m"), cancel.clone()));
    assert_eq!(answer.next().now_or_never(), None, "it waits");
    cancel.cancel();
    assert_eq!(
        answer.next().now_or_never(),
        Some(Some(AssistantEvent::aborted("Request was aborted")))
    );
    assert_eq!(answer.next().now_or_never(), Some(None));
    assert_eq!(model.requests().len(), 1);

    // A failure that comes with the abort is no reason to wait.
    let waits = Waits::default();
    let retry = Retry::new(self::model([vec![failed(status(503))], hello()]), waits.wait());
    let cancel = CancellationToken::new();
    let answer = retry.stream(Request::new("m"), cancel.clone());
    cancel.cancel();
    assert_eq!(all(answer).len(), 1);
    assert_eq!(waits.taken(), []);
}

#[test]
fn i2_an_aborted_run_ends_although_the_wait_does_not() {
    let retry = Retry::new(model([vec![failed(status(503))]]), |_| pending());
    let agent = Agent::builder("m", retry).build();
    let mut run = agent.prompt("Hi").unwrap();
    while run.next().now_or_never().is_some() {}
    agent.abort();
    let outcome = async { run.await }.now_or_never().expect("the run ends");
    assert_eq!(outcome.end, RunEnd::Aborted);
}

#[test]
fn a_failure_survives_its_json() {
    let event = failed(asks(5));
    let json = r#"{"type":"error","reason":"error","errorMessage":"no","usage":{},"failure":{"kind":"status","status":429,"retryAfterMs":5}}"#;
    assert_eq!(serde_json::from_str::<AssistantEvent>(json).unwrap(), event);
    let back = serde_json::to_value(&event).unwrap();
    assert_eq!(
        back["failure"],
        serde_json::json!({"kind": "status", "status": 429, "retryAfterMs": 5})
    );
    assert!(
        serde_json::to_value(AssistantEvent::error("no"))
            .unwrap()
            .get("failure")
            .is_none()
    );
}
