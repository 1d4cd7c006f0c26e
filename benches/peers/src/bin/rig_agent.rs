//! rig-agent, through `agent.prompt(..).stream()`.
//!
//! A model of this crate is a wire format over a transport. The format is the crate's own for tests, whose frames are its
//! events; the transport makes each frame when it is asked for it: one per word or call, and the final response. As many
//! tools run at once as a turn has calls.

use std::convert::Infallible;

use futures::{StreamExt, stream};
use peers::{Clock, NOOP, Ran, Reply, Role, Script, WORD, arguments, measure, schema};
use rig_agent::AgentBuilder;
use rig_agent::agent::MultiTurnStreamItem;
use rig_core::completion::{CompletionRequest, Message, Usage};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::test_utils::{MockFrame, MockScript, MockStreamEvent};
use rig_core::tool::{Tool, ToolContext};
use serde_json::Value;

#[derive(Clone)]
struct Wire(Script);

impl Transport<MockScript> for Wire {
    fn send(&self, _: CompletionRequest, _: Exchange) -> Opening<MockFrame> {
        let frame = |event| Ok(MockFrame::Event(event));
        let end = stream::once(async move { frame(MockStreamEvent::final_response(Usage::default())) });
        Opening::ready(match self.0.reply() {
            Reply::Words(n) => {
                let words = (0..n).map(move |_| frame(MockStreamEvent::Text(WORD.to_owned())));
                Opened::new(stream::iter(words).chain(end))
            }
            Reply::Calls(numbers) => {
                let call = |number: usize| MockStreamEvent::tool_call(number.to_string(), NOOP, arguments());
                Opened::new(stream::iter(numbers.map(move |number| frame(call(number)))).chain(end))
            }
        })
    }
}

struct Noop(Script);

#[derive(serde::Deserialize)]
struct Arguments {
    #[expect(dead_code, reason = "the tool does nothing with it")]
    value: String,
}

impl Tool for Noop {
    const NAME: &'static str = NOOP;
    type Args = Arguments;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        String::new()
    }

    fn parameters(&self) -> Value {
        schema()
    }

    async fn call(&self, _: &mut ToolContext, _: Arguments) -> Result<String, Infallible> {
        self.0.called();
        Ok("ok".to_owned())
    }
}

async fn run(script: Script) -> Ran {
    let model = Model::new(MockScript::default(), Wire(script.clone())).erase();
    let agent = AgentBuilder::new(model).tool(Noop(script.clone())).build();
    let history = script.backlog().map(|(role, text)| match role {
        Role::User => Message::user(text),
        Role::Assistant => Message::assistant(text),
    });
    let history: Vec<_> = history.collect();
    let prompt = agent.prompt("hi").history(history).max_turns(script.max_turns()).tool_concurrency(script.width());
    let (mut events, mut last) = (0, None);
    let clock = Clock::start();
    let mut stream = prompt.stream();
    while let Some(item) = stream.next().await {
        events += 1;
        if let MultiTurnStreamItem::FinalResponse(response) = item.expect("no failure") {
            last = Some(response);
        }
    }
    let elapsed = clock.stop();
    let answer = last.map_or(0, |response| response.output().len());
    Ran { elapsed, events, answer }
}

fn main() {
    measure("rig-agent", run);
}
