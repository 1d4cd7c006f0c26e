//! Asks a real model, and prints its answer as it comes.
//!
//! ```console
//! $ ANTHROPIC_API_KEY=... cargo run -p turnstate-genai --example ask -- claude-sonnet-4-5 "What is 17 + 25?"
//! $ cargo run -p turnstate-genai --example ask -- qwen3:4b "What is 17 + 25?" http://127.0.0.1:8080/v1
//! ```

use std::io::Write as _;

use serde_json::{Value, json};
use turnstate::{Agent, AgentEvent, AssistantEvent, BoxError, Model, Retry, json_tool};
use turnstate_genai::GenaiModel;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(id), Some(prompt)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ask MODEL PROMPT [BASE_URL]".into());
    };
    let mut model = Model::new(id);
    model.base_url = arguments.next().unwrap_or_default();

    let number = json!({"type": "number"});
    let parameters = json!({
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
    });
    let add = json_tool("add", "Adds two numbers", parameters, async |arguments, _| {
        let number = |name: &str| {
            arguments
                .as_value()
                .get(name)
                .and_then(Value::as_f64)
                .ok_or_else(|| format!("{name} is not a number"))
        };
        Ok::<_, BoxError>(format!("{}", number("a")? + number("b")?))
    });
    let retry = Retry::tokio(GenaiModel::new()).on_retry(|retry| eprintln!("again after {:?}", retry.delay));
    let agent = Agent::builder(model, retry).tool(add).build();

    let mut run = agent.prompt(prompt)?;
    while let Some(event) = run.next().await {
        match event {
            AgentEvent::MessageUpdate {
                event: AssistantEvent::TextDelta { delta, .. },
            } => {
                print!("{delta}");
                std::io::stdout().flush()?;
            }
            AgentEvent::ToolExecutionStart { call, .. } => {
                println!("[{} {}]", call.name, Value::from(call.arguments.clone()));
            }
            _ => {}
        }
    }
    println!();
    run.await.into_result()?;
    Ok(())
}
