//! OpenAI's Chat Completions, and the many that resemble it. <https://platform.openai.com/docs/api-reference/chat-streaming>

use serde_json::Value;

use crate::answer::Answer;
use crate::failure::Failed;
use crate::usage;

use super::{is_error, text};

pub(super) fn read(frame: &Value, answer: &mut Answer) {
    if is_error(&frame["error"]) {
        return answer.fail(Failed::in_stream(&frame["error"]));
    }
    answer.begin(frame["id"].as_str(), frame["model"].as_str());
    // Groq has it elsewhere.
    for place in [&frame["usage"], &frame["x_groq"]["usage"]] {
        if let Some(usage) = usage::of_chat_completions(place) {
            answer.usage = usage;
        }
    }
    let choice = &frame["choices"][0];
    let delta = &choice["delta"];
    for name in ["reasoning_content", "reasoning"] {
        if let Some(thinking) = delta[name].as_str() {
            answer.thinking(thinking);
            break;
        }
    }
    content(&delta["content"], answer);
    answer.text(text(&delta["refusal"]));
    for (place, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
        // Without an index, its place in the list stands for it.
        let key = call["index"].as_u64().unwrap_or(place as u64);
        answer.call(key, text(&call["id"]), text(&call["function"]["name"]));
        match &call["function"]["arguments"] {
            Value::String(delta) => answer.arguments(key, delta),
            // Against the protocol, an object: then it is whole.
            Value::Object(object) => answer.arguments_so_far(key, &Value::Object(object.clone()).to_string()),
            _ => {}
        }
    }
    answer.stop(text(&choice["finish_reason"]));
}

/// A text, or Mistral's list of texts and thoughts.
fn content(content: &Value, answer: &mut Answer) {
    answer.text(text(content));
    for part in content.as_array().into_iter().flatten() {
        for thought in part["thinking"].as_array().into_iter().flatten() {
            answer.thinking(text(&thought["text"]));
        }
        answer.text(text(&part["text"]));
    }
}
