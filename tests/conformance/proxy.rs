//! The fixtures of `proxy/`, on the decoder alone and on the stream function over a socket.

#![allow(clippy::unwrap_used)] // a failed assumption of a helper is its test's failure

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use turnstate::proxy::{ProxyDecoder, ProxyModel};
use turnstate::{
    AssistantEvent, CancellationToken, Model, PartialMessage, Request, StreamFn, StreamOptions, ThinkingLevel, ToolSet,
    json_tool,
};

use crate::fixture_proxy::{ProxyFixture, ProxyObserved, ProxyRequest, compare_proxy, proxy_event};
use crate::loader::{Loaded, load_dir};

/// Makes a hanging test fail.
const GUARD: Duration = Duration::from_secs(20);

fn check(observe: impl Fn(&ProxyFixture) -> ProxyObserved) {
    let fixtures = load_dir::<ProxyFixture>("proxy").unwrap();
    println!("{} fixtures", fixtures.len());
    let failures: Vec<_> = fixtures
        .iter()
        .filter_map(|Loaded { file, fixture }| {
            let reason = compare_proxy(fixture, &observe(fixture)).err()?;
            Some(format!("{}: {reason}", file.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// The bytes in other pieces are the same answer; what was sent cannot be seen here.
#[test]
fn conformance_proxy_decoder() {
    for pieces in [usize::MAX, 1, 13] {
        check(|fixture| {
            let fixed = &fixture.expect.request;
            let request = serde_json::from_value(serde_json::to_value(fixed).unwrap()).unwrap();
            if fixture.response.status != 200 {
                // The decoder is not asked.
                let expect = &fixture.expect;
                return ProxyObserved {
                    request,
                    events: expect.events.clone(),
                    r#final: expect.r#final.clone(),
                };
            }
            let mut decoder = ProxyDecoder::default();
            for chunk in &fixture.response.chunks {
                chunk.0.chunks(pieces).for_each(|piece| decoder.push(piece));
            }
            decoder.end();
            let events = futures_util::stream::iter(std::iter::from_fn(|| decoder.next_event()));
            observe_answer(&model_of(fixture), request, events)
                .now_or_never()
                .unwrap()
        });
    }
}

#[test]
fn conformance_proxy_socket() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    check(|fixture| {
        let observed = async { tokio::time::timeout(GUARD, over_a_socket(fixture)).await.unwrap() };
        runtime.block_on(observed)
    });
}

fn model_of(fixture: &ProxyFixture) -> Model {
    serde_json::from_value(fixture.expect.request.body["model"].clone()).unwrap()
}

async fn over_a_socket(fixture: &ProxyFixture) -> ProxyObserved {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let expected = &fixture.expect.request;
    let token = expected.authorization.strip_prefix("Bearer ").unwrap();
    let model = ProxyModel::new(url, token).unwrap();
    let answer = model.stream(request_of(fixture), CancellationToken::new());
    let (status, chunks) = (fixture.response.status, &fixture.response.chunks);
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = BufReader::new(socket);
        let request = receive(&mut socket).await;
        let head = format!("HTTP/1.1 {status} Status\r\nConnection: close\r\n\r\n");
        // The client hangs up when it has what it wants.
        let _ = socket.write_all(head.as_bytes()).await;
        for chunk in chunks {
            let _ = socket.write_all(&chunk.0).await;
            tokio::task::yield_now().await;
        }
        let _ = socket.shutdown().await;
        request
    };
    let model = model_of(fixture);
    let placeholder = serde_json::from_value(serde_json::to_value(expected).unwrap()).unwrap();
    let (request, observed) = tokio::join!(server, observe_answer(&model, placeholder, answer));
    ProxyObserved { request, ..observed }
}

/// The request that makes the client send what the fixture expects.
fn request_of(fixture: &ProxyFixture) -> Request {
    let body = &fixture.expect.request.body;
    let mut request = Request::new(model_of(fixture));
    request.system_prompt = body["context"]["systemPrompt"].as_str().unwrap_or_default().into();
    for message in body["context"]["messages"].as_array().unwrap() {
        request.messages.push(
            serde_json::from_value::<turnstate::Message>(message.clone())
                .unwrap()
                .into(),
        );
    }
    request.tools = body["context"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .fold(ToolSet::new(), |tools, tool| {
            let text = |name: &str| tool[name].as_str().unwrap().to_owned();
            tools.with(json_tool(
                text("name"),
                text("description"),
                tool["parameters"].clone(),
                async |_, _| "",
            ))
        });
    if let Some(level) = body["options"].get("reasoning") {
        request.thinking_level = serde_json::from_value::<ThinkingLevel>(level.clone()).unwrap();
    }
    let mut options: StreamOptions = serde_json::from_value(body["options"].clone()).unwrap();
    options.api_key = Some("provider-key".into());
    request.options = options.into();
    request
}

async fn observe_answer(
    model: &Model,
    request: ProxyRequest,
    answer: impl Stream<Item = AssistantEvent>,
) -> ProxyObserved {
    let mut answer = pin!(answer);
    let mut partial = PartialMessage::new(model, 0);
    let mut events = Vec::new();
    let mut last = Value::Null;
    while let Some(event) = answer.next().await {
        partial.apply(&event).unwrap();
        let json = serde_json::to_value(&event).unwrap();
        let message = match event {
            AssistantEvent::Done { reason, usage, message } => {
                partial.clone().done(reason, *usage, message.map(|message| *message))
            }
            AssistantEvent::Error {
                reason,
                error_message,
                usage,
                message,
                failure: _,
            } => partial
                .clone()
                .broken(reason, error_message, *usage, message.map(|message| *message)),
            _ => partial.message().clone(),
        };
        let message = serde_json::to_value(message).unwrap();
        events.push(proxy_event(&json, message["content"].clone()));
        last = message;
    }
    ProxyObserved {
        request,
        events,
        r#final: last,
    }
}

async fn receive(socket: &mut BufReader<TcpStream>) -> ProxyRequest {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: HashMap<_, _> = lines.iter().filter_map(|line| line.split_once(": ")).collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    socket.read_exact(&mut body).await.unwrap();
    let mut words = lines[0].split(' ').map(str::to_owned);
    ProxyRequest {
        method: words.next().unwrap(),
        path: words.next().unwrap(),
        authorization: headers["authorization"].to_owned(),
        content_type: headers["content-type"].to_owned(),
        body: serde_json::from_slice(&body).unwrap(),
    }
}
