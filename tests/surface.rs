//! The small parts of the surface: what is set can be read back, what converts converts, and Debug shows no key.
#![expect(clippy::unwrap_used, reason = "a failed assumption in a test is the test's failure")]

use std::sync::Arc;

use futures_core::FusedStream;
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use turnstate::machine::{ExecutionMode, RunEnd};
use turnstate::{
    Agent, AgentEvent, AssistantEvent, BoxedHooks, Content, CustomMessage, CustomRole, Decision, HookFns, ImageContent,
    LoopConfig, Message, Messages, Model, Outcome, Response, RunError, ScriptedModel, StreamFn, StreamOptions,
    TextContent, ThinkingLevel, ToolSet, Transcript, UserMessage, agent_loop, json_tool,
};

const KEY: &str = "sk-secret";

fn options() -> StreamOptions {
    let mut options = StreamOptions::default();
    options.api_key = Some(KEY.into());
    options.session_id = Some("session".into());
    options
}

fn noop() -> turnstate::FnTool {
    json_tool("noop", "does nothing", json!({}), async |_, _| "done")
}

#[test]
fn settings_are_read_back() {
    let agent: Agent = Agent::builder("one", ScriptedModel::new()).build();
    agent.set_model("two");
    agent.set_system_prompt("be brief");
    agent.set_thinking_level(ThinkingLevel::High);
    agent.set_execution_mode(ExecutionMode::Sequential);
    agent.set_tools([noop()]);
    agent.set_options(options());
    assert_eq!(*agent.model(), Model::new("two"));
    assert_eq!(&*agent.system_prompt(), "be brief");
    assert_eq!(agent.thinking_level(), ThinkingLevel::High);
    assert_eq!(agent.execution_mode(), ExecutionMode::Sequential);
    assert!(agent.tools().find("noop").is_some());
    assert_eq!(*agent.options(), options());
}

