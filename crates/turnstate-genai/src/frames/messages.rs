//! Anthropic's Messages. <https://docs.anthropic.com/en/docs/build-with-claude/streaming>

use serde_json::Value;

use crate::answer::{Answer, REDACTED};
use crate::failure::Failed;
use crate::usage;

use super::text;

pub(super) fn read(frame: &Value, answer: &mut Answer) {
    let key = frame["index"].as_u64().unwrap_or(0);
    match text(&frame["type"]) {
        "message_start" => {
            let message = &frame["message"];
            usage::add_messages(&mut answer.usage, &message["usage"]);
            answer.begin(message["id"].as_str(), message["model"].as_str());
        }
        "content_block_start" => {
            answer.end_prose();
            let block = &frame["content_block"];
            match text(&block["type"]) {
                "text" => answer.text(text(&block["text"])),
                "thinking" => {
                    answer.thinking(text(&block["thinking"]));
                    answer.signature(text(&block["signature"]));
                }
                "redacted_thinking" => {
                    answer.thinking(REDACTED);
                    answer.signature(text(&block["data"]));
                }
                "tool_use" => answer.call(key, text(&block["id"]), text(&block["name"])),
                // Of the provider's own tools, which nobody asked for here.
                _ => {}
            }
        }
        "content_block_delta" => {
            let delta = &frame["delta"];
            match text(&delta["type"]) {
                "text_delta" => answer.text(text(&delta["text"])),
                "thinking_delta" => answer.thinking(text(&delta["thinking"])),
                "signature_delta" => answer.signature(text(&delta["signature"])),
                "input_json_delta" => answer.arguments(key, text(&delta["partial_json"])),
                _ => {}
            }
        }
        "content_block_stop" => {
            answer.end_prose();
            answer.end_call(key);
        }
        "message_delta" => {
            usage::add_messages(&mut answer.usage, &frame["usage"]);
            answer.stop(text(&frame["delta"]["stop_reason"]));
        }
        "message_stop" => answer.finish(),
        "error" => answer.fail(Failed::in_stream(frame)),
        _ => {}
    }
}
