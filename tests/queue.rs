//! The queues: nothing is lost, doubled or stranded (I4), whoever pushes, takes and gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;
use turnstate::{Delivery, Lease, QueueId, QueueKind, QueueMode, Queues};

use QueueKind::{FollowUp, Steering};

fn push(queues: &Queues<String>, kind: QueueKind, text: &str) -> QueueId {
    queues.push(kind, Arc::new(text.to_owned())).id
}

/// Two queues with `s1`, `s2`, `s3` and `f1`, `f2`.
fn filled() -> Queues<String> {
    let queues = Queues::new();
    for (kind, text) in [
        (Steering, "s1"),
        (FollowUp, "f1"),
        (Steering, "s2"),
        (FollowUp, "f2"),
        (Steering, "s3"),
    ] {
        push(&queues, kind, text);
    }
    queues
}

fn texts(messages: &[Arc<String>]) -> Vec<&str> {
    messages.iter().map(|message| message.as_str()).collect()
}

/// Takes what a look gives and commits all of it.
fn drain(queues: &Queues<String>, kind: QueueKind) -> Vec<String> {
    commit_all(queues.lease(kind))
}

fn commit_all(mut lease: Lease<String>) -> Vec<String> {
    let messages = lease.messages();
    for message in &messages {
        assert!(lease.commit(message));
    }
    assert!(lease.is_empty());
    messages.iter().map(ToString::to_string).collect()
}

/// C042: one at a time by default, all if so set; each queue has its own mode, effective at the next look.
#[test]
fn a_look_takes_what_the_mode_says() {
    let queues = filled();
    assert_eq!(
        (queues.mode(Steering), queues.mode(FollowUp)),
        (QueueMode::OneAtATime, QueueMode::OneAtATime)
    );
    assert_eq!(drain(&queues, Steering), ["s1"]);
    queues.set_mode(Steering, QueueMode::All);
    assert_eq!(
        (queues.mode(Steering), queues.mode(FollowUp)),
        (QueueMode::All, QueueMode::OneAtATime)
    );
    assert_eq!(drain(&queues, FollowUp), ["f1"]);
    assert_eq!(drain(&queues, Steering), ["s2", "s3"]);
    assert_eq!(drain(&queues, Steering), [""; 0]);
    queues.set_mode(Steering, QueueMode::OneAtATime);
    push(&queues, Steering, "s4");
    push(&queues, Steering, "s5");
    assert_eq!(drain(&queues, Steering), ["s4"]);
}

#[test]
fn what_is_leased_returns_to_its_place_unless_committed() {
    let queues = filled();
    queues.set_mode(Steering, QueueMode::All);
    let mut lease = queues.lease(Steering);
    assert_eq!(
        (lease.kind(), texts(&lease.messages())),
        (Steering, vec!["s1", "s2", "s3"])
    );
    assert!(!lease.is_empty());
    push(&queues, Steering, "s4");
    assert!(
        queues
            .lease(Steering)
            .messages()
            .iter()
            .all(|message| **message == "s4"),
        "the rest is taken"
    );

    let first = lease.messages().remove(0);
    let second = lease.messages().remove(1);
    assert!(!lease.commit(&second), "only the first can be committed");
    assert!(
        !lease.commit(&Arc::new("s1".to_owned())),
        "an equal message is not the same"
    );
    assert!(lease.commit(&first));
    assert!(!lease.commit(&first), "once");
    drop(lease);
    assert_eq!(drain(&queues, Steering), ["s2", "s3", "s4"]);
}

/// Leases may end in any order.
#[test]
fn leases_return_independently() {
    let queues = filled();
    let (one, two, three) = (queues.lease(Steering), queues.lease(Steering), queues.lease(Steering));
    drop(two);
    assert_eq!(drain(&queues, Steering), ["s2"]);
    assert_eq!(commit_all(three), ["s3"]);
    drop(one);
    assert_eq!(drain(&queues, Steering), ["s1"]);
    assert_eq!(queues.peek(FollowUp).len(), 1, "the other queue is untouched");
}

