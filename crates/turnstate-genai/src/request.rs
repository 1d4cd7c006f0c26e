//! A request's messages and tools, in genai's words.

use genai::ModelIden;
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse};
use serde_json::{Value, json};
use turnstate::{
    AssistantContent, AssistantMessage, Content, ImageContent, InputKind, Message, Request, ThinkingContent,
    ToolResultMessage, UserContent,
};

use crate::answer::REDACTED;
use crate::target;

/// Said in place of images that the model cannot see.
const UNSEEN: &str = "(an image was left out: this model does not take images)";

pub(crate) fn of(request: &Request, model: &ModelIden) -> ChatRequest {
    let mut made = Made {
        request,
        model,
        messages: Vec::new(),
        results: Vec::new(),
        images: Vec::new(),
    };
    for message in &request.messages {
        match &**message {
            Message::ToolResult(result) => made.result(result),
            Message::User(user) => {
                made.flush();
                let content = match &user.content {
                    UserContent::Text(text) => MessageContent::from_text(text),
                    UserContent::Blocks(blocks) => MessageContent::from_parts(made.parts(blocks)),
                };
                made.messages.push(ChatMessage::user(content));
            }
            Message::Assistant(message) => {
                made.flush();
                let parts = made.assistant(message);
                if !parts.is_empty() {
                    made.messages
                        .push(ChatMessage::assistant(MessageContent::from_parts(parts)));
                }
            }
        }
    }
    made.flush();
    let mut chat = ChatRequest::new(made.messages);
    if !request.system_prompt.is_empty() {
        chat = chat.with_system(&*request.system_prompt);
    }
    if request.tools.is_empty() {
        return chat;
    }
    chat.with_tools(request.tools.iter().map(|tool| {
        Tool::new(tool.name())
            .with_description(tool.description())
            .with_schema(tool.parameters().clone())
    }))
}

struct Made<'a> {
    request: &'a Request,
    model: &'a ModelIden,
    messages: Vec<ChatMessage>,
    /// Results that follow each other are one message: some providers want all of a turn's at once.
    results: Vec<ContentPart>,
    /// The images of these results, where a result has only text.
    images: Vec<ContentPart>,
}

impl Made<'_> {
    fn flush(&mut self) {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.messages
                .push(ChatMessage::tool(MessageContent::from_parts(results)));
        }
        if !self.images.is_empty() {
            let mut parts = vec![ContentPart::from_text("Images of the tool results:")];
            parts.append(&mut self.images);
            self.messages.push(ChatMessage::user(MessageContent::from_parts(parts)));
        }
    }

    fn image(&self, image: &ImageContent) -> ContentPart {
        let takes = &self.request.model.input;
        if takes.is_empty() || takes.contains(&InputKind::Image) {
            ContentPart::from_binary_base64(image.mime_type.as_str(), image.data.as_str(), None)
        } else {
            ContentPart::from_text(UNSEEN)
        }
    }

    fn parts(&self, blocks: &[Content]) -> Vec<ContentPart> {
        let part = |block: &Content| match block {
            Content::Text(text) => Some(ContentPart::from_text(text.text.as_str())),
            Content::Image(image) => Some(self.image(image)),
            _ => None,
        };
        blocks.iter().filter_map(part).collect()
    }

    fn assistant(&self, message: &AssistantMessage) -> Vec<ContentPart> {
        let adapter = self.model.adapter_kind;
        // What is signed is for the model that signed it.
        let own = message.model == self.request.model.id
            && message.provider == target::provider(&self.request.model, adapter)
            && message.api == target::api(adapter);
        let mut parts = Vec::new();
        for block in &message.content {
            match block {
                // Anthropic refuses an empty text.
                AssistantContent::Text(text) if text.text.is_empty() => {}
                AssistantContent::Text(text) => parts.push(ContentPart::from_text(text.text.as_str())),
                AssistantContent::Thinking(thinking) if own => parts.extend(self.thinking(thinking)),
                AssistantContent::ToolCall(call) => parts.push(ContentPart::ToolCall(ToolCall {
                    call_id: call.id.clone(),
                    fn_name: call.name.clone(),
                    fn_arguments: Value::Object(call.arguments.clone()),
                    thought_signatures: call
                        .thought_signature
                        .clone()
                        .filter(|_| own)
                        .map(|signature| vec![signature]),
                })),
                _ => {}
            }
        }
        parts
    }

    fn thinking(&self, thinking: &ThinkingContent) -> Option<ContentPart> {
        let signature = thinking.thinking_signature.as_ref();
        let text = thinking.thinking.as_str();
        match self.model.adapter_kind {
            // As it is on the wire: genai pairs texts and signatures by their number, and drops all if one is missing.
            AdapterKind::Anthropic => signature.map(|signature| {
                let block = if thinking.redacted == Some(true) || text == REDACTED {
                    json!({"type": "redacted_thinking", "data": signature})
                } else {
                    json!({"type": "thinking", "thinking": text, "signature": signature})
                };
                ContentPart::from_custom(block, Some(self.model.clone()))
            }),
            AdapterKind::OpenAIResp | AdapterKind::Gemini | AdapterKind::GeminiIx | AdapterKind::Vertex => {
                signature.map(|signature| ContentPart::ThoughtSignature(signature.clone()))
            }
            _ => Some(ContentPart::ReasoningContent(text.to_owned())),
        }
    }

    fn result(&mut self, result: &ToolResultMessage) {
        if self.model.adapter_kind == AdapterKind::Anthropic {
            let part = ContentPart::from_custom(anthropic_result(result), Some(self.model.clone()));
            self.results.push(part);
            return;
        }
        let mut response = ToolResponse::new(result.tool_call_id.as_str(), result.text());
        response.fn_name = Some(result.tool_name.clone());
        self.results.push(ContentPart::ToolResponse(response));
        for block in &result.content {
            if let Content::Image(image) = block {
                self.images.push(self.image(image));
            }
        }
    }
}

/// As it is on the wire: genai's results are texts, and cannot have failed.
fn anthropic_result(result: &ToolResultMessage) -> Value {
    let block = |block: &Content| match block {
        Content::Text(text) if text.text.is_empty() => None,
        Content::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Content::Image(image) => Some(json!({
            "type": "image",
            "source": {"type": "base64", "media_type": image.mime_type, "data": image.data},
        })),
        _ => None,
    };
    json!({
        "type": "tool_result",
        "tool_use_id": result.tool_call_id,
        "content": result.content.iter().filter_map(block).collect::<Vec<_>>(),
        "is_error": result.is_error,
    })
}
