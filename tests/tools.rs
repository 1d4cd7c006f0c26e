//! Tools as their authors write them and as a run uses them.
//!
//! The `cNNN` in a test's name is the case it covers.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a failed assumption of a helper is its test's failure

use std::future::ready;
use std::sync::Arc;
use std::thread;

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use turnstate::machine::ExecutionMode;
use turnstate::schema::ValidatedArguments;
use turnstate::{
    BoxError, BoxFuture, FnTool, Tool, ToolCall, ToolContext, ToolResult, ToolSet, json_tool, json_tool_with,
};

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A context of a call of `name` that nobody watches.
fn context(name: &str, arguments: &Value) -> ToolContext {
    ToolContext::detached(ToolCall::new("id", name, object(arguments))).0
}

/// Calls a tool as a run does, but for the hooks.
fn call(tools: &ToolSet, name: &str, arguments: &Value) -> Result<ToolResult, BoxError> {
    let entry = tools.find(name).ok_or_else(|| format!("Tool {name} not found"))?;
    let original = object(arguments);
    let prepared = entry.tool().prepare_arguments(original.clone())?;
    let valid = entry.schema().check(entry.name(), &original, prepared)?;
    let running = Arc::clone(entry.tool()).execute(valid, context(name, arguments));
    running.now_or_never().expect("these tools do not wait")
}

/// A tool that says where it is from.
fn named(name: &str, origin: &'static str) -> FnTool {
    json_tool(name, origin, json!({ "type": "object" }), move |_, _| ready(origin))
}

fn names(tools: &ToolSet) -> Vec<&str> {
    tools.iter().map(|entry| entry.name()).collect()
}

#[test]
fn first_of_a_name_wins_c061() {
    let tools = ToolSet::from(vec![named("t", "first"), named("u", "other"), named("t", "second")]);
    assert_eq!(names(&tools), ["t", "u"]);
    assert_eq!(call(&tools, "t", &json!({})).unwrap(), "first".into());
    let more = tools.with(named("u", "later")).with(named("v", "new"));
    assert_eq!(names(&more), ["t", "u", "v"]);
    assert_eq!(call(&more, "u", &json!({})).unwrap(), "other".into());
    assert_eq!(tools.len(), 2, "a set does not change");
}

#[test]
fn names_are_taken_as_they_are_c061() {
    let tools = ToolSet::new().with(named("", "empty")).with(named("t", "t"));
    assert_eq!(call(&tools, "", &json!({})).unwrap(), "empty".into());
    for unknown in ["nope", "T", " t"] {
        assert!(tools.find(unknown).is_none());
    }
    assert!(ToolSet::new().is_empty() && !tools.is_empty());
    assert!(ToolSet::new().find("").is_none());
}

