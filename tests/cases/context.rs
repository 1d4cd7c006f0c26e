//! What is sent: from the transcript, by the hooks, in each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use turnstate::machine::RunEnd;
use turnstate::{
    Agent, AgentMessage, AssistantMessage, CustomMessage, CustomRole, Message, Model, Response, StartError,
    StreamOptions, ThinkingLevel, ToolCall, ToolSet, Transcript,
};

use super::harness::{Notes, Rig, calls, doing, messages, names, quick, say, show};

/// C030: a failed or aborted answer, with calls complete or open, is not sent again; its events say what it is.
#[test]
fn c030_a_failed_answer_with_calls_is_not_sent_again() {
    let open = || Response::new().text("text").call_with_id("a", "t", json!({"k": 1}));
    for (answer, aborts) in [
        (open().fail("down"), false),
        (open().end_early(), false),
        (open().silence(), true),
    ] {
        let rig = Rig::new([answer, say("END")], |agent, _| agent.tool(quick("t")));
        let mut run = rig.start("go");
        if aborts {
            run.stall();
            rig.agent.abort();
        }
        run.finish();
        let stop = if aborts { "aborted" } else { "error" };
        rig.saw(&format!("as ts ms(u) me(u) ms(a) me(a/{stop}) te({stop})[0] ae[2]"));
        assert_eq!(
            rig.agent.transcript()[1].as_assistant().unwrap().tool_calls().count(),
            1
        );
        rig.prompt("next");
        assert_eq!(rig.sent(1), "u, u next");
        assert_eq!(rig.transcript(), format!("u, a/{stop}, u next, a/stop"));
    }
}

fn call(id: &str, stop: &str) -> serde_json::Value {
    json!({"role": "assistant", "stopReason": stop,
           "content": [{"type": "toolCall", "id": id, "name": "t", "arguments": {}}]})
}

fn result(id: &str) -> serde_json::Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "t", "content": []})
}

/// C031: results of an answer that is left out, or gone, are left out; a call without a result is given one.
#[test]
fn c031_no_result_is_sent_alone() {
    let user = json!({"role": "user", "content": "go"});
    for (history, sent) in [
        (json!([user, call("a", "aborted"), result("a")]), "u, u next"),
        (json!([user, call("a", "error"), result("a")]), "u, u next"),
        (json!([result("a"), user]), "u, u next"),
        (
            json!([user, call("a", "toolUse"), result("b"), result("a")]),
            "u, a/toolUse, r a, u next",
        ),
        (json!([user, call("a", "toolUse")]), "u, a/toolUse, r a, u next"),
        (
            json!([user, call("a", "toolUse"), user, result("a")]),
            "u, a/toolUse, r a, u, u next",
        ),
        (
            json!([call("a", "toolUse"), result("a"), call("a", "aborted"), result("a")]),
            "a/toolUse, r a, u next",
        ),
    ] {
        let rig = Rig::new([say("END")], |agent, _| agent.transcript(messages(history)));
        rig.prompt("next");
        assert_eq!(rig.sent(0), sent);
    }
}

/// C075: the transcript cannot be replaced during a run; tools can, from the next turn on.
#[test]
fn c075_a_tool_that_replaces_the_transcript_and_the_tools() {
    let refused = Notes::default();
    let seen = refused.clone();
    let rig = Rig::new([calls("a:t b:t"), calls("c:t"), say("END")], |agent, hand| {
        agent.tool(doing("t", &hand, move |agent| {
            seen.add(agent.set_transcript(Transcript::new()).unwrap_err().to_string());
            agent.set_tools(ToolSet::new());
        }))
    });
    rig.prompt("go");
    assert_eq!(
        refused.all(),
        [StartError::Busy.to_string(), StartError::Busy.to_string()]
    );
    assert_eq!(
        (rig.result("b"), rig.result("c")),
        ("b ok".into(), "Tool t not found".into())
    );
    assert_eq!(rig.sent(2), "u, a/toolUse, r a, r b, a/toolUse, r c");
    let tools: Vec<_> = rig.model.requests().iter().map(|request| request.tools.len()).collect();
    assert_eq!(tools, [1, 0, 0]);
}

