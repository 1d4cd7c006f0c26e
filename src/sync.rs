//! What threads meet at. All other files take it from here, so that `tests/threads` runs the crate itself, and no copy
//! of it, under [shuttle](https://docs.rs/shuttle), which plays through the orders in which threads may get there.
//!
//! [`Arc`](std::sync::Arc), [`Weak`](std::sync::Weak) and `OnceLock` are std's in any case: nobody waits for them, so
//! their operations are single steps of a schedule, as are those of cancellation tokens and wakers.

pub(crate) use std::sync::{OnceLock, PoisonError};

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};
