//! The model's tool calls (§4.4), and what an abort does to them (§4.6).

use crate::flat::Flat;
use crate::flat_message::{Call, Said};
use crate::outside::Seat;
use crate::script::{IDS, TOOLS};

/// A result: its text, whether it is an error, and whether it says that it is enough.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    text: String,
    error: bool,
    enough: bool,
}

/// The argument `n`, if the call has it.
type Argument = Option<i64>;

fn ok(text: impl Into<String>) -> Outcome {
    Outcome {
        text: text.into(),
        error: false,
        enough: false,
    }
}

fn error(text: impl Into<String>) -> Outcome {
    Outcome {
        error: true,
        ..ok(text)
    }
}

/// What a tool does, step by step.
#[derive(Debug, Clone)]
enum Do {
    Begin,
    /// Aborts the run itself.
    Abort,
    Wait,
    Report,
    /// Waits until the run is aborted.
    Listen,
    Never,
    End(Outcome),
    /// The hook behind it waits, and then replaces the result or not.
    Hook(Outcome),
}

/// A batch of calls.
struct Batch<'a> {
    calls: &'a [Call],
    sequential: bool,
    /// How many were announced.
    announced: usize,
    answers: Vec<Option<Outcome>>,
    /// Of the calls that run, what is left to do.
    running: Vec<(usize, Vec<Do>)>,
    /// Reports that were not told yet.
    reports: Vec<(usize, String)>,
    /// What is to be told.
    news: Vec<News>,
    results: Vec<Said>,
}

enum News {
    Line(String),
    Message(Said),
}

