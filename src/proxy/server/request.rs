//! A request as it comes in.
//!
//! The reader ignores fields it does not know. It also takes what newer references send: prompt and tools as messages
//! of the role `system`, the thinking level `max`, headers that are `null`.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::message::{
    AssistantMessage, Message, Model, StreamOptions, ThinkingLevel, ToolResult, ToolResultMessage, Transcript,
    UserContent, UserMessage,
};
use crate::schema::ValidatedArguments;
use crate::stream_fn::Request;
use crate::tool::{BoxError, BoxFuture, Tool, ToolContext};

/// Reads the body of a request. Its messages are paired as the stream function may expect (I3), whatever was sent.
pub(super) fn read(body: &[u8]) -> Result<Request, serde_json::Error> {
    let Body {
        model,
        context,
        options,
    } = serde_json::from_slice(body)?;
    let mut prompt = Prompt::new(context.system_prompt, context.tools);
    let mut transcript = Transcript::new();
    for message in context.messages {
        let message = match message {
            Incoming::System(change) => {
                prompt.apply(change);
                continue;
            }
            Incoming::User(message) => Message::User(message),
            Incoming::Assistant(message) => Message::Assistant(message),
            Incoming::ToolResult(message) => Message::ToolResult(message),
        };
        transcript.push(Arc::new(message));
    }
    let mut request = Request::new(model);
    request.system_prompt = prompt.text().into();
    request.tools = prompt.tools.into_iter().map(Definition::into_tool).collect();
    request.messages = transcript.request();
    request.thinking_level = options.reasoning.unwrap_or_default();
    request.options = Arc::new(options.options);
    Ok(request)
}

#[derive(Deserialize)]
struct Body {
    #[serde(deserialize_with = "model")]
    model: Model,
    context: Context,
    #[serde(default, deserialize_with = "options")]
    options: Options,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    #[serde(default)]
    system_prompt: Option<String>,
    messages: Vec<Incoming>,
    #[serde(default, deserialize_with = "null_is_default")]
    tools: Vec<Definition>,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
enum Incoming {
    System(PromptChange),
    User(UserMessage),
    Assistant(AssistantMessage),
    ToolResult(ToolResultMessage),
}

#[derive(Deserialize, Default)]
struct Options {
    #[serde(flatten)]
    options: StreamOptions,
    #[serde(default)]
    reasoning: Option<ThinkingLevel>,
}

/// A message of the role `system`: from here on, this is added to prompt and tools, or taken away.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptChange {
    content: UserContent,
    #[serde(default, deserialize_with = "null_is_default")]
    sections: Map<String, Value>,
    #[serde(default, deserialize_with = "null_is_default")]
    tools_added: Vec<Definition>,
    #[serde(default, deserialize_with = "null_is_default")]
    tools_removed: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Prompt and tools, while changes to them are replayed.
struct Prompt {
    content: Vec<String>,
    sections: Map<String, Value>,
    tools: Vec<Definition>,
}

impl Prompt {
    fn new(text: Option<String>, tools: Vec<Definition>) -> Self {
        Self {
            content: text.into_iter().collect(),
            sections: Map::new(),
            tools,
        }
    }

    fn apply(&mut self, change: PromptChange) {
        self.content.push(change.content.text());
        self.sections.extend(change.sections);
        self.tools
            .retain(|tool| !change.tools_removed.iter().any(|gone| gone.name == tool.name));
        for added in change.tools_added {
            match self.tools.iter_mut().find(|tool| tool.name == added.name) {
                Some(tool) => *tool = added,
                None => self.tools.push(added),
            }
        }
    }

