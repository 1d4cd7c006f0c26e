//! One scenario of `proxy/`: what the server answers, and what the client made of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::{kept_members, trim};
use crate::report::value_mismatch;

/// What a proxy server answers to one request, and what the reference client did.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyFixture {
    /// The name of the scenario.
    pub(crate) name: String,
    /// What it shows, for readers.
    #[serde(default)]
    pub(crate) about: String,
    /// What the server answers.
    pub(crate) response: ProxyResponse,
    /// What the client did.
    pub(crate) expect: ProxyObserved,
}

/// What the server answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyResponse {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body; each chunk is written to the socket by itself.
    pub(crate) chunks: Vec<Chunk>,
}

/// Bytes, in base64 in the fixture.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Chunk(pub(crate) Vec<u8>);

impl TryFrom<String> for Chunk {
    type Error = String;

    fn try_from(base64: String) -> Result<Self, String> {
        let bytes = decode_base64(&base64).map(Self);
        bytes.ok_or_else(|| format!("not base64: `{base64}`"))
    }
}

/// Decodes padded base64 with the standard alphabet: a dependency for these few lines would not pay.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            bits = bits << 6 | base64_digit(digit)?;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

fn base64_digit(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// What a client did: recorded in the fixture, or seen by a driver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyObserved {
    /// What the server got.
    pub(crate) request: ProxyRequest,
    /// The events of the stream, made by [`proxy_event`].
    pub(crate) events: Vec<Value>,
    /// The final message.
    pub(crate) r#final: Value,
}

/// What the server got.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ProxyRequest {
    /// The HTTP method.
    pub(crate) method: String,
    /// The path.
    pub(crate) path: String,
    /// The header `Authorization`.
    pub(crate) authorization: String,
    /// The header `Content-Type`.
    pub(crate) content_type: String,
    /// The JSON body: model, context and options.
    pub(crate) body: Value,
}

/// An event as the fixtures have it, given the content of the partial message right after it.
pub(crate) fn proxy_event(event: &Value, partial: Value) -> Value {
    let mut kept = kept_members(event, &["type", "contentIndex", "delta", "reason"]);
    kept.insert("partial".to_owned(), partial);
    Value::Object(kept)
}

/// Compares what a client did with what the fixture expects of it.
pub(crate) fn compare_proxy(fixture: &ProxyFixture, observed: &ProxyObserved) -> Result<(), String> {
    let expect = &fixture.expect;
    compare_value("request", &to_value(&expect.request)?, to_value(&observed.request)?)?;
    let expected_events = Value::Array(expect.events.clone());
    compare_value("events", &expected_events, Value::Array(observed.events.clone()))?;
    let mut last = observed.r#final.clone();
    let message = last["errorMessage"].as_str().unwrap_or_default();
    if !message.is_empty() && !wording_is_fixed(fixture) {
        last["errorMessage"] = expect.r#final["errorMessage"].clone();
    }
    compare_value("final", &expect.r#final, last)
}

fn to_value(request: &ProxyRequest) -> Result<Value, String> {
    serde_json::to_value(request).map_err(|error| error.to_string())
}

fn compare_value(what: &str, expected: &Value, mut got: Value) -> Result<(), String> {
    let mut expected = expected.clone();
    for side in [&mut expected, &mut got] {
        trim(side);
        drop_unneeded(side);
    }
    value_mismatch(what, &expected, &got).map_or(Ok(()), Err)
}

/// Drops the options of newer Pi versions that FORMAT.md excuses.
fn drop_unneeded(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| key != "thinkingLevel" && key != "providerThinkingLevel");
            members.values_mut().for_each(drop_unneeded);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_unneeded),
        _ => {}
    }
}

/// Whether the error message is the protocol's own or the server's, and not the wording of some parser.
fn wording_is_fixed(fixture: &ProxyFixture) -> bool {
    let Some(message) = fixture.expect.r#final["errorMessage"].as_str() else {
        // Without an expected error, an observed one must not pass.
        return true;
    };
    let body = fixture.response.chunks.iter().flat_map(|chunk| &chunk.0);
    let body: Vec<u8> = body.copied().collect();
    let quoted = Value::from(message).to_string();
    message.starts_with("Proxy error:")
        || message.starts_with("Connection closed")
        || String::from_utf8_lossy(&body).contains(&quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::load_own;

    #[test]
    fn base64_decodes_with_each_padding() {
        let cases = [
            ("", ""),
            ("aGk=", "hi"),
            ("aA==", "h"),
            ("aGkh", "hi!"),
            ("aGkhPw==", "hi!?"),
        ];
        for (text, bytes) in cases {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode_base64("/+8="), Some(vec![0xff, 0xef]));
        for wrong in ["aGk", "a===", "a-k=", "a=k="] {
            assert_eq!(decode_base64(wrong), None, "{wrong}");
        }
    }

    /// The observation that repeats what the fixture has, with another error message.
    fn with_error(fixture: &ProxyFixture, message: &str) -> ProxyObserved {
        let expect = &fixture.expect;
        let request = serde_json::from_value(to_value(&expect.request).unwrap()).unwrap();
        let mut last = expect.r#final.clone();
        last["errorMessage"] = message.into();
        ProxyObserved {
            request,
            events: expect.events.clone(),
            r#final: last,
        }
    }

    #[test]
    fn only_error_messages_of_the_protocol_are_compared_by_wording() {
        let fixtures = load_own::<ProxyFixture>("proxy").unwrap();
        for (name, accepted) in [
            ("malformed-json", true),
            ("delta-without-start", true),
            ("early-eof", false),
            ("http-401-json", false),
            ("server-error-event", false),
            ("text", false),
        ] {
            let loaded = fixtures.iter().find(|one| one.fixture.name == name).unwrap();
            let observed = with_error(&loaded.fixture, "something else");
            assert_eq!(compare_proxy(&loaded.fixture, &observed).is_ok(), accepted, "{name}");
        }
    }

    #[test]
    fn a_proxy_event_shows_the_partial_content() {
        let event = serde_json::json!({ "type": "text_end", "contentIndex": 0, "content": "a", "partial": {} });
        let content = serde_json::json!([{ "type": "text", "text": "a" }]);
        let expected = serde_json::json!({ "type": "text_end", "contentIndex": 0, "partial": content });
        assert_eq!(proxy_event(&event, content), expected);
    }
}