impl Flat<'_> {
    /// The output limit cut the message: no call is run.
    pub(crate) fn refuse_truncated(&mut self, calls: &[Call]) -> Vec<Said> {
        let mut batch = Batch::new(calls, true);
        for index in 0..calls.len() {
            batch.announce(index);
            batch.answer(
                index,
                error(
                    "Tool call was not executed: the response hit the output token limit, so its arguments may be \
                     incomplete. Please call the tool again.",
                ),
            );
        }
        self.tell_news(&mut batch);
        batch.results
    }

    /// The results, in call order, and whether all say that it is enough.
    pub(crate) fn execute(&mut self, calls: &[Call]) -> (Vec<Said>, bool) {
        let sequential = self.run.turn_sequential || calls.iter().any(|call| call.name == "solo");
        let mut batch = Batch::new(calls, sequential);
        if sequential {
            for index in 0..calls.len() {
                if let Some(arguments) = self.check(&mut batch, index) {
                    self.run_calls(&mut batch, vec![(index, arguments)]);
                }
            }
        } else {
            let checked: Vec<_> = (0..calls.len())
                .filter_map(|index| Some((index, self.check(&mut batch, index)?)))
                .collect();
            self.run_calls(&mut batch, checked);
        }
        if self.run.aborted {
            self.rare(if self.run.dropped {
                "drop in tools"
            } else {
                "abort in tools"
            });
            self.abort_calls(&mut batch);
        }
        self.run.waiting.clear();
        self.run.ready.clear();
        let enough = |answer: &Option<Outcome>| answer.as_ref().is_some_and(|answer| answer.enough);
        let terminated = batch.answers.iter().all(enough);
        (batch.results, terminated)
    }

    /// Announces a call, and checks it: the argument `n` that it may run with, or it is answered.
    fn check(&mut self, batch: &mut Batch<'_>, index: usize) -> Option<Argument> {
        if self.run.aborted {
            return None;
        }
        batch.announce(index);
        self.tell_news(batch);
        if self.run.aborted {
            return None;
        }
        let call = &batch.calls[index];
        let n = serde_json::from_str::<serde_json::Value>(&call.arguments).ok()?["n"].as_i64();
        let checked = if call.name == "nobody" {
            Err(error("Tool nobody not found"))
        } else if call.unread {
            Err(error("unread arguments"))
        } else if self.script.setup.hooks {
            self.before_call(&call.id, n)
        } else {
            Ok(n)
        };
        match checked {
            Ok(n) => Some(n),
            Err(answer) => {
                batch.answer(index, answer);
                self.tell_news(batch);
                None
            }
        }
    }

    /// The hook before a call waits once, and then does what the call's id says.
    fn before_call(&mut self, id: &str, n: Argument) -> Result<Argument, Outcome> {
        let aborted = |_| error("Operation aborted");
        self.wait(Some(Seat::Foreign)).map_err(aborted)?;
        if let Some(id) = IDS.iter().find(|other| **other == id) {
            self.rare(id);
        }
        match id {
            "block" => Err(error("Tool execution was blocked")),
            "halt" => Err(Outcome {
                enough: true,
                ..error("halted")
            }),
            "rewrite" => Ok(Some(9)),
            "spoil" => Err(error("invalid")),
            "no" => Err(error("the hook failed")),
            "boom" => Err(error("panicked: planted")),
            "never" => {
                self.wait(None).map_err(aborted)?;
                Ok(n)
            }
            _ => Ok(n),
        }
    }

    /// Runs checked calls side by side until all are answered, or the run is aborted.
    fn run_calls(&mut self, batch: &mut Batch<'_>, checked: Vec<(usize, Argument)>) {
        let hooks = self.script.setup.hooks;
        let most = self.script.setup.max_concurrent.unwrap_or(usize::MAX);
        let mut checked = checked.into_iter();
        while !self.run.aborted {
            while batch.running.len() < most {
                let Some((index, n)) = checked.next() else { break };
                let call = &batch.calls[index];
                if let Some(name) = TOOLS.iter().find(|name| **name == call.name) {
                    self.rare(name);
                }
                batch.running.push((index, acts(&call.name, n)));
                self.run.ready.push(index);
            }
            if batch.running.is_empty() {
                return;
            }
            // All that may go on do, before anything of it is told.
            for index in std::mem::take(&mut self.run.ready) {
                if let Some(outcome) = self.go_on(batch, index, hooks) {
                    batch.tell_reports();
                    batch.answer(index, outcome);
                }
            }
            batch.tell_reports();
            if !batch.news.is_empty() {
                self.tell_news(batch);
                continue;
            }
            self.step();
            if self.run.aborted {
                self.rare("abort while tools run");
            } else if self.run.waiting.is_empty() {
                self.rare("a tool that never ends");
                self.abort();
            } else if let Seat::Tool(index) = self.pick() {
                self.run.ready.push(index);
            }
        }
    }

    /// What a running call does until it waits; its result, if that is its end.
    fn go_on(&mut self, batch: &mut Batch<'_>, index: usize, hooks: bool) -> Option<Outcome> {
        let id = &batch.calls[index].id;
        let place = batch.running.iter().position(|(other, _)| *other == index)?;
        loop {
            let acts = &mut batch.running[place].1;
            let act = if acts.is_empty() { Do::Never } else { acts.remove(0) };
            let outcome = match act {
                // Nothing begins after an abort (I6).
                Do::Begin if self.run.aborted => {
                    self.rare("a call that an abort keeps from its begin");
                    return Some(error("Operation aborted"));
                }
                Do::Abort => {
                    self.abort();
                    continue;
                }
                Do::Begin => {
                    self.told.push(format!("{} begins", batch.calls[index].name));
                    continue;
                }
                Do::Report => {
                    batch.reports.push((index, "so far".into()));
                    continue;
                }
                Do::Wait => {
                    self.run.waiting.push(Seat::Tool(index));
                    return None;
                }
                Do::Never => return None,
                Do::Listen if !self.run.aborted => {
                    batch.running[place].1.insert(0, Do::Listen);
                    return None;
                }
                Do::Listen => {
                    self.rare("a tool that gives up by itself");
                    continue;
                }
                Do::End(outcome) if hooks => {
                    // Once aborted, the hook is asked, but not waited for.
                    if self.run.aborted {
                        self.rare("a result that no hook saw");
                        return Some(error("Operation aborted"));
                    }
                    batch.running[place].1 = vec![Do::Hook(outcome)];
                    if id != "unpatched" {
                        self.run.waiting.push(Seat::Tool(index));
                    }
                    return None;
                }
                Do::End(outcome) => outcome,
                Do::Hook(_) if self.run.aborted => {
                    self.rare("abort in the hook behind a tool");
                    error("Operation aborted")
                }
                Do::Hook(outcome) => match id.as_str() {
                    "patch" => Outcome {
                        text: "patched".into(),
                        ..outcome
                    },
                    "no after" => error("the hook failed"),
                    "boom after" => error("after_tool_call panicked: planted"),
                    _ => outcome,
                },
            };
            return Some(outcome);
        }
    }

    /// §4.6: calls that do not run are answered; those that run are polled once more, and then answered, too.
    fn abort_calls(&mut self, batch: &mut Batch<'_>) {
        batch.answer_idle();
        if !self.run.dropped {
            let running: Vec<usize> = batch.running.iter().map(|(index, _)| *index).collect();
            let mut ended = Vec::new();
            for index in running {
                let free = !self.run.waiting.contains(&Seat::Tool(index));
                let outcome = match batch.next_act(index) {
                    // A hook that waits is not waited for.
                    Some(Do::Hook(_)) => self.go_on(batch, index, true),
                    _ if free => self.go_on(batch, index, self.script.setup.hooks),
                    _ => None,
                };
                ended.extend(outcome.map(|outcome| (index, outcome)));
            }
            batch.tell_reports();
            for (index, outcome) in ended {
                batch.answer(index, outcome);
                batch.answer_idle();
            }
            self.tell_news(batch);
        }
        for index in 0..batch.calls.len() {
            batch.answer_aborted(index);
        }
        self.tell_news(batch);
    }

    fn tell_news(&mut self, batch: &mut Batch<'_>) {
        for news in std::mem::take(&mut batch.news) {
            match news {
                News::Line(line) => self.tell(line),
                News::Message(message) => {
                    batch.results.push(message.clone());
                    self.tell_message(&message);
                }
            }
        }
    }
}

