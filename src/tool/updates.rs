//! What running tools report, on its way to the run.

use std::sync::Arc;
use std::task::Waker;

use futures_util::task::AtomicWaker;

use crate::message::ToolResult;
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The updates of a batch of calls, told apart by their position in it.
///
/// The executor owns it. Updates come from whatever thread a tool works on, so they may come too late; whether one
/// does is decided under the lock that [`close`](Self::close) takes, and nothing gets in after it. Dropping this closes
/// all.
#[derive(Debug, Default)]
pub(crate) struct Updates(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct Queue {
    reported: Vec<(usize, ToolResult)>,
    /// By position: whether the call runs. Those that lie beyond the end do not.
    open: Vec<bool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No foreign code runs under the lock, so it cannot be poisoned half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, index: usize) {
        if let Some(open) = self.lock().open.get_mut(index) {
            *open = false;
        }
    }
}

impl Updates {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Opens the call at `index`, and gives the end its tool reports into.
    pub(crate) fn sink(&self, index: usize) -> UpdateSink {
        let mut queue = self.0.lock();
        if queue.open.len() <= index {
            queue.open.resize(index + 1, false);
        }
        queue.open[index] = true;
        UpdateSink {
            shared: Arc::clone(&self.0),
            index,
        }
    }

    /// Refuses what the call at `index` reports from now on. What it reported before stays to be taken.
    pub(crate) fn close(&self, index: usize) {
        self.0.close(index);
    }

    /// The updates that were not taken yet, in the order reported, with the positions of their calls. All at once: who
    /// took them one by one might never be done with a thread that reports as fast.
    pub(crate) fn take(&self) -> Vec<(usize, ToolResult)> {
        std::mem::take(&mut self.0.lock().reported)
    }

    /// Has `waker` woken at the next update. Register first and take then, or an update in between wakes nobody.
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.waker.register(waker);
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        // Sinks may outlive the batch; nobody would take what they are given.
        *self.0.lock() = Queue::default();
        drop(self.0.waker.take());
    }
}

/// Where the tool of one call reports.
#[derive(Debug, Clone)]
pub(crate) struct UpdateSink {
    shared: Arc<Shared>,
    index: usize,
}

impl UpdateSink {
    /// Refuses what the call reports from now on. What it reported before stays to be taken.
    pub(crate) fn close(&self) {
        self.shared.close(self.index);
    }

    /// Reports `update`, unless the call is closed.
    pub(crate) fn push(&self, update: ToolResult) {
        let mut queue = self.shared.lock();
        if queue.open.get(self.index) != Some(&true) {
            return;
        }
        queue.reported.push((self.index, update));
        // The waker is foreign code.
        drop(queue);
        self.shared.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn texts(updates: &Updates) -> Vec<(usize, String)> {
        let taken = updates.take().into_iter();
        taken
            .map(|(index, update)| (index, update.content[0].as_text().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn come_in_the_order_reported() {
        let updates = Updates::new();
        let (second, first) = (updates.sink(1), updates.sink(0));
        second.push("a".into());
        first.push("b".into());
        second.clone().push("c".into());
        let expected = [(1, "a"), (0, "b"), (1, "c")].map(|(index, text)| (index, text.to_owned()));
        assert_eq!(texts(&updates), expected);
        assert_eq!(updates.take(), []);
    }

    #[test]
    fn after_close_are_refused() {
        // C018
        let updates = Updates::new();
        let (first, second) = (updates.sink(0), updates.sink(1));
        first.push("in time".into());
        updates.close(0);
        first.push("late".into());
        second.push("other".into());
        second.close();
        second.push("late".into());
        updates.close(7); // never opened
        assert_eq!(texts(&updates), [(0, "in time".to_owned()), (1, "other".to_owned())]);
    }

    #[test]
    fn after_the_batch_are_refused() {
        // C018
        let updates = Updates::new();
        let sink = updates.sink(0);
        drop(updates);
        sink.push("late".into());
        assert!(sink.shared.lock().reported.is_empty());
    }

    #[test]
    fn wake_once_registered() {
        let updates = Updates::new();
        let sink = updates.sink(0);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        sink.push("unheard".into());
        updates.register(&Arc::clone(&count).into());
        sink.push("heard".into());
        sink.push("in the same wake-up".into());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);

        updates.register(&Arc::clone(&count).into());
        updates.close(0);
        sink.push("late".into());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_other_threads_stop_at_close() {
        // C018: what is in the queue when the call is closed is all there will ever be.
        for _ in 0..200 {
            let updates = Updates::new();
            let sink = updates.sink(0);
            let closed = thread::scope(|scope| {
                scope.spawn(|| (0..50).for_each(|_| sink.push("x".into())));
                thread::yield_now();
                updates.close(0);
                texts(&updates).len()
            });
            assert!(closed <= 50);
            assert_eq!(updates.take(), []);
        }
    }
}