#[test]
fn a_set_shows_what_the_model_is_told() {
    let schema = json!({ "type": "object", "properties": { "z": {}, "a": {} }, "required": ["z"] });
    let tool = named("t", "does it")
        .with_label("Tee")
        .sequential()
        .with_parameters(schema);
    let tools = ToolSet::from([tool, named("u", "also")]);
    assert_eq!(
        serde_json::to_string(&tools).unwrap(),
        concat!(
            r#"[{"name":"t","description":"does it","parameters":"#,
            r#"{"type":"object","properties":{"z":{},"a":{}},"required":["z"]}},"#,
            r#"{"name":"u","description":"also","parameters":{"type":"object"}}]"#,
        )
    );
    assert_eq!(format!("{tools:?}"), r#"["t", "u"]"#);
}

#[test]
fn an_entry_keeps_what_the_tool_said() {
    let tool = named("t", "d").with_label("Tee").sequential();
    assert_eq!(tool.label(), "Tee");
    assert_eq!(named("t", "d").label(), "t");
    let tools = ToolSet::from([tool, named("u", "d")]);
    let modes: Vec<_> = tools.iter().map(|entry| entry.execution_mode()).collect();
    assert_eq!(modes, [Some(ExecutionMode::Sequential), None]);

    let parallel = named("t", "d").with_execution_mode(ExecutionMode::Parallel);
    assert_eq!(parallel.execution_mode(), Some(ExecutionMode::Parallel));
}

#[test]
fn shared_tools_stay_shared() {
    let tool: Arc<dyn Tool> = Arc::new(named("t", "shared").with_label("Tee").sequential());
    let tools: ToolSet = [Arc::clone(&tool)].into_iter().collect();
    assert!(Arc::ptr_eq(tools.find("t").unwrap().tool(), &tool));

    // `with` takes an `Arc` for a tool like any other.
    let tools = ToolSet::new().with(tool);
    let entry = tools.find("t").unwrap();
    assert_eq!(entry.tool().label(), "Tee");
    assert_eq!(entry.execution_mode(), Some(ExecutionMode::Sequential));
    assert_eq!(call(&tools, "t", &json!({})).unwrap(), "shared".into());
}

#[test]
fn a_tool_by_hand_need_not_say_everything() {
    struct Plain(Value);
    impl Tool for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn description(&self) -> &'static str {
            "d"
        }
        fn parameters(&self) -> &Value {
            &self.0
        }
        fn execute(
            self: Arc<Self>,
            arguments: ValidatedArguments,
            _: ToolContext,
        ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
            Box::pin(async move { Ok(arguments.as_value().to_string().into()) })
        }
    }

    let plain = || Plain(json!({ "type": "object", "title": "p" }));
    let shared: Arc<dyn Tool> = Arc::new(plain());
    for tools in [ToolSet::new().with(plain()), ToolSet::new().with(shared)] {
        let entry = tools.find("plain").unwrap();
        assert_eq!((entry.tool().label(), entry.execution_mode()), ("plain", None));
        assert_eq!((entry.description(), entry.parameters()), ("d", &plain().0));
        assert_eq!(call(&tools, "plain", &json!({ "a": 1 })).unwrap(), r#"{"a":1}"#.into());
    }
}

#[test]
fn a_run_does_not_ask_the_getters_again_c017() {
    struct Moody(std::sync::atomic::AtomicBool, Value);

    impl Moody {
        fn check(&self) {
            assert!(!self.0.load(std::sync::atomic::Ordering::Relaxed), "in a mood");
        }
    }

    impl Tool for Moody {
        fn name(&self) -> &'static str {
            self.check();
            "moody"
        }
        fn description(&self) -> &'static str {
            self.check();
            "d"
        }
        fn parameters(&self) -> &Value {
            self.check();
            &self.1
        }
        fn execution_mode(&self) -> Option<ExecutionMode> {
            self.check();
            None
        }
        fn execute(
            self: Arc<Self>,
            _: ValidatedArguments,
            _: ToolContext,
        ) -> BoxFuture<'static, Result<ToolResult, BoxError>> {
            Box::pin(async { Ok("done".into()) })
        }
    }

    let tool = Arc::new(Moody(false.into(), json!({})));
    let tools: ToolSet = [Arc::clone(&tool) as Arc<dyn Tool>].into();
    tool.0.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        serde_json::to_value(&tools).unwrap(),
        json!([{ "name": "moody", "description": "d", "parameters": {} }])
    );
    assert_eq!(call(&tools, "moody", &json!({})).unwrap(), "done".into());
    assert!(tools.find("other").is_none());
    assert!(tools.with(named("u", "d")).find("u").is_some());
}

#[test]
fn preparation_comes_before_validation_c115() {
    let rename = |mut arguments: Map<String, Value>| -> Result<Value, BoxError> {
        let path = arguments.remove("file").ok_or("no file")?;
        Ok(json!({ "path": path }))
    };
    let schema = json!({ "type": "object", "required": ["path"] });
    let read = json_tool("read", "Reads", schema, async |arguments, cx: ToolContext| {
        let original = Value::Object(cx.call().arguments.clone());
        format!("{} for {original}", arguments.as_value())
    });
    let tools = ToolSet::new().with(read.with_prepare(rename));
    assert_eq!(
        call(&tools, "read", &json!({ "file": "a" })).unwrap(),
        r#"{"path":"a"} for {"file":"a"}"#.into()
    );
    assert_eq!(call(&tools, "read", &json!({})).unwrap_err().to_string(), "no file");
}

