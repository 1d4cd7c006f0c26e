//! Whole runs of an agent whose model is behind a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::timeout;
use turnstate::proxy::ProxyModel;
use turnstate::{Agent, AgentEvent, AssistantMessage, Message, Outcome, StopReason, json_tool};

use turnstate::machine::RunEnd;

use crate::server::{GUARD, Server, Step, events, head};
use crate::{call_delta, call_end, call_start, done, said, start};

/// An agent with a tool `t` that counts how often it runs.
fn agent(server: &Server) -> (Agent, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let tool = json_tool("t", "A tool", json!({"type": "object"}), move |_, _| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move { format!("result {number}") }
    });
    let model = ProxyModel::new(&server.url, "secret").unwrap();
    (Agent::builder("m", model).tool(tool).build(), runs)
}

fn call(arguments: &str) -> Vec<Value> {
    vec![
        start(),
        call_start(0, "a"),
        call_delta(0, arguments),
        call_end(0),
        done("toolUse"),
    ]
}

async fn run(agent: &Agent) -> Outcome {
    let run = agent.prompt("go").unwrap();
    timeout(GUARD, async { run.await }).await.expect("the run does not end")
}

fn answers(agent: &Agent) -> Vec<AssistantMessage> {
    let transcript = agent.transcript();
    let messages = transcript.messages().iter();
    messages
        .filter_map(|message| match &**message {
            Message::Assistant(answer) => Some(answer.clone()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn two_turns_with_a_tool() {
    let answers_to = vec![
        vec![head(), events(&call("{\"x\":1}"))],
        vec![head(), events(&[said("It is done."), vec![done("stop")]].concat())],
    ];
    let mut server = Server::start(answers_to).await;
    let (agent, runs) = agent(&server);
    let outcome = run(&agent).await;
    assert_eq!(
        (outcome.end, outcome.text().as_str()),
        (RunEnd::Completed, "It is done.")
    );
    assert_eq!(outcome.usage.total_tokens, 6);
    assert_eq!(runs.load(Ordering::Relaxed), 1);

    let first = server.request().await;
    assert_eq!(first.body["context"]["messages"].as_array().unwrap().len(), 1);
    assert_eq!(first.body["context"]["tools"][0]["name"], "t");
    let second = server.request().await;
    let messages = &second.body["context"]["messages"];
    let roles: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "toolResult"]);
    assert_eq!(messages[1]["content"][0]["arguments"], json!({"x": 1}));
    assert_eq!(messages[2]["content"][0]["text"], "result 0");
    server.saw_nothing_more();
}

#[tokio::test]
async fn c001_finished_messages_stay_and_their_sockets_are_closed() {
    let holding = || {
        vec![
            head(),
            events(&[said("hi"), call("{}")[1..].iter().cloned().map(at_one).collect()].concat()),
            Step::Hold,
        ]
    };
    let unfinished = vec![head(), events(&said("ha")), Step::Hold];
    let mut server = Server::start(vec![holding(), holding(), unfinished]).await;
    let (agent, _) = agent(&server);
    let mut run = agent.prompt("go").unwrap();
    let mut texts = 0;
    while let Some(event) = timeout(GUARD, run.next()).await.unwrap() {
        if let AgentEvent::MessageUpdate { event, .. } = &event
            && event.kind() == "text_delta"
        {
            texts += 1;
            if texts == 3 {
                agent.abort();
            }
        }
    }
    // Each turn's socket is closed although the server holds it open.
    let mut hung_up = Vec::new();
    for _ in 0..6 {
        match server.saw().await {
            crate::server::Saw::Request(_) => {}
            crate::server::Saw::HungUp(number) => hung_up.push(number),
        }
    }
    hung_up.sort_unstable();
    assert_eq!(hung_up, [0, 1, 2]);
    let ends: Vec<_> = answers(&agent)
        .into_iter()
        .map(|answer| (answer.stop_reason, answer.error_message))
        .collect();
    let aborted = Some("Request was aborted".to_owned());
    let finished = (StopReason::ToolUse, None);
    assert_eq!(ends, [finished.clone(), finished, (StopReason::Aborted, aborted)]);
}

/// The event for the block with index 1.
fn at_one(mut event: Value) -> Value {
    if event.get("contentIndex").is_some() {
        event["contentIndex"] = json!(1);
    }
    event
}

#[tokio::test]
async fn c002_an_early_end_ends_the_run() {
    let mut server = Server::start(vec![vec![head(), events(&said("hi"))]]).await;
    let (agent, _) = agent(&server);
    let outcome = run(&agent).await;
    assert_eq!(outcome.end, RunEnd::Failed);
    assert_eq!(outcome.error.as_deref(), Some(crate::CLOSED));
    assert_eq!(answers(&agent)[0].text(), "hi");
    assert!(!agent.is_streaming() && agent.streaming_message().is_none());
    server.request().await;
    server.saw_nothing_more();
}

/// C005, C006, C026, C088: the call is answered with an error, and the loop goes on.
#[tokio::test]
async fn c005_calls_with_unreadable_arguments_are_not_run() {
    let open = |text: &str| vec![start(), call_start(0, "a"), call_delta(0, text), done("toolUse")];
    for script in [
        call("{\"path\":\"/etc"),
        call("{\"a\":1,,}"),
        call(&"{\"a\":".repeat(100_000)),
        call("[1,2]"),
        open("{\"path\":\"/et"),
    ] {
        let end = [said("END"), vec![done("stop")]].concat();
        let mut server = Server::start(vec![vec![head(), events(&script)], vec![head(), events(&end)]]).await;
        let (agent, runs) = agent(&server);
        let outcome = run(&agent).await;
        assert_eq!(outcome.text(), "END");
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        server.request().await;
        let second = server.request().await;
        let result = &second.body["context"]["messages"][2];
        assert_eq!(
            (&result["role"], &result["isError"]),
            (&json!("toolResult"), &json!(true))
        );
        assert_eq!(
            second.body["context"]["messages"][1]["content"][0]["arguments"],
            json!({})
        );
    }
}

/// C006, C087: complete arguments run, whether or not the call was ended.
#[tokio::test]
async fn c087_calls_with_complete_arguments_run() {
    let open = vec![start(), call_start(0, "a"), call_delta(0, "{\"x\":1}"), done("toolUse")];
    for script in [open, call(""), call("   "), call("null")] {
        let end = [said("END"), vec![done("stop")]].concat();
        let server = Server::start(vec![vec![head(), events(&script)], vec![head(), events(&end)]]).await;
        let (agent, runs) = agent(&server);
        assert_eq!(run(&agent).await.text(), "END");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn c094_an_abort_of_the_server_ends_the_run_as_aborted() {
    let aborted = json!({"type": "error", "reason": "aborted", "errorMessage": "stopped"});
    let mut script = call("{}");
    script.pop();
    script.push(aborted);
    let mut server = Server::start(vec![vec![head(), events(&script)]]).await;
    let (agent, runs) = agent(&server);
    assert_eq!(run(&agent).await.end, RunEnd::Aborted);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    server.request().await;
    server.saw_nothing_more();
}
