//! A listener that checks what an agent tells while it tells it (I1, I5).

use std::sync::{Arc, Mutex};

use turnstate::{Agent, AgentState, Message};

use crate::explorer::ensure;
use crate::rules::Nesting;
use crate::words::word;

/// What was heard, and whether it was right.
#[derive(Clone)]
pub(crate) struct Heard(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    nesting: Nesting<Message>,
    fold: AgentState,
    last: Option<String>,
    /// A retry begins: it drops the last message, of which no event tells.
    retries: bool,
    began: usize,
    wrong: Option<String>,
}

impl Heard {
    pub(crate) fn of(agent: &Agent) -> Self {
        let heard = Self(Arc::default());
        let seen = Arc::clone(&heard.0);
        agent.subscribe(move |event, cx| {
            let mut seen = seen.lock().unwrap();
            if std::mem::take(&mut seen.retries) {
                let kept: Vec<_> = seen.fold.transcript().iter().cloned().collect();
                seen.fold.set_transcript(kept[..kept.len() - 1].to_vec().into());
            }
            seen.fold.apply(event);
            seen.last = Some(word(event));
            seen.began += usize::from(event.kind() == "agent_start");
            let wrong = seen.nesting.check(event).map_err(|wrong| format!("I1, I3: {wrong}"));
            let wrong = wrong
                .and_then(|()| {
                    ensure(
                        *seen.fold.transcript() == cx.transcript(),
                        "I5: the transcript is not what was told",
                    )
                })
                .and_then(|()| {
                    ensure(
                        seen.fold.partial() == cx.partial() || cx.partial().is_none(),
                        "I7: the partial",
                    )
                })
                .and_then(|()| ensure(cx.agent().is_streaming(), "idle while it tells something"));
            seen.wrong = seen.wrong.take().or(wrong.err());
        });
        heard
    }

    /// The last event.
    pub(crate) fn last(&self) -> Option<String> {
        self.0.lock().unwrap().last.clone()
    }

    /// A run was begun, by a retry or otherwise.
    pub(crate) fn begins(&self, retries: bool) {
        self.0.lock().unwrap().retries = retries;
    }

    /// Whether all runs that began have ended, and one has.
    pub(crate) fn is_between_runs(&self) -> bool {
        let seen = self.0.lock().unwrap();
        seen.began == seen.nesting.runs
    }

    /// All that was heard was right, and gives the agent's state.
    pub(crate) fn check(&self, agent: &Agent) -> Result<(), String> {
        let seen = self.0.lock().unwrap();
        seen.wrong.clone().map_or(Ok(()), Err)?;
        let same = *seen.fold.transcript() == agent.transcript();
        ensure(same, "I5: the agent's transcript is not what was told")?;
        let pending = seen.fold.pending_tool_calls().map(|(_, call)| call);
        ensure(
            pending.eq(&agent.pending_tool_calls()),
            "I5: other calls are pending than were told",
        )
    }
}
