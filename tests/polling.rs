//! Whatever an executor does, a run tells the same: it may be polled without need, and by another waker each time.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed assumption in a test is the test's failure"
)]

mod robust_support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use proptest::prelude::*;
use robust_support::closing::{check_closing, shapes};
use robust_support::gate::Mode;
use robust_support::world::{KINDS, Kind, World};
use turnstate::Run;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What an executor does at one step of a run: how often it polls, and whether each time by a new waker.
#[derive(Debug, Clone, Copy)]
struct Step {
    polls: u8,
    new_waker: bool,
}

/// An executor that knows by itself when a run waits.
struct Executor {
    run: Run,
    flag: Arc<Flag>,
    over: bool,
}

impl Executor {
    fn new(run: Run) -> Self {
        Self {
            run,
            flag: Arc::default(),
            over: false,
        }
    }

    /// Polls until the run waits, and then as often again as `step` says.
    fn step(&mut self, step: Step) {
        let mut more = step.polls;
        while !self.over {
            if step.new_waker {
                self.flag = Arc::default();
            }
            self.flag.0.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&self.flag));
            match Pin::new(&mut self.run).poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => self.over = true,
                // It asks for another poll itself.
                Poll::Pending if self.is_woken() => {}
                Poll::Pending if more > 0 => more -= 1,
                Poll::Pending => return,
            }
        }
    }

    /// Whether the waker of the last poll was woken since.
    fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }
}

/// One poll by one waker whenever something can go on.
const PLAIN: [Step; 1] = [Step {
    polls: 0,
    new_waker: false,
}];

/// Runs a world by these steps, over and over; after `abort_after` of them, if so many, the run is aborted and nothing
/// foreign moves any more. Gives what was told before that, and after.
fn play(kind: Kind, steps: &[Step], abort_after: Option<usize>) -> (Vec<String>, Vec<String>) {
    let world = World::new(kind);
    world.gate.set(Mode::Held);
    let mut executor = Executor::new(world.agent.prompt("go").unwrap());
    let mut told = None;
    for (n, step) in steps.iter().cycle().enumerate() {
        executor.step(*step);
        if executor.over {
            break;
        }
        if abort_after == Some(n) {
            told = Some(world.watch.events().len());
            world.agent.abort();
            assert!(executor.is_woken(), "a lost wake-up: of the abort");
        }
        // While a listener is awaited, nothing else need wake the run.
        while !executor.is_woken() {
            assert!(world.gate.let_one_through(), "a hang, or a lost wake-up");
            assert!(executor.is_woken() || kind.listener, "a lost wake-up");
        }
    }
    assert!(executor.over);
    let all = world.watch.events();
    if let Some(told) = told {
        check_closing(&all, told, kind.mode);
    }
    let (told, rest) = all.split_at(told.unwrap_or(all.len()));
    drop(executor);
    world.check_settled(1);
    world.check_next_prompt(2);
    (shapes(told), shapes(rest))
}

/// The kinds whose runs an abort ends at once: an async listener is awaited all the same.
fn without_listeners() -> Vec<Kind> {
    KINDS.into_iter().filter(|kind| !kind.listener).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3u8, any::<bool>()).prop_map(|(polls, new_waker)| Step { polls, new_waker });
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_polls_tell_the_same(kind in proptest::sample::select(&KINDS[..]), steps in steps()) {
        prop_assert_eq!(play(kind, &steps, None), play(kind, &PLAIN, None));
    }

    #[test]
    fn any_polls_tell_the_same_of_an_abort(
        kind in proptest::sample::select(without_listeners()),
        steps in steps(),
        abort_after in 0..60usize,
    ) {
        prop_assert_eq!(play(kind, &steps, Some(abort_after)), play(kind, &PLAIN, Some(abort_after)));
    }
}

#[test]
fn an_abort_wakes_a_run_that_waits_anywhere() {
    for kind in without_listeners() {
        let (told, _) = play(kind, &PLAIN, None);
        assert!(told.len() > 40, "the scenario is short: {told:?}");
        for abort_after in 0.. {
            let (_, rest) = play(kind, &PLAIN, Some(abort_after));
            if rest.is_empty() {
                break;
            }
        }
    }
}
