//! Runs recorded scenarios of the reference implementation against every engine of this crate.
//!
//! `fixtures/FORMAT.md` is the contract of the data; `TURNSTATE_CONFORMANCE_DIR` names a folder with further fixtures.
//!
//! ```text
//!   loader --> fixture --> engine_* --> recorder --> compare --> report
//!                             |
//!                             +-- stage    plays the agent, for engines below it
//!                             +-- drive    polls a loop by hand
//!                             +-- cast     model, tools and hooks, as the engines take them
//!                             +-- script   what they answer
//! ```
//!
//! `contract` has the scenarios of which there is no recording. A driver (`engine_*`) turns a [`fixture::Fixture`] into a [`compare::Observed`]; [`check_engine`] does the rest.

mod batch;
#[cfg(test)] // for clippy: helpers of tests may panic
mod cast;
mod compare;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod custom;
#[cfg(test)]
mod drive;
#[cfg(test)]
mod engine_agent;
#[cfg(test)]
mod engine_boxed_loop;
#[cfg(test)]
mod engine_machine;
#[cfg(test)]
mod engine_static_loop;
mod fixture;
#[expect(dead_code, reason = "its driver comes with the proxy")]
mod fixture_proxy;
mod json;
mod loader;
mod op;
#[cfg(all(test, feature = "proxy"))]
mod proxy;
#[cfg(test)]
mod recorder;
mod report;
#[cfg(test)]
mod script;
#[cfg(test)]
mod selftest;
#[cfg(test)]
mod stage;

use std::any::Any;
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
            Err(panic) => Err(panic_report(fixture, &*panic)),
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

fn panic_report(fixture: &Fixture, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("the driver or the engine panicked (see above)");
    format!("{} ({})\n{text}", fixture.name, fixture.about)
}
