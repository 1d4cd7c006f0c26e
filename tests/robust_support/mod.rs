//! What the robustness tests share: a [`World`] in which everything foreign can be held, a [`Watch`] that checks the
//! invariants event by event, and the rules by which an aborted run [closes](closing::closing).
#![allow(dead_code, reason = "each test target uses a part of it")]

pub(crate) mod closing;
#[path = "../cases/drive.rs"]
pub(crate) mod drive;
pub(crate) mod gate;
#[path = "../cases/rules.rs"]
pub(crate) mod rules;
pub(crate) mod watch;
pub(crate) mod world;

/// A failure guard, far beyond what any test needs: no test relies on its length.
pub(crate) const GUARD: std::time::Duration = std::time::Duration::from_secs(30);