/// C121: the key is asked for each request, by the provider's name; without one the static key is used.
#[test]
fn c121_the_key_is_asked_for_each_request() {
    let (asked, notes) = (AtomicUsize::new(0), Notes::default());
    let seen = notes.clone();
    let rig = Rig::new([calls("a:t"), calls("b:t"), say("END")], |agent, _| {
        agent
            .tool(quick("t"))
            .api_key("static")
            .resolve_api_key(move |provider| {
                seen.add(provider);
                let n = asked.fetch_add(1, Ordering::Relaxed);
                std::future::ready((n != 1).then(|| format!("key {n}").into()))
            })
    });
    rig.agent.set_model(Model::new("m").with_provider("acme", "acme-api"));
    rig.prompt("go");
    let requests = rig.model.requests();
    let keys = requests
        .iter()
        .map(|request| request.api_key.as_ref().unwrap().expose().to_owned());
    assert_eq!(keys.collect::<Vec<_>>(), ["key 0", "static", "key 2"]);
    assert_eq!(notes.all(), ["acme"; 3]);
    assert!(!format!("{requests:?}").contains("key 0"), "the key is in Debug");
}

/// C122: a transform sees all, and changes one request; what it cuts through is repaired.
#[test]
fn c122_a_transform_is_for_one_request() {
    let notes = Notes::default();
    let seen = notes.clone();
    let rig = Rig::new([calls("a:t"), calls("b:t"), say("END")], |agent, _| {
        agent.tool(quick("t")).transform_context(move |cx| {
            seen.add(names(cx.transcript.iter()));
            let skip = cx.transcript.len().saturating_sub(1);
            std::future::ready(
                cx.transcript
                    .iter()
                    .skip(skip)
                    .cloned()
                    .collect::<Transcript<Message>>(),
            )
        })
    });
    rig.prompt("go");
    assert_eq!(
        notes.all(),
        ["u", "u, a/toolUse, r a", "u, a/toolUse, r a, a/toolUse, r b"]
    );
    assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/toolUse, r b, a/stop");
    // A result alone is not sent.
    assert_eq!([rig.sent(0), rig.sent(1), rig.sent(2)], ["u", "", ""]);
}

#[derive(Clone, Debug, PartialEq)]
struct Notice;

impl CustomRole for Notice {
    fn role(&self) -> &'static str {
        "notification"
    }
}

/// C123: custom messages are left out of requests, wherever they stand; an answer of calls without text is kept.
#[test]
fn c123_custom_messages_are_left_out() {
    type Own = CustomMessage<Notice>;
    let llm = |message: Message| Arc::new(Own::from(message));
    let notice = || Arc::new(Own::Custom(Notice));
    let answer = AssistantMessage {
        content: vec![
            turnstate::AssistantContent::text(""),
            turnstate::AssistantContent::ToolCall(ToolCall::new("x", "t", serde_json::Map::new()).into()),
        ],
        stop_reason: turnstate::StopReason::ToolUse,
        ..AssistantMessage::default()
    };
    let answered = serde_json::from_value::<Message>(result("x")).unwrap();
    let history = vec![notice(), llm(answer.into()), notice(), llm(answered), notice()];
    let rig = Rig::<Own>::of([calls("a:t"), say("END")], |agent, hand| {
        agent.transcript(history).tool(doing("t", &hand, |agent| {
            agent.steer(Own::Custom(Notice));
        }))
    });
    rig.prompt("go");
    assert_eq!(rig.sent(0), "a/toolUse, r x, u");
    assert_eq!(rig.sent(1), "a/toolUse, r x, u, a/toolUse, r a");
    assert_eq!(
        rig.transcript(),
        "notification, a/toolUse, notification, r x, notification, u, a/toolUse, r a, notification, a/stop"
    );
}