/// §4.7: the key is nowhere in Debug, whatever holds it.
#[test]
fn debug_shows_what_it_is_and_no_key() {
    let builder = || {
        Agent::builder("m", ScriptedModel::new().text("hi"))
            .tool(noop())
            .options(options())
            .before_tool_call(async |_| Decision::Allow)
    };
    let agent: Agent = builder().build();
    let subscription = agent.subscribe(|_, cx| {
        let shown = format!("{cx:?}");
        assert!(shown.starts_with("ListenerContext"), "{shown}");
    });
    let mut run = agent.prompt("go").unwrap();
    assert!(run.next().now_or_never().is_some(), "the listener is told");
    let config = || {
        let mut config = LoopConfig::<Message>::new("m");
        config.plan.options = Arc::new(options());
        config
    };
    let model = ScriptedModel::new().text("hi");
    let prompt = vec![Arc::new(Message::user("go"))];
    let hooks = HookFns::<Message>::new().before_tool_call(async |_| Decision::Allow);
    let tools = ToolSet::from([noop()]);
    for (shown, expected) in [
        (format!("{:?}", builder()), "AgentBuilder"),
        (
            format!("{agent:?}"),
            r#"Agent { model: "m", tools: ["noop"], messages: 0, streaming: true"#,
        ),
        (format!("{subscription:?}"), "Subscription"),
        (format!("{run:?}"), "Run {"),
        (format!("{:?}", config()), "LoopConfig"),
        (format!("{hooks:?}"), "HookFns([before_tool_call])"),
        (format!("{:?}", BoxedHooks::new(hooks)), "BoxedHooks"),
        (format!("{:?}", model.clone().boxed()), "BoxedStreamFn"),
        (format!("{model:?}"), "ScriptedModel { remaining: 1, requests: 0"),
        (format!("{:?}", noop()), r#"FnTool { name: "noop""#),
        (
            format!("{:?}", tools.find("noop").unwrap()),
            r#"RegisteredTool { name: "noop""#,
        ),
        (
            format!("{:?}", agent_loop(prompt, config(), model, ()).unwrap()),
            r#"AgentLoop { work: "awaiting steering""#,
        ),
    ] {
        assert!(shown.starts_with(expected), "{shown}");
        assert!(!shown.contains(KEY), "{shown}");
    }
}

/// A run of this model, to its end.
fn outcome(model: ScriptedModel) -> Outcome {
    let agent: Agent = Agent::builder("m", model).build();
    let mut run = agent.prompt("go").unwrap();
    assert!(!run.is_terminated());
    while let Some(event) = run.next().now_or_never().unwrap() {
        if matches!(event, AgentEvent::MessageStart { .. }) && agent.transcript().len() == 1 {
            assert!(run.partial().is_some(), "the answer streams");
        }
    }
    assert!(run.is_terminated());
    IntoFuture::into_future(run).now_or_never().unwrap()
}

#[test]
fn a_result_is_the_outcome_unless_the_run_failed_or_was_aborted() {
    assert_eq!(
        outcome(ScriptedModel::new().text("hi")).into_result().unwrap().text(),
        "hi"
    );

    let failed = outcome(ScriptedModel::new().fail("overloaded"))
        .into_result()
        .unwrap_err();
    assert!(matches!(failed, RunError::Failed(_)));
    assert_eq!(failed.outcome().end, RunEnd::Failed);
    assert_eq!(failed.to_string(), "the run failed: overloaded");
    assert_eq!(
        format!("{failed:?}"),
        r#"RunError { end: Failed, error: Some("overloaded"), .. }"#
    );

    let agent: Agent = Agent::builder("m", ScriptedModel::new().reply(Response::new().silence())).build();
    let run = agent.prompt("go").unwrap();
    agent.abort();
    let aborted = IntoFuture::into_future(run)
        .now_or_never()
        .unwrap()
        .into_result()
        .unwrap_err();
    assert!(matches!(aborted, RunError::Aborted(_)));
    assert_eq!(aborted.outcome().end, RunEnd::Aborted);
    assert_eq!(aborted.to_string(), "the run was aborted");
}

/// Debug of a loop says what it is doing.
#[test]
fn a_loop_shows_where_it_stands() {
    let model = ScriptedModel::new().call("noop", json!({})).text("hi");
    let mut config = LoopConfig::<Message>::new("m");
    config.plan.tools = [noop()].into();
    let prompt = vec![Arc::new(Message::user("go"))];
    let mut run = Box::pin(agent_loop(prompt, config, model, ()).unwrap());
    let mut shown = vec![format!("{run:?}")];
    while run.next().now_or_never().unwrap().is_some() {
        shown.push(format!("{run:?}"));
    }
    shown.push(format!("{run:?}"));
    shown.dedup();
    let turn = ["streaming", "turn end"];
    let expected = [
        "awaiting steering",
        "streaming",
        "executing tools",
        "turn end",
        "requesting",
    ];
    let expected = expected.iter().chain(&turn).chain(&["over"]);
    let expected: Vec<_> = expected
        .map(|work| format!("AgentLoop {{ work: \"{work}\", .. }}"))
        .collect();
    assert_eq!(shown, expected);
}

/// The loop's own token aborts it, and a loop that is over says so.
#[test]
fn a_loop_is_aborted_by_its_token() {
    let model = ScriptedModel::new().text("hi");
    let config = LoopConfig::<Message>::new("m");
    let prompt = vec![Arc::new(Message::user("go"))];
    let mut run = Box::pin(agent_loop(prompt, config, model, ()).unwrap());
    assert!(!run.is_terminated());
    run.cancellation_token().cancel();
    while run.next().now_or_never().unwrap().is_some() {}
    assert!(run.is_terminated());
    assert_eq!(run.outcome().unwrap().end, RunEnd::Aborted);
}

#[test]
fn events_of_a_model_by_their_constructors() {
    for (event, json) in [
        (
            AssistantEvent::text_start(1),
            json!({ "type": "text_start", "contentIndex": 1 }),
        ),
        (
            AssistantEvent::text_end(1),
            json!({ "type": "text_end", "contentIndex": 1 }),
        ),
        (
            AssistantEvent::thinking_start(1),
            json!({ "type": "thinking_start", "contentIndex": 1 }),
        ),
        (
            AssistantEvent::thinking_end(1),
            json!({ "type": "thinking_end", "contentIndex": 1 }),
        ),
        (
            AssistantEvent::tool_call_end(1),
            json!({ "type": "toolcall_end", "contentIndex": 1 }),
        ),
    ] {
        assert_eq!(serde_json::to_value(&event).unwrap(), json);
        assert_eq!(serde_json::from_value::<AssistantEvent>(json).unwrap(), event);
    }
}

#[test]
fn what_converts_into_messages_and_blocks() {
    #[derive(Debug, Clone, PartialEq)]
    struct Notice;
    impl CustomRole for Notice {
        fn role(&self) -> &'static str {
            "notice"
        }
    }
    type Custom = CustomMessage<Notice>;

    assert_eq!(Message::from("hi".to_owned()), Message::user("hi"));
    assert_eq!(Message::from(UserMessage::text("hi")).role(), "user");
    assert_eq!(Custom::from("hi".to_owned()), Custom::from("hi"));
    assert_eq!(
        (
            Custom::from("hi").text().as_str(),
            Custom::Custom(Notice).text().as_str()
        ),
        ("hi", "")
    );
    assert_eq!(Model::from("m".to_owned()), Model::new("m"));

    let image = Content::image("aGk=", "image/png");
    assert_eq!(
        serde_json::to_value(&image).unwrap(),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" })
    );
    assert_eq!(image.as_text(), None);
    let (Content::Image(block), text) = (image.clone(), TextContent::default()) else {
        unreachable!()
    };
    let _: &ImageContent = &block;
    assert_eq!((Content::from(block), Content::from(text)), (image, Content::text("")));
}

/// A transcript is the list of its messages, also in JSON.
#[test]
fn a_transcript_is_a_list() {
    let transcript: Transcript<Message> = vec![Arc::new(Message::user("a")), Arc::new(Message::user("b"))].into();
    let json = serde_json::to_value(&transcript).unwrap();
    assert_eq!(json, serde_json::to_value(transcript.messages()).unwrap());
    assert_eq!(
        serde_json::from_value::<Transcript<Message>>(json.clone()).unwrap(),
        transcript
    );
    assert_eq!(
        &serde_json::from_value::<Messages<Message>>(json).unwrap(),
        transcript.messages()
    );
    assert!((&transcript).into_iter().eq(transcript.messages().iter()));
    assert!(Messages::<Message>::default().is_empty() && Transcript::<Message>::default().is_empty());
    assert!(!transcript.messages().is_empty());
}
