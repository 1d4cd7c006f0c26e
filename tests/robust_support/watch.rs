//! A listener that checks the invariants while they can be broken.

use std::sync::{Arc, Mutex};

use turnstate::{Agent, AgentEvent, AgentState, ListenerContext, Message, Messages};

use super::rules::Nesting;

/// What the listeners of an agent were told, and whether it was right (I1, I5, I7).
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

struct Seen {
    nesting: Nesting<Message>,
    /// The fold of all events since the agent was made.
    fold: AgentState,
    events: Vec<AgentEvent>,
    wrong: Vec<String>,
}

impl Watch {
    /// Listens to an agent from now on; it is idle.
    pub(crate) fn new(agent: &Agent) -> Self {
        let watch = Self(Arc::new(Mutex::new(Seen {
            nesting: Nesting::default(),
            fold: AgentState::new(agent.transcript()),
            events: Vec::new(),
            wrong: Vec::new(),
        })));
        let seen = watch.clone();
        agent.subscribe(move |event, cx| seen.0.lock().unwrap().take(event, cx));
        watch
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<AgentEvent> {
        self.0.lock().unwrap().events.clone()
    }

    /// What was heard makes sense, `runs` runs ended, and their fold is the agent's state (I1, I5).
    #[track_caller]
    pub(crate) fn check(&self, agent: &Agent, runs: usize) {
        let seen = self.0.lock().unwrap();
        assert_eq!(seen.wrong, Vec::<String>::new(), "of {:?}", kinds(&seen.events));
        assert_eq!(seen.nesting.runs, runs, "I1: runs that ended");
        assert!(same(seen.fold.transcript(), &agent.transcript()), "I5: transcript");
        assert_eq!(seen.fold.error_message(), agent.error_message().as_deref(), "I5: error");
        assert!(seen.fold.streaming_message().is_none(), "I5: a message streams");
        assert!(seen.fold.pending_tool_calls().next().is_none(), "I5: a call is pending");
    }
}

impl Seen {
    fn take(&mut self, event: &AgentEvent, cx: &ListenerContext<'_>) {
        if let AgentEvent::AgentStart = event {
            // Between runs the transcript may be replaced, which no event tells.
            self.fold.set_transcript(cx.transcript());
        }
        self.fold.apply(event);
        self.events.push(event.clone());
        if let Err(error) = self.nesting.check(event) {
            self.wrong.push(format!("I1: {error}"));
        }
        if !same(self.fold.transcript(), &cx.transcript()) {
            self.wrong.push(format!("I5: the transcript at {}", event.kind()));
        }
        if matches!(event, AgentEvent::MessageUpdate { .. }) && self.fold.partial() != cx.partial() {
            self.wrong
                .push("I7: the partial is not the fold of its deltas".to_owned());
        }
        if !cx.agent().is_streaming() {
            self.wrong.push(format!("idle at {}", event.kind()));
        }
    }
}

fn same(one: &Messages<Message>, other: &Messages<Message>) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The kinds of events.
pub(crate) fn kinds(events: &[AgentEvent]) -> Vec<&'static str> {
    events.iter().map(AgentEvent::kind).collect()
}
