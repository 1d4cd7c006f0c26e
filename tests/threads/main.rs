//! What several threads do to the same queues or the same agent at once. The crate itself runs on the primitives of
//! [shuttle](https://docs.rs/shuttle) (`src/sync.rs` says which), and each test is played by every schedule with a few
//! preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --no-default-features --test threads --target-dir target/shuttle -- --nocapture
//! ```
//!
//! Not `loom`: it has no `Weak`, and it leaves out the orders of steps it does not know to depend on each other, such
//! as those of cancellation tokens, which are tokio-util's. Here all orders of steps are played. Weak memory is not modelled: the few atomics of the crate publish nothing but themselves.
#![cfg(shuttle)]

mod agent;
mod queues;
mod scheduler;
