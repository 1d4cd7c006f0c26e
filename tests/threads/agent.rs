//! The life of an agent between threads: one drives the run, others do what they may do at any time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_util::stream;
use shuttle::future::block_on;
use shuttle::thread;
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AssistantEvent, CancellationToken, Delivery, DoneReason, Message, Outcome, QueueKind, Request, Run,
    StartError, StopReason, json_tool,
};

use crate::scheduler::play;

/// The kinds of events, as a listener heard them.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<&'static str>>>);

impl Heard {
    fn of(agent: &Agent) -> Self {
        let heard = Self::default();
        let kinds = Arc::clone(&heard.0);
        agent.subscribe(move |event, _| kinds.lock().unwrap().push(event.kind()));
        heard
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|heard| **heard == kind).count()
    }
}

/// An agent whose model says nothing, at once.
fn agent() -> Agent {
    let model = |_: Request, _: CancellationToken| stream::iter([AssistantEvent::done(DoneReason::Stop)]);
    Agent::builder("m", model).clock(|| 7).build()
}

fn drive(run: Run) -> Outcome {
    block_on(run.into_future())
}

/// How often a text is in the transcript.
fn told(agent: &Agent, text: &str) -> usize {
    agent
        .transcript()
        .iter()
        .filter(|message| message.text() == text)
        .count()
}

/// It is idle, has told the end of so many runs, and the next prompt works.
fn check_idle(agent: &Agent, heard: &Heard, runs: usize) {
    assert!(!agent.is_streaming(), "still streaming");
    assert_eq!(
        (heard.count("agent_start"), heard.count("agent_end")),
        (runs, runs),
        "I1: {:?}",
        heard.kinds()
    );
    assert_eq!(block_on(agent.wait_for_idle()), Ok(()));
    agent.clear_queues();
    assert_eq!(drive(agent.prompt("again").unwrap()).end, RunEnd::Completed);
}

#[test]
fn prompt_against_prompt() {
    play("prompt against prompt", 4, 100, || {
        let agent = agent();
        let heard = Heard::of(&agent);
        let prompts = ["a", "b"].map(|text| {
            let agent = agent.clone();
            thread::spawn(move || agent.prompt(text))
        });
        let begun = prompts.map(|prompt| prompt.join().unwrap());
        let refused = begun.iter().filter(|begun| matches!(begun, Err(StartError::Busy)));
        assert_eq!(refused.count(), 1, "one wins, the other is told that it is busy");
        for run in begun.into_iter().flatten() {
            assert_eq!(drive(run).end, RunEnd::Completed);
        }
        assert_eq!(told(&agent, "a") + told(&agent, "b"), 1);
        check_idle(&agent, &heard, 1);
    });
}

#[test]
fn prompt_against_continue() {
    play("prompt against continue", 4, 20, || {
        let agent = agent();
        drop(drive(agent.prompt("first").unwrap()));
        agent.follow_up("f");
        let heard = Heard::of(&agent);
        let other = agent.clone();
        let going_on = thread::spawn(move || other.continue_run());
        let begun = [agent.prompt("second"), going_on.join().unwrap()];
        assert!(agent.has_queued(), "I4: the one that lost took it, or lost it");
        let refused = begun.iter().filter(|begun| matches!(begun, Err(StartError::Busy)));
        assert_eq!(refused.count(), 1, "one wins, the other is told that it is busy");
        for run in begun.into_iter().flatten() {
            assert_eq!(drive(run).end, RunEnd::Completed);
        }
        assert_eq!(told(&agent, "f"), 1, "I4: a follow-up is delivered once");
        check_idle(&agent, &heard, 1);
    });
}

#[test]
fn queueing_against_the_end_of_a_run() {
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        play("queueing against the end of a run", 3, 100, move || {
            let agent = agent();
            let heard = Heard::of(&agent);
            let run = agent.prompt("go").unwrap();
            let driver = thread::spawn(move || drive(run));
            let queued = match kind {
                QueueKind::Steering => agent.steer("q"),
                QueueKind::FollowUp => agent.follow_up("q"),
            };
            assert_eq!(driver.join().unwrap().end, RunEnd::Completed);
            let delivered = told(&agent, "q");
            assert_eq!(
                delivered + agent.peek(kind).len(),
                1,
                "I4: delivered once, or still queued"
            );
            assert_eq!(
                delivered == 1,
                queued.delivery == Delivery::ThisRun,
                "I4: as it was promised"
            );
            check_idle(&agent, &heard, 1);
        });
    }
}

