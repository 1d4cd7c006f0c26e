//! The options of a request, in genai's words.

use std::collections::HashMap;

use genai::adapter::AdapterKind;
use genai::chat::{CacheControl, ChatOptions, ReasoningEffort};
use serde_json::json;
use turnstate::{CacheRetention, Request, ThinkingLevel};

/// What genai is told beside the messages.
pub(crate) fn of(request: &Request, adapter: AdapterKind) -> ChatOptions {
    let (model, said) = (&request.model, &request.options);
    let anthropic = adapter == AdapterKind::Anthropic;
    let openai = matches!(adapter, AdapterKind::OpenAI | AdapterKind::OpenAIResp);
    let mut options = ChatOptions::default()
        // It makes genai ask for the usage. Anthropic sends it anyway, and genai's sums of it can overflow.
        .with_capture_usage(!anthropic)
        // It makes genai ask for reasoning that can be sent back.
        .with_capture_reasoning_content(true)
        // Where frames are read here there is nothing to capture, and OpenAI's adapter would make as much room as the
        // provider says that there are calls.
        .with_capture_tool_calls(read_by_genai(adapter));
    options.temperature = said.temperature;
    let max_tokens = said.max_tokens.or(Some(model.max_tokens).filter(|max| *max > 0));
    options.max_tokens = max_tokens.map(|max| u32::try_from(max).unwrap_or(u32::MAX));
    options.reasoning_effort = effort(request);
    let headers = [&model.headers, &said.headers].into_iter().flatten().flatten();
    let headers: HashMap<String, String> = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
    if !headers.is_empty() {
        options.extra_headers = Some(headers.into());
    }
    options.prompt_cache_key = said.session_id.clone().filter(|_| openai);
    options.cache_control = match said.cache_retention {
        Some(CacheRetention::Short) if anthropic => Some(CacheControl::Ephemeral),
        Some(CacheRetention::Long) if anthropic => Some(CacheControl::Ephemeral1h),
        Some(CacheRetention::Long) if openai => Some(CacheControl::Ephemeral24h),
        _ => None,
    };
    let user = said.metadata.as_ref().and_then(|metadata| metadata.get("user_id"));
    options.extra_body = user
        .filter(|_| anthropic)
        .map(|id| json!({"metadata": {"user_id": id}}));
    options
}

/// The adapters whose frames are not read here.
fn read_by_genai(adapter: AdapterKind) -> bool {
    matches!(
        adapter,
        AdapterKind::Gemini
            | AdapterKind::GeminiIx
            | AdapterKind::Vertex
            | AdapterKind::Ollama
            | AdapterKind::OllamaCloud
            | AdapterKind::Cohere
            | AdapterKind::BedrockApi
    )
}

fn effort(request: &Request) -> Option<ReasoningEffort> {
    let level = request.thinking_level;
    if let Some(map) = &request.model.thinking_level_map
        && let Some(named) = map.get(&level)
    {
        return named.as_deref().and_then(|name| name.parse().ok());
    }
    let budgets = request.options.thinking_budgets.unwrap_or_default();
    let (budget, effort) = match level {
        // Without an effort genai takes one from a name that ends in such a word, and the word from the name.
        ThinkingLevel::Off => {
            return ReasoningEffort::from_model_name(&request.model.id)
                .0
                .map(|_| ReasoningEffort::Zero);
        }
        ThinkingLevel::Minimal => (budgets.minimal, ReasoningEffort::Minimal),
        ThinkingLevel::Low => (budgets.low, ReasoningEffort::Low),
        ThinkingLevel::Medium => (budgets.medium, ReasoningEffort::Medium),
        ThinkingLevel::High => (budgets.high, ReasoningEffort::High),
        _ => (None, ReasoningEffort::XHigh),
    };
    let budget = budget.and_then(|budget| u32::try_from(budget).ok());
    Some(budget.map_or(effort, ReasoningEffort::Budget))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn efforts() {
        for (id, level, map, budgets, effort) in [
            ("m", "off", Value::Null, json!({}), None),
            // The word stays in the name, and there is no effort.
            ("qwen-max", "off", Value::Null, json!({}), Some("zero")),
            ("m", "low", Value::Null, json!({}), Some("low")),
            ("m", "xhigh", Value::Null, json!({}), Some("xhigh")),
            ("m", "high", Value::Null, json!({"high": 4096}), Some("4096")),
            ("m", "high", json!({"high": "max"}), json!({"high": 4096}), Some("max")),
            ("m", "minimal", json!({"minimal": null}), json!({}), None),
        ] {
            let mut request = Request::new(id);
            let mut model = (*request.model).clone();
            model.thinking_level_map = serde_json::from_value(map.clone()).unwrap();
            request.model = model.into();
            request.thinking_level = serde_json::from_value(json!(level)).unwrap();
            let options = json!({"thinkingBudgets": budgets});
            request.options = std::sync::Arc::new(serde_json::from_value(options).unwrap());
            let said = of(&request, AdapterKind::OpenAI).reasoning_effort;
            assert_eq!(
                said.map(|effort| effort.to_string()).as_deref(),
                effort,
                "{id} {level} {map}"
            );
        }
    }

    /// One that OpenAI's adapter reads must not capture calls.
    #[test]
    fn captures() {
        for (adapter, usage, calls) in [
            (AdapterKind::OpenAI, true, false),
            (AdapterKind::OpenRouter, true, false),
            (AdapterKind::OpenAIResp, true, false),
            (AdapterKind::Anthropic, false, false),
            (AdapterKind::Gemini, true, true),
            (AdapterKind::Ollama, true, true),
        ] {
            let options = of(&Request::new("m"), adapter);
            assert_eq!(
                (options.capture_usage, options.capture_tool_calls),
                (Some(usage), Some(calls)),
                "{adapter}"
            );
        }
    }
}
