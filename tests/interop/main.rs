//! Interoperability with the reference, both ways: its `streamProxy` against the server of this crate, and the client
//! of this crate against a server made of the reference. Both generations of its npm packages, at the versions in
//! `package.json`.
//!
//! Needs Node and, the first time, the npm registry. Without them the tests pass and say that they were skipped; with
//! `TURNSTATE_REQUIRE_INTEROP=1` they fail.
#![cfg(all(feature = "proxy", feature = "proxy-server"))]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

#[path = "../proxy_server/http.rs"]
mod http;
mod node;
mod our_client;
mod their_client;