    /// The content of all changes, then the sections that are left.
    fn text(&self) -> String {
        let sections = self.sections.values().filter_map(Value::as_str);
        let parts = self.content.iter().map(String::as_str).chain(sections);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }
}

/// A tool of which only the definition came over the wire.
#[derive(Deserialize)]
struct Definition {
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    description: String,
    #[serde(default)]
    parameters: Value,
}

impl Definition {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl Tool for Definition {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn execute(
        self: Arc<Self>,
        _arguments: ValidatedArguments,
        _cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
        let error = format!("Tool {} runs at the client of this proxy", self.name);
        Box::pin(std::future::ready(Err(error.into())))
    }
}

/// Reads a model; thinking levels it has beyond those of this crate are left out.
fn model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Model, D::Error> {
    let mut fields = Map::deserialize(deserializer)?;
    if let Some(Value::Object(levels)) = fields.get_mut("thinkingLevelMap") {
        levels.retain(|level, _| ThinkingLevel::deserialize(&Value::from(level.as_str())).is_ok());
    }
    Model::deserialize(Value::Object(fields)).map_err(D::Error::custom)
}

/// Reads options, with the values of newer references.
fn options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Options, D::Error> {
    let Some(mut fields) = Option::<Map<String, Value>>::deserialize(deserializer)? else {
        return Ok(Options::default());
    };
    if let Some(Value::Object(headers)) = fields.get_mut("headers") {
        // One that the provider's own headers shall lose. There is no such thing here.
        headers.retain(|_, value| !value.is_null());
    }
    match fields.get_mut("reasoning") {
        Some(level) if level == "max" => *level = "xhigh".into(),
        _ => {}
    }
    Options::deserialize(Value::Object(fields)).map_err(D::Error::custom)
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::proxy::wire::RequestBody;
    use crate::tool::json_tool;

    fn read_value(body: &Value) -> Request {
        read(body.to_string().as_bytes()).unwrap()
    }

    fn written(request: &Request) -> Value {
        serde_json::to_value(RequestBody::new(request)).unwrap()
    }

    /// The body that the reference sends, from the conformance fixtures.
    fn reference_body() -> Value {
        let fixture = include_str!("../../../tests/conformance/fixtures/proxy/text.json");
        let fixture: Value = serde_json::from_str(fixture).unwrap();
        fixture["expect"]["request"]["body"].clone()
    }

    #[test]
    fn what_the_reference_sends_is_read_and_written_alike() {
        let body = reference_body();
        let request = read_value(&body);
        assert_eq!(&*request.system_prompt, "Be brief.");
        assert_eq!(request.thinking_level, ThinkingLevel::Low);
        assert_eq!(request.options.session_id.as_deref(), Some("s-1"));
        let written = written(&request);
        assert_eq!(written["context"], body["context"]);
        assert_eq!(written["options"], body["options"]);
        assert_eq!(
            serde_json::from_value::<Model>(written["model"].clone()).unwrap(),
            *request.model
        );
    }

    #[test]
    fn every_option_survives() {
        let mut body = reference_body();
        body["options"] = json!({
            "temperature": 0.25, "maxTokens": 9, "sessionId": "s", "headers": {"x-a": "b"}, "metadata": {"user": 1},
            "cacheRetention": "long", "thinkingBudgets": {"low": 10}, "transport": "websocket-cached",
            "maxRetryDelayMs": 5, "reasoning": "high",
        });
        assert_eq!(written(&read_value(&body))["options"], body["options"]);
    }

    #[test]
    fn what_is_missing_null_or_unknown_does_no_harm() {
        for context in [
            json!({"messages": []}),
            json!({"messages": [], "systemPrompt": null, "tools": null, "later": 1}),
        ] {
            for options in [
                json!(null),
                json!({}),
                json!({"reasoning": null, "samplingParams": {"top_k": 1}}),
            ] {
                let body =
                    json!({"model": {"id": "m", "type": "chat"}, "context": context, "options": options, "x": 1});
                let request = read_value(&body);
                assert_eq!(*request.options, StreamOptions::default());
                assert_eq!(request.thinking_level, ThinkingLevel::Off);
                assert!(request.tools.is_empty() && request.system_prompt.is_empty());
            }
        }
    }

    #[test]
    fn what_newer_references_send_is_read() {
        let request = read_value(&json!({
            "model": {"id": "m", "thinkingLevelMap": {"low": "l", "xhigh": null, "max": "m"}},
            "context": {"messages": []},
            "options": {"reasoning": "max", "headers": {"a": "b", "c": null}},
        }));
        let levels = request.model.thinking_level_map.as_ref().unwrap();
        assert_eq!(json!(levels), json!({"low": "l", "xhigh": null}));
        assert_eq!(request.thinking_level, ThinkingLevel::Xhigh);
        assert_eq!(json!(request.options.headers), json!({"a": "b"}));
    }

    /// I3, whatever comes in: a call without a result gets one, a result without a call goes.
    #[test]
    fn messages_are_paired() {
        let call = json!({"type": "toolCall", "id": "1", "name": "t", "arguments": {}});
        let request = read_value(&json!({"model": {"id": "m"}, "context": {"messages": [
            {"role": "user", "content": "hi"},
            {"role": "toolResult", "toolCallId": "0", "toolName": "t", "content": []},
            {"role": "assistant", "content": [call], "stopReason": "toolUse"},
            {"role": "user", "content": "well?"},
        ]}}));
        let roles: Vec<_> = request.messages.iter().map(|message| message.role()).collect();
        assert_eq!(roles, ["user", "assistant", "toolResult", "user"]);
    }

    #[test]
    fn prompt_and_tools_may_come_as_messages() {
        let tool = |name: &str, text: &str| json!({"name": name, "description": text, "parameters": {}});
        let request = read_value(&json!({"model": {"id": "m"}, "context": {"messages": [
            {"role": "system", "content": "Be brief.", "sections": {"a": "A", "b": "B"},
             "toolsAdded": [tool("x", "1"), tool("y", "1"), tool("z", "1")], "timestamp": 0},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}], "sections": {"a": null, "b": "B2"},
             "toolsAdded": [tool("z", "2")], "toolsRemoved": [{"name": "x"}], "timestamp": 0},
        ]}}));
        assert_eq!(&*request.system_prompt, "Be brief.\n\nBe kind.\n\nB2");
        let tools: Vec<_> = request
            .tools
            .iter()
            .map(|tool| (tool.name(), tool.description()))
            .collect();
        assert_eq!(tools, [("y", "1"), ("z", "2")]);
        assert_eq!(request.messages.len(), 1);
    }

    #[test]
    fn tools_are_definitions_only() {
        let parameters = json!({"type": "object", "required": ["a"]});
        let mut request = Request::new("m");
        request.tools = request.tools.with(json_tool("t", "T", parameters, async |_, _| "ran"));
        let read = read_value(&written(&request));
        assert_eq!(
            serde_json::to_value(&read.tools).unwrap(),
            serde_json::to_value(&request.tools).unwrap()
        );

        let tool = read.tools.find("t").unwrap();
        let call = crate::message::ToolCall::new("1", "t", Map::from_iter([("a".to_owned(), json!(1))]));
        let arguments = Value::Object(call.arguments.clone());
        let arguments = tool.schema().check("t", &call.arguments, arguments).unwrap();
        let (cx, _updates) = ToolContext::detached(call);
        let result = Arc::clone(tool.tool()).execute(arguments, cx).now_or_never().unwrap();
        assert_eq!(
            result.unwrap_err().to_string(),
            "Tool t runs at the client of this proxy"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"model": {"id": "m"}}"#,
            r#"{"model": {"id": "m"}, "context": {"messages": [{"role": "nobody"}]}}"#,
            r#"{"model": {"id": "m"}, "context": {"messages": [1]}}"#,
            r#"{"model": {"id": "m"}, "context": {"messages": []}, "options": {"temperature": "warm"}}"#,
        ] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
        assert!(read("[".repeat(100_000).as_bytes()).is_err());
        assert!(read(b"\xff").is_err());
    }
}
