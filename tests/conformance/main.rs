//! Runs recorded scenarios of the reference implementation against every engine of this crate.
//!
//! `fixtures/FORMAT.md` is the contract of the data. A driver turns a [`fixture::Fixture`] into a
//! [`compare::Observed`]; [`check_engine`] does the rest. `TURNSTATE_CONFORMANCE_DIR` names a folder with further fixtures.

#![expect(dead_code, reason = "the drivers that use it come with the engines")]

mod batch;
mod compare;
mod fixture;
mod fixture_proxy;
mod json;
mod loader;
mod op;
#[cfg(all(test, feature = "proxy"))]
mod proxy;
mod report;
#[cfg(test)] // for clippy: helpers of tests may panic
mod selftest;

use std::panic::{AssertUnwindSafe, catch_unwind};

use compare::{Observed, compare};
use fixture::Fixture;

/// Runs every fixture of `loop/` on an engine, and prints how many there are.
///
/// The error lists all fixtures that failed, with the reason; an engine that panics fails only the fixture it ran.
fn check_engine(engine: impl Fn(&Fixture) -> Observed) -> Result<(), String> {
    let fixtures = loader::load_dir::<Fixture>("loop")?;
    println!("{} fixtures", fixtures.len());
    let mut failures = Vec::new();
    for loader::Loaded { file, fixture } in &fixtures {
        let result = match catch_unwind(AssertUnwindSafe(|| engine(fixture))) {
            Ok(observed) => compare(fixture, observed),
            Err(_) => Err("the driver or the engine panicked (see above)".to_owned()),
        };
        if let Err(reason) = result {
            failures.push(format!("{}: {reason}", file.display()));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let count = failures.len();
    Err(format!("{count} fixtures failed\n\n{}", failures.join("\n\n")))
}
