//! Listeners: what they may do from inside, and what they hear of a run that is dropped.

use std::sync::{Arc, Mutex};

use turnstate::machine::RunEnd;
use turnstate::{Agent, Delivery, StartError, Subscription};

use super::drive::{Task, drive, yield_now};
use super::harness::{Log, Notes, Rig, calls, quick, say, show, until};

/// A listener subscribed inside a listener hears from the next event on.
#[test]
fn s47_a_listener_subscribed_inside_a_listener_hears_the_next_event() {
    let rig = Rig::new([say("hi")], |agent, _| agent);
    let late = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&late);
    rig.at("me(u)", move |agent| {
        *kept.lock().unwrap() = Some(Notes::default());
        let notes = kept.lock().unwrap().clone().unwrap();
        agent.subscribe(move |event, _| notes.add(show(event)));
    });
    rig.prompt("go");
    let heard = late.lock().unwrap().take().unwrap().all();
    assert_eq!((heard[0].as_str(), heard.last().unwrap().as_str()), ("ms(a)", "ae[2]"));
}

/// One that unsubscribes itself, or another, inside a listener: neither is called again, not even for this event.
#[test]
fn s47_a_listener_unsubscribed_inside_a_listener_is_not_called_again() {
    for asynchronous in [false, true] {
        let rig = Rig::new([say("hi")], |agent, _| agent);
        let subscriptions: Arc<Mutex<Vec<Subscription>>> = Arc::default();
        let (notes, ends) = (Notes::default(), Arc::clone(&subscriptions));
        let first = notes.clone();
        let own = rig.agent.subscribe(move |event, _| {
            first.add(format!("first {}", show(event)));
            if event.kind() == "turn_start" {
                ends.lock().unwrap().drain(..).for_each(Subscription::unsubscribe);
            }
        });
        let second = notes.clone();
        let other = if asynchronous {
            rig.agent.subscribe_async(move |event, _| {
                second.add(format!("second {}", show(&event)));
                std::future::ready(())
            })
        } else {
            rig.agent
                .subscribe(move |event, _| second.add(format!("second {}", show(event))))
        };
        subscriptions.lock().unwrap().extend([own, other]);
        rig.prompt("go");
        assert_eq!(notes.all(), ["first as", "second as", "first ts"]);
    }
}

/// Waiting for idle inside a listener of the run is an error, not a deadlock, at every event; in both kinds.
#[test]
fn s47_waiting_inside_a_listener_is_refused() {
    let rig = Rig::new([calls("a:t"), say("hi"), say("hi")], |agent, _| agent.tool(quick("t")));
    let notes = Notes::default();
    let (sync, later) = (notes.clone(), notes.clone());
    rig.agent.subscribe(move |_, cx| {
        assert!(drive(cx.agent().wait_for_idle()).is_err());
        sync.add("sync");
    });
    rig.agent.subscribe_async(move |_, cx| {
        let notes = later.clone();
        async move {
            yield_now().await;
            assert!(cx.agent().wait_for_idle().await.is_err());
            notes.add("async");
        }
    });
    assert_eq!(rig.prompt("go").listener_errors, []);
    assert_eq!(notes.all().len(), 2 * rig.log.events().len());

    // Outside, in the same thread, beside the run: no error.
    let mut run = rig.start("go");
    let mut idle = Task::new(rig.agent.wait_for_idle());
    idle.stall();
    run.finish();
    assert_eq!(idle.finish(), Ok(()));
}

/// Next to it: a listener may wait for another agent, and run it; also if that one's listener waits for the first.
#[test]
fn s47_a_listener_may_run_and_await_another_agent() {
    let other = Rig::new([say("inner")], |agent, _| agent);
    let rig = Rig::new([say("outer")], |agent, _| agent);
    let (outer, inner, notes) = (rig.agent.clone(), other.agent.clone(), Notes::default());
    let seen = notes.clone();
    inner.subscribe(move |event, _| {
        if event.kind() == "agent_end" {
            seen.add(format!("{:?}", drive(outer.wait_for_idle())));
        }
    });
    rig.at("ms(a)", move |_| {
        assert_eq!(drive(inner.prompt("go").unwrap()).text(), "inner");
        drive(inner.wait_for_idle()).unwrap();
    });
    assert_eq!(rig.prompt("go").listener_errors, []);
    assert_eq!(notes.all(), ["Err(WaitInsideListener)"]);
}

