//! Requests that get no answer of the model, and how they are changed before.

use std::cell::Cell;
use std::sync::Arc;

use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde_json::{Value, json};
use turnstate::proxy::{ProxyAnswer, ProxyServer, Refusal};
use turnstate::{
    ApiKey, AssistantEvent, BoxError, CancellationToken, Model, Request, ScriptedModel, ScriptedStream, StreamFn,
};

use crate::support::{ask, body, items};

type Answer = ProxyAnswer<ScriptedStream>;

/// The status and the `error` of a refusal.
fn refused<S>(answer: ProxyAnswer<S>) -> (u16, String)
where
    ProxyAnswer<S>: Stream<Item = Vec<u8>>,
{
    assert_eq!(answer.headers()[0], ("content-type", "application/json"));
    let status = answer.status();
    assert_eq!(answer.refusal().unwrap().status(), status);
    assert_eq!(
        answer.headers().contains(&("www-authenticate", "Bearer")),
        status == 401
    );
    let items = items(answer);
    assert_eq!(items.len(), 1);
    let body: Value = serde_json::from_str(&items[0]).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1);
    (status, body["error"].as_str().unwrap().to_owned())
}

fn guarded(model: &ScriptedModel) -> ProxyServer<ScriptedModel, String> {
    ProxyServer::new(model.clone(), async |token: ApiKey| match token.expose() {
        "secret" => Ok("Ada".to_owned()),
        "banned" => Err(Refusal::forbidden("banned")),
        "down" => Err(BoxError::from("no route to db-7").into()),
        "panic" => panic!("in the closure"),
        "teapot" => Err(Refusal::new(200, "no error's status")),
        _ => Err(Refusal::unauthorized("unknown token")),
    })
}

#[test]
fn only_those_are_let_in_who_may() {
    let model = ScriptedModel::new().text("a").text("b");
    let server = guarded(&model);
    let answer = |authorization| -> Answer { server.answer_bytes(authorization, &body()).now_or_never().unwrap() };
    for (authorization, status, error) in [
        (None, 401, "missing bearer token"),
        (Some(""), 401, "missing bearer token"),
        (Some("Bearer"), 401, "missing bearer token"),
        (Some("Bearer  "), 401, "missing bearer token"),
        (Some("Basic secret"), 401, "missing bearer token"),
        (Some("secret"), 401, "missing bearer token"),
        (Some("Bearer other"), 401, "unknown token"),
        (Some("Bearer banned"), 403, "banned"),
        (Some("Bearer down"), 500, "internal error"),
        (Some("Bearer panic"), 500, "internal error"),
        (Some("Bearer teapot"), 500, "no error's status"),
    ] {
        assert_eq!(
            refused(answer(authorization)),
            (status, error.to_owned()),
            "{authorization:?}"
        );
    }
    assert_eq!(model.remaining(), 2);
    assert_eq!(answer(Some("Bearer secret")).status(), 200);
    assert_eq!(answer(Some("bearer   secret")).status(), 200);
    let down = answer(Some("Bearer down"));
    assert_eq!(
        down.refusal().unwrap().to_string(),
        "500: internal error: no route to db-7"
    );
    let shown = format!(
        "{:?}",
        server
            .answer_bytes(Some("Bearer xyz-token"), &body())
            .now_or_never()
            .unwrap()
    );
    assert!(!shown.contains("xyz-token"), "{shown}");
}

#[test]
fn the_body_is_capped() {
    let model = ScriptedModel::new().text("a").text("b");
    let body = body();
    let server = guarded(&model).max_body(body.len());
    let answer = |body: &[u8]| -> Answer { server.answer_bytes(Some("Bearer secret"), body).now_or_never().unwrap() };
    assert_eq!(answer(&body).status(), 200);
    let long = [&*body, b" "].concat();
    let expected = (413, format!("the request is larger than {} bytes", body.len()));
    assert_eq!(refused(answer(&long)), expected);

    // In pieces, and without end: it is not read further than it must.
    let read = Cell::new(0);
    let endless = stream::repeat_with(|| {
        read.set(read.get() + 1);
        Ok::<_, BoxError>([b' '; 64])
    });
    let answer = server.answer(Some("Bearer secret"), endless).now_or_never().unwrap();
    assert_eq!(refused(answer), expected);
    assert_eq!(read.get(), body.len() / 64 + 1);
    let pieces = stream::iter(body.chunks(7).map(Ok::<_, BoxError>));
    let answer = server.answer(Some("Bearer secret"), pieces).now_or_never().unwrap();
    assert_eq!(answer.status(), 200);
}