#[test]
fn abort_against_completion() {
    play("abort against completion", 3, 1_000, || {
        let agent = agent();
        let heard = Heard::of(&agent);
        let run = agent.prompt("go").unwrap();
        let driver = thread::spawn(move || drive(run));
        let early = agent.steer("early");
        agent.abort();
        let late = agent.steer("late");
        let outcome = driver.join().unwrap();
        let transcript = agent.transcript();
        let stop = transcript
            .last()
            .and_then(|last| Some(last.as_assistant()?.stop_reason));
        let delivered = told(&agent, "early") == 1;
        match outcome.end {
            RunEnd::Completed => {
                assert_eq!(stop, Some(StopReason::Stop));
                assert_eq!(delivered, early.delivery == Delivery::ThisRun, "I4: as it was promised");
            }
            // Aborted behind the last answer there is none that says so.
            RunEnd::Aborted => assert!(matches!(stop, Some(StopReason::Stop | StopReason::Aborted)), "{stop:?}"),
            other => panic!("neither completed nor aborted: {other:?}"),
        }
        assert!(outcome.messages.iter().eq(transcript.iter()), "I5");
        assert_eq!(
            (late.delivery, told(&agent, "late")),
            (Delivery::NextRun, 0),
            "I6: what comes after the abort"
        );
        let queued = agent.clear_queue(QueueKind::Steering).len();
        assert_eq!(queued + usize::from(delivered), 2, "I4: once, or still queued");
        check_idle(&agent, &heard, 1);
    });
}

#[test]
fn an_abort_wakes_a_run_that_waits() {
    play("an abort wakes a run that waits", 3, 100, || {
        let silent = |_: Request, _: CancellationToken| stream::pending::<AssistantEvent>();
        let agent = Agent::builder("m", silent).clock(|| 7).build();
        let run = agent.prompt("go").unwrap();
        let driver = thread::spawn(move || drive(run));
        agent.abort();
        assert_eq!(driver.join().unwrap().end, RunEnd::Aborted);
        assert!(!agent.is_streaming());
    });
}

#[test]
fn who_waits_for_idle_is_woken() {
    fn wait(agent: &Agent) {
        assert_eq!(block_on(agent.wait_for_idle()), Ok(()));
        assert!(!agent.is_streaming(), "idle too soon");
        assert_eq!(agent.transcript().len(), 2, "idle before the run has ended");
    }
    for (others, preemptions) in [(0, 3), (1, 1)] {
        play("who waits for idle is woken", preemptions, 100, move || {
            let agent = agent();
            let run = agent.prompt("go").unwrap();
            let driver = thread::spawn(move || drive(run));
            let waiters = (0..others).map(|_| {
                let agent = agent.clone();
                thread::spawn(move || wait(&agent))
            });
            let waiters: Vec<_> = waiters.collect();
            wait(&agent);
            for waiter in waiters {
                waiter.join().unwrap();
            }
            assert_eq!(driver.join().unwrap().end, RunEnd::Completed);
        });
    }
}

#[test]
fn listeners_come_and_go() {
    play("listeners come and go", 3, 1_000, || {
        let agent = agent();
        let all = Heard::of(&agent);
        let run = agent.prompt("go").unwrap();
        let driver = thread::spawn(move || drive(run));
        let heard = Heard::default();
        let kinds = Arc::clone(&heard.0);
        let subscription = agent.subscribe(move |event, _| kinds.lock().unwrap().push(event.kind()));
        subscription.unsubscribe();
        let then = heard.kinds().len();
        assert_eq!(driver.join().unwrap().end, RunEnd::Completed);
        let (heard, all) = (heard.kinds(), all.kinds());
        // The listener may be about to be called in that moment.
        assert!(heard.len() <= then + 1, "called after it was unsubscribed: {heard:?}");
        let found = heard.is_empty() || all.windows(heard.len()).any(|part| part == heard);
        assert!(
            found,
            "a listener hears all between its subscription and its end: {heard:?} of {all:?}"
        );
    });
}