#[test]
fn peek_and_has_queued_count_what_is_leased() {
    let queues = Queues::new();
    assert!(!queues.has_queued());
    let id = push(&queues, FollowUp, "f1");
    push(&queues, FollowUp, "f2");
    let lease = queues.lease(FollowUp);
    assert_eq!(texts(&queues.peek(FollowUp)), ["f1"]);
    queues.set_mode(FollowUp, QueueMode::All);
    assert_eq!(texts(&queues.peek(FollowUp)), ["f1", "f2"]);
    assert_eq!(texts(&queues.peek(Steering)), [""; 0]);
    assert_eq!(queues.recall(id), None, "a run has it");
    queues.clear(FollowUp);
    assert_eq!(texts(&queues.peek(FollowUp)), ["f1"], "clear leaves what is leased");
    assert!(queues.has_queued());
    assert_eq!(commit_all(lease), ["f1"]);
    assert!(!queues.has_queued());
}

#[test]
fn a_message_can_be_recalled_while_it_is_queued() {
    let queues = filled();
    let id = push(&queues, Steering, "oops");
    let kept = push(&queues, FollowUp, "kept");
    assert_eq!(queues.recall(id).as_deref().map(String::as_str), Some("oops"));
    assert_eq!(queues.recall(id), None);
    queues.clear(Steering);
    assert_eq!(queues.recall(kept).as_deref().map(String::as_str), Some("kept"));
    queues.set_mode(FollowUp, QueueMode::All);
    assert_eq!(
        (drain(&queues, Steering), drain(&queues, FollowUp)),
        (vec![], vec!["f1".into(), "f2".into()])
    );
}

/// Clearing and recalling while a lease is out do not change what returns, nor where.
#[test]
fn what_returns_after_a_clear_is_in_front() {
    let queues = filled();
    let lease = queues.lease(Steering);
    assert_eq!(texts(&queues.clear(Steering)), ["s2", "s3"]);
    push(&queues, Steering, "s4");
    drop(lease);
    queues.set_mode(Steering, QueueMode::All);
    assert_eq!(drain(&queues, Steering), ["s1", "s4"]);
}

/// A message's own drop may use the queues.
#[test]
fn no_foreign_code_runs_under_the_lock() {
    struct Nosy(Queues<Nosy>);
    impl Drop for Nosy {
        fn drop(&mut self) {
            let _ = self.0.has_queued();
        }
    }
    let queues = Queues::new();
    let nosy = || Arc::new(Nosy(queues.clone()));
    for _ in 0..3 {
        let _ = queues.push(Steering, nosy());
    }
    let id = queues.push(Steering, nosy()).id;
    drop(queues.recall(id));
    let mut lease = queues.lease(Steering);
    let message = lease.messages().remove(0);
    let weak = Arc::downgrade(&message);
    lease.commit(&message);
    drop((message, lease));
    assert!(weak.upgrade().is_none(), "a committed message is let go");
    queues.clear(Steering);
    assert!(!queues.has_queued());
}

/// Whether a pushed message will be seen by the active run.
fn delivery(queues: &Queues<String>) -> Delivery {
    queues.push(Steering, Arc::default()).delivery
}

#[test]
fn the_answer_says_who_will_see_the_message() {
    let queues = Queues::new();
    assert_eq!(delivery(&queues), Delivery::NextRun);
    let run = queues.open_run();
    assert_eq!(delivery(&queues), Delivery::ThisRun);
    assert_eq!(commit_all(run.last_look()).len(), 1);
    assert_eq!(commit_all(run.last_look()).len(), 1);
    assert_eq!(
        delivery(&queues),
        Delivery::ThisRun,
        "it found something, so it goes on"
    );
    assert_eq!(commit_all(run.last_look()).len(), 1);
    assert!(run.last_look().is_empty());
    assert_eq!(delivery(&queues), Delivery::NextRun, "it found nothing, so it is over");
    run.close();
    drop(run);
    let aborted = queues.open_run();
    let dropped = queues.open_run();
    aborted.close();
    aborted.close();
    assert_eq!(delivery(&queues), Delivery::ThisRun, "another is active");
    drop(dropped);
    assert_eq!(delivery(&queues), Delivery::NextRun);
    assert!(aborted.lease(Steering).is_empty(), "a closed run gets nothing");
    assert!(queues.has_queued());
}

