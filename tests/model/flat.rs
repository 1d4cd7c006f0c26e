//! The loop as plain recursive code over data, to be read beside §2 of the contract (`src/docs/contract.md`).
//!
//! No phases as types, no futures, no events waiting to be told: whatever happens, happens at once, and whatever can
//! happen outside happens in [`step`](crate::outside). That the crate's machine, executor and queues tell the same is what the
//! property checks.

use turnstate::{AssistantEvent, DoneReason, ErrorReason};

use crate::flat_message::{Answer, Said, list};
use crate::outside::Seat;
use crate::script::{FALLBACK, Hook, Script, Start, Trouble, spell};

/// The world as the model sees it.
pub(crate) struct Flat<'a> {
    pub(crate) script: &'a Script,
    /// Everything told, in order, each with what is compared of it.
    pub(crate) told: Vec<String>,
    pub(crate) requests: Vec<String>,
    pub(crate) transcript: Vec<Said>,
    /// Steering messages, then follow-ups.
    pub(crate) queues: [Vec<Queued>; 2],
    pub(crate) all: [bool; 2],
    pub(crate) sequential: bool,
    pub(crate) queued_so_far: usize,
    pub(crate) asked: [usize; 5],
    pub(crate) answered: usize,
    pub(crate) picked: usize,
    pub(crate) run: Run,
    /// What was seen of what seldom happens.
    pub(crate) rare: Vec<&'static str>,
}

/// A message in a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Queued {
    pub(crate) text: String,
    /// A run has taken it, and has not told it yet.
    pub(crate) leased: bool,
}

/// What lasts as long as a run.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Run {
    pub(crate) steps: usize,
    pub(crate) ops: Vec<(usize, crate::script::Op)>,
    pub(crate) aborted: bool,
    /// Whether it will still look at the queues.
    pub(crate) looks: bool,
    pub(crate) dropped: bool,
    pub(crate) stops: bool,
    pub(crate) turn_open: bool,
    pub(crate) added: Vec<Said>,
    /// Who waits for the outside, in the order they came.
    pub(crate) waiting: Vec<Seat>,
    /// Running tools that may go on, in the order they were let.
    pub(crate) ready: Vec<usize>,
    /// As of the turn's request.
    pub(crate) turn_sequential: bool,
}

/// How a run ended.
pub(crate) type End = &'static str;

/// The run was aborted while something was awaited.
pub(crate) struct Aborted;

/// What ends a turn's preparation early.
enum NoRequest {
    Aborted,
    Failed(String),
}

impl<'a> Flat<'a> {
    pub(crate) fn new(script: &'a Script) -> Self {
        Self {
            script,
            told: Vec::new(),
            requests: Vec::new(),
            transcript: Vec::new(),
            queues: Default::default(),
            all: [script.setup.steering_all, script.setup.follow_up_all],
            sequential: script.setup.sequential,
            queued_so_far: 0,
            asked: [0; 5],
            answered: 0,
            picked: 0,
            run: Run::default(),
            rare: Vec::new(),
        }
    }

