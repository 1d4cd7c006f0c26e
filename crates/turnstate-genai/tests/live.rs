//! A run with a tool at real providers: those whose key is in the environment. The others are skipped, and say so.
//!
//! ```console
//! $ ANTHROPIC_API_KEY=... cargo test -p turnstate-genai --test live -- --nocapture
//! ```

use serde_json::json;
use turnstate::{Agent, Message, Retry, json_tool};
use turnstate_genai::GenaiModel;

async fn a_run(key: &str, model: &str) {
    if std::env::var_os(key).is_none() {
        println!("skipped: {model} needs {key}");
        return;
    }
    let word = json_tool(
        "secret_word",
        "Tells the secret word",
        json!({"type": "object"}),
        async |_, _| "heron",
    );
    let agent = Agent::builder(model, Retry::tokio(GenaiModel::new()))
        .tool(word)
        .build();
    let run = agent
        .prompt("Ask the tool for the secret word, then say just that word.")
        .unwrap();
    let answer = run.await.into_result().unwrap();
    assert!(answer.text().to_lowercase().contains("heron"), "{}", answer.text());
    let roles: Vec<_> = agent
        .transcript()
        .iter()
        .map(|message| Message::role(message))
        .collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"]);
}

#[tokio::test]
async fn anthropic() {
    a_run("ANTHROPIC_API_KEY", "claude-sonnet-4-5").await;
}

#[tokio::test]
async fn openai_chat_completions() {
    a_run("OPENAI_API_KEY", "gpt-4o-mini").await;
}

#[tokio::test]
async fn openai_responses() {
    a_run("OPENAI_API_KEY", "gpt-5-mini").await;
}

#[tokio::test]
async fn gemini() {
    a_run("GEMINI_API_KEY", "gemini-2.5-flash").await;
}
