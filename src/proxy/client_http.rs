//! The client end: one HTTP request.

use std::error::Error;
use std::fmt::{self, Write};
use std::sync::Arc;

use futures_util::StreamExt;
use reqwest::Response;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use tokio::time::timeout;

use crate::message::{ApiKey, AssistantEvent, Failure};
use crate::stream_fn::Request;

use super::client::Config;
use super::client_stream::Body;
use super::wire::{EVENT_STREAM, JSON, RequestBody};

/// Sends `request` once. The error is the answer's end.
pub(super) async fn send(config: Arc<Config>, request: Request) -> Result<Body, AssistantEvent> {
    let token = config.token.get().await;
    let failed = |what: &str, error: &dyn fmt::Display| AssistantEvent::error(format!("{what}: {error}"));
    let token = token.map_err(|error| failed("No token for the proxy server", &error))?;
    let body = serde_json::to_vec(&RequestBody::new(&request));
    let body = body.map_err(|error| failed("The request cannot be written as JSON", &error))?;
    // The transcript may be large, and is not needed while the answer streams.
    drop(request);
    let sent = config
        .client
        .post(config.url.clone())
        .header(AUTHORIZATION, bearer(&token).map_err(AssistantEvent::error)?)
        .header(CONTENT_TYPE, JSON)
        .header(ACCEPT, EVENT_STREAM)
        .body(body)
        .send();
    let response = sent.await.map_err(|error| {
        let connect = error.is_connect();
        let event = AssistantEvent::error(format!("Could not reach the proxy server: {}", chain(error)));
        if connect {
            event.with_failure(Failure::Connect)
        } else {
            event
        }
    })?;
    if response.status().is_success() {
        return Ok(Box::pin(response.bytes_stream()));
    }
    let status = response.status();
    let failure = Failure::Status {
        status: status.as_u16(),
        retry_after_ms: retry_after_ms(response.headers()),
    };
    let said = timeout(config.error_body_timeout, said(response, config.max_error_body)).await;
    let said = said.ok().flatten().unwrap_or_else(|| match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    });
    Err(AssistantEvent::error(format!("Proxy error: {}", without_token(said, &token))).with_failure(failure))
}

/// The `Retry-After` header (RFC 9110, section 10.2.3) in seconds. The other form, a date, asks for a calendar.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    seconds.checked_mul(1000)
}

fn bearer(token: &ApiKey) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        .map_err(|_| "The token for the proxy server has characters that no HTTP header can carry".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// What the body of an HTTP error says, if it is JSON that says it and at most `limit` bytes long.
async fn said(response: Response, limit: usize) -> Option<String> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.ok()?;
        if piece.len() > limit - body.len() {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    let body: Value = serde_json::from_slice(&body).ok()?;
    let error = body.get("error")?;
    let said = error.as_str().or_else(|| error.get("message")?.as_str())?;
    (!said.is_empty()).then(|| said.to_owned())
}

/// A server may quote the token that it refuses.
fn without_token(message: String, token: &ApiKey) -> String {
    match token.expose() {
        "" => message,
        token => message.replace(token, "[token]"),
    }
}

/// The error and its causes. Without the URL, whose query may be a secret.
pub(super) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