    /// A whole run; nothing if it is refused. §2, and §4.7 for how it begins.
    pub(crate) fn run(&mut self, start: Start) -> Result<Option<End>, &'static str> {
        if let Start::Reset = start {
            self.transcript.clear();
            self.queues = Default::default();
            return Ok(None);
        }
        let mut prompts = Vec::new();
        let mut transcript = self.transcript.clone();
        let mut taken = None;
        match start {
            Start::Prompt(0) => return Err("EmptyPrompt"),
            Start::Prompt(count) => prompts = (0..count).map(|n| Said::User(format!("prompt {n}"))).collect(),
            Start::Retry if !transcript.last().is_some_and(Said::is_failure) => return Err("NothingToRetry"),
            Start::Retry => drop(transcript.pop()),
            Start::Continue | Start::Reset => {}
        }
        if let Start::Continue | Start::Retry = start {
            match transcript.last() {
                None => return Err("EmptyTranscript"),
                Some(Said::Assistant(_)) => {
                    let Some(kind) = (0..2).find(|kind| !self.queues[*kind].is_empty()) else {
                        return Err("NothingToContinue");
                    };
                    taken = Some(kind);
                }
                Some(_) => {}
            }
        }
        let taken = taken.map(|kind| (kind, self.lease(kind)));
        self.run.looks = true;
        self.outside();
        if self.run.dropped {
            self.rare("drop before the first poll");
            self.give_back();
            return Ok(None);
        }
        if let Start::Retry = start {
            self.rare("retry");
        }
        self.transcript = transcript;
        let end = self.turns(prompts, taken);
        // Nobody is left to be told how it ended.
        Ok(Some(if self.run.dropped { "dropped" } else { end }))
    }

    /// §2, steps 1 to 7.
    fn turns(&mut self, prompts: Vec<Said>, taken: Option<(usize, Vec<String>)>) -> End {
        self.tell("agent_start".into());
        self.begin_turn();
        for prompt in prompts {
            self.tell_message(&prompt);
        }
        let mut steered = false;
        if let Some((kind, messages)) = taken {
            self.inject(&messages);
            steered = kind == 0;
        }
        if self.run.aborted {
            return self.close_aborted();
        }
        if !steered {
            let messages = self.lease(0);
            self.inject(&messages);
        }
        for turn in 1.. {
            let (answer, results, terminated) = match self.turn() {
                Ok(turn) => turn,
                Err(end) => return end,
            };
            self.end_turn(&answer, &results);
            if self.run.aborted {
                return self.close_aborted();
            }
            match self.stops() {
                Ok(true) => return self.end("stopped"),
                Ok(false) => {}
                Err(NoRequest::Aborted) => return self.close_aborted(),
                Err(NoRequest::Failed(error)) => return self.fail(error),
            }
            let to_answer = !results.is_empty() && !terminated;
            if self.script.setup.max_turns == Some(turn) {
                let queued = self.queues.iter().any(|queue| !queue.is_empty());
                return self.end(if to_answer || queued {
                    "limit"
                } else {
                    complete(terminated)
                });
            }
            let mut messages = self.lease(0);
            if messages.is_empty() && !to_answer {
                messages = self.lease(1);
                if messages.is_empty() {
                    return self.end(complete(terminated));
                }
                self.rare("follow-up");
            }
            self.begin_turn();
            self.inject(&messages);
        }
        unreachable!("turns go on until one returns")
    }

    /// §2, steps 3 to 5: the answer and the results of its calls, or how the run ended.
    fn turn(&mut self) -> Result<(Said, Vec<Said>, bool), End> {
        if let Err(stopped) = self.request() {
            return Err(match stopped {
                NoRequest::Aborted => self.close_aborted(),
                NoRequest::Failed(error) => self.fail(error),
            });
        }
        let answer = self.stream();
        let (stop, calls) = (answer.stop, answer.calls());
        let answer = Said::Assistant(answer);
        if let "error" | "aborted" = stop {
            self.end_turn(&answer, &[]);
            return Err(self.end(if stop == "error" { "failed" } else { "aborted" }));
        }
        let (results, terminated) = if calls.is_empty() {
            (Vec::new(), false)
        } else if stop == "length" {
            self.rare("calls cut off by the limit");
            (self.refuse_truncated(&calls), false)
        } else {
            self.execute(&calls)
        };
        Ok((answer, results, terminated))
    }

    fn begin_turn(&mut self) {
        self.run.turn_open = true;
        self.tell("turn_start".into());
    }

    fn end_turn(&mut self, answer: &Said, results: &[Said]) {
        self.run.turn_open = false;
        self.tell(format!("turn_end {answer}: {}", list(results)));
    }

    /// What came from a queue enters the transcript; after an abort, no more of it does (I4, I6).
    fn inject(&mut self, messages: &[String]) {
        for (place, text) in messages.iter().enumerate() {
            if self.run.aborted {
                self.rare(if place > 0 {
                    "lease returned in part"
                } else {
                    "lease returned"
                });
                return;
            }
            self.tell_message(&Said::User(text.clone()));
        }
    }

    /// Asks a hook of the run or the turn; it waits once, and then does what the script says.
    fn ask(&mut self, hook: Hook) -> Result<bool, NoRequest> {
        if self.run.aborted {
            return Err(NoRequest::Aborted);
        }
        if !self.script.setup.hooks {
            return Ok(false);
        }
        let time = self.asked[hook as usize];
        self.asked[hook as usize] += 1;
        self.wait(Some(Seat::Foreign)).map_err(|Aborted| NoRequest::Aborted)?;
        let trouble = self
            .script
            .setup
            .trouble
            .filter(|(which, nth, _)| (*which, *nth) == (hook, time));
        match trouble.map(|(_, _, trouble)| trouble) {
            None => Ok(false),
            Some(Trouble::SaysYes) => Ok(hook == Hook::Stop),
            Some(Trouble::Fails) => Err(NoRequest::Failed("the hook failed".into())),
            Some(Trouble::Panics) => Err(NoRequest::Failed("panicked: planted".into())),
            Some(Trouble::NeverEnds) => {
                self.rare("a hook that never ends");
                self.wait(None).map_err(|Aborted| NoRequest::Aborted)?;
                Ok(false)
            }
        }
    }

    fn stops(&mut self) -> Result<bool, NoRequest> {
        if self.run.stops {
            self.rare("stop after this turn");
            return Ok(true);
        }
        Ok(self.ask(Hook::Stop)? || self.run.stops)
    }

    /// §2, step 3, as far as the model being called; what it is sent is §4.8.
    fn request(&mut self) -> Result<(), NoRequest> {
        for hook in [Hook::Prepare, Hook::Transform, Hook::Convert, Hook::ApiKey] {
            if hook == Hook::Prepare && !self.run.aborted {
                // Settings take effect when a request is prepared.
                self.run.turn_sequential = self.sequential;
            }
            self.ask(hook)?;
        }
        let mut sent = Vec::new();
        let mut failed = false;
        for message in &self.transcript {
            match message {
                Said::Assistant(_) => failed = message.is_failure(),
                Said::User(_) => failed = false,
                Said::Result(_) => {}
            }
            if !failed {
                sent.push(message.clone());
            }
        }
        self.requests.push(list(&sent));
        Ok(())
    }

    /// §4.3: the answer, announced, streamed and fixed.
    fn stream(&mut self) -> Answer {
        let items = self
            .script
            .answers
            .get(self.answered)
            .map_or(&FALLBACK[..], Vec::as_slice);
        self.answered += 1;
        let mut events = spell(items).into_iter();
        let mut answer = Answer {
            stop: "stop",
            ..Answer::default()
        };
        let mut started = false;
        let (stop, error) = loop {
            if self.wait(Some(Seat::Foreign)).is_err() {
                self.rare("abort while streaming");
                break ("aborted", Some("Request was aborted".into()));
            }
            let event = match events.next() {
                None => {
                    break (
                        "error",
                        Some("the model's stream ended before its answer was complete".into()),
                    );
                }
                Some(Err(true)) => break ("error", Some("model stream panicked: planted".into())),
                Some(Err(false)) => {
                    self.rare("a silent model");
                    let _ = self.wait(None);
                    break ("aborted", Some("Request was aborted".into()));
                }
                Some(Ok(event)) => event,
            };
            match &event {
                AssistantEvent::Done { reason, .. } => {
                    answer.complete();
                    break (
                        match reason {
                            DoneReason::Stop => "stop",
                            DoneReason::Length => "length",
                            DoneReason::ToolUse => "toolUse",
                        },
                        None,
                    );
                }
                AssistantEvent::Error {
                    reason, error_message, ..
                } => {
                    let stop = if *reason == ErrorReason::Error {
                        "error"
                    } else {
                        "aborted"
                    };
                    break (stop, error_message.clone());
                }
                AssistantEvent::Start { .. } if started => self.rare("a second start"),
                AssistantEvent::Start { .. } => {
                    started = true;
                    if !answer.blocks.is_empty() {
                        self.rare("a late start");
                    }
                    self.tell(format!("message_start {}", Said::Assistant(answer.clone())));
                }
                event => match answer.fold(event) {
                    Err(error) => {
                        self.rare("a delta of no block");
                        break ("error", Some(error));
                    }
                    Ok(()) if started => {
                        self.tell(format!(
                            "message_update {} {}",
                            event.kind(),
                            Said::Assistant(answer.clone())
                        ));
                    }
                    Ok(()) => {}
                },
            }
        };
        if let "error" | "aborted" = stop {
            self.run.looks = false;
        }
        answer.stop = stop;
        answer.error = error;
        let message = Said::Assistant(answer.clone());
        if started {
            self.tell_end(&message);
        } else {
            self.tell_message(&message);
        }
        answer
    }

    /// §4.7: a hook failed.
    fn fail(&mut self, error: String) -> End {
        self.run.looks = false;
        self.close("error", error);
        self.end("failed")
    }

    /// §4.6: the run was aborted where nothing streams and no tool runs.
    pub(crate) fn close_aborted(&mut self) -> End {
        let unanswered = matches!(self.run.added.last(), Some(Said::Result(_)));
        if self.run.turn_open || unanswered {
            if !self.run.turn_open {
                self.rare("abort behind a batch");
            }
            self.close("aborted", "Request was aborted".into());
        } else {
            self.rare("abort behind the last answer");
        }
        self.end("aborted")
    }

    fn close(&mut self, stop: &'static str, error: String) {
        if !self.run.turn_open {
            self.begin_turn();
        }
        let answer = Said::Assistant(Answer {
            stop,
            error: Some(error),
            local: true,
            ..Answer::default()
        });
        self.tell_message(&answer);
        self.end_turn(&answer, &[]);
    }

    fn end(&mut self, end: End) -> End {
        self.run.looks = false;
        self.give_back();
        self.tell(format!("agent_end: {}", list(&self.run.added)));
        end
    }

    pub(crate) fn tell_message(&mut self, message: &Said) {
        self.tell(format!("message_start {message}"));
        self.tell_end(message);
    }

    fn tell_end(&mut self, message: &Said) {
        if let Said::User(text) = message {
            self.commit(text);
        }
        self.transcript.push(message.clone());
        self.run.added.push(message.clone());
        self.tell(format!("message_end {message}"));
    }
}

fn complete(terminated: bool) -> End {
    if terminated { "terminated" } else { "completed" }
}
