//! Panics of listeners, and of who is told of them.

use turnstate::Agent;
use turnstate::machine::RunEnd;

use super::plant::{Dropped, Ending, Fuse, Unspeakable, agent, survives};

/// Subscribes a listener that blows the fuse.
type Subscribe<'a> = &'a dyn Fn(&Agent, Fuse);

#[test]
fn of_a_listener() {
    let sync = |agent: &Agent, fuse: Fuse| {
        agent.subscribe(move |_, _| fuse.blow());
    };
    let at_call = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            fuse.blow();
            async {}
        });
    };
    let in_poll = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            let fuse = fuse.clone();
            async move { fuse.blow() }
        });
    };
    let unspeakable = |agent: &Agent, fuse: Fuse| {
        agent.subscribe(move |_, _| {
            if fuse.blew() {
                Ok(())
            } else {
                Err(Unspeakable(fuse.clone()))
            }
        });
    };
    let unspeakable_later = |agent: &Agent, fuse: Fuse| {
        agent.subscribe_async(move |_, _| {
            let fuse = fuse.clone();
            async move { if fuse.blew() { Ok(()) } else { Err(Unspeakable(fuse)) } }
        });
    };
    let subscribes: [Subscribe; 5] = [&sync, &at_call, &in_poll, &unspeakable, &unspeakable_later];
    for subscribe in subscribes {
        let fuse = Fuse::new();
        // Of the callback, too.
        let agent = agent(|builder| builder.on_listener_error(|_| panic!("of the callback")));
        subscribe(&agent, fuse.clone());
        let outcome = survives(&agent, &fuse, Ending::Done).unwrap();
        assert_eq!((outcome.end, outcome.text().as_str()), (RunEnd::Completed, "done"));
        let [error] = &*outcome.listener_errors else {
            panic!("{:?}", outcome.listener_errors)
        };
        assert_eq!((error.event, error.message.as_str()), ("agent_start", "panicked: boom"));
    }
}

#[test]
fn of_the_drop_of_a_listener() {
    for ending in [Ending::Done, Ending::Dropped] {
        let fuse = Fuse::new();
        let planted = fuse.clone();
        let agent = agent(|builder| builder);
        agent.subscribe_async(move |_, _| {
            let planted = planted.clone();
            // The wrapper of the engine drops what it has awaited; this one is dropped with its locals.
            async move {
                let blown = planted.blew();
                let _held = (!blown).then(|| Dropped((), planted));
                if ending == Ending::Dropped && !blown {
                    std::future::pending::<()>().await;
                }
            }
        });
        survives(&agent, &fuse, ending);
    }
}