/// Runs cannot be begun inside a listener, nor the transcript replaced, up to and with `agent_end`; all else works.
#[test]
fn c057_a_listener_cannot_begin_a_run() {
    let rig = Rig::new([say("1"), say("2")], |agent, _| agent);
    rig.agent.subscribe(|event, cx| {
        let agent = cx.agent();
        assert_eq!(agent.prompt("x").map(|_| ()), Err(StartError::Busy));
        assert_eq!(agent.continue_run().map(|_| ()), Err(StartError::Busy));
        assert_eq!(agent.retry().map(|_| ()), Err(StartError::Busy));
        assert_eq!(agent.reset(), Err(StartError::Busy));
        let delivery = agent.follow_up("f").delivery;
        let over = event.kind() == "agent_end";
        assert_eq!(delivery, if over { Delivery::NextRun } else { Delivery::ThisRun });
        agent.clear_queues();
    });
    assert_eq!(rig.prompt("go").listener_errors, []);
}

/// The listener's token is the run's; it may abort by it.
#[test]
fn c069_a_listener_may_abort_by_its_token() {
    for asynchronous in [false, true] {
        let rig = Rig::new([say("half").silence()], |agent, _| agent);
        if asynchronous {
            rig.agent.subscribe_async(async |event, cx| {
                if event.kind() == "message_update" {
                    cx.cancellation_token().cancel();
                }
            });
        } else {
            rig.agent.subscribe(|event, cx| {
                if event.kind() == "message_update" {
                    cx.cancellation_token().cancel();
                }
            });
        }
        assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
        rig.saw("as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]");
    }
}

/// C013 for that way to abort: nothing is drained after it either.
#[test]
fn c013_abort_by_the_token_drains_nothing() {
    let rig = Rig::new([say("1")], |agent, _| agent);
    rig.agent.subscribe(|event, cx| {
        if event.kind() == "turn_end" {
            cx.agent().steer("s");
            cx.cancellation_token().cancel();
        }
    });
    assert_eq!(rig.prompt("go").end, RunEnd::Aborted);
    rig.saw("as ts ms(u) me(u) ms(a) me(a/stop) te(stop)[0] ae[2]");
    assert!(rig.agent.has_queued());
}

/// C020: of a dropped run sync listeners hear the closing events, each with the state reduced; async ones do not.
#[test]
fn c020_listeners_of_a_dropped_run() {
    let rig = Rig::new([calls("a:t"), say("hi")], |agent, _| agent.tool(quick("t")));
    let (heard, states) = (Notes::default(), Notes::default());
    let (asynchronous, seen) = (heard.clone(), states.clone());
    rig.agent.subscribe_async(move |event, _| {
        asynchronous.add(show(&event));
        std::future::ready(())
    });
    rig.agent.subscribe(move |event, cx| {
        assert!(cx.cancellation_token().is_cancelled() || !show(event).starts_with("ae"));
        assert_eq!(cx.agent().prompt("x").map(|_| ()), Err(StartError::Busy));
        seen.add(format!("{} {}", show(event), cx.transcript().len()));
    });
    let mut run = rig.agent.prompt("go").unwrap();
    until(&mut run, "xs(a)");
    drop(run);
    rig.saw(
        "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a) xe(a!) ms(r a) me(r a) te(toolUse)[1] \
         ts ms(a) me(a/aborted) te(aborted)[0] ae[4]",
    );
    assert_eq!(heard.all().last().map(String::as_str), Some("xs(a)"));
    assert_eq!(
        states.all()[states.all().len() - 3..],
        ["me(a/aborted) 4", "te(aborted)[0] 4", "ae[4] 4"]
    );
    assert_eq!(rig.agent.error_message().as_deref(), Some("Request was aborted"));
}

/// C020, C022: a listener that panics at the closing events of a dropped run harms nobody.
#[test]
fn c022_a_listener_that_panics_while_a_run_is_dropped() {
    let rig = Rig::new([say("half").silence(), say("END")], |agent, _| agent);
    rig.agent
        .subscribe(|event, _| assert_ne!(event.kind(), "turn_end", "oh no"));
    let behind = Log::of(&rig.agent);
    let mut run = rig.start("go");
    run.stall();
    drop(run);
    assert_eq!(
        behind.line(),
        "as ts ms(u) me(u) ms(a) me(a/aborted) te(aborted)[0] ae[2]"
    );
    assert_eq!(rig.prompt("again").end, RunEnd::Completed);
}

/// C019: a message queued by a listener while its run is dropped is there for the next.
#[test]
fn c019_queued_while_a_run_is_dropped() {
    for event in ["me(a/aborted)", "ae[2]"] {
        let rig = Rig::new([say("half").silence(), say("END"), say("END")], |agent, _| agent);
        rig.at(event, |agent: &Agent| {
            assert_eq!(agent.steer("s").delivery, Delivery::NextRun);
        });
        let mut run = rig.start("go");
        run.stall();
        drop(run);
        rig.go_on();
        assert_eq!(rig.transcript(), "u, a/aborted, u s, a/stop");
    }
}
