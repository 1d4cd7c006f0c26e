//! A proxy server on a loopback socket. Also the interoperability tests use it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::AUTHORIZATION;
use axum::response::Response as HttpResponse;
use axum::routing::post;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use turnstate::proxy::{PATH, ProxyServer, Refusal};
use turnstate::{ApiKey, AssistantEvent, BoxedStream, BoxedStreamFn, CancellationToken, Request, StreamFn};

/// Serves `model` to whoever has the token `secret`, as long as the runtime lives. Gives the URL.
pub(crate) async fn serve(model: impl StreamFn) -> String {
    let server = ProxyServer::new(model.boxed(), async |token: ApiKey| match token.expose() {
        "secret" => Ok(()),
        _ => Err(Refusal::unauthorized("unknown token")),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route(PATH, post(handle)).with_state(server);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn handle(State(server): State<ProxyServer<BoxedStreamFn>>, request: HttpRequest) -> HttpResponse {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let answer = server.answer(authorization, body.into_data_stream()).await;
    let mut response = HttpResponse::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(*name, *value);
    }
    response
        .body(Body::from_stream(answer.map(Ok::<_, Infallible>)))
        .unwrap()
}

/// The same model, and word of each of its streams that is dropped: whether its token was cancelled then.
pub(crate) fn watched(model: impl StreamFn) -> (BoxedStreamFn, UnboundedReceiver<bool>) {
    let (dropped, word) = unbounded_channel();
    let watched = move |request: Request, cancel: CancellationToken| Watched {
        stream: Box::pin(model.stream(request, cancel.clone())),
        cancel,
        dropped: dropped.clone(),
    };
    (watched.boxed(), word)
}

struct Watched {
    stream: BoxedStream,
    cancel: CancellationToken,
    dropped: UnboundedSender<bool>,
}

impl Stream for Watched {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.dropped.send(self.cancel.is_cancelled());
    }
}
