//! What is sent, once, and what becomes of what the server answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;
use turnstate::proxy::{DecoderLimits, ProxyModel, ProxyToken};
use turnstate::{
    ApiKey, AssistantEvent, CancellationToken, Message, Request, StreamFn, StreamOptions, ThinkingLevel, ToolSet,
    json_tool,
};

use crate::server::{GUARD, Server, Step, events, head, head_of_length, status};
use crate::{CLOSED, done, error_of, fold, px, said};

/// Asks `model` and waits for the whole answer.
async fn ask(model: &ProxyModel, request: Request) -> Vec<AssistantEvent> {
    let answer = model.stream(request, CancellationToken::new());
    timeout(GUARD, answer.collect()).await.expect("the answer does not end")
}

/// Asks once, with the one answer of a script; the server must see just that request.
async fn answer_to(script: Vec<Step>) -> Vec<AssistantEvent> {
    let mut server = Server::start(vec![script]).await;
    let answer = ask(&ProxyModel::new(&server.url, "secret").unwrap(), Request::new("m")).await;
    server.request().await;
    server.saw_nothing_more();
    answer
}

#[tokio::test]
async fn c093_what_is_sent() {
    let mut server = Server::start(vec![vec![head(), events(&[done("stop")])]]).await;
    let mut options = StreamOptions::default();
    options.temperature = Some(0.5);
    options.max_tokens = Some(64);
    options.session_id = Some("s-1".into());
    options.api_key = Some("provider-key-1".into());
    let mut request = Request::new("m");
    request.system_prompt = "Be brief.".into();
    request.messages.push(Message::user("hi").into());
    request.tools = ToolSet::new().with(json_tool(
        "read",
        "Read",
        json!({"type": "object"}),
        async |_, _| "done",
    ));
    request.thinking_level = ThinkingLevel::Low;
    request.options = options.into();
    request.api_key = Some("provider-key-2".into());
    let model = ProxyModel::new(format!("{}/llm/", server.url), "secret").unwrap();
    ask(&model, request).await;

    let got = server.request().await;
    assert_eq!((got.method.as_str(), got.path.as_str()), ("POST", "/llm/api/stream"));
    assert_eq!(got.headers["authorization"], "Bearer secret");
    assert_eq!(got.headers["content-type"], "application/json");
    let options = json!({"temperature": 0.5, "maxTokens": 64, "sessionId": "s-1", "reasoning": "low"});
    assert_eq!(got.body["options"], options);
    assert_eq!(got.body["context"]["systemPrompt"], "Be brief.");
    assert_eq!(got.body["context"]["messages"].as_array().unwrap().len(), 1);
    let tools = json!([{"name": "read", "description": "Read", "parameters": {"type": "object"}}]);
    assert_eq!(got.body["context"]["tools"], tools);
    assert_eq!(
        got.body.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["model", "context", "options"]
    );
    let mut everything = got.headers.clone();
    everything.remove("authorization");
    let everything = format!("{everything:?}{}", got.body);
    assert!(
        !everything.contains("secret") && !everything.contains("provider-key"),
        "{everything}"
    );
    server.saw_nothing_more();
}