#[test]
fn listeners_hear_to_the_end() {
    play("listeners hear to the end", 2, 100, || {
        let agent = agent();
        let all = Heard::of(&agent);
        let run = agent.prompt("go").unwrap();
        let driver = thread::spawn(move || drive(run));
        let other = agent.clone();
        let subscriber = thread::spawn(move || Heard::of(&other));
        let heard = [Heard::of(&agent), subscriber.join().unwrap()];
        assert_eq!(driver.join().unwrap().end, RunEnd::Completed);
        for heard in heard {
            let (heard, all) = (heard.kinds(), all.kinds());
            assert!(all.ends_with(&heard), "{heard:?} of {all:?}");
        }
        let before = all.kinds().len();
        check_idle(&agent, &all, 1);
        assert!(all.kinds().len() > before);
    });
}

/// A call that ends when it was heard what it reports from another thread: a lost wake-up would be a deadlock.
#[test]
fn progress_from_another_thread_is_heard() {
    play("progress from another thread is heard", 3, 20, || {
        let heard = CancellationToken::new();
        let until = heard.clone();
        let tool = json_tool("t", "t", serde_json::json!({"type": "object"}), move |_, cx| {
            let until = until.clone();
            let reporter = thread::spawn(move || {
                cx.progress("half");
                cx
            });
            async move {
                until.cancelled().await;
                let cx = reporter.join().unwrap();
                thread::spawn(move || cx.progress("whole")).join().unwrap();
                "done"
            }
        });
        let answers = Mutex::new(vec![DoneReason::Stop, DoneReason::ToolUse]);
        let model = move |_: Request, _: CancellationToken| {
            let reason = answers.lock().unwrap().pop().expect("two turns");
            let call = (reason == DoneReason::ToolUse).then(|| AssistantEvent::tool_call_start(0, "1", "t"));
            stream::iter(call.into_iter().chain([AssistantEvent::done(reason)]))
        };
        let agent = Agent::builder("m", model).clock(|| 7).tool(tool).build();
        let kinds = Heard::of(&agent);
        agent.subscribe(move |event, _| {
            if event.kind() == "tool_execution_update" {
                heard.cancel();
            }
        });
        assert_eq!(drive(agent.prompt("go").unwrap()).end, RunEnd::Completed);
        assert_eq!(kinds.count("tool_execution_update"), 2, "{:?}", kinds.kinds());
    });
}

#[test]
fn a_run_is_dropped_while_others_steer_and_abort() {
    for polls in [0, 3, 5] {
        play("a run is dropped while others steer and abort", 2, 200, move || {
            let agent = agent();
            let heard = Heard::of(&agent);
            agent.steer("s1");
            let mut run = agent.prompt("go").unwrap();
            let driver = thread::spawn(move || {
                for _ in 0..polls {
                    if let Poll::Ready(None) = Pin::new(&mut run).poll_next(&mut Context::from_waker(Waker::noop())) {
                        break;
                    }
                }
            });
            let aborter = {
                let agent = agent.clone();
                thread::spawn(move || agent.abort())
            };
            agent.steer("s2");
            aborter.join().unwrap();
            driver.join().unwrap();
            assert!(!agent.is_streaming(), "still streaming");
            agent.set_queue_mode(QueueKind::Steering, turnstate::QueueMode::All);
            let transcript = agent.transcript();
            let texts = transcript.iter().cloned().chain(agent.peek(QueueKind::Steering));
            let texts: Vec<_> = texts.map(|message: Arc<Message>| message.text()).collect();
            let steered: Vec<_> = texts.iter().filter(|text| text.starts_with('s')).collect();
            assert_eq!(steered, ["s1", "s2"], "I4: once each, in order");
            let runs = usize::from(polls > 0);
            check_idle(&agent, &heard, runs);
        });
    }
}
