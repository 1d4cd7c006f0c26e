//! Where everything foreign waits until it is let go on, one at a time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A cheap handle.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: usize,
    /// In the order they came.
    seats: Vec<(usize, Waker)>,
    /// The listener's, if it waits.
    listener: Option<usize>,
}

impl Gate {
    /// Waits once.
    pub(crate) fn pass(&self) -> Pass {
        Pass {
            gate: self.clone(),
            seat: None,
            listens: false,
        }
    }

    /// The same for a listener.
    pub(crate) fn pass_of_listener(&self) -> Pass {
        Pass {
            gate: self.clone(),
            seat: None,
            listens: true,
        }
    }

    pub(crate) fn holds_listener(&self) -> bool {
        let waiting = self.0.lock().unwrap();
        waiting.seats.iter().any(|(seat, _)| Some(*seat) == waiting.listener)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().seats.is_empty()
    }

    /// Lets one of those who wait go on; there must be one.
    pub(crate) fn pick(&self, pick: u8) {
        let waker = {
            let mut waiting = self.0.lock().unwrap();
            let place = usize::from(pick) % waiting.seats.len();
            waiting.seats.remove(place).1
        };
        waker.wake();
    }
}

/// One wait. Who is dropped waits no more.
pub(crate) struct Pass {
    gate: Gate,
    seat: Option<usize>,
    listens: bool,
}

impl Future for Pass {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let gate = self.gate.clone();
        let mut waiting = gate.0.lock().unwrap();
        match self.seat {
            None => {
                let seat = waiting.next;
                waiting.seats.push((seat, cx.waker().clone()));
                waiting.next += 1;
                if self.listens {
                    waiting.listener = Some(seat);
                }
                self.seat = Some(seat);
                Poll::Pending
            }
            Some(seat) => match waiting.seats.iter_mut().find(|(other, _)| *other == seat) {
                None => Poll::Ready(()),
                Some((_, waker)) => {
                    waker.clone_from(cx.waker());
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut waiting = self.gate.0.lock().unwrap();
        waiting.seats.retain(|(seat, _)| Some(*seat) != self.seat);
    }
}
