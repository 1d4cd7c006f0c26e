//! A model over HTTP, both ends.

mod wire;

pub use wire::PATH;
