//! Driving futures by hand: a task is polled when it was woken, and never else.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// More polls than any test needs: beyond, a task wakes itself for ever.
const POLLS: usize = 10_000;

/// More time than any test needs: beyond, it hangs.
const GUARD: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future and its waker, which counts.
pub(crate) struct Task<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

impl<F: Future> Task<F> {
    /// A task that waits for its first poll.
    pub(crate) fn new(future: F) -> Self {
        let wakes = Arc::new(Wakes(AtomicUsize::new(1)));
        Self {
            future: Box::pin(future),
            wakes,
        }
    }

    /// Polls once, if woken. None: nobody woke it.
    pub(crate) fn poll(&mut self) -> Option<Poll<F::Output>> {
        if self.wakes.0.swap(0, Ordering::SeqCst) == 0 {
            return None;
        }
        let waker = Arc::clone(&self.wakes).into();
        Some(self.future.as_mut().poll(&mut Context::from_waker(&waker)))
    }

    /// Polls as long as it is woken. None: it waits.
    pub(crate) fn run(&mut self) -> Option<F::Output> {
        for _ in 0..POLLS {
            match self.poll()? {
                Poll::Ready(output) => return Some(output),
                Poll::Pending => {}
            }
        }
        panic!("a task wakes itself for ever");
    }

    /// Polls as long as it is woken, until it waits for something else.
    #[track_caller]
    pub(crate) fn stall(&mut self) {
        assert!(self.run().is_none(), "it did not wait");
    }

    /// Polls to the end.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> F::Output {
        self.run().expect("hang: pending, and nobody will wake it")
    }
}

/// Drives a future to its end.
#[track_caller]
pub(crate) fn drive<F: IntoFuture>(future: F) -> F::Output {
    Task::new(future.into_future()).finish()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future to its end where other threads wake it.
pub(crate) fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = std::pin::pin!(future.into_future());
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // It may be that nobody wakes the thread, or that somebody does for ever.
        let left = GUARD.checked_sub(begun.elapsed()).expect("a hang");
        thread::park_timeout(left);
    }
}

/// Is pending once, and wakes its task.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
