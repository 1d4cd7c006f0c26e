//! What everything foreign shares: the tape it decides by, the places where it waits, and what was found wrong.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use turnstate::{BoxError, ToolContext};

use super::watch::Watch;

/// A cheap handle. Its lock is never held over a call of the agent that may call back.
#[derive(Clone)]
pub(super) struct World(Arc<Mutex<Inner>>);

pub(super) struct Inner {
    tape: Vec<u8>,
    read: usize,
    /// Who waits to be let through, in the order they came.
    waiting: Vec<Arc<Mutex<Seat>>>,
    /// Who waits for ever.
    stuck: usize,
    /// Foreign futures that live.
    alive: usize,
    /// Those of them for which even an aborted run waits: listeners, and grace.
    holding: usize,
    /// The active run was aborted, or dropped.
    pub(super) aborted: bool,
    /// Listeners that failed in this run, by the script.
    pub(super) listener_failures: usize,
    pub(super) requests: usize,
    /// By which somebody else reports for a tool, though its call may be over.
    pub(super) reporters: Vec<ToolContext>,
    pub(super) watch: Watch,
    /// What does not hold. A panic would be taken for the script's.
    wrong: Vec<String>,
}

/// Somebody who waits.
#[derive(Default)]
struct Seat {
    free: bool,
    waker: Option<Waker>,
}

impl World {
    pub(super) fn new(tape: &[u8]) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            tape: tape.to_vec(),
            read: 0,
            waiting: Vec::new(),
            stuck: 0,
            alive: 0,
            holding: 0,
            aborted: false,
            listener_failures: 0,
            requests: 0,
            reporters: Vec::new(),
            watch: Watch::default(),
            wrong: Vec::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics under the lock")
    }

    /// A number below `below`; 0 behind the end of the tape, which is what lets a run end.
    pub(super) fn below(&self, below: u8) -> u8 {
        let mut inner = self.lock();
        let byte = inner.tape.get(inner.read).copied().unwrap_or_default();
        inner.read += 1;
        byte % below
    }

    /// Yes, once in `times`.
    pub(super) fn once_in(&self, times: u8) -> bool {
        self.below(times) == times - 1
    }

    pub(super) fn pick<T: Copy>(&self, choices: &[T]) -> T {
        let count = u8::try_from(choices.len()).expect("few");
        choices[usize::from(self.below(count))]
    }

    pub(super) fn is_at_end(&self) -> bool {
        let inner = self.lock();
        inner.read >= inner.tape.len()
    }

    /// Notes what does not hold.
    pub(super) fn check(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.wrong(otherwise());
        }
    }

    pub(super) fn wrong(&self, what: String) {
        self.lock().wrong.push(what);
    }

    /// Nothing was found wrong so far.
    pub(super) fn assert_right(&self) {
        let inner = self.lock();
        assert!(
            inner.wrong.is_empty(),
            "{:#?} after {}",
            inner.wrong,
            inner.watch.line()
        );
    }

    /// Nobody but the agent had a handle, and it is gone.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// I6: begins something that must not begin after an abort.
    pub(super) fn begin(&self, what: &str) {
        let aborted = self.lock().aborted;
        self.check(!aborted, || format!("I6: {what} after an abort"));
    }

    /// What foreign code does where it may misbehave: fail or panic, and wait before. Mostly it does not.
    /// `on_failure` is called first.
    pub(super) async fn misbehave(&self, on_failure: impl FnOnce()) -> Result<(), BoxError> {
        let chosen = self.below(32);
        if chosen >= 22 {
            self.pause().await;
        }
        if chosen >= 30 {
            on_failure();
        }
        match chosen {
            30 => Err("failed".into()),
            31 => planted(),
            _ => Ok(()),
        }
    }

    /// Counts a foreign future as long as it lives.
    pub(super) fn life(&self) -> Life {
        self.count(false)
    }

    /// The same for one for which even an aborted run waits.
    pub(super) fn hold(&self) -> Life {
        self.count(true)
    }

    fn count(&self, holds: bool) -> Life {
        let mut inner = self.lock();
        inner.alive += 1;
        inner.holding += usize::from(holds);
        Life {
            world: self.clone(),
            holds,
        }
    }

    pub(super) fn alive(&self) -> usize {
        self.lock().alive
    }

    pub(super) fn pause(&self) -> Pause {
        Pause {
            world: self.clone(),
            kind: None,
        }
    }

    /// Lets one of those through that wait; false if nobody does.
    pub(super) fn let_through(&self, which: u8) -> bool {
        let waker = {
            let mut inner = self.lock();
            inner.waiting.retain(|seat| Arc::strong_count(seat) > 1);
            if inner.waiting.is_empty() {
                return false;
            }
            let which = usize::from(which) % inner.waiting.len();
            let seat = inner.waiting.remove(which);
            let mut seat = seat.lock().expect("nothing panics under the lock");
            seat.free = true;
            seat.waker.take()
        };
        waker.expect("who waits was polled").wake();
        true
    }
}

impl Inner {
    /// Whether somebody waits, for something or for ever.
    pub(super) fn is_awaited(&self) -> bool {
        self.stuck > 0 || self.waiting.iter().any(|seat| Arc::strong_count(seat) > 1)
    }

    /// Whether there is somebody for whom even an aborted run waits.
    pub(super) fn is_held(&self) -> bool {
        self.holding > 0
    }
}

/// Panics as the script says: without the panic hook, in which the fuzzer would end.
pub(super) fn planted() -> ! {
    std::panic::resume_unwind(Box::new("planted"))
}

/// The life of a foreign future.
pub(super) struct Life {
    world: World,
    holds: bool,
}

impl Drop for Life {
    fn drop(&mut self) {
        let mut inner = self.world.lock();
        inner.alive -= 1;
        inner.holding -= usize::from(self.holds);
    }
}

/// Something foreign that is ready at once, after it woke its own task, when it is let through, or never.
pub(super) struct Pause {
    world: World,
    kind: Option<Kind>,
}

enum Kind {
    Yields(u8),
    Waits(Arc<Mutex<Seat>>),
    Stuck,
}

impl Pause {
    fn begin(&self) -> Kind {
        match self.world.below(16) {
            kind @ 0..=9 => Kind::Yields(kind.saturating_sub(7)),
            10..=14 => {
                let seat = Arc::default();
                self.world.lock().waiting.push(Arc::clone(&seat));
                Kind::Waits(seat)
            }
            _ => {
                self.world.lock().stuck += 1;
                Kind::Stuck
            }
        }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let kind = self.kind.take().unwrap_or_else(|| self.begin());
        match self.kind.insert(kind) {
            Kind::Yields(0) => return Poll::Ready(()),
            Kind::Yields(left) => {
                *left -= 1;
                cx.waker().wake_by_ref();
            }
            Kind::Waits(seat) => {
                let mut seat = seat.lock().expect("nothing panics under the lock");
                if seat.free {
                    return Poll::Ready(());
                }
                seat.waker = Some(cx.waker().clone());
            }
            Kind::Stuck => {}
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if matches!(self.kind, Some(Kind::Stuck)) {
            self.world.lock().stuck -= 1;
        }
    }
}
