//! A model over HTTP, both ends.

#[cfg(feature = "proxy-server")]
mod server;
mod wire;

#[cfg(feature = "proxy-server")]
pub use server::{ProxyAnswer, ProxyServer, Refusal};
pub use wire::PATH;
