//! Which model is asked, and how.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How much the model shall think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ThinkingLevel {
    /// Not at all.
    #[default]
    Off,
    /// As little as the provider allows.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as the provider allows.
    Xhigh,
}

/// What a model takes as input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InputKind {
    /// Text.
    Text,
    /// Images.
    Image,
}

/// Prices, per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelCost {
    /// Of input.
    pub input: f64,
    /// Of output.
    pub output: f64,
    /// Of reading the cache.
    pub cache_read: f64,
    /// Of writing the cache.
    pub cache_write: f64,
}

/// A model, as the stream function needs it. In Pi's JSON.
///
/// ```
/// use turnstate::Model;
/// let model = Model::new("claude-sonnet-4-5").with_provider("anthropic", "anthropic-messages");
/// assert_eq!((model.id.as_str(), model.provider.as_str()), ("claude-sonnet-4-5", "anthropic"));
/// assert_eq!(Model::from("scripted-1").id, "scripted-1");
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Model {
    /// The provider's id of the model.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The API it is called through, such as `anthropic-messages`.
    pub api: String,
    /// The provider, such as `anthropic`.
    pub provider: String,
    /// The root of the provider's URLs.
    pub base_url: String,
    /// Whether it can think.
    pub reasoning: bool,
    /// What the provider calls the thinking levels; `null` marks one it does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level_map: Option<BTreeMap<ThinkingLevel, Option<String>>>,
    /// What it takes as input.
    pub input: Vec<InputKind>,
    /// Its prices.
    pub cost: ModelCost,
    /// Tokens it can see at once.
    pub context_window: u64,
    /// Tokens it can answer with at most.
    pub max_tokens: u64,
    /// Headers its provider wants with each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Provider quirks, passed on as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compat: Option<Value>,
}

impl Model {
    /// A model of which only the id matters; api and provider are `unknown`.
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            name: id.clone(),
            id,
            api: "unknown".into(),
            provider: "unknown".into(),
            ..Self::default()
        }
    }

    /// The same model at `provider`, called through `api`.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>, api: impl Into<String>) -> Self {
        self.provider = provider.into();
        self.api = api.into();
        self
    }
}

impl From<&str> for Model {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl From<String> for Model {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}

/// A key or token. Its `Debug` shows nothing of it, and it has no serde form.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps `key`.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

impl From<&str> for ApiKey {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for ApiKey {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

/// How long the provider shall keep the prompt in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CacheRetention {
    /// Not at all.
    None,
    /// The provider's usual time.
    Short,
    /// The provider's longest time.
    Long,
}

/// How the provider is talked to, where it offers a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Transport {
    /// Server-sent events.
    Sse,
    /// A web socket per request.
    Websocket,
    /// A web socket that is kept.
    WebsocketCached,
    /// The provider's choice.
    Auto,
}

/// Tokens the model may think for, by level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ThinkingBudgets {
    /// At [`ThinkingLevel::Minimal`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimal: Option<u64>,
    /// At [`ThinkingLevel::Low`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<u64>,
    /// At [`ThinkingLevel::Medium`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<u64>,
    /// At [`ThinkingLevel::High`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<u64>,
}

/// What a request says beside the context. Absent means the provider's default; serialises by Pi's names,
/// without the key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tokens of output at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Names the session to providers that cache or route by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Further HTTP headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Further fields a provider may understand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// How long the prompt is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_retention: Option<CacheRetention>,
    /// Thinking tokens by level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_budgets: Option<ThinkingBudgets>,
    /// How the provider is talked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The longest wait a provider may ask for before a retry, in milliseconds; beyond it the request fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retry_delay_ms: Option<u64>,
    /// The key, unless a hook gives one for the request.
    #[serde(skip)]
    pub api_key: Option<ApiKey>,
}