/// C017: what cannot be run is answered by a result that says why, also if the tool panics.
#[test]
fn a_check_says_why_a_call_is_not_run() {
    let prepare = |arguments: Map<String, Value>| match arguments.get("fault").and_then(Value::as_str) {
        Some("error") => Err("no file".into()),
        Some("panic") => panic!("boom"),
        Some("formatted panic") => panic!("boom {}", arguments.len()),
        Some("odd panic") => std::panic::panic_any(7),
        Some("shape") => Ok(json!([])),
        _ => Ok(json!({ "prepared": true })),
    };
    let tool = json_tool("t", "", json!({ "type": "object" }), async |_, _| "done");
    let tools = ToolSet::new().with(tool.with_prepare(prepare));
    let check = |name: &str, fault: &str| {
        let call = ToolCall::new("id", name, object(&json!({ "fault": fault })));
        let checked = tools.check(&call);
        checked.map(|(tool, arguments)| (tool.name(), arguments.into_value()))
    };
    assert_eq!(check("t", "none"), Ok(("t", json!({ "prepared": true }))));
    for (name, fault, error) in [
        ("gone", "none", "Tool gone not found"),
        ("t", "error", "no file"),
        ("t", "panic", "Tool t panicked: boom"),
        ("t", "formatted panic", "Tool t panicked: boom 1"),
        ("t", "odd panic", "Tool t panicked: no message"),
    ] {
        assert_eq!(check(name, fault), Err(Box::new(ToolResult::error(error))), "{fault}");
    }
    let refused = check("t", "shape").unwrap_err();
    let text = refused.content[0].as_text().unwrap_or_default();
    assert!(
        refused.is_error && text.starts_with("Validation failed for tool \"t\":"),
        "{text}"
    );
    let cut = ToolCall {
        arguments_error: Some("cut".into()),
        ..ToolCall::new("id", "t", Map::new())
    };
    let refused = tools.check(&cut).map(|_| ()).unwrap_err();
    assert_eq!(*refused, ToolResult::error("Tool call was not executed: cut"));
}

#[test]
fn one_sequential_tool_makes_its_batch_sequential() {
    use ExecutionMode::{Parallel, Sequential};
    let tools = ToolSet::from([named("p", ""), named("s", "").sequential()]);
    for (names, by_default, expected) in [
        (vec![], Parallel, Parallel),
        (vec!["p", "gone"], Parallel, Parallel),
        (vec!["p", "s"], Parallel, Sequential),
        (vec!["p"], Sequential, Sequential),
    ] {
        let calls: Vec<_> = names
            .iter()
            .map(|name| Arc::new(ToolCall::new("", *name, Map::new())))
            .collect();
        assert_eq!(tools.execution_mode(&calls, by_default), expected, "{names:?}");
    }
}

#[test]
fn functions_may_return_what_converts() {
    #[derive(Debug)]
    struct Failure;
    impl std::fmt::Display for Failure {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("failed")
        }
    }
    impl std::error::Error for Failure {}
    struct Sum(i32);
    impl From<Sum> for ToolResult {
        fn from(sum: Sum) -> Self {
            Self::text(sum.0.to_string()).with_details(sum.0)
        }
    }
    async fn fails(_: ValidatedArguments, _: ToolContext) -> Result<&'static str, Failure> {
        Err(Failure)
    }

    let any = || json!({});
    let tools = ToolSet::from([
        json_tool("str", "", any(), async |_, _| "a"),
        json_tool("string", "", any(), async |_, _| "b".to_owned()),
        json_tool("result", "", any(), async |_, _| {
            ToolResult::error("c").with_terminate(true)
        }),
        json_tool("own", "", any(), async |_, _| Sum(3)),
        json_tool("ok", "", any(), async |_, _| Ok::<_, BoxError>(Sum(4))),
        json_tool("typed error", "", any(), fails),
        json_tool("text error", "", any(), async |_, _| Err::<String, _>("no")),
        json_tool("block", "", any(), |_, _| async { "d" }),
    ]);
    let got = |name: &str| call(&tools, name, &json!({})).map_err(|error| error.to_string());
    assert_eq!(got("str"), Ok("a".into()));
    assert_eq!(got("string"), Ok("b".into()));
    assert_eq!(got("result"), Ok(ToolResult::error("c").with_terminate(true)));
    assert_eq!(got("own"), Ok(ToolResult::text("3").with_details(3)));
    assert_eq!(got("ok"), Ok(ToolResult::text("4").with_details(4)));
    assert_eq!(got("typed error"), Err("failed".to_owned()));
    assert_eq!(got("text error"), Err("no".to_owned()));
    assert_eq!(got("block"), Ok("d".into()));
}

