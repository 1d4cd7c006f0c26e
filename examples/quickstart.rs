//! A conversation with a scripted model, told live: `cargo run --example quickstart`.
//!
//! No key, no network. On a terminal it takes its time and has colours; piped, it is plain and does not wait.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use serde_json::json;
use turnstate::schemars::{self, JsonSchema};
use turnstate::{
    Agent, AgentEvent, AssistantEvent, BoxError, Content, Decision, Message, Response, ScriptedModel, ToolContext,
    ToolResult, Usage, tool,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let agent = Agent::builder("scripted-1", script())
        .system_prompt("You plan commutes. Be brief.")
        .tool(tool("weather", "Tomorrow's weather in a city", weather))
        .tool(tool("trains", "Tomorrow's trains to a station", trains))
        .tool(tool("book", "Buys a ticket", book))
        .before_tool_call(async |call| match call.name() {
            "book" => Decision::block("it costs money: ask the user first"),
            _ => Decision::Allow,
        })
        .build();

    let mut printer = Printer::new(io::stdout());
    let mut run = agent.prompt("Bicycle or train to work tomorrow?")?;
    // Waits until the run would otherwise end.
    agent.follow_up("Thanks. And the way home?");
    let mut steered = false;
    while let Some(event) = run.next().await {
        printer.event(&event)?;
        if let AgentEvent::ToolExecutionUpdate { .. } = event
            && !steered
        {
            // The tools run on; the model reads this beside their results.
            agent.steer("I have to be there by 08:30.");
            steered = true;
        }
    }
    // Had the run failed, this would say why.
    run.await.into_result()?;
    Ok(())
}

/// Arguments of `weather`. The model is sent their JSON Schema, in which this comment is the description.
#[derive(serde::Deserialize, JsonSchema)]
struct Place {
    /// Name of the city, in English.
    city: String,
}

async fn weather(place: Place, cx: ToolContext) -> Result<String, BoxError> {
    for station in ["the airport", "the harbour", "the hill"] {
        cx.progress(format!("asking {station}"));
        pause(400).await;
    }
    match place.city.as_str() {
        "Oslo" => Ok("4 °C, rain until noon".to_owned()),
        city => Err(format!("there is no station in {city}").into()),
    }
}

/// Arguments of `trains`.
#[derive(serde::Deserialize, JsonSchema)]
struct Trip {
    /// Name of the station.
    to: String,
}

async fn trains(trip: Trip, cx: ToolContext) -> String {
    cx.progress(format!("reading the timetable to {}", trip.to));
    pause(300).await;
    "07:42, there at 08:03; 08:12, there at 08:33".to_owned()
}

/// Arguments of `book`.
#[derive(serde::Deserialize, JsonSchema)]
struct Ticket {
    /// Departure, such as `07:42`.
    train: String,
}

async fn book(ticket: Ticket, _cx: ToolContext) -> String {
    format!("booked the {}", ticket.train)
}

/// What the model says: one response per request.
fn script() -> ScriptedModel {
    ScriptedModel::new()
        .pace(|| pause(40))
        .reply(
            Response::new()
                .thinking("It depends on the weather and on the trains. I can ask for both at once.")
                .text("I will look at the weather and the timetable.")
                .call("weather", json!({"city": "Oslo"}))
                .call("trains", json!({"to": "Lysaker"}))
                .usage(usage(212, 58)),
        )
        .reply(
            Response::new()
                .text("It rains all morning, so the train: the 07:42 is there at 08:03. I will book it.")
                .call("book", json!({"train": "07:42"}))
                .usage(usage(341, 47)),
        )
        .reply(
            Response::new()
                .text("Take the 07:42. I may not buy the ticket without your word: shall I?")
                .usage(usage(402, 24)),
        )
        .reply(
            Response::new()
                .text("The rain is over by noon, and trains go every half hour. No plan needed.")
                .usage(usage(447, 22)),
        )
}

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input,
        output,
        total_tokens: input + output,
        ..Usage::default()
    }
}

/// Time passes only while somebody watches.
async fn pause(millis: u64) {
    if io::stdout().is_terminal() {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// Folds the events of a run into the lines of a transcript.
struct Printer {
    out: Stdout,
    colours: bool,
    /// Whose line is open, while it is streamed.
    speaker: Option<&'static str>,
    turns: u32,
}

/// As terminals number them.
#[derive(Clone, Copy)]
enum Colour {
    Plain = 0,
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl Printer {
    fn new(out: Stdout) -> Self {
        Self {
            colours: out.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            out,
            speaker: None,
            turns: 0,
        }
    }

    fn event(&mut self, event: &AgentEvent) -> io::Result<()> {
        match event {
            AgentEvent::MessageStart { message, .. } => match &**message {
                Message::User(said) => self.line("user", Colour::Cyan, &said.content.text()),
                // The model's text comes with its deltas, a tool's result with the end of its execution.
                Message::Assistant(_) | Message::ToolResult(_) => Ok(()),
            },
            AgentEvent::MessageUpdate { event } => match event {
                AssistantEvent::ThinkingDelta { delta, .. } => self.stream("thinking", Colour::Dim, delta),
                AssistantEvent::TextDelta { delta, .. } => self.stream("model", Colour::Plain, delta),
                _ => Ok(()),
            },
            AgentEvent::MessageEnd { .. } => self.end_line(),
            AgentEvent::ToolExecutionStart { call, .. } => {
                let arguments = serde_json::to_string(&call.arguments)?;
                self.line(&call.name, Colour::Plain, &format!("← {arguments}"))
            }
            AgentEvent::ToolExecutionUpdate {
                call, partial_result, ..
            } => self.line(&call.name, Colour::Dim, &format!("… {}", text_of(partial_result))),
            AgentEvent::ToolExecutionEnd { call, result, .. } => {
                let (mark, colour) = if result.is_error {
                    ('✗', Colour::Red)
                } else {
                    ('→', Colour::Green)
                };
                self.line(&call.name, colour, &format!("{mark} {}", text_of(result)))
            }
            AgentEvent::TurnEnd { .. } => {
                self.turns += 1;
                Ok(())
            }
            AgentEvent::AgentEnd { messages } => {
                let mut usage = Usage::default();
                for answer in messages.iter().filter_map(|message| message.as_assistant()) {
                    usage += &answer.usage;
                }
                let Usage { input, output, .. } = usage;
                let text = format!("{} turns, {input} tokens in, {output} out", self.turns);
                self.line("usage", Colour::Dim, &text)
            }
            _ => Ok(()),
        }
    }

    /// Appends to what `speaker` says.
    fn stream(&mut self, speaker: &'static str, colour: Colour, delta: &str) -> io::Result<()> {
        if self.speaker != Some(speaker) {
            self.begin_line(speaker)?;
            self.speaker = Some(speaker);
        }
        self.paint(colour, delta)?;
        self.out.flush()
    }

    fn line(&mut self, name: &str, colour: Colour, text: &str) -> io::Result<()> {
        self.begin_line(name)?;
        self.paint(colour, text)?;
        writeln!(self.out)
    }

    fn begin_line(&mut self, name: &str) -> io::Result<()> {
        self.end_line()?;
        self.paint(Colour::Bold, &format!("{name:<9}"))
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.speaker.take().is_some() {
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn paint(&mut self, colour: Colour, text: &str) -> io::Result<()> {
        if self.colours {
            write!(self.out, "\x1b[{}m{text}\x1b[0m", colour as u8)
        } else {
            write!(self.out, "{text}")
        }
    }
}

fn text_of(result: &ToolResult) -> String {
    let texts: Vec<_> = result.content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}
