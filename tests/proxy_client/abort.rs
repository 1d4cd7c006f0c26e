//! Aborted, idle, dropped: at each point of a request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::timeout;
use turnstate::proxy::{Activity, ProxyModel, ProxyToken};
use turnstate::{AssistantEvent, CancellationToken, Request, StopReason, StreamFn};

use crate::server::{GUARD, Server, Step, events, head, status};
use crate::{done, error_of, fold, px, said};

fn model(server: &Server) -> ProxyModel {
    ProxyModel::new(&server.url, "secret").unwrap()
}

/// The rest of an answer, in which something has just happened.
async fn rest(answer: impl StreamExt<Item = AssistantEvent>) -> Vec<AssistantEvent> {
    timeout(GUARD, answer.collect()).await.expect("the answer does not end")
}

fn assert_aborted(events: Vec<AssistantEvent>) {
    let message = fold(events);
    assert_eq!(message.stop_reason, StopReason::Aborted);
    assert_eq!(message.error_message.as_deref(), Some("Request was aborted"));
}

#[tokio::test]
async fn c069_cancelled_before_nothing_is_sent() {
    let mut server = Server::start(vec![]).await;
    let cancel = CancellationToken::new();
    let answer = model(&server).stream(Request::new("m"), cancel.clone());
    cancel.cancel();
    assert_aborted(rest(answer).await);
    // Nor is anybody asked for a token.
    let token = ProxyToken::provider(async || panic!("asked"));
    let model = ProxyModel::new(&server.url, token).unwrap();
    assert_aborted(rest(model.stream(Request::new("m"), cancel)).await);
    server.saw_nothing_more();
}

#[tokio::test]
async fn c069_cancelled_while_headers_are_pending() {
    let mut server = Server::start(vec![vec![Step::Hold]]).await;
    let cancel = CancellationToken::new();
    let answer = tokio::spawn(rest(model(&server).stream(Request::new("m"), cancel.clone())));
    server.request().await;
    cancel.cancel();
    assert_aborted(answer.await.unwrap());
    server.hung_up(0).await;
    server.saw_nothing_more();
}

#[tokio::test]
async fn c069_cancelled_while_the_token_is_asked_for() {
    let mut server = Server::start(vec![]).await;
    let asked = Arc::new(Notify::new());
    let asking = Arc::clone(&asked);
    let token = ProxyToken::provider(move || {
        asking.notify_one();
        std::future::pending()
    });
    let cancel = CancellationToken::new();
    let model = ProxyModel::new(&server.url, token).unwrap();
    let answer = tokio::spawn(rest(model.stream(Request::new("m"), cancel.clone())));
    asked.notified().await;
    cancel.cancel();
    assert_aborted(answer.await.unwrap());
    server.saw_nothing_more();
}

#[tokio::test]
async fn c069_a_failure_without_abort_is_an_error() {
    let model = ProxyModel::new("http://127.0.0.1:1", "secret").unwrap();
    let message = fold(rest(model.stream(Request::new("m"), CancellationToken::new())).await);
    assert_eq!(message.stop_reason, StopReason::Error);
}

#[tokio::test]
async fn cancelled_mid_answer_it_hangs_up_and_keeps_the_partial() {
    let mut server = Server::start(vec![vec![head(), events(&said("hi")), Step::Hold]]).await;
    let cancel = CancellationToken::new();
    let mut answer = model(&server).stream(Request::new("m"), cancel.clone());
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(timeout(GUARD, answer.next()).await.unwrap().unwrap());
    }
    cancel.cancel();
    seen.extend(rest(&mut answer).await);
    server.request().await;
    // The answer is still in our hands, but its connection is not.
    server.hung_up(0).await;
    assert_eq!(fold(seen.clone()).text(), "hi");
    assert_aborted(seen);
    drop(answer);
}

#[tokio::test]
async fn cancelled_while_an_error_body_is_read() {
    let mut script = status("500 Oops", "", "{");
    script.push(Step::Hold);
    let mut server = Server::start(vec![script]).await;
    let cancel = CancellationToken::new();
    let answer = tokio::spawn(rest(model(&server).stream(Request::new("m"), cancel.clone())));
    server.request().await;
    cancel.cancel();
    assert_aborted(answer.await.unwrap());
    server.hung_up(0).await;
}

