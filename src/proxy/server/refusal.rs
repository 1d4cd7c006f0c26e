//! Why a request gets no answer.

use std::fmt;

use crate::tool::BoxError;

/// Why a request is not answered by the model: an HTTP status and a text for the client.
///
/// Any [`BoxError`] becomes one with `?`: status 500 and a text that tells nothing. The error itself is for the app's
/// log: see [`ProxyAnswer::refusal`](super::ProxyAnswer::refusal).
///
/// ```
/// use turnstate::BoxError;
/// use turnstate::proxy::Refusal;
///
/// let refusal = Refusal::from(BoxError::from("no route to db-7"));
/// assert_eq!((refusal.status(), refusal.message()), (500, "internal error"));
/// assert_eq!(refusal.source().unwrap().to_string(), "no route to db-7");
/// ```
#[derive(Debug)]
pub struct Refusal {
    status: u16,
    message: String,
    source: Option<BoxError>,
}

impl Refusal {
    /// Refuses with `status`, which counts as 500 if it is none of an error; the client is told `message`.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status: if (400..600).contains(&status) { status } else { 500 },
            message: message.into(),
            source: None,
        }
    }

    /// Status 401: nobody the server knows.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, message)
    }

    /// Status 403: somebody who may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, message)
    }

    /// Status 500: the server's own fault, of which the client is told nothing.
    pub(super) fn internal(source: impl Into<BoxError>) -> Self {
        Self::new(500, "internal error").because(source)
    }

    /// The same, with the error behind it for the app's log.
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What the client is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the client is not told.
    pub fn source(&self) -> Option<&BoxError> {
        self.source.as_ref()
    }

    /// The body of the answer.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::json!({ "error": self.message }).to_string().into_bytes()
    }
}

impl From<BoxError> for Refusal {
    fn from(source: BoxError) -> Self {
        Self::internal(source)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}
