//! OpenAI's Responses. <https://platform.openai.com/docs/api-reference/responses-streaming>

use serde_json::Value;

use crate::answer::Answer;
use crate::failure::Failed;
use crate::usage;

use super::{is_error, text};

pub(super) fn read(frame: &Value, answer: &mut Answer) {
    let key = frame["output_index"].as_u64().unwrap_or(0);
    let response = &frame["response"];
    match text(&frame["type"]) {
        "response.created" => answer.begin(response["id"].as_str(), response["model"].as_str()),
        "response.output_item.added" => {
            answer.end_prose();
            item(key, &frame["item"], answer);
        }
        "response.output_text.delta" | "response.refusal.delta" => answer.text(text(&frame["delta"])),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            answer.thinking(text(&frame["delta"]));
        }
        "response.function_call_arguments.delta" => answer.arguments(key, text(&frame["delta"])),
        "response.output_item.done" => {
            let done = &frame["item"];
            item(key, done, answer);
            if done["type"] == "reasoning" {
                answer.signature(text(&done["encrypted_content"]));
            }
            answer.end_prose();
            answer.end_call(key);
        }
        "response.completed" | "response.incomplete" => {
            if let Some(usage) = usage::of_responses(&response["usage"]) {
                answer.usage = usage;
            }
            answer.stop(text(&response["status"]));
            answer.stop(text(&response["incomplete_details"]["reason"]));
            answer.finish();
        }
        "response.failed" if is_error(&response["error"]) => answer.fail(Failed::in_stream(&response["error"])),
        "response.failed" => answer.fail(Failed::new("the provider failed, and says no more")),
        "error" => answer.fail(Failed::in_stream(frame)),
        _ => {}
    }
}

/// A tool call as it begins, or whole.
fn item(key: u64, item: &Value, answer: &mut Answer) {
    if item["type"] == "function_call" {
        answer.call(key, text(&item["call_id"]), text(&item["name"]));
        if let Some(arguments) = item["arguments"].as_str().filter(|arguments| !arguments.is_empty()) {
            answer.arguments_so_far(key, arguments);
        }
    }
}
