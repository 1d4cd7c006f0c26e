//! Polls a run by hand: no runtime, no time, and what hangs is found out.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use turnstate::{AgentLoop, Hooks, NextStep, StreamFn};

use crate::custom::Msg;
use crate::stage::Stage;

/// More polls than the run of any scenario needs; beyond it a run goes round and round.
const MAX_POLLS: usize = 100_000;

/// Counts wake-ups.
#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls one stream, and knows whether somebody asked for it.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    wakes: Arc<Wakes>,
    polls: usize,
}

impl Poller {
    /// The next item.
    ///
    /// # Panics
    /// If the stream is pending and nobody woke its task, or if it is polled beyond all measure. There is only this
    /// thread, so nobody ever will.
    pub(crate) fn next<S: Stream>(&mut self, mut stream: Pin<&mut S>) -> Option<S::Item> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        while self.polls < MAX_POLLS {
            self.polls += 1;
            let woken_before = self.wakes.0.load(Ordering::Relaxed);
            match stream.as_mut().poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(item) => return item,
                Poll::Pending => {
                    let woken = self.wakes.0.load(Ordering::Relaxed) > woken_before;
                    assert!(woken, "the run hangs: it is pending, and nobody woke its task");
                }
            }
        }
        panic!("the run does not end: polled {MAX_POLLS} times");
    }
}

/// Drives a loop to its end before the eyes of the stage.
pub(crate) fn drive<H, S, F>(stage: &mut Stage<'_>, run: AgentLoop<Msg, H, S, F>)
where
    H: Hooks<Msg>,
    S: StreamFn,
    F: Future<Output = NextStep<Msg, S::Stream>>,
{
    let mut run = pin!(run);
    let mut poller = Poller::default();
    while let Some(event) = poller.next(run.as_mut()) {
        stage.observe(&event, run.partial());
    }
    assert!(
        poller.next(run.as_mut()).is_none(),
        "an event behind the end of the stream"
    );
    // The loop's own transcript and the one folded from its events (I5).
    assert_eq!(run.transcript(), Some(stage.state().transcript()));
}
