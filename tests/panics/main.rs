//! A panic of foreign code is its own failure: it never crosses a poll or a drop, and spoils nothing.
//!
//! Each test plants one panic, in one place, drives a run through it, and then another that must work.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

mod errors;
mod hooks;
mod listeners;
mod plant;
#[path = "../robust_support/mod.rs"]
mod robust_support;
mod tools_and_models;
