//! What both ends agree on.

#[cfg(any(feature = "proxy", test))]
mod body;

#[cfg(any(feature = "proxy", test))]
pub(crate) use body::RequestBody;

/// Where a proxy takes requests, below its URL. The method is `POST`.
pub const PATH: &str = "/api/stream";

/// The media type of a request, and of a refusal.
pub(crate) const JSON: &str = "application/json";

/// The media type of an answer.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
