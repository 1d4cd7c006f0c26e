//! The queues between threads: each message is delivered once, in order, or still queued (I4).

use std::sync::Arc;

use shuttle::thread;
use turnstate::{Delivery, Lease, QueueKind, QueueMode, Queues, RunTicket};

use QueueKind::{FollowUp, Steering};

use crate::scheduler::play;

/// Commits all of a lease.
fn commit(mut lease: Lease<u32>) -> Vec<u32> {
    let messages = lease.messages();
    let committed = messages.iter().filter(|message| lease.commit(message));
    committed.map(|message| **message).collect()
}

/// Looks until there is nothing.
fn run_to_the_end(ticket: &RunTicket<u32>) -> Vec<u32> {
    let looks = std::iter::repeat_with(|| ticket.last_look());
    looks.take_while(|lease| !lease.is_empty()).flat_map(commit).collect()
}

fn queued(queues: &Queues<u32>, kind: QueueKind) -> Vec<u32> {
    queues.set_mode(kind, QueueMode::All);
    queues.peek(kind).iter().map(|message| **message).collect()
}

/// The messages of one pusher: those below 10, or above.
fn of(pusher: u32, messages: &[u32]) -> Vec<u32> {
    let messages = messages.iter().copied();
    messages.filter(|message| message / 10 == pusher).collect()
}

#[test]
fn pushed_while_a_run_ends() {
    for mode in [QueueMode::OneAtATime, QueueMode::All] {
        play("pushed while a run ends", 3, 1_000, move || {
            let queues = Queues::new();
            queues.set_mode(Steering, mode);
            let ticket = queues.open_run();
            let pushers = [0, 1].map(|pusher| {
                let queues = queues.clone();
                thread::spawn(move || {
                    let numbers = [10 * pusher, 10 * pusher + 1];
                    let promised = numbers.map(|number| queues.push(Steering, Arc::new(number)).delivery);
                    promised.map(|delivery| delivery == Delivery::ThisRun)
                })
            });
            // A look in vain: what it took goes back.
            drop(ticket.lease(Steering));
            let delivered = run_to_the_end(&ticket);
            let promised = pushers.map(|pusher| pusher.join().unwrap());
            let queued = queued(&queues, Steering);
            for (pusher, promised) in [0, 1].into_iter().zip(promised) {
                let delivered = of(pusher, &delivered);
                let all = [&*delivered, &of(pusher, &queued)].concat();
                assert_eq!(all, [10 * pusher, 10 * pusher + 1], "I4: each once, in order");
                let kept = promised.into_iter().filter(|promised| *promised).count();
                assert_eq!(kept, delivered.len(), "I4: what is promised to a run is what it takes");
            }
        });
    }
}

#[test]
fn taken_back_while_a_run_takes_it() {
    play("taken back while a run takes it", 4, 5_000, || {
        let queues = Queues::new();
        let ticket = queues.open_run();
        let ids = [1, 2].map(|number| queues.push(FollowUp, Arc::new(number)).id);
        let recaller = {
            let queues = queues.clone();
            thread::spawn(move || ids.map(|id| queues.recall(id).is_some()))
        };
        let clearer = {
            let queues = queues.clone();
            thread::spawn(move || queues.clear(FollowUp).len())
        };
        let delivered = run_to_the_end(&ticket);
        let recalled = recaller
            .join()
            .unwrap()
            .into_iter()
            .filter(|recalled| *recalled)
            .count();
        let cleared = clearer.join().unwrap();
        assert_eq!(queued(&queues, FollowUp), [0; 0]);
        assert_eq!(delivered.len() + recalled + cleared, 2, "I4: each goes one way");
    });
}

#[test]
fn two_runs_take_from_the_same_queue() {
    play("two runs take from the same queue", 3, 1_000, || {
        let queues = Queues::new();
        for number in [1, 2, 3] {
            queues.push(Steering, Arc::new(number));
        }
        let runs = [(); 2].map(|()| {
            let ticket = queues.open_run();
            thread::spawn(move || run_to_the_end(&ticket))
        });
        let [one, other] = runs.map(|run| run.join().unwrap());
        assert!(one.is_sorted() && other.is_sorted(), "I4: in order");
        let mut all = [one, other].concat();
        all.sort_unstable();
        all.extend(queued(&queues, Steering));
        assert_eq!(all, [1, 2, 3], "I4: each once");
    });
}