/// A run that was closed from outside, as by an abort, or came to its limit: it does not count, and gets nothing.
#[test]
fn a_closed_run_is_not_active() {
    let queues = filled();
    let (aborted, limited) = (queues.open_run(), queues.open_run());
    queues.close_run(aborted.id());
    assert_eq!(delivery(&queues), Delivery::ThisRun, "another is active");
    assert!(aborted.last_look().is_empty());
    assert!(limited.close_at_limit(), "messages wait");
    assert_eq!(delivery(&queues), Delivery::NextRun);
    assert!(limited.last_look().is_empty());
    assert_eq!(queues.clear(Steering).len() + queues.clear(FollowUp).len(), 7);
    assert!(!queues.open_run().close_at_limit(), "nothing waits");
}

/// Messages may be secret; only their number is shown.
#[test]
fn debug_shows_no_messages() {
    let queues = filled();
    let run = queues.open_run();
    let lease = run.lease(Steering);
    assert_eq!(format!("{queues:?}"), "Queues { steering: 3, follow_up: 2, active: 1 }");
    assert_eq!(format!("{run:?}"), "RunTicket(5)");
    assert_eq!(format!("{lease:?}"), "Lease { kind: Steering, left: 1, .. }");
}

/// The last look prefers steering, and what another run has leased is not there for it.
#[test]
fn the_last_look_takes_steering_before_follow_ups() {
    let queues = filled();
    let run = queues.open_run();
    let leases = [
        run.last_look(),
        run.last_look(),
        run.last_look(),
        run.last_look(),
        run.last_look(),
    ];
    let looks: Vec<_> = leases.iter().map(|lease| lease.messages()[0].to_string()).collect();
    assert_eq!(looks, ["s1", "s2", "s3", "f1", "f2"]);
}

/// C019 b: a thread pushes while runs finish. What was answered with `ThisRun` was delivered when that run is over by
/// its last look; nothing is lost, doubled or reordered.
#[test]
fn a_message_for_this_run_is_never_stranded() {
    const MESSAGES: usize = 10_000;
    let queues = Queues::<usize>::new();
    // How many messages there were when the last of them was promised to a run.
    let promised = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let (mut delivered, mut runs, mut looks) = (Vec::new(), 0, 0_usize);
    let mut first = Some(queues.open_run());
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                if queues.push(Steering, Arc::new(number)).delivery == Delivery::ThisRun {
                    promised.store(number + 1, Ordering::Release);
                }
                if number % 3 == 0 {
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
        });
        while first.is_some() || !done.load(Ordering::Acquire) {
            runs += 1;
            let run = first.take().unwrap_or_else(|| queues.open_run());
            // However the threads take turns, one run at least is pushed to.
            while promised.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            loop {
                let mut lease = run.last_look();
                let Some(message) = lease.messages().pop() else {
                    break;
                };
                // Now and then a look is in vain: what it took goes back.
                looks += 1;
                if looks % 5 != 0 {
                    assert!(lease.commit(&message));
                    delivered.push(*message);
                    assert!(delivered.len() <= MESSAGES, "doubled");
                }
            }
            assert!(
                promised.load(Ordering::Acquire) <= delivered.len(),
                "stranded by run {runs}"
            );
        }
    });
    queues.set_mode(Steering, QueueMode::All);
    let waiting = queues.peek(Steering).into_iter().map(|number| *number);
    assert!(
        delivered.into_iter().chain(waiting).eq(0..MESSAGES),
        "each exactly once, in order, or still queued"
    );
}

/// What the queues do, done naively: each message has its number and says whether it is leased.
#[derive(Debug, Default)]
struct Model {
    queues: [Vec<(usize, bool)>; 2],
    all: [bool; 2],
    active: usize,
}

impl Model {
    fn lease(&mut self, kind: usize) -> Vec<usize> {
        let portion = if self.all[kind] { usize::MAX } else { 1 };
        let free = self.queues[kind].iter_mut().filter(|(_, leased)| !leased).take(portion);
        free.map(|entry| {
            entry.1 = true;
            entry.0
        })
        .collect()
    }

