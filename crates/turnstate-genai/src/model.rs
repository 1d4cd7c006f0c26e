//! The stream function.

use std::fmt;

use genai::Client;
use tokio_util::sync::CancellationToken;
use turnstate::{Request, StreamFn};

use crate::failure::Failed;
use crate::stream::GenaiStream;

/// A model that genai can reach. Cheap to clone: the connections are shared.
///
/// The provider follows from the request's [`Model`](turnstate::Model): from its `provider` and `api` if they are set,
/// else from its id, as genai guesses it. A `base_url` may stand for any server; without a known provider it is asked
/// in OpenAI's Chat Completions. The key is the request's, or that of the provider's environment variable
/// (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY`, ...); a server that names no provider gets none of these.
///
/// It needs a tokio runtime with I/O and time. It never asks twice: see [`Retry`](turnstate::Retry).
///
/// ```
/// use turnstate::{Agent, Model};
/// use turnstate_genai::GenaiModel;
///
/// let mut local = Model::new("qwen3:4b");
/// local.base_url = "http://127.0.0.1:8080/v1".into();
/// let agent = Agent::builder(local, GenaiModel::new()).build();
/// assert_eq!(agent.model().id, "qwen3:4b");
/// ```
#[derive(Clone)]
pub struct GenaiModel(Result<Client, Failed>);

impl GenaiModel {
    /// With genai's defaults. If its HTTP client cannot be made, each answer says so.
    pub fn new() -> Self {
        Self(Client::builder().build().map_err(|error| Failed::of_genai(&error)))
    }

    /// With a client of one's own: its resolvers, its proxies, its defaults.
    pub fn with_client(client: Client) -> Self {
        Self(Ok(client))
    }
}

impl Default for GenaiModel {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamFn for GenaiModel {
    type Stream = GenaiStream;

    fn stream(&self, request: Request, cancel: CancellationToken) -> GenaiStream {
        GenaiStream::new(self.0.clone(), request, cancel)
    }
}

impl fmt::Debug for GenaiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GenaiModel(..)")
    }
}
