//! A request as it goes out.

use serde::{Serialize, Serializer};

use crate::message::{Message, Messages, Model, StreamOptions, ThinkingLevel};
use crate::stream_fn::Request;
use crate::tool::ToolSet;

/// The body of a request, by reference: what of a [`Request`] may leave the process.
///
/// Neither the key of the request nor the one of its options is in it. Absent options are omitted; the system prompt
/// and the tools stand there even if they are empty, as the reference sends them.
#[derive(Debug)]
pub(crate) struct RequestBody<'a>(&'a Request);

impl<'a> RequestBody<'a> {
    /// The body of `request`.
    pub(crate) fn new(request: &'a Request) -> Self {
        Self(request)
    }
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.0;
        let body = Body {
            model: &request.model,
            context: Context {
                system_prompt: &request.system_prompt,
                messages: &request.messages,
                tools: &request.tools,
            },
            options: Options {
                options: &request.options,
                reasoning: match request.thinking_level {
                    ThinkingLevel::Off => None,
                    level => Some(level),
                },
            },
        };
        body.serialize(serializer)
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a Model,
    context: Context<'a>,
    options: Options<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Context<'a> {
    system_prompt: &'a str,
    messages: &'a Messages<Message>,
    tools: &'a ToolSet,
}

#[derive(Serialize)]
struct Options<'a> {
    #[serde(flatten)]
    options: &'a StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ThinkingLevel>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ApiKey;

    #[test]
    fn what_is_absent_is_omitted() {
        let request = Request::new("m");
        let body = serde_json::to_value(RequestBody::new(&request)).unwrap();
        assert_eq!(
            body["context"],
            json!({"systemPrompt": "", "messages": [], "tools": []})
        );
        assert_eq!(body["options"], json!({}));
    }

    /// C093.
    #[test]
    fn no_key_is_sent() {
        let mut request = Request::new("m");
        request.thinking_level = ThinkingLevel::Low;
        request.api_key = Some(ApiKey::new("secret"));
        let options = StreamOptions {
            api_key: request.api_key.clone(),
            max_tokens: Some(64),
            ..StreamOptions::default()
        };
        request.options = options.into();
        let text = serde_json::to_string(&RequestBody::new(&request)).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert!(
            text.ends_with(r#""options":{"maxTokens":64,"reasoning":"low"}}"#),
            "{text}"
        );
    }
}
