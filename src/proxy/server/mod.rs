//! The server's end of a proxy.

mod answer;
mod refusal;
mod request;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::message::ApiKey;
use crate::stream_fn::{Request, StreamFn};
use crate::tool::{BoxError, BoxFuture};

pub use answer::ProxyAnswer;
pub use refusal::Refusal;

/// 32 MiB: a long talk with some images. No provider takes more.
const MAX_BODY: usize = 32 << 20;

type Authorize<C> = dyn Fn(Option<ApiKey>) -> BoxFuture<'static, Result<C, Refusal>> + Send + Sync;
type Prepare<C> = dyn Fn(C, Request) -> BoxFuture<'static, Result<Request, Refusal>> + Send + Sync;

/// Answers the requests of proxy clients by a stream function.
///
/// It is what stands between a web framework and a [`StreamFn`]: the framework routes `POST` [`PATH`](super::PATH) to
/// it, gives it the `Authorization` header and the body, and sends the [`ProxyAnswer`], whose dropping (when the
/// client has left) cancels the model. Who may ask is decided by the closure given to [`new`](Self::new), which tells
/// who it is by a value of type `C`; what is asked of the model can be changed by [`prepare`](Self::prepare).
///
/// 1. A request without a bearer token is refused with 401, one that the closure refuses with its status.
/// 2. A body over the [cap](Self::max_body) is refused with 413, one that is not a request with 400.
/// 3. `prepare` may refuse, or change the request.
/// 4. The model is asked. What fails from here on is an `error` event.
///
/// A closure that panics refuses with 500. The body of a refusal is `{"error": ".."}`.
///
/// What needs a router or a timer is left to the framework: other paths and methods, CORS (for clients in browsers),
/// limits of rate and time, keep-alive comments (`: \n\n` between two items of the answer is one).
///
/// # Security
///
/// **A request says what its client likes**, the [base URL](crate::Model::base_url) and the headers of the model
/// included. Who sends a key of their own must take the model from their own list, by id, in `prepare`; or any client
/// can have the key sent to any host.
///
/// # Example
///
/// With `axum`, see also the example `proxy_server`:
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use axum::body::Body;
/// use axum::extract::{Request, State};
/// use axum::http::header::AUTHORIZATION;
/// use axum::response::Response;
/// use axum::routing::post;
/// use futures_util::StreamExt;
/// use turnstate::proxy::{PATH, ProxyServer, Refusal};
/// use turnstate::{ApiKey, Model, ScriptedModel};
///
/// struct User(&'static str);
///
/// type Server = ProxyServer<ScriptedModel, User>;
///
/// fn server() -> Server {
///     let model = ScriptedModel::new().text("Hello.");
///     ProxyServer::new(model, async |token: ApiKey| match token.expose() {
///         "secret" => Ok(User("Ada")),
///         _ => Err(Refusal::unauthorized("unknown token")),
///     })
///     .prepare(async |user: User, mut request| {
///         if request.model.id != "scripted-1" {
///             return Err(Refusal::forbidden(format!("{} may not use this model", user.0)));
///         }
///         request.model = Arc::new(Model::new("scripted-1")); // ours, whatever they said of it
///         request.api_key = Some(ApiKey::new("the server's own key"));
///         Ok(request)
///     })
/// }
///
/// async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response {
///     let (head, body) = request.into_parts();
///     let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
///     let answer = server.answer(authorization, body.into_data_stream()).await;
///     if let Some(refusal) = answer.refusal() {
///         eprintln!("refused: {refusal}");
///     }
///     let mut response = Response::builder().status(answer.status());
///     for (name, value) in answer.headers() {
///         response = response.header(*name, *value);
///     }
///     response.body(Body::from_stream(answer.map(Ok::<_, Infallible>))).unwrap()
/// }
///
/// let app: axum::Router = axum::Router::new().route(PATH, post(handle)).with_state(Arc::new(server()));
/// # let _ = app;
/// ```
pub struct ProxyServer<F, C = ()> {
    model: Arc<F>,
    authorize: Arc<Authorize<C>>,
    prepare: Option<Arc<Prepare<C>>>,
    max_body: usize,
}

impl<F: StreamFn> ProxyServer<F> {
    /// A server for everybody who can reach it, with a token or without.
    pub fn open(model: F) -> Self {
        Self::with_authorize(model, |_| Box::pin(std::future::ready(Ok(()))))
    }
}