#[tokio::test]
async fn c093_the_token_is_shown_nowhere() {
    let builder = ProxyModel::builder("http://127.0.0.1:1", "secret");
    assert!(!format!("{builder:?}").contains("secret"));
    let model = builder.build().unwrap();
    let mut answer = model.stream(Request::new("m"), CancellationToken::new());
    assert!(!format!("{model:?} {answer:?} {:?}", ProxyToken::from("secret")).contains("secret"));
    // Nobody listens there.
    let event = timeout(GUARD, answer.next()).await.unwrap().unwrap();
    let error = error_of(&[event]);
    assert!(error.starts_with("Could not reach the proxy server: "), "{error}");
    assert!(!error.contains("secret") && !error.contains("http://"), "{error}");
    assert!(!format!("{answer:?}").contains("secret"));

    // A server that quotes it.
    let answer = answer_to(status("401 Unauthorized", "", r#"{"error":"bad token secret!"}"#)).await;
    assert_eq!(error_of(&answer), "Proxy error: bad token [token]!");

    // One that no header can carry.
    let model = ProxyModel::new("http://127.0.0.1:1", "sec\nret").unwrap();
    let error = error_of(&ask(&model, Request::new("m")).await);
    assert!(error.contains("token") && !error.contains("sec"), "{error}");
}

#[tokio::test]
async fn the_token_is_asked_for_each_request() {
    let answer = || vec![head(), events(&[done("stop")])];
    let mut server = Server::start(vec![answer(), answer()]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let token = ProxyToken::provider(move || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::task::yield_now().await;
            Ok(ApiKey::new(format!("token-{number}")))
        }
    });
    let model = ProxyModel::new(&server.url, token).unwrap();
    for number in 0..2 {
        ask(&model, Request::new("m")).await;
        assert_eq!(
            server.request().await.headers["authorization"],
            format!("Bearer token-{number}")
        );
    }

    let model = ProxyModel::new(&server.url, ProxyToken::provider(async || Err("not logged in".into()))).unwrap();
    let error = error_of(&ask(&model, Request::new("m")).await);
    assert_eq!(error, "No token for the proxy server: not logged in");
    server.saw_nothing_more();
}

#[tokio::test]
async fn c002_early_ends() {
    let empty = |status_line: &str| status(status_line, "", "");
    for script in [
        empty("200 OK"),
        empty("204 No Content"),
        status("200 OK", "", r#"{"error":"x"}"#),
    ] {
        let answer = answer_to(script).await;
        assert_eq!((answer.len(), error_of(&answer).as_str()), (1, CLOSED));
    }
    let answer = answer_to(vec![head(), events(&said("hi"))]).await;
    assert_eq!(error_of(&answer), CLOSED);
    assert_eq!(fold(answer).text(), "hi");
}

#[tokio::test]
async fn c038_a_connection_that_breaks_is_one_request_and_one_error() {
    let broken = [
        vec![head(), events(&said("hi")), Step::Reset],
        vec![head_of_length(10_000), events(&said("hi"))],
    ];
    for script in broken {
        let answer = answer_to(script).await;
        let error = error_of(&answer);
        assert!(error.starts_with("Connection"), "{error}");
        // A reset may overtake what was sent before it; what arrived is kept.
        if answer.len() > 1 {
            assert_eq!(fold(answer).text(), "hi");
        }
    }
    // Reset before any answer, and closed before any answer.
    for script in [vec![Step::Reset], vec![]] {
        let error = error_of(&answer_to(script).await);
        assert!(error.starts_with("Could not reach the proxy server: "), "{error}");
    }
}

#[tokio::test]
async fn c038_what_arrived_before_the_connection_broke_is_kept() {
    let go_on = Arc::new(tokio::sync::Notify::new());
    let script = vec![head(), events(&said("hi")), Step::Wait(Arc::clone(&go_on)), Step::Reset];
    let mut server = Server::start(vec![script]).await;
    let mut answer = ProxyModel::new(&server.url, "secret")
        .unwrap()
        .stream(Request::new("m"), CancellationToken::new());
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(timeout(GUARD, answer.next()).await.unwrap().unwrap());
    }
    go_on.notify_one();
    seen.extend(timeout(GUARD, answer.collect::<Vec<_>>()).await.unwrap());
    let error = error_of(&seen);
    assert!(error.starts_with("Connection to the proxy server broke: "), "{error}");
    assert_eq!(fold(seen).text(), "hi");
    server.request().await;
    server.saw_nothing_more();
}

#[tokio::test]
async fn a_done_that_arrived_counts_although_the_connection_broke() {
    let mut body = px(&[said("hi"), vec![done("stop")]].concat());
    body.truncate(body.len() - 2);
    let answer = answer_to(vec![head_of_length(10_000), Step::Send(body)]).await;
    assert_eq!(answer.last().unwrap().kind(), "done");
}

#[tokio::test]
async fn http_errors_say_what_the_server_says() {
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(70_000));
    for (line, headers, body, expected) in [
        ("401 Unauthorized", "", r#"{"error":"Unauthorized"}"#, "Unauthorized"),
        (
            "429 Too Many Requests",
            "",
            r#"{"error":{"message":"slow down","code":1}}"#,
            "slow down",
        ),
        ("502 Bad Gateway", "", "<html>", "502 Bad Gateway"),
        ("500 Oops", "", r#"{"error":null}"#, "500 Internal Server Error"),
        ("500 Oops", "", r#"{"error":""}"#, "500 Internal Server Error"),
        ("500 Oops", "", "", "500 Internal Server Error"),
        ("599 Oops", "", "{}", "599"),
        ("500 Oops", "", &long, "500 Internal Server Error"),
        (
            "500 Oops",
            "Content-Length: 1000\r\n",
            r#"{"error":"cut"}"#,
            "500 Internal Server Error",
        ),
        // Redirects are not followed.
        (
            "307 Temporary Redirect",
            "Location: /elsewhere\r\n",
            "",
            "307 Temporary Redirect",
        ),
        ("302 Found", "Location: http://127.0.0.1:1/\r\n", "", "302 Found"),
    ] {
        let answer = answer_to(status(line, headers, body)).await;
        assert_eq!(answer.len(), 1);
        assert_eq!(error_of(&answer), format!("Proxy error: {expected}"));
    }
}

#[tokio::test]
async fn the_body_of_an_http_error_is_not_waited_for_for_ever() {
    let mut script = status("503 Service Unavailable", "", r#"{"error":"#);
    script.push(Step::Hold);
    let mut server = Server::start(vec![script]).await;
    let model = ProxyModel::builder(&server.url, "secret").error_body_timeout(Duration::from_millis(20));
    let answer = ask(&model.build().unwrap(), Request::new("m")).await;
    assert_eq!(error_of(&answer), "Proxy error: 503 Service Unavailable");
    server.request().await;
    server.hung_up(0).await;

    // Nor read for ever.
    let mut script = status("503 Service Unavailable", "", &"x".repeat(2_000));
    script.push(Step::Hold);
    let mut server = Server::start(vec![script]).await;
    let model = ProxyModel::builder(&server.url, "secret").max_error_body(1_000);
    let answer = ask(&model.build().unwrap(), Request::new("m")).await;
    assert_eq!(error_of(&answer), "Proxy error: 503 Service Unavailable");
    server.request().await;
    server.hung_up(0).await;
}

#[tokio::test]
async fn an_endless_line_hangs_up() {
    let endless = Step::Send([b"data: ".to_vec(), vec![b'x'; 4_000]].concat());
    let mut server = Server::start(vec![vec![head(), events(&said("hi")), endless, Step::Hold]]).await;
    let model = ProxyModel::builder(&server.url, "secret").limits(DecoderLimits::default().with_max_line(1_000));
    let answer = ask(&model.build().unwrap(), Request::new("m")).await;
    assert_eq!(
        error_of(&answer),
        "a line of the proxy server's answer is longer than 1000 bytes"
    );
    assert_eq!(fold(answer).text(), "hi");
    server.request().await;
    server.hung_up(0).await;
}

#[tokio::test]
async fn c084_malformed_json_hangs_up() {
    let bad = Step::Send(b"data: {oops\n\n".to_vec());
    let mut server = Server::start(vec![vec![head(), events(&said("hi")), bad, Step::Hold]]).await;
    let answer = ask(&ProxyModel::new(&server.url, "secret").unwrap(), Request::new("m")).await;
    assert_eq!(fold(answer).text(), "hi");
    server.request().await;
    server.hung_up(0).await;
}

#[tokio::test]
async fn an_injected_client_is_used() {
    let mut server = Server::start(vec![vec![head(), events(&[done("stop")])]]).await;
    let client = reqwest::Client::builder().user_agent("injected").build().unwrap();
    let model = ProxyModel::builder(&server.url, "secret")
        .client(client)
        .build()
        .unwrap();
    ask(&model, Request::new("m")).await;
    assert_eq!(server.request().await.headers["user-agent"], "injected");
}

#[test]
fn without_a_runtime_it_is_an_error() {
    let model = ProxyModel::new("http://127.0.0.1:1", "secret").unwrap();
    let answer = model.stream(Request::new("m"), CancellationToken::new());
    let events: Vec<_> = futures_util::FutureExt::now_or_never(answer.collect()).unwrap();
    assert_eq!(
        error_of(&events),
        "a proxy model has to be polled within a tokio runtime"
    );
}

#[test]
fn the_types_can_cross_threads() {
    fn send<T: Send + Sync + Unpin + 'static>() {}
    fn stream<T: Send + Unpin + 'static>() {}
    send::<ProxyModel>();
    send::<turnstate::proxy::ProxyDecoder>();
    stream::<turnstate::proxy::ProxyStream>();
}
