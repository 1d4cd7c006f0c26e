//! The bodies of the fuzz targets. `tests/fuzz_replay.rs` of the crate includes the same files.
//!
//! What drives and checks the machine is what its own tests use.
#![allow(dead_code, missing_docs, clippy::missing_panics_doc, reason = "shared with tests")]

pub mod bodies;
mod chance;
#[path = "../../tests/machine/driver.rs"]
mod driver;
#[path = "../../tests/machine/invariants.rs"]
mod invariants;
mod tape;
#[path = "../../tests/machine/words.rs"]
mod words;
