//! The behaviours of `CASES.md` that the loop and the agent owe, one test or more each, and their neighbours.
//!
//! Each test names its case. The events a test expects are written in the shorthand of the cases; see
//! [`harness::show`].
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod abort;
mod abort_everywhere;
mod agent;
mod context;
mod drive;
mod dropped;
mod harness;
mod hooks;
mod hooks_more;
mod listeners;
mod queue;
mod reducer;
mod rules;
mod stream;
mod tools;
mod tools_more;
