//! What went wrong, for a person and for [`Retry`](turnstate::Retry).

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::time::SystemTime;

use genai::Error;
use genai::resolver::Error as ResolverError;
use serde_json::Value;
use turnstate::Failure;

/// A failure to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failed {
    pub(crate) message: String,
    pub(crate) failure: Option<Failure>,
}

impl Failed {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            failure: None,
        }
    }

    fn status(status: u16, retry_after_ms: Option<u64>, message: String) -> Self {
        Self {
            message,
            failure: Some(Failure::Status { status, retry_after_ms }),
        }
    }

    /// An error that the provider put into its stream.
    pub(crate) fn in_stream(error: &Value) -> Self {
        let said = said(error).unwrap_or_else(|| error.to_string());
        let status = [&error["code"], &error["status"], &error["error"]["code"]]
            .into_iter()
            .find_map(Value::as_u64)
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (400..600).contains(code))
            .or_else(|| status_of_kind(kind(error)));
        match status {
            Some(status) => Self::status(status, None, said),
            None => Self::new(said),
        }
    }

    /// An error of genai's: of the request, of the transport, of the stream.
    pub(crate) fn of_genai(error: &Error) -> Self {
        match error {
            Error::WebStream { error: cause, .. } => match cause.downcast_ref::<Error>() {
                Some(inner) => Self::of_genai(inner),
                // It stands for whatever kept the answer from coming: refused, reset, timed out.
                None => Self {
                    message: chain(cause.as_ref()),
                    failure: Some(Failure::Connect),
                },
            },
            Error::HttpError {
                status, body, headers, ..
            } => {
                let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
                let retry_after = header("retry-after-ms")
                    .and_then(|ms| ms.trim().parse().ok())
                    .or_else(|| header("retry-after").and_then(|value| retry_after_ms(value, SystemTime::now())));
                let told = serde_json::from_str::<Value>(body).ok().and_then(|body| said(&body));
                let told = told.unwrap_or_else(|| body.trim().to_owned());
                Self::status(status.as_u16(), retry_after, format!("{status}: {told}"))
            }
            Error::ChatResponse { body, .. } => Self::in_stream(body),
            Error::Resolver {
                resolver_error: ResolverError::ApiKeyEnvNotFound { env_name },
                ..
            } => Self::new(format!("there is no key: set {env_name}")),
            Error::Resolver { resolver_error, .. } => Self::new(resolver_error.to_string()),
            other => match other.status() {
                Some(status) => Self::status(status.as_u16(), None, other.to_string()),
                None => Self::new(other.to_string()),
            },
        }
    }
}

/// What an error says, in the usual places.
fn said(error: &Value) -> Option<String> {
    [&error["message"], &error["error"]["message"], &error["error"], error]
        .into_iter()
        .find_map(Value::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn kind(error: &Value) -> &str {
    [&error["error"]["type"], &error["type"], &error["code"]]
        .into_iter()
        .filter_map(Value::as_str)
        .find(|kind| *kind != "error")
        .unwrap_or_default()
}

/// The HTTP status that a kind of error has where it is not in a stream. From the lists of Anthropic and OpenAI.
fn status_of_kind(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" => 500,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// RFC 9110, 10.2.3: seconds, or the date to wait for.
fn retry_after_ms(value: &str, now: SystemTime) -> Option<u64> {
    let value = value.trim();
    // Fractions are not in the RFC, but on the wire.
    if let Ok(seconds) = value.parse::<f64>() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is not negative"
        )]
        return (seconds >= 0.0).then(|| (seconds * 1000.0).ceil() as u64);
    }
    let wait = httpdate::parse_http_date(value)
        .ok()?
        .duration_since(now)
        .unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

/// An error and its causes, each said once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            let _ = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use genai::ModelIden;
    use genai::adapter::AdapterKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Tue, 01 Dec 2026 12:00:00 GMT").unwrap();
        for (value, ms) in [
            ("7", Some(7_000)),
            (" 0.25 ", Some(250)),
            ("-1", None),
            ("NaN", None),
            ("1e40", Some(u64::MAX)),
            ("Tue, 01 Dec 2026 12:00:30 GMT", Some(30_000)),
            ("Tue, 01 Dec 2026 11:00:00 GMT", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(retry_after_ms(value, now), ms, "{value}");
        }
        assert_eq!(retry_after_ms("7", now + Duration::from_secs(1)), Some(7_000));
    }

    #[test]
    fn a_missing_key_says_which() {
        let error = Error::Resolver {
            model_iden: ModelIden::new(AdapterKind::Anthropic, "m"),
            resolver_error: ResolverError::ApiKeyEnvNotFound {
                env_name: "ANTHROPIC_API_KEY".into(),
            },
        };
        let failed = Failed::of_genai(&error);
        assert_eq!(failed, Failed::new("there is no key: set ANTHROPIC_API_KEY"));
    }

    #[test]
    fn errors_in_a_stream() {
        for (error, message, status) in [
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                "Overloaded",
                Some(529),
            ),
            (
                json!({"message": "The server had an error", "type": "server_error"}),
                "The server had an error",
                Some(500),
            ),
            (json!({"message": "upstream", "code": 502}), "upstream", Some(502)),
            (json!({"message": "odd", "code": 7}), "odd", None),
            (
                json!({"message": "full", "code": "rate_limit_exceeded"}),
                "full",
                Some(429),
            ),
            (json!("plain"), "plain", None),
            (json!({"what": 1}), r#"{"what":1}"#, None),
        ] {
            let failed = Failed::in_stream(&error);
            let failure = status.map(|status| Failure::Status {
                status,
                retry_after_ms: None,
            });
            assert_eq!((failed.message.as_str(), failed.failure), (message, failure), "{error}");
        }
    }
}