/// `prepare_request` may replace everything, for this and all later requests of the run, and of no other run.
#[test]
fn s47_what_prepare_request_replaces_stays_for_the_run() {
    let asked = AtomicUsize::new(0);
    let rig = Rig::new([calls("a:t"), say("1"), say("2")], |agent, _| {
        agent.prepare_request(move |cx| {
            let mut plan = cx.plan;
            if asked.fetch_add(1, Ordering::Relaxed) == 0 {
                plan.model = Arc::new(Model::new("other"));
                plan.thinking_level = ThinkingLevel::Low;
                plan.system_prompt = "replaced".into();
                plan.tools = ToolSet::new().with(quick("t"));
                plan.transcript = vec![Message::user("summary")].into();
                let mut options = StreamOptions::default();
                options.max_tokens = Some(7);
                plan.options = Arc::new(options);
            }
            std::future::ready(plan)
        })
    });
    rig.agent.set_thinking_level(ThinkingLevel::High);
    rig.prompt("go");
    let requests = rig.model.requests();
    for request in &requests {
        assert_eq!(
            (request.model.id.as_str(), request.thinking_level),
            ("other", ThinkingLevel::Low)
        );
        assert_eq!(
            (&*request.system_prompt, request.options.max_tokens),
            ("replaced", Some(7))
        );
        assert_eq!(request.tools.len(), 1);
    }
    assert_eq!([rig.sent(0), rig.sent(1)], ["u summary", "u summary, a/toolUse, r a"]);
    assert_eq!(rig.result("a"), "a ok");
    // The agent's own transcript and configuration stay.
    assert_eq!(rig.transcript(), "u, a/toolUse, r a, a/stop");
    rig.prompt("go");
    let last = &rig.model.requests()[2];
    assert_eq!(
        (last.model.id.as_str(), last.thinking_level, last.tools.len()),
        ("scripted-1", ThinkingLevel::High, 0)
    );
    assert_eq!(rig.sent(2), "u, a/toolUse, r a, a/stop, u");
}

/// What is set on the agent during a run takes effect at the next turn: the calls of this one run as they were asked.
#[test]
fn s47_what_is_set_during_a_run_counts_from_the_next_turn() {
    let other = turnstate::ScriptedModel::new().reply(calls("b:new")).text("END");
    let (set, notes) = (other.clone(), Notes::default());
    let seen = notes.clone();
    let rig = Rig::new([calls("a:old")], |agent, _| {
        agent.tool(quick("old")).after_tool_call(move |_| {
            seen.add("old hook");
            std::future::ready(turnstate::ResultPatch::keep())
        })
    });
    let seen = notes.clone();
    rig.at("ms(a)", move |agent: &Agent| {
        agent.set_model("m2");
        agent.set_thinking_level(ThinkingLevel::High);
        agent.set_system_prompt("new");
        agent.set_tools(ToolSet::new().with(quick("new")));
        agent.set_execution_mode(turnstate::machine::ExecutionMode::Sequential);
        agent.set_stream_fn(set);
        agent.set_hooks(turnstate::HookFns::new().after_tool_call(move |_| {
            seen.add("new hook");
            std::future::ready(turnstate::ResultPatch::keep())
        }));
        let mut options = StreamOptions::default();
        options.max_tokens = Some(7);
        agent.set_options(options);
    });
    assert_eq!(rig.prompt("go").end, RunEnd::Completed);
    assert_eq!((rig.result("a"), rig.result("b")), ("a ok".into(), "b ok".into()));
    assert_eq!(notes.all(), ["old hook", "new hook"]);
    let first = &rig.model.requests()[0];
    assert_eq!(
        (first.model.id.as_str(), &*first.system_prompt, first.options.max_tokens),
        ("scripted-1", "", None)
    );
    for request in other.requests() {
        assert_eq!(
            (request.model.id.as_str(), request.thinking_level),
            ("m2", ThinkingLevel::High)
        );
        assert_eq!((&*request.system_prompt, request.options.max_tokens), ("new", Some(7)));
        assert!(request.tools.find("new").is_some());
    }
    let ends = rig
        .log
        .events()
        .into_iter()
        .filter(|event| show(event).starts_with("me(a"));
    let models = ends.map(|event| match event {
        turnstate::AgentEvent::MessageEnd { message } => message.as_assistant().unwrap().model.clone(),
        _ => String::new(),
    });
    assert_eq!(models.collect::<Vec<_>>(), ["scripted-1", "m2", "m2"]);
}

/// The role of a message the app added is its own; the engine's have theirs.
#[test]
fn c123_roles() {
    assert_eq!(CustomMessage::Custom(Notice).role(), "notification");
    assert_eq!(CustomMessage::<Notice>::from("hi").role(), "user");
}