    fn peek(&self, kind: usize) -> Vec<usize> {
        let portion = if self.all[kind] { usize::MAX } else { 1 };
        self.queues[kind]
            .iter()
            .take(portion)
            .map(|(number, _)| *number)
            .collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Push(usize),
    Recall(usize),
    Clear(usize),
    Mode(usize, bool),
    Lease(usize),
    LastLook(usize),
    Commit(usize),
    Return(usize),
    Open,
    Close(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let kind = || 0..2_usize;
    prop_oneof![
        6 => kind().prop_map(Operation::Push),
        1 => any::<usize>().prop_map(Operation::Recall),
        1 => kind().prop_map(Operation::Clear),
        1 => (kind(), any::<bool>()).prop_map(|(kind, all)| Operation::Mode(kind, all)),
        3 => kind().prop_map(Operation::Lease),
        2 => any::<usize>().prop_map(Operation::LastLook),
        4 => any::<usize>().prop_map(Operation::Commit),
        2 => any::<usize>().prop_map(Operation::Return),
        1 => Just(Operation::Open),
        1 => any::<usize>().prop_map(Operation::Close),
    ]
}

const KINDS: [QueueKind; 2] = [Steering, FollowUp];

fn numbers(messages: &[Arc<usize>]) -> Vec<usize> {
    messages.iter().map(|message| **message).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_queues_do_what_the_model_does(operations in prop::collection::vec(operation(), 0..80)) {
        let queues = Queues::<usize>::new();
        let mut model = Model::default();
        let (mut ids, mut leases, mut runs) = (Vec::new(), Vec::<Lease<usize>>::new(), Vec::new());
        for operation in operations {
            match operation {
                Operation::Push(kind) => {
                    let queued = queues.push(KINDS[kind], Arc::new(ids.len()));
                    prop_assert_eq!(queued.delivery == Delivery::ThisRun, model.active > 0);
                    model.queues[kind].push((ids.len(), false));
                    ids.push(queued.id);
                }
                Operation::Recall(which) if !ids.is_empty() => {
                    let number = which % ids.len();
                    let expected = model.queues.iter_mut().find_map(|queue| {
                        let place = queue.iter().position(|entry| *entry == (number, false))?;
                        Some(queue.remove(place).0)
                    });
                    prop_assert_eq!(queues.recall(ids[number]).map(|message| *message), expected);
                }
                Operation::Clear(kind) => {
                    queues.clear(KINDS[kind]);
                    model.queues[kind].retain(|(_, leased)| *leased);
                }
                Operation::Mode(kind, all) => {
                    queues.set_mode(KINDS[kind], if all { QueueMode::All } else { QueueMode::OneAtATime });
                    model.all[kind] = all;
                }
                Operation::Lease(kind) => {
                    leases.push(queues.lease(KINDS[kind]));
                    prop_assert_eq!(numbers(&leases[leases.len() - 1].messages()), model.lease(kind));
                }
                Operation::LastLook(which) if !runs.is_empty() => {
                    let which = which % runs.len();
                    let (run, open): &mut (turnstate::RunTicket<usize>, bool) = &mut runs[which];
                    leases.push(run.last_look());
                    let mut expected = Vec::new();
                    if *open {
                        expected = model.lease(0);
                        if expected.is_empty() {
                            expected = model.lease(1);
                        }
                        *open = !expected.is_empty();
                        model.active -= usize::from(!*open);
                    }
                    prop_assert_eq!(numbers(&leases[leases.len() - 1].messages()), expected);
                }
                Operation::Commit(which) if !leases.is_empty() => {
                    let which = which % leases.len();
                    if let Some(first) = leases[which].messages().first() {
                        prop_assert!(leases[which].commit(first));
                        model.queues.iter_mut().for_each(|queue| queue.retain(|(number, _)| number != &**first));
                    }
                }
                Operation::Return(which) if !leases.is_empty() => {
                    let returned = numbers(&leases[which % leases.len()].messages());
                    drop(leases.swap_remove(which % leases.len()));
                    for (number, leased) in model.queues.iter_mut().flatten() {
                        *leased &= !returned.contains(number);
                    }
                }
                Operation::Open => {
                    runs.push((queues.open_run(), true));
                    model.active += 1;
                }
                Operation::Close(which) if !runs.is_empty() => {
                    let (_, open) = runs.swap_remove(which % runs.len());
                    model.active -= usize::from(open);
                }
                _ => {}
            }
            for (kind, name) in KINDS.into_iter().enumerate() {
                prop_assert_eq!(numbers(&queues.peek(name)), model.peek(kind));
            }
            prop_assert_eq!(queues.has_queued(), model.queues.iter().any(|queue| !queue.is_empty()));
        }
    }
}
