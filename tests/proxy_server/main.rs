//! The proxy's server end.
#![cfg(feature = "proxy-server")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod answer;
mod refuse;
mod support;

#[cfg(feature = "proxy")]
mod agent;
#[cfg(feature = "proxy")]
mod http;