#[test]
fn the_body_of_a_stranger_is_not_read() {
    let server = guarded(&ScriptedModel::new());
    let body = stream::poll_fn(|_| -> std::task::Poll<Option<Result<Vec<u8>, BoxError>>> { panic!("read") });
    assert_eq!(refused(server.answer(None, body).now_or_never().unwrap()).0, 401);
}

#[test]
fn a_body_that_breaks_off_is_refused() {
    let server = ProxyServer::open(ScriptedModel::new());
    let pieces = stream::iter([Ok(body()), Err(BoxError::from("reset by peer"))]);
    let answer = server.answer(None, pieces).now_or_never().unwrap();
    assert_eq!(answer.refusal().unwrap().source().unwrap().to_string(), "reset by peer");
    assert_eq!(refused(answer), (400, "the request could not be read".to_owned()));
}

#[test]
fn what_is_no_request_is_refused() {
    let model = ScriptedModel::new().text("a");
    let server = ProxyServer::open(model.clone());
    for (body, error) in [
        ("{", "EOF while parsing"),
        ("nonsense", "expected ident"),
        (r#"{"model": {"id": "m"}}"#, "missing field `context`"),
        (r#"{"model": {"id": "m"}, "context": {}}"#, "missing field `messages`"),
    ] {
        let (status, told) = refused(server.answer_bytes(None, body.as_bytes()).now_or_never().unwrap());
        assert_eq!(status, 400);
        assert!(
            told.starts_with("the request is not valid: ") && told.contains(error),
            "{told}"
        );
    }
    assert_eq!(model.remaining(), 1);
}

#[test]
fn a_stream_function_that_panics_is_an_internal_error() {
    fn panicking(_: Request, _: CancellationToken) -> stream::Empty<AssistantEvent> {
        panic!("in the stream function")
    }
    let answer = ask(&ProxyServer::open(panicking));
    assert_eq!(refused(answer), (500, "internal error".to_owned()));
}

#[test]
fn the_server_may_change_the_request() {
    let model = ScriptedModel::new().text("a");
    let server = guarded(&model).prepare(async |user: String, mut request: Request| {
        if request.model.id != "scripted-1" {
            return Err(Refusal::forbidden(format!("{user} may not use {}", request.model.id)));
        }
        request.model = Arc::new(Model::new("ours"));
        request.api_key = Some(ApiKey::new("our key"));
        Ok(request)
    });
    let answer = |body: &Value| -> Answer {
        let body = body.to_string();
        server
            .answer_bytes(Some("Bearer secret"), body.as_bytes())
            .now_or_never()
            .unwrap()
    };
    let mut asked = json!({"model": {"id": "scripted-1", "baseUrl": "http://evil"}, "context": {"messages": []}});
    let mut sent = answer(&asked);
    assert!(sent.next().now_or_never().flatten().is_some());
    let requests = model.requests();
    assert_eq!(
        (requests[0].model.id.as_str(), requests[0].model.base_url.as_str()),
        ("ours", "")
    );
    assert_eq!(requests[0].api_key.as_ref().unwrap().expose(), "our key");
    asked["model"]["id"] = json!("other");
    assert_eq!(refused(answer(&asked)), (403, "Ada may not use other".to_owned()));
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn a_preparation_that_panics_or_fails_lets_nobody_through() {
    let model = ScriptedModel::new().text("a");
    let server = ProxyServer::open(model.clone());
    let panics = server
        .clone()
        .prepare(|(), _| -> futures_util::future::Ready<Result<Request, Refusal>> { panic!("x") });
    assert_eq!(refused(ask(&panics)).0, 500);
    let fails = server.prepare(async |(), _| Err(BoxError::from("x").into()));
    assert_eq!(refused(ask(&fails)).0, 500);
    assert_eq!(model.remaining(), 1);
}

/// One type for any model.
#[test]
fn boxed_models_are_served() {
    let server: ProxyServer<turnstate::BoxedStreamFn> = ProxyServer::open(ScriptedModel::new().text("a").boxed());
    assert_eq!(ask(&server).status(), 200);
}
