//! What the tests share.

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use turnstate::StreamFn;
use turnstate::proxy::{ProxyAnswer, ProxyServer};

/// The least that is a request.
pub(crate) fn body() -> Vec<u8> {
    let body = json!({"model": {"id": "scripted-1"}, "context": {"messages": [{"role": "user", "content": "hi"}]}});
    body.to_string().into_bytes()
}

/// Asks without a token.
pub(crate) fn ask<F: StreamFn>(server: &ProxyServer<F>) -> ProxyAnswer<F::Stream> {
    server
        .answer_bytes(None, &body())
        .now_or_never()
        .expect("nothing to wait for")
}

/// The items of an answer that is all there.
pub(crate) fn items<S>(answer: ProxyAnswer<S>) -> Vec<String>
where
    ProxyAnswer<S>: futures_util::Stream<Item = Vec<u8>>,
{
    let items = answer.collect::<Vec<_>>().now_or_never().expect("nothing to wait for");
    items.into_iter().map(|item| String::from_utf8(item).unwrap()).collect()
}

/// Its events.
pub(crate) fn events<S>(answer: ProxyAnswer<S>) -> Vec<Value>
where
    ProxyAnswer<S>: futures_util::Stream<Item = Vec<u8>>,
{
    let event = |item: String| {
        let data = item.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n"));
        let data = data.unwrap_or_else(|| panic!("not an event: {item:?}"));
        assert!(!data.contains(['\n', '\r']), "{data:?}");
        serde_json::from_str(data).unwrap()
    };
    items(answer).into_iter().map(event).collect()
}
