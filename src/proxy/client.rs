//! The client end: its configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio_util::sync::CancellationToken;

use crate::message::ApiKey;
use crate::stream_fn::{Request, StreamFn};
use crate::tool::BoxError;

use super::client_stream::ProxyStream;
use super::decode::DecoderLimits;
use super::wire::PATH;

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MAX_ERROR_BODY: usize = 64 << 10;

/// Why a [`ProxyModel`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyConfigError {
    /// The URL is not one.
    #[error("the proxy's url is not valid: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The URL is not one of HTTP.
    #[error("the proxy's url must begin with http:// or https://, not {scheme}:")]
    #[non_exhaustive]
    UnsupportedScheme {
        /// What it begins with.
        scheme: String,
    },
    /// The URL has a user name or password in it, where logs would show them. The token is the place for secrets.
    #[error("the proxy's url must not contain a user name or password")]
    CredentialsInUrl,
    /// The HTTP client cannot be made.
    #[error("the http client cannot be made")]
    Client(#[source] reqwest::Error),
}

type TokenFuture = std::pin::Pin<Box<dyn Future<Output = Result<ApiKey, BoxError>> + Send>>;

/// Where the token of a request comes from. Its `Debug` shows nothing of it.
///
/// ```
/// use turnstate::ApiKey;
/// use turnstate::proxy::ProxyToken;
///
/// let fixed = ProxyToken::from("a-token");
/// let short_lived = ProxyToken::provider(async || Ok(ApiKey::new("asked for, request by request")));
/// # let _ = (fixed, short_lived);
/// ```
#[derive(Clone)]
pub struct ProxyToken(Source);

#[derive(Clone)]
enum Source {
    Fixed(ApiKey),
    Provider(Arc<dyn Fn() -> TokenFuture + Send + Sync>),
}

impl ProxyToken {
    /// Asks `provider` before each request, so that short-lived tokens work. Its error ends the answer; the text of the
    /// error becomes part of the error message. It is dropped if the request is aborted.
    pub fn provider<F, Fut>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ApiKey, BoxError>> + Send + 'static,
    {
        Self(Source::Provider(Arc::new(move || Box::pin(provider()))))
    }

    pub(super) async fn get(&self) -> Result<ApiKey, BoxError> {
        match &self.0 {
            Source::Fixed(token) => Ok(token.clone()),
            Source::Provider(provider) => provider().await,
        }
    }
}

impl<T: Into<ApiKey>> From<T> for ProxyToken {
    fn from(token: T) -> Self {
        Self(Source::Fixed(token.into()))
    }
}

impl fmt::Debug for ProxyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Fixed(_) => "ProxyToken(..)",
            Source::Provider(_) => "ProxyToken::provider(..)",
        })
    }
}

/// What keeps an answer from being idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Activity {
    /// Whatever arrives, comments and unknown events included: the server pings while its model thinks.
    #[default]
    Bytes,
    /// Only events of the answer: the server pings even if its model is stuck. An event has to arrive whole within the
    /// limit.
    Events,
}

/// What every request of a model needs.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) url: Url,
    pub(super) token: ProxyToken,
    pub(super) client: Client,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) activity: Activity,
    pub(super) limits: DecoderLimits,
    pub(super) max_error_body: usize,
    pub(super) error_body_timeout: Duration,
}

/// A [`StreamFn`] that calls the model through a proxy server. A cheap handle.
///
/// Each call is exactly one `POST`, which is never sent again: not when the connection breaks, not when the server
/// redirects. Whatever goes wrong is an [`AssistantEvent::Error`](crate::AssistantEvent::Error) that keeps what arrived.
/// The body of the request and of the answer are shown at the [module](super).
///
/// It has to be polled within a tokio runtime with I/O and time; elsewhere the answer is an error.
///
/// ```
/// use std::time::Duration;
/// use turnstate::Agent;
/// use turnstate::proxy::ProxyModel;
///
/// let model = ProxyModel::builder("http://localhost:8080", "a-token")
///     .idle_timeout(Duration::from_secs(90))
///     .build()?;
/// let agent = Agent::builder("claude-sonnet-4-5", model).build();
/// # let _ = agent;
/// # Ok::<(), turnstate::proxy::ProxyConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ProxyModel(Arc<Config>);

impl ProxyModel {
    /// A model behind the proxy at `url`, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    /// See [`ProxyModelBuilder::build`].
    pub fn new(url: impl Into<String>, token: impl Into<ProxyToken>) -> Result<Self, ProxyConfigError> {
        Self::builder(url, token).build()
    }