impl<F: StreamFn, C: Send + 'static> ProxyServer<F, C> {
    /// A server for those whom `authorize` lets in, by the bearer token they send.
    pub fn new<A, Fut>(model: F, authorize: A) -> Self
    where
        A: Fn(ApiKey) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C, Refusal>> + Send + 'static,
    {
        Self::with_authorize(model, move |token| match token {
            Some(token) => Box::pin(authorize(token)),
            None => Box::pin(std::future::ready(Err(Refusal::unauthorized("missing bearer token")))),
        })
    }

    fn with_authorize(
        model: F,
        authorize: impl Fn(Option<ApiKey>) -> BoxFuture<'static, Result<C, Refusal>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            model: Arc::new(model),
            authorize: Arc::new(authorize),
            prepare: None,
            max_body: MAX_BODY,
        }
    }

    /// What to ask the model in place of what was asked, for the caller that the authorization found. Here the server
    /// puts its own key in, looks up the model, refuses what the caller may not do. By default nothing is changed.
    ///
    /// Tools of the request are definitions only: the client runs them.
    pub fn prepare<P, Fut>(mut self, prepare: P) -> Self
    where
        P: Fn(C, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Request, Refusal>> + Send + 'static,
    {
        self.prepare = Some(Arc::new(move |caller, request| Box::pin(prepare(caller, request))));
        self
    }

    /// How many bytes the body of a request may have. By default 32 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Answers a request whose body comes in pieces. It is read after the caller is let in, and no further than it
    /// may be long.
    ///
    /// `authorization` is the value of the header of this name.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it resolves, nothing was asked of the model.
    pub async fn answer<B, E>(
        &self,
        authorization: Option<&str>,
        body: impl Stream<Item = Result<B, E>>,
    ) -> ProxyAnswer<F::Stream>
    where
        B: AsRef<[u8]>,
        E: Into<BoxError>,
    {
        let answer = async {
            let caller = self.admit(authorization).await?;
            let body = self.read(body).await?;
            self.ask(caller, &body).await
        };
        answer.await.unwrap_or_else(ProxyAnswer::refused)
    }

    /// Answers a request whose body is there already.
    ///
    /// ```
    /// # use futures_util::{FutureExt, StreamExt};
    /// use turnstate::ScriptedModel;
    /// use turnstate::proxy::ProxyServer;
    ///
    /// # let run = async {
    /// let server = ProxyServer::open(ScriptedModel::new().text("Hello."));
    /// let body = br#"{"model": {"id": "scripted-1"}, "context": {"messages": []}}"#;
    /// let mut answer = server.answer_bytes(None, body).await;
    /// assert_eq!(answer.status(), 200);
    /// assert_eq!(answer.next().await.unwrap(), b"data: {\"type\":\"start\"}\n\n");
    /// # };
    /// # run.now_or_never().unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn answer_bytes(&self, authorization: Option<&str>, body: &[u8]) -> ProxyAnswer<F::Stream> {
        let answer = async {
            let caller = self.admit(authorization).await?;
            if body.len() > self.max_body {
                return Err(self.too_large());
            }
            self.ask(caller, body).await
        };
        answer.await.unwrap_or_else(ProxyAnswer::refused)
    }

    async fn admit(&self, authorization: Option<&str>) -> Result<C, Refusal> {
        let token = authorization.and_then(bearer);
        guarded(|| (self.authorize)(token)).await
    }

    async fn read<B, E>(&self, body: impl Stream<Item = Result<B, E>>) -> Result<Vec<u8>, Refusal>
    where
        B: AsRef<[u8]>,
        E: Into<BoxError>,
    {
        let mut body = pin!(body);
        let mut read = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| Refusal::new(400, "the request could not be read").because(error))?;
            let piece = piece.as_ref();
            if piece.len() > self.max_body - read.len() {
                return Err(self.too_large());
            }
            read.extend_from_slice(piece);
        }
        Ok(read)
    }

    fn too_large(&self) -> Refusal {
        Refusal::new(413, format!("the request is larger than {} bytes", self.max_body))
    }

    async fn ask(&self, caller: C, body: &[u8]) -> Result<ProxyAnswer<F::Stream>, Refusal> {
        let mut request =
            request::read(body).map_err(|error| Refusal::new(400, format!("the request is not valid: {error}")))?;
        if let Some(prepare) = &self.prepare {
            request = guarded(|| prepare(caller, request)).await?;
        }
        let cancel = CancellationToken::new();
        let guard = cancel.clone().drop_guard();
        let model = catch_unwind(AssertUnwindSafe(|| self.model.stream(request, cancel)));
        let model = model.map_err(|_| Refusal::internal("the stream function panicked"))?;
        Ok(ProxyAnswer::streaming(model, guard))
    }
}

/// Calls a closure of the app. If it panics, the answer is no.
async fn guarded<T>(call: impl FnOnce() -> BoxFuture<'static, Result<T, Refusal>>) -> Result<T, Refusal> {
    let called = catch_unwind(AssertUnwindSafe(call));
    let answer = match called {
        Ok(future) => AssertUnwindSafe(future).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    answer.unwrap_or_else(|_| Err(Refusal::internal("a closure of the server panicked")))
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(authorization: &str) -> Option<ApiKey> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| ApiKey::new(token))
}

impl<F, C> Clone for ProxyServer<F, C> {
    fn clone(&self) -> Self {
        Self {
            model: Arc::clone(&self.model),
            authorize: Arc::clone(&self.authorize),
            prepare: self.prepare.clone(),
            max_body: self.max_body,
        }
    }
}

impl<F, C> fmt::Debug for ProxyServer<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyServer")
            .field("max_body", &self.max_body)
            .finish_non_exhaustive()
    }
}