/// What the tools do.
fn acts(name: &str, n: Argument) -> Vec<Do> {
    let done = Do::End(ok(n.map_or_else(|| format!("{name} -"), |n| format!("{name} {n}"))));
    let acts = match name {
        "instant" => vec![done],
        "chatty" => vec![Do::Report, Do::Wait, Do::Report, Do::Report, Do::Wait, Do::Report, done],
        "fails" => vec![Do::Wait, Do::End(error("the tool failed"))],
        "panics" => vec![Do::Wait, Do::End(error("Tool panics panicked: planted"))],
        "enough" => vec![
            Do::Wait,
            Do::End(Outcome {
                enough: true,
                ..ok("enough")
            }),
        ],
        "deaf" => vec![Do::Report, Do::Never],
        "polite" => vec![Do::Listen, Do::End(ok("gave up"))],
        "quits" => vec![Do::Abort, done],
        "solo" => vec![Do::Wait, Do::Wait, done],
        // "slow" and "late"
        _ => vec![Do::Wait, done],
    };
    [Do::Begin].into_iter().chain(acts).collect()
}

impl<'a> Batch<'a> {
    fn new(calls: &'a [Call], sequential: bool) -> Self {
        Self {
            calls,
            sequential,
            announced: 0,
            answers: vec![None; calls.len()],
            running: Vec::new(),
            reports: Vec::new(),
            news: Vec::new(),
            results: Vec::new(),
        }
    }

    fn next_act(&self, index: usize) -> Option<&Do> {
        self.running.iter().find(|(other, _)| *other == index)?.1.first()
    }

    fn announce(&mut self, index: usize) {
        self.announced = index + 1;
        self.tell_of(index, "start", "");
    }

    fn tell_reports(&mut self) {
        for (index, text) in std::mem::take(&mut self.reports) {
            self.tell_of(index, "update", &text);
        }
    }

    fn tell_of(&mut self, index: usize, what: &str, text: &str) {
        let Call {
            id, name, arguments, ..
        } = &self.calls[index];
        let line = format!("tool_execution_{what} {index} {id} {name} {arguments} {text}");
        self.news.push(News::Line(line));
    }

    /// The end of a call is told at once; its message too in sequence, else in call order once all are answered.
    fn answer(&mut self, index: usize, outcome: Outcome) {
        self.running.retain(|(other, _)| *other != index);
        let error = if outcome.error { "error " } else { "" };
        let enough = if outcome.enough { " (enough)" } else { "" };
        self.tell_of(index, "end", &format!("{error}{}{enough}", outcome.text));
        self.answers[index] = Some(outcome);
        let messages = match (self.sequential, self.answers.iter().all(Option::is_some)) {
            (true, _) => index..index + 1,
            (false, true) => 0..self.calls.len(),
            (false, false) => 0..0,
        };
        for index in messages {
            if let (Call { id, name, .. }, Some(answer)) = (&self.calls[index], &self.answers[index]) {
                let error = if answer.error { "error " } else { "" };
                let message = format!("result of {id} {name}: {error}{}", answer.text);
                self.news.push(News::Message(Said::Result(message)));
            }
        }
    }

    /// In sequence, nothing may overtake the call that runs.
    fn answer_idle(&mut self) {
        for index in 0..self.calls.len() {
            match self.running.iter().any(|(other, _)| *other == index) {
                true if self.sequential => return,
                true => {}
                false => self.answer_aborted(index),
            }
        }
    }

    fn answer_aborted(&mut self, index: usize) {
        if self.answers[index].is_some() {
            return;
        }
        if index >= self.announced {
            self.announce(index);
        }
        self.answer(index, error("Operation aborted"));
    }
}
