//! What threads meet at. All other files take it from here, so that `tests/threads` runs the crate itself, and no copy
//! of it, under [shuttle](https://docs.rs/shuttle), which plays through the orders in which threads may get there.
//!
//! [`Arc`](std::sync::Arc), [`Weak`](std::sync::Weak) and `OnceLock` are std's in any case: nobody waits for them, so
//! their operations belong to the step before them, as do those of cancellation tokens and wakers, unless a [`step`] is
//! put in between. So is `AtomicU64`, which numbers the runs of the process and outlives a schedule.

pub(crate) use std::sync::{OnceLock, PoisonError, atomic::AtomicU64};

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread_local,
};

/// Others may get between what was done before and what is done next, although the next is no lock nor atomic.
pub(crate) fn step() {
    #[cfg(shuttle)]
    AtomicBool::new(false).load(Ordering::SeqCst);
}
