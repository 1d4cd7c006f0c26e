//! An agent whose model is behind a proxy. Start the example `proxy_server`, then in another terminal:
//!
//! ```text
//! cargo run --example proxy_chat --features proxy [PROMPT..]
//! ```
//!
//! Each `PROMPT` is said in turn. `PROXY_URL` is where the server is, `http://127.0.0.1:8787` if not set.

use std::error::Error;
use std::io::{Write, stdout};

use turnstate::proxy::ProxyModel;
use turnstate::{Agent, AgentEvent, AssistantEvent, BoxError, Content, ToolContext, ToolResult, schemars, tool};

/// Arguments of `weather`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Weather {
    /// The city's name.
    city: String,
}

async fn weather(asked: Weather, cx: ToolContext) -> Result<String, BoxError> {
    cx.progress("asking the weather service");
    match asked.city.as_str() {
        "Oslo" => Ok("Oslo: 4 °C, rain".into()),
        "Cairo" => Ok("Cairo: 31 °C, sun".into()),
        city => Err(format!("nobody measures in {city}").into()),
    }
}

fn text(result: &ToolResult) -> String {
    result.content.iter().filter_map(Content::as_text).collect()
}

/// Prints an event the way a chat shows it. Text is shown as it streams.
fn show(event: &AgentEvent) {
    match event {
        AgentEvent::MessageUpdate { event } => match event {
            AssistantEvent::ThinkingStart { .. } => print!("thinks:    "),
            AssistantEvent::TextStart { .. } => print!("assistant: "),
            AssistantEvent::ThinkingDelta { delta, .. } | AssistantEvent::TextDelta { delta, .. } => print!("{delta}"),
            AssistantEvent::ThinkingEnd { .. } | AssistantEvent::TextEnd { .. } => println!(),
            _ => {}
        },
        AgentEvent::ToolExecutionStart { call, .. } => {
            println!(
                "calls:     {}({})",
                call.name,
                serde_json::Value::from(call.arguments.clone())
            );
        }
        AgentEvent::ToolExecutionUpdate { partial_result, .. } => println!("           .. {}", text(partial_result)),
        AgentEvent::ToolExecutionEnd { result, .. } => println!("result:    {}", text(result)),
        _ => {}
    }
    // A delta has no line end, and should be seen all the same.
    let _ = stdout().flush();
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("PROXY_URL").unwrap_or_else(|_| "http://127.0.0.1:8787".into());
    let mut prompts: Vec<String> = std::env::args().skip(1).collect();
    if prompts.is_empty() {
        prompts.push("Do I need an umbrella in Oslo?".into());
    }
    let agent = Agent::builder("scripted-1", ProxyModel::new(url, "demo-token")?)
        .system_prompt("Be brief.")
        .tool(tool("weather", "The weather in a city", weather))
        .build();
    for prompt in prompts {
        println!("user:      {prompt}");
        let mut run = agent.prompt(prompt)?;
        while let Some(event) = run.next().await {
            show(&event);
        }
        run.await.into_result()?;
    }
    Ok(())
}
