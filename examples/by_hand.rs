//! The machine driven by hand: no async, no runtime, no model. Meant to be read from top to bottom.
//!
//! A run is a value that is always in exactly one phase. Each phase is a type of its own, tells its events by
//! `poll_event`, and is left by the one method that takes what it waits for. So there is no way to ask the wrong phase,
//! nor to use one twice, and the compiler leads through the run.
//!
//! ```text
//! cargo run --example by_hand
//! ```

use std::error::Error;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use turnstate::machine::{
    AfterAnswer, AfterFollowUp, AfterSteering, AfterTurn, AwaitingSteering, Ended, ExecutingTools, Limits, Requesting,
    RunEnd, ToolAction, TurnEnd,
};
use turnstate::schema::ArgumentsSchema;
use turnstate::{AgentEvent, AgentState, AssistantEvent, DoneReason, Message, Model, ToolResult, Transcript};

fn main() -> Result<(), Box<dyn Error>> {
    let mut app = App::new();

    // A run begins with a transcript and the messages of a prompt.
    let prompt = vec![Message::user("Do I need an umbrella in Oslo?").into()];
    let mut steering = AwaitingSteering::prompt(Transcript::new(), prompt, Limits::default());
    let mut ended = loop {
        // What the user said meanwhile enters before the next request.
        app.hear_all(|| steering.poll_event());
        let request = match steering.handle_steering(app.steering()) {
            AfterSteering::Requesting(request) => request,
            // Nothing was said and nothing waits for an answer: the run would end, unless there are follow-ups.
            AfterSteering::FollowUp(follow_up) => match follow_up.handle_messages(Vec::new()) {
                AfterFollowUp::Requesting(request) => request,
                AfterFollowUp::Ended(ended) => break ended,
            },
        };
        let mut turn = match app.answer(request)? {
            AfterAnswer::ExecutingTools(batch) => app.run_tools(batch)?,
            AfterAnswer::TurnEnd(turn) => turn,
            AfterAnswer::Ended(ended) => break ended,
        };
        app.hear_all(|| turn.poll_event());
        steering = match next_turn(turn) {
            ControlFlow::Continue(steering) => steering,
            ControlFlow::Break(ended) => break ended,
        };
    };
    app.hear_all(|| ended.poll_event());

    assert_eq!(ended.end(), RunEnd::Completed);
    let (transcript, added) = ended.into_parts();
    let roles: Vec<_> = added.iter().map(|message| message.role()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "user", "assistant"]);
    assert_eq!(
        transcript.last().map(|last| last.text()).as_deref(),
        Some("Yes: rain, 4 °C.")
    );
    // Whoever folds the events has the same state as the machine (I5).
    assert_eq!(app.state.transcript(), &transcript);
    Ok(())
}

/// Goes on after a turn: a stop hook would be asked here.
fn next_turn(turn: TurnEnd<Message>) -> ControlFlow<Ended<Message>, AwaitingSteering<Message>> {
    println!("  -- a turn with {} tool results", turn.tool_results().len());
    match turn.handle_stop(false) {
        AfterTurn::AwaitingSteering(steering) => ControlFlow::Continue(steering),
        AfterTurn::AtLimit(limit) => ControlFlow::Break(limit.handle_queued(false)),
        AfterTurn::Ended(ended) => ControlFlow::Break(ended),
    }
}

/// Everything around the machine.
struct App {
    /// What the model will answer, request by request. A real one would be asked.
    script: std::vec::IntoIter<Vec<AssistantEvent>>,
    model: Model,
    /// The arguments that the tool `weather` takes.
    weather: ArgumentsSchema,
    /// Built from the events alone.
    state: AgentState,
}

impl App {
    fn new() -> Self {
        let call = vec![
            AssistantEvent::start(),
            AssistantEvent::tool_call_start(0, "call-1", "weather"),
            AssistantEvent::tool_call_delta(0, r#"{"city": "#),
            AssistantEvent::tool_call_delta(0, r#""Oslo"}"#),
            AssistantEvent::done(DoneReason::ToolUse),
        ];
        let text = vec![
            AssistantEvent::start(),
            AssistantEvent::TextStart { content_index: 0 },
            AssistantEvent::text_delta(0, "Yes: "),
            AssistantEvent::text_delta(0, "rain, 4 °C."),
            AssistantEvent::done(DoneReason::Stop),
        ];
        Self {
            script: vec![call, text].into_iter(),
            model: Model::new("scripted-1"),
            weather: ArgumentsSchema::compile(&json!({
                "type": "object",
                "properties": { "city": { "type": "string" } },
                "required": ["city"],
            })),
            state: AgentState::default(),
        }
    }

    /// The user speaks up once, while the tool runs.
    fn steering(&mut self) -> Vec<std::sync::Arc<Message>> {
        let tool_ran = self
            .state
            .transcript()
            .last()
            .is_some_and(|last| last.as_tool_result().is_some());
        if tool_ran {
            vec![Message::user("One sentence.").into()]
        } else {
            Vec::new()
        }
    }

    /// Sends the request, and takes in the answer event by event.
    fn answer(&mut self, mut request: Requesting<Message>) -> Result<AfterAnswer<Message>, Box<dyn Error>> {
        self.hear_all(|| request.poll_event());
        println!("  -> a request of {} messages", request.transcript().request().len());
        let mut streaming = request.stream(&self.model, 0);
        for event in self.script.next().ok_or("the script is too short")? {
            match streaming.handle(event) {
                ControlFlow::Continue(event) => event.iter().for_each(|event| self.hear(event)),
                // Only an answer that ended gives what `finish` wants.
                ControlFlow::Break(end) => return Ok(streaming.finish(end, 0)),
            }
        }
        Err("the model's answer has no end".into())
    }

    /// Checks and runs the calls. The batch says what is next, and so keeps the order.
    fn run_tools(&mut self, mut batch: ExecutingTools<Message>) -> Result<TurnEnd<Message>, Box<dyn Error>> {
        loop {
            match batch.poll_action() {
                ToolAction::Tell => self.hear_all(|| batch.poll_event()),
                ToolAction::Preflight(call) => {
                    let original = &call.call().arguments;
                    match self.weather.check("weather", original, Value::Object(original.clone())) {
                        Ok(arguments) => batch.allow(call, arguments),
                        Err(error) => batch.reject(call, ToolResult::error(error.to_string()), 0),
                    }
                }
                ToolAction::Execute(call) => {
                    let (running, arguments) = call.start();
                    let result = format!("{}: 4 °C, rain", arguments.as_value()["city"]);
                    batch.complete(running, result.into(), 0);
                }
                // Here a call is run as soon as it may, so there is nothing to wait for.
                ToolAction::Wait => return Err("no call is under way".into()),
                ToolAction::Finish => return Ok(batch.finish(0)),
            }
        }
    }

    fn hear_all(&mut self, mut next: impl FnMut() -> Option<AgentEvent>) {
        while let Some(event) = next() {
            self.hear(&event);
        }
    }

    /// Takes note of an event.
    fn hear(&mut self, event: &AgentEvent) {
        self.state.apply(event);
        match event {
            AgentEvent::MessageEnd { message } => println!("{}: {}", message.role(), message.text()),
            AgentEvent::MessageUpdate { event } => println!("  .. {}", event.kind()),
            AgentEvent::ToolExecutionStart { call, .. } => println!("  {} {}", call.name, json!(call.arguments)),
            event => println!("{}", event.kind()),
        }
    }
}
