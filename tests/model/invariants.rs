//! I2, I3, I4, I6, I7 and I8, checked on what is seen from outside, without the model and without knowing what a script
//! says. I1 and I5, and I7 while a message streams, are [`Watch`](crate::robust_support::watch::Watch)'s.

use std::sync::{Arc, Mutex};

use turnstate::{Agent, AgentEvent, Delivery, ListenerContext, Message, QueueKind, Request, Transcript};

use crate::robust_support::rules::{pairing, sendable};

/// What was seen of an agent since it was made. A cheap handle: who sees something tells it here.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    /// The run was aborted or dropped.
    aborted: bool,
    /// Turns begun and requests sent by the run.
    turns: usize,
    requests: usize,
    /// Why the open turn may ask the model: it is the first, or results or queued messages are to be answered.
    reason: bool,
    /// The turn before had results, and how many of them say that it is enough.
    results: usize,
    enough: usize,
    /// As of the last event.
    transcript: Transcript<Message>,
    /// What is queued, steering messages and follow-ups: the text, and whether the active run has to look at it.
    queued: [Vec<(String, bool)>; 2],
    delivered: Vec<String>,
    /// Each message that ended, and what it was then.
    ended: Vec<(Arc<Message>, Message)>,
}

impl Ledger {
    /// Hears all that the agent tells.
    pub(crate) fn listen(&self, agent: &Agent) {
        let ledger = self.clone();
        agent.subscribe(move |event, cx| ledger.0.lock().unwrap().hear(event, cx));
    }

    pub(crate) fn begin(&self) {
        let mut seen = self.0.lock().unwrap();
        (seen.aborted, seen.turns, seen.requests) = (false, 0, 0);
        // Whatever is queued is for this run.
        seen.queued.iter_mut().flatten().for_each(|(_, owed)| *owed = true);
    }

    pub(crate) fn aborted(&self) {
        self.0.lock().unwrap().aborted = true;
    }

    pub(crate) fn tool_begins(&self, name: &str) {
        self.0.lock().unwrap().not_aborted(|| format!("{name} begins"));
    }

    pub(crate) fn requested(&self, request: &Request) {
        let mut seen = self.0.lock().unwrap();
        seen.not_aborted(|| "a request is sent".into());
        seen.requests += 1;
        if seen.requests > seen.turns || !seen.reason {
            seen.wrong.push("I2: a request without a reason".into());
        }
        if let Err(wrong) = sendable(request.messages.iter().map(|message| &**message)) {
            seen.wrong.push(format!("I3: {wrong}, in a request"));
        }
        // What is sent are the transcript's messages themselves, in order; nothing of these scripts needs a placeholder.
        let mut own = seen.transcript.iter();
        let is_own = |sent| own.any(|message| Arc::ptr_eq(message, sent));
        if !request.messages.iter().all(is_own) {
            seen.wrong.push("I8: a request with a copy of a message".into());
        }
    }

    pub(crate) fn queued(&self, kind: QueueKind, text: String, delivery: Delivery) {
        let mut seen = self.0.lock().unwrap();
        let owed = delivery == Delivery::ThisRun;
        if owed && seen.aborted {
            seen.wrong
                .push(format!("I6: an aborted run promises to look at {text}"));
        }
        seen.queued[kind as usize].push((text, owed));
    }

    /// Takes in what a caller took back; says how many.
    pub(crate) fn taken_back(&self, messages: impl IntoIterator<Item = Arc<Message>>) -> usize {
        let mut seen = self.0.lock().unwrap();
        let mut taken = 0;
        for message in messages {
            taken += 1;
            if seen.leaves(&message.text()).is_none() {
                seen.wrong
                    .push(format!("I4: {} is taken back, and was not queued", message.text()));
            }
        }
        taken
    }

    pub(crate) fn reset(&self) {
        self.0.lock().unwrap().queued = Default::default();
    }

    /// What is wrong after a command, which ended so.
    pub(crate) fn check(&self, agent: &Agent, queues: &[Vec<String>; 2], end: &str) -> Result<(), String> {
        let seen = self.0.lock().unwrap();
        if let Some(wrong) = seen.wrong.first() {
            return Err(wrong.clone());
        }
        if let Err(wrong) = pairing(agent.transcript().iter().map(|message| &**message)) {
            return Err(format!("I3: {wrong}, in the transcript"));
        }
        let complete = matches!(end, "completed" | "terminated");
        for (mine, theirs) in seen.queued.iter().zip(queues) {
            if !mine.iter().map(|(text, _)| text).eq(theirs) {
                return Err(format!("I4: queued are {theirs:?}, and not {mine:?}"));
            }
            if let Some((text, _)) = mine.iter().find(|(_, owed)| *owed && complete) {
                return Err(format!("I4: the run promised to look at {text}, and did not"));
            }
        }
        if let Some((_, was)) = seen.ended.iter().find(|(message, was)| **message != *was) {
            return Err(format!("I7: it was changed when it was final: {was:?}"));
        }
        Ok(())
    }
}

impl Seen {
    fn hear(&mut self, event: &AgentEvent, cx: &ListenerContext<'_>) {
        self.transcript = cx.transcript();
        match event {
            AgentEvent::TurnStart => {
                self.turns += 1;
                self.reason = self.turns == 1 || self.results > self.enough;
                self.enough = 0;
            }
            AgentEvent::MessageStart { message, .. } => {
                let text = message.text();
                let place = |queue: &Vec<(String, bool)>| queue.iter().position(|(queued, _)| *queued == text);
                match self.queued.iter().find_map(place) {
                    Some(0) => self.not_aborted(|| format!("{text} is delivered")),
                    Some(_) => self.wrong.push(format!("I4: {text} overtakes another")),
                    None => {}
                }
            }
            AgentEvent::MessageEnd { message } => {
                self.ended.push((Arc::clone(message), (**message).clone()));
                let text = message.text();
                if self.leaves(&text).is_some() {
                    self.reason = true;
                    self.delivered.push(text);
                } else if self.delivered.contains(&text) && matches!(**message, Message::User(_)) {
                    self.wrong.push(format!("I4: {text} is delivered again"));
                }
            }
            AgentEvent::TurnEnd { tool_results, .. } => self.results = tool_results.len(),
            AgentEvent::ToolExecutionEnd { result, .. } => {
                self.enough += usize::from(result.terminate == Some(true));
            }
            _ => {}
        }
    }

    fn not_aborted(&mut self, what: impl FnOnce() -> String) {
        if self.aborted {
            self.wrong.push(format!("I6: {} after an abort", what()));
        }
    }

    /// Takes a message off its queue.
    fn leaves(&mut self, text: &str) -> Option<()> {
        let place = |queue: &mut Vec<(String, bool)>| {
            let place = queue.iter().position(|(queued, _)| queued == text)?;
            queue.remove(place);
            Some(())
        };
        self.queued.iter_mut().find_map(place)
    }
}
