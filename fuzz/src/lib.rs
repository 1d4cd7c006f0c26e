//! The bodies of the fuzz targets: what each checks of one input. They panic on a finding.
//!
//! `tests/fuzz_replay.rs` of the crate includes this file, to run the same bodies without a fuzzer. What drives the
//! machine and what checks an agent's events is what the crate's own tests use.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::missing_panics_doc,
    reason = "test code, of which the targets use a part"
)]

mod agent;
mod arguments;
mod message;
mod partial_json;
mod proxy;
mod schema;

#[path = "../../tests/machine/chance.rs"]
pub(crate) mod chance;
#[path = "../../tests/machine/driver.rs"]
pub(crate) mod driver;
#[path = "../../tests/schema/integral.rs"]
pub(crate) mod integral;
#[allow(unused_imports, reason = "for its own test")]
#[path = "../../tests/machine/invariants.rs"]
pub(crate) mod invariants;
#[path = "../../tests/machine/phase.rs"]
pub(crate) mod phase;
#[path = "../../tests/cases/rules.rs"]
pub(crate) mod rules;
#[path = "../../tests/machine/tape.rs"]
pub(crate) mod tape;
#[path = "../../tests/machine/words.rs"]
pub(crate) mod words;

pub use agent::agent;
pub use arguments::arguments;
pub use message::message;
pub use partial_json::partial_json;
pub use proxy::proxy;
pub use schema::schema;

/// The machine by any driver.
pub fn machine(data: &[u8]) {
    chance::play(data);
}