#[test]
fn state_is_cloned_per_call() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = json_tool_with(Arc::clone(&log), "note", "", json!({}), async |log, arguments, _| {
        log.lock().unwrap().push(arguments.into_value());
        "noted"
    });
    let tools = ToolSet::new().with(note);
    for n in 0..2 {
        assert_eq!(call(&tools, "note", &json!({ "n": n })).unwrap(), "noted".into());
    }
    assert_eq!(*log.lock().unwrap(), [json!({ "n": 0 }), json!({ "n": 1 })]);
}

#[test]
fn a_context_knows_its_call() {
    let (cx, updates) = ToolContext::detached(ToolCall::new("7", "t", object(&json!({ "a": 1 }))));
    assert_eq!(cx.call_id(), "7");
    assert_eq!(cx.call().name, "t");
    assert!(!cx.is_cancelled());
    cx.cancellation_token().cancel();
    assert!(cx.is_cancelled() && cx.clone().is_cancelled());

    cx.progress("half");
    let whole = ToolResult::text("whole").with_details(json!({ "percent": 100 }));
    cx.clone().update(whole.clone());
    let half = ToolResult::text("half");
    assert_eq!(half.details, Some(json!({})));
    assert_eq!(updates.take(), [half, whole]);
    assert!(updates.take().is_empty());
}

#[test]
fn late_updates_are_ignored_c018() {
    let (cx, updates) = ToolContext::detached(ToolCall::default());
    cx.progress("in time");
    updates.close();
    cx.progress("late");
    let elsewhere = cx.clone();
    thread::spawn(move || elsewhere.progress("late, from another thread"))
        .join()
        .unwrap();
    assert_eq!(updates.take(), ["in time".into()]);
    drop(updates);
    cx.progress("nobody is there");
}

#[test]
fn updates_racing_with_the_end_are_before_it_or_nowhere_c018() {
    let (cx, updates) = ToolContext::detached(ToolCall::default());
    let chatty = thread::spawn(move || (0..10_000).for_each(|_| cx.progress("x")));
    while updates.take().is_empty() && !chatty.is_finished() {}
    updates.close();
    updates.take();
    chatty.join().unwrap();
    assert!(updates.take().is_empty());
}

#[test]
fn json_is_deserialised_on_demand() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Add {
        a: i64,
        b: i64,
    }
    let add = json_tool(
        "add",
        "",
        json!({}),
        async |arguments, cx| -> Result<String, BoxError> {
            let Add { a, b } = cx.deserialize(arguments)?;
            Ok((a + b).to_string())
        },
    );
    let tools = ToolSet::new().with(add);
    assert_eq!(call(&tools, "add", &json!({ "a": 1, "b": 2 })).unwrap(), "3".into());
    assert_eq!(
        call(&tools, "add", &json!({ "z": [], "a": 1 }))
            .unwrap_err()
            .to_string(),
        concat!(
            "Validation failed for tool \"add\":\n",
            "  - missing field `b`\n",
            "\n",
            "Received arguments:\n",
            "{\n  \"z\": [],\n  \"a\": 1\n}",
        )
    );
}

#[test]
fn handles_cross_threads() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    fn check_owned<T: Send + Sync + 'static>() {}
    check::<ToolContext>();
    check::<ToolSet>();
    check::<Arc<dyn Tool>>();
    check_owned::<FnTool>();
}
