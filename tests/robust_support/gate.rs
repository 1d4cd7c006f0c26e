//! The gate that everything foreign in a [`World`](super::world::World) passes at each of its steps.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// What the gate does with those who come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// Lets them pass.
    #[default]
    Open,
    /// Lets them pass at their second poll, and wakes them for it.
    Yield,
    /// Holds each until it is [let through](Gate::let_one_through).
    Held,
    /// Lets so many pass, and freezes.
    OpenFor(usize),
    /// Holds them for ever: whoever comes is never woken.
    Frozen,
}

#[derive(Debug, Default)]
struct Inner {
    mode: Mutex<Mode>,
    /// Those held, in the order they came.
    held: Mutex<VecDeque<Arc<Mutex<Seat>>>>,
    polls: AtomicUsize,
    alive: AtomicUsize,
    frozen: Notify,
}

/// Somebody who is held.
#[derive(Debug, Default)]
struct Seat {
    free: bool,
    waker: Option<Waker>,
}

/// The gate. A cheap handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<Inner>);

impl Gate {
    pub(crate) fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    fn mode(&self) -> Mode {
        *self.0.mode.lock().unwrap()
    }

    /// One passage.
    pub(crate) fn pass(&self) -> Pass {
        Pass {
            gate: self.clone(),
            seat: None,
            yielded: false,
        }
    }

    /// How often anybody was polled at the gate.
    pub(crate) fn polls(&self) -> usize {
        self.0.polls.load(Ordering::SeqCst)
    }

    /// Resolves when somebody came to the frozen gate since the last time.
    pub(crate) async fn somebody_is_frozen(&self) {
        self.0.frozen.notified().await;
    }

    /// Lets the one through that came first. Whether there was one.
    pub(crate) fn let_one_through(&self) -> bool {
        loop {
            let Some(seat) = self.0.held.lock().unwrap().pop_front() else {
                return false;
            };
            let gone = Arc::strong_count(&seat) == 1;
            let waker = {
                let mut seat = seat.lock().unwrap();
                seat.free = true;
                seat.waker.take()
            };
            if !gone {
                waker.expect("who is held was polled").wake();
                return true;
            }
        }
    }

    /// Counts a foreign future as long as it lives.
    pub(crate) fn life(&self) -> Life {
        self.0.alive.fetch_add(1, Ordering::SeqCst);
        Life(self.clone())
    }

    /// How many foreign futures live.
    pub(crate) fn alive(&self) -> usize {
        self.0.alive.load(Ordering::SeqCst)
    }
}

/// The life of a foreign future.
#[derive(Debug)]
pub(crate) struct Life(Gate);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One passage of the gate.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    seat: Option<Arc<Mutex<Seat>>>,
    yielded: bool,
}

impl Future for Pass {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.gate.0.polls.fetch_add(1, Ordering::SeqCst);
        match this.gate.mode() {
            Mode::Open => Poll::Ready(()),
            Mode::OpenFor(left @ 1..) => {
                this.gate.set(Mode::OpenFor(left - 1));
                Poll::Ready(())
            }
            Mode::Yield if this.yielded => Poll::Ready(()),
            Mode::Yield => {
                this.yielded = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Mode::Held => {
                let seat = this.seat.get_or_insert_with(|| {
                    let seat = Arc::new(Mutex::new(Seat::default()));
                    this.gate.0.held.lock().unwrap().push_back(Arc::clone(&seat));
                    seat
                });
                let mut seat = seat.lock().unwrap();
                if seat.free {
                    return Poll::Ready(());
                }
                seat.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Mode::Frozen | Mode::OpenFor(0) => {
                this.gate.0.frozen.notify_one();
                Poll::Pending
            }
        }
    }
}