    /// Configures a model behind the proxy at `url`, to which `/api/stream` is appended.
    ///
    /// An `https` URL needs the feature `proxy-rustls` or `proxy-native-tls`, or an injected
    /// [client](ProxyModelBuilder::client) that can.
    pub fn builder(url: impl Into<String>, token: impl Into<ProxyToken>) -> ProxyModelBuilder {
        ProxyModelBuilder {
            url: url.into(),
            token: token.into(),
            client: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            idle_timeout: None,
            activity: Activity::default(),
            limits: DecoderLimits::default(),
            max_error_body: DEFAULT_MAX_ERROR_BODY,
            error_body_timeout: DEFAULT_ERROR_BODY_TIMEOUT,
        }
    }
}

impl StreamFn for ProxyModel {
    type Stream = ProxyStream;

    /// Nothing is sent before the stream is polled, nor if `cancel` is cancelled by then.
    fn stream(&self, request: Request, cancel: CancellationToken) -> ProxyStream {
        ProxyStream::new(Arc::clone(&self.0), request, cancel)
    }
}

/// Configures a [`ProxyModel`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ProxyModelBuilder {
    url: String,
    token: ProxyToken,
    client: Option<Client>,
    connect_timeout: Duration,
    idle_timeout: Option<Duration>,
    activity: Activity,
    limits: DecoderLimits,
    max_error_body: usize,
    error_body_timeout: Duration,
}

impl ProxyModelBuilder {
    /// Uses this HTTP client, for its TLS settings, its proxies or its pool. Default: one of its own.
    ///
    /// The one of its own follows no redirect, retries nothing, and closes the connection of an answer when the answer is
    /// complete, so that no request can meet a connection that the server is just giving up. Timeouts of an injected one
    /// that limit the whole request also limit the answer.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// How long connecting may take, TLS included. Default: 30 seconds. An injected [client](Self::client) has its own.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long the server may be silent, from the request on, before the answer fails. Default: as long as it likes.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = Some(limit);
        self
    }

    /// What ends the silence of [`idle_timeout`](Self::idle_timeout). Default: [`Activity::Bytes`].
    pub fn activity(mut self, activity: Activity) -> Self {
        self.activity = activity;
        self
    }

    /// The limits of lines and events, in bytes. Default: 16 MiB each.
    pub fn limits(mut self, limits: DecoderLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How much is read of the body of an HTTP error, in bytes. Default: 64 KiB. A longer one is not looked at.
    pub fn max_error_body(mut self, bytes: usize) -> Self {
        self.max_error_body = bytes;
        self
    }

    /// How long the body of an HTTP error is waited for. Default: 5 seconds. Then the status has to do.
    pub fn error_body_timeout(mut self, limit: Duration) -> Self {
        self.error_body_timeout = limit;
        self
    }

    /// Makes the model.
    ///
    /// # Errors
    /// If the URL is no HTTP URL or has credentials in it, or the HTTP client cannot be made.
    pub fn build(self) -> Result<ProxyModel, ProxyConfigError> {
        let url = endpoint(&self.url)?;
        let client = match self.client {
            Some(client) => client,
            None => Client::builder()
                .connect_timeout(self.connect_timeout)
                .redirect(Policy::none())
                .retry(reqwest::retry::never())
                .pool_max_idle_per_host(0)
                .build()
                .map_err(ProxyConfigError::Client)?,
        };
        Ok(ProxyModel(Arc::new(Config {
            url,
            token: self.token,
            client,
            idle_timeout: self.idle_timeout,
            activity: self.activity,
            limits: self.limits,
            max_error_body: self.max_error_body,
            error_body_timeout: self.error_body_timeout,
        })))
    }
}

/// Where requests go.
fn endpoint(base: &str) -> Result<Url, ProxyConfigError> {
    let invalid = |reason: String| ProxyConfigError::InvalidUrl { reason };
    let mut url = Url::parse(base).map_err(|error| invalid(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ProxyConfigError::UnsupportedScheme {
            scheme: url.scheme().to_owned(),
        });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ProxyConfigError::CredentialsInUrl);
    }
    let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_appended() {
        for (base, expected) in [
            ("http://h", "http://h/api/stream"),
            ("https://h:81/", "https://h:81/api/stream"),
            ("http://h/llm/?tenant=1#top", "http://h/llm/api/stream?tenant=1"),
        ] {
            assert_eq!(endpoint(base).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        for (base, message) in [
            (
                "localhost:8080",
                "the proxy's url must begin with http:// or https://, not localhost:",
            ),
            ("/api", "the proxy's url is not valid: relative URL without a base"),
            ("http://", "the proxy's url is not valid: empty host"),
            (
                "http://u:secret@h",
                "the proxy's url must not contain a user name or password",
            ),
        ] {
            assert_eq!(endpoint(base).unwrap_err().to_string(), message);
        }
    }
}