#[tokio::test]
async fn cancelled_after_the_end_changes_nothing() {
    let scripts = [
        vec![head(), events(&said("hi"))],
        vec![head(), events(&[done("stop")]), Step::Hold],
        vec![Step::Reset],
    ];
    for script in scripts {
        let server = Server::start(vec![script]).await;
        let cancel = CancellationToken::new();
        let mut answer = model(&server).stream(Request::new("m"), cancel.clone());
        let seen: Vec<_> = rest(&mut answer).await;
        cancel.cancel();
        assert_eq!(timeout(GUARD, answer.next()).await.unwrap(), None);
        assert_ne!(fold(seen).stop_reason, StopReason::Aborted);
    }
}

#[tokio::test]
async fn dropped_it_hangs_up() {
    for script in [
        vec![Step::Hold],
        vec![head(), Step::Hold],
        vec![head(), events(&said("hi")), Step::Hold],
    ] {
        let mut server = Server::start(vec![script]).await;
        let mut answer = model(&server).stream(Request::new("m"), CancellationToken::new());
        tokio::select! {
            () = async { while answer.next().await.is_some() {} } => panic!("it ended"),
            _ = server.request() => {}
        }
        drop(answer);
        server.hung_up(0).await;
        server.saw_nothing_more();
    }
}

/// C001 for the stream alone: the socket is closed when `done` was read, not when the server closes it.
#[tokio::test]
async fn c001_done_hangs_up_before_it_is_even_looked_at() {
    let all = [said("hi"), vec![done("stop")]].concat();
    let mut server = Server::start(vec![vec![head(), events(&all), Step::Hold]]).await;
    let mut answer = model(&server).stream(Request::new("m"), CancellationToken::new());
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(AssistantEvent::Done { .. })) {
        seen.push(timeout(GUARD, answer.next()).await.unwrap().unwrap());
    }
    server.request().await;
    server.hung_up(0).await;
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn c129_an_idle_server_fails_the_answer_and_keeps_the_partial() {
    let limit = Duration::from_millis(30);
    for (script, text) in [
        (vec![Step::Hold], ""),
        (vec![head(), Step::Hold], ""),
        (vec![head(), events(&said("hi")), Step::Hold], "hi"),
    ] {
        let mut server = Server::start(vec![script]).await;
        let model = ProxyModel::builder(&server.url, "secret")
            .idle_timeout(limit)
            .build()
            .unwrap();
        let seen = rest(model.stream(Request::new("m"), CancellationToken::new())).await;
        assert_eq!(error_of(&seen), "The proxy server was silent for 30ms");
        assert_eq!(fold(seen).text(), text);
        server.request().await;
        server.hung_up(0).await;
    }
}

/// Both policies for pings. The server pings often enough for the first one, and longer than the other allows.
#[tokio::test]
async fn c129_pings_count_or_do_not_count() {
    let pings = |count| {
        let mut script = vec![head(), events(&said("hi"))];
        for _ in 0..count {
            script.extend([
                Step::Pause(Duration::from_millis(50)),
                Step::Send(b": ping\n\n".to_vec()),
            ]);
        }
        script
    };
    let model = |server: &Server, activity| {
        let builder = ProxyModel::builder(&server.url, "secret").idle_timeout(Duration::from_secs(1));
        builder.activity(activity).build().unwrap()
    };
    // Pinged for longer than it may be idle, then done.
    let mut script = pings(30);
    script.push(Step::Send(px(&[done("stop")])));
    let server = Server::start(vec![script]).await;
    let seen = rest(model(&server, Activity::Bytes).stream(Request::new("m"), CancellationToken::new())).await;
    assert_eq!(seen.last().unwrap().kind(), "done");

    let server = Server::start(vec![pings(1_000)]).await;
    let seen = rest(model(&server, Activity::Events).stream(Request::new("m"), CancellationToken::new())).await;
    assert_eq!(error_of(&seen), "The proxy server was silent for 1s");
    assert_eq!(fold(seen).text(), "hi");
}
