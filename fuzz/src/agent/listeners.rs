//! Who listens to the agent of a script, and what is done to the agent from there and from outside.

use std::pin::pin;
use std::task::Poll;

use turnstate::{Agent, BoxError, Delivery, ListenerContext, QueueKind, QueueMode, StartError, WaitInsideListener};

use super::watch::KINDS;
use super::world::{World, planted};
use super::{ENOUGH, poll_once};

/// Subscribes who watches, and others by the tape.
pub(super) fn subscribe(world: &World, agent: &Agent) {
    let watcher = world.clone();
    agent.subscribe(move |event, cx| {
        let mut inner = watcher.lock();
        let aborted = inner.aborted;
        let wrong = inner.watch.hear(event, cx, aborted);
        drop(inner);
        if let Some(wrong) = wrong {
            watcher.wrong(wrong);
        }
    });
    if world.once_in(2) {
        let world = world.clone();
        agent.subscribe(move |_, cx| act(&world, cx));
    }
    if world.once_in(4) {
        let world = world.clone();
        agent.subscribe_async(move |_, _| {
            let (life, world) = (world.hold(), world.clone());
            async move {
                let _life = life;
                world.misbehave(|| world.lock().listener_failures += 1).await
            }
        });
    }
}

/// What a listener does.
fn act(world: &World, cx: &ListenerContext<'_>) -> Result<(), BoxError> {
    let agent = cx.agent();
    match world.below(64) {
        54 => agent.set_queue_mode(world.pick(&KINDS), world.pick(&[QueueMode::OneAtATime, QueueMode::All])),
        55 | 56 => push(world, &agent, QueueKind::Steering),
        57 | 58 => push(world, &agent, QueueKind::FollowUp),
        59 => {
            let waited = poll_once(pin!(agent.wait_for_idle()));
            world.check(matches!(waited, Poll::Ready(Err(WaitInsideListener { .. }))), || {
                "a listener waits for itself".into()
            });
            let prompted = agent.prompt("no").map(|_| ());
            world.check(prompted == Err(StartError::Busy), || "a second run".into());
        }
        60 => agent.stop_after_turn(),
        61 => abort(world, &agent),
        62 => {
            world.lock().listener_failures += 1;
            return Err("failed".into());
        }
        63 => {
            world.lock().listener_failures += 1;
            planted();
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn push(world: &World, agent: &Agent, kind: QueueKind) {
    // A turn for each of many would show nothing new.
    if world.lock().watch.texts(kind).len() == ENOUGH {
        return;
    }
    let text = world.lock().watch.next_text(kind);
    let queued = match kind {
        QueueKind::Steering => agent.steer(&text),
        QueueKind::FollowUp => agent.follow_up(&text),
    };
    let mut inner = world.lock();
    inner.watch.pushed(kind, text, queued);
    let is_late = inner.aborted || !agent.is_streaming();
    drop(inner);
    world.check(!is_late || queued.delivery == Delivery::NextRun, || {
        "I4: promised to a run that is over".into()
    });
}

pub(super) fn abort(world: &World, agent: &Agent) {
    world.lock().aborted = agent.is_streaming();
    agent.abort();
}
