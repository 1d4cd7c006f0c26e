//! What an answer cost, from the numbers of each protocol.

use genai::chat::Usage as GenaiUsage;
use serde_json::Value;
use turnstate::{Model, Usage};

/// A number of tokens. What is none (absent, negative, a text) counts as absent.
fn tokens(usage: &Value, path: &str) -> Option<u64> {
    usage.pointer(path)?.as_u64()
}

/// Counts that include what came from the cache, as most providers give them.
fn inclusive(prompt: u64, cache_read: u64, cache_write: u64, output: u64, total: Option<u64>) -> Usage {
    // Some providers leave the reasoning out of the output, and count it in the total only.
    let output = output.max(total.unwrap_or(0).saturating_sub(prompt));
    Usage {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output,
        cache_read,
        cache_write,
        total_tokens: prompt.saturating_add(output),
        ..Usage::default()
    }
}

/// Of OpenAI's Chat Completions and what resembles it; `None` if there is nothing in it.
pub(crate) fn of_chat_completions(usage: &Value) -> Option<Usage> {
    let prompt = tokens(usage, "/prompt_tokens");
    let output = tokens(usage, "/completion_tokens");
    let total = tokens(usage, "/total_tokens");
    prompt.or(output).or(total)?;
    let cached = tokens(usage, "/prompt_tokens_details/cached_tokens").or(tokens(usage, "/prompt_cache_hit_tokens"));
    let written = tokens(usage, "/prompt_tokens_details/cache_write_tokens");
    Some(inclusive(
        prompt.unwrap_or(0),
        cached.unwrap_or(0),
        written.unwrap_or(0),
        output.unwrap_or(0),
        total,
    ))
}

/// Of OpenAI's Responses.
pub(crate) fn of_responses(usage: &Value) -> Option<Usage> {
    let (prompt, output) = (tokens(usage, "/input_tokens"), tokens(usage, "/output_tokens"));
    prompt.or(output)?;
    let cached = tokens(usage, "/input_tokens_details/cached_tokens").unwrap_or(0);
    let total = tokens(usage, "/total_tokens");
    Some(inclusive(prompt.unwrap_or(0), cached, 0, output.unwrap_or(0), total))
}

/// Of Anthropic's Messages: it counts the cache apart, and a later report replaces what it names of an earlier one.
pub(crate) fn add_messages(to: &mut Usage, usage: &Value) {
    for (field, name) in [
        (&mut to.input, "/input_tokens"),
        (&mut to.output, "/output_tokens"),
        (&mut to.cache_read, "/cache_read_input_tokens"),
        (&mut to.cache_write, "/cache_creation_input_tokens"),
    ] {
        if let Some(count) = tokens(usage, name) {
            *field = count;
        }
    }
    to.total_tokens = [to.input, to.output, to.cache_read, to.cache_write]
        .into_iter()
        .fold(0, u64::saturating_add);
}

/// Of a protocol that genai reads.
pub(crate) fn of_genai(usage: &GenaiUsage) -> Usage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    let details = usage.prompt_tokens_details.as_ref();
    inclusive(
        count(usage.prompt_tokens).unwrap_or(0),
        count(details.and_then(|details| details.cached_tokens)).unwrap_or(0),
        count(details.and_then(|details| details.cache_creation_tokens)).unwrap_or(0),
        count(usage.completion_tokens).unwrap_or(0),
        count(usage.total_tokens),
    )
}

/// Adds what the tokens cost, by the model's price list.
pub(crate) fn price(usage: &mut Usage, model: &Model) {
    #[expect(clippy::cast_precision_loss, reason = "no answer has 2^52 tokens")]
    let cost = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
    let prices = &model.cost;
    usage.cost.input = cost(usage.input, prices.input);
    usage.cost.output = cost(usage.output, prices.output);
    usage.cost.cache_read = cost(usage.cache_read, prices.cache_read);
    usage.cost.cache_write = cost(usage.cache_write, prices.cache_write);
    usage.cost.total = usage.cost.input + usage.cost.output + usage.cost.cache_read + usage.cost.cache_write;
}
