//! Where a request goes: which adapter of genai's, to which address, with which key.

use genai::adapter::AdapterKind;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ModelSpec, ServiceTarget};
use turnstate::{Model, Request};

use crate::failure::Failed;

/// What is sent as a key to a server of one's own that wants none.
const NO_KEY: &str = "no-key";

/// The adapter that a model's provider and API name. `None` leaves it to the model's name.
fn adapter(model: &Model) -> Result<Option<AdapterKind>, Failed> {
    let of_api = match model.api.as_str() {
        "openai-completions" => Some(AdapterKind::OpenAI),
        "openai-responses" => Some(AdapterKind::OpenAIResp),
        "anthropic-messages" => Some(AdapterKind::Anthropic),
        "google-generative-ai" => Some(AdapterKind::Gemini),
        _ => None,
    };
    let named = named(&model.provider);
    // A provider that speaks several is asked in the one that the API names.
    if let (Some(AdapterKind::OpenAI) | None, Some(api)) = (named, of_api) {
        return Ok(Some(api));
    }
    if named.is_some() {
        return Ok(named);
    }
    match (model.base_url.is_empty(), is_known(&model.provider)) {
        (false, _) => Ok(Some(AdapterKind::OpenAI)),
        (true, true) => Err(Failed::new(format!(
            "there is no provider \"{}\"; with a base URL any server that speaks OpenAI's Chat Completions will do",
            model.provider
        ))),
        (true, false) => Ok(None),
    }
}

fn is_known(name: &str) -> bool {
    !matches!(name, "" | "unknown")
}

/// genai's names of providers, and Pi's where they differ.
fn named(provider: &str) -> Option<AdapterKind> {
    let name = provider.to_ascii_lowercase().replace('-', "_");
    let name = match name.as_str() {
        "google" => "gemini",
        "google_vertex" => "vertex",
        "openrouter" => "open_router",
        "amazon_bedrock" => "bedrock_api",
        name => name,
    };
    AdapterKind::from_lower_str(name)
}

/// Resolves the target of `request`: what its model leaves open is genai's, and the client's own resolvers count.
pub(crate) async fn resolve(client: &Client, request: &Request) -> Result<ServiceTarget, Failed> {
    let model = &request.model;
    let spec = match adapter(model)? {
        Some(adapter) => ModelSpec::from_iden(ModelIden::new(adapter, model.id.as_str())),
        None => ModelSpec::from_name(model.id.as_str()),
    };
    let target = client.resolve_service_target(spec).await;
    let mut target = target.map_err(|error| Failed::of_genai(&error))?;
    let key = request.api_key.as_ref().or(request.options.api_key.as_ref());
    if !model.base_url.is_empty() {
        // What is joined to it would replace its last part.
        target.endpoint = Endpoint::from_owned(format!("{}/", model.base_url.trim_end_matches('/')));
        if key.is_none() && named(&model.provider).is_none() {
            // A provider's key from the environment is not for a server that does not name the provider.
            target.auth = AuthData::from_single(NO_KEY);
        }
    }
    if let Some(key) = key {
        target.auth = AuthData::from_single(key.expose());
    }
    Ok(target)
}

/// What an answer says of its API, in Pi's words where Pi has one.
pub(crate) fn api(adapter: AdapterKind) -> &'static str {
    match adapter {
        AdapterKind::Anthropic => "anthropic-messages",
        AdapterKind::OpenAIResp => "openai-responses",
        AdapterKind::Gemini | AdapterKind::GeminiIx => "google-generative-ai",
        AdapterKind::Vertex => "google-vertex",
        AdapterKind::BedrockApi => "bedrock-converse-stream",
        AdapterKind::Ollama | AdapterKind::OllamaCloud => "ollama-chat",
        AdapterKind::Cohere => "cohere-chat",
        _ => "openai-completions",
    }
}

/// The provider of an answer: the model's own word for it, or genai's.
pub(crate) fn provider(model: &Model, adapter: AdapterKind) -> String {
    if is_known(&model.provider) {
        model.provider.clone()
    } else {
        adapter.as_lower_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_by_provider_and_api() {
        let local = |provider: &str, api: &str, base_url: &str| {
            let mut model = Model::new("m").with_provider(provider, api);
            model.base_url = base_url.into();
            adapter(&model).map_err(|failed| failed.message)
        };
        for (provider, api, base_url, kind) in [
            ("unknown", "unknown", "", None),
            ("", "", "", None),
            ("anthropic", "unknown", "", Some(AdapterKind::Anthropic)),
            ("openai", "openai-responses", "", Some(AdapterKind::OpenAIResp)),
            ("openai", "", "", Some(AdapterKind::OpenAI)),
            ("google", "", "", Some(AdapterKind::Gemini)),
            ("github-copilot", "", "", Some(AdapterKind::GithubCopilot)),
            ("groq", "openai-completions", "", Some(AdapterKind::Groq)),
            ("mine", "", "http://localhost:1", Some(AdapterKind::OpenAI)),
            (
                "mine",
                "anthropic-messages",
                "http://localhost:1",
                Some(AdapterKind::Anthropic),
            ),
        ] {
            assert_eq!(local(provider, api, base_url), Ok(kind), "{provider} {api} {base_url}");
        }
        let error = local("mine", "", "").unwrap_err();
        assert!(error.starts_with("there is no provider \"mine\""), "{error}");
    }
}
