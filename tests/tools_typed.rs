//! Tools made of functions of typed arguments.
//!
//! The `cNNN` in a test's name is the case it covers.
#![cfg(feature = "schemars")]
#![allow(clippy::unwrap_used)] // a failed assumption of a helper is its test's failure

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use turnstate::{BoxError, FnTool, Tool, ToolCall, ToolContext, ToolResult, ToolSet, schemars, tool, tool_with};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    name: String,
}

async fn weather(city: City, cx: ToolContext) -> Result<String, BoxError> {
    cx.progress("asking the weather service");
    if city.name.is_empty() {
        return Err("which city?".into());
    }
    Ok(format!("{}: 4 °C, rain", city.name))
}

/// Calls a tool as a run does, but for the hooks. Also gives its updates.
fn call(tool: FnTool, arguments: &Value) -> (Result<ToolResult, String>, Vec<ToolResult>) {
    let tools = ToolSet::from([tool]);
    let entry = tools.iter().next().unwrap();
    let original: Map<String, Value> = arguments.as_object().unwrap().clone();
    let (cx, updates) = ToolContext::detached(ToolCall::new("id", entry.name(), original.clone()));
    let prepared = entry.tool().prepare_arguments(original.clone()).unwrap();
    let result = match entry.schema().check(entry.name(), &original, prepared) {
        Ok(valid) => Arc::clone(entry.tool()).execute(valid, cx).now_or_never().unwrap(),
        Err(error) => Err(error.into()),
    };
    (result.map_err(|error| error.to_string()), updates.take())
}

fn parameters<A: serde::de::DeserializeOwned + schemars::JsonSchema + Send + 'static>() -> Value {
    tool("t", "", async |_: A, _| "").parameters().clone()
}

#[test]
fn a_function_is_a_tool() {
    let make = || tool("weather", "Current weather of a city", weather);
    assert_eq!(
        (make().name(), make().description()),
        ("weather", "Current weather of a city")
    );
    let (result, updates) = call(make(), &json!({ "name": "Oslo" }));
    assert_eq!(result, Ok("Oslo: 4 °C, rain".into()));
    assert_eq!(updates, ["asking the weather service".into()]);
    assert_eq!(call(make(), &json!({ "name": "" })).0, Err("which city?".to_owned()));
}

#[test]
fn an_async_closure_with_state_is_a_tool() {
    let asked = Arc::new(AtomicU32::new(0));
    let make = || {
        tool_with(Arc::clone(&asked), "count", "", async |asked, city: City, cx| {
            cx.progress("counting");
            let before = asked.fetch_add(1, Ordering::Relaxed);
            std::future::ready(()).await;
            format!("{} after {before}", city.name)
        })
    };
    assert_eq!(call(make(), &json!({ "name": "Oslo" })).0, Ok("Oslo after 0".into()));
    assert_eq!(call(make(), &json!({ "name": "Rome" })).0, Ok("Rome after 1".into()));
}

#[test]
fn a_closure_that_gives_a_future_is_a_tool() {
    let greeting: Arc<str> = "Hello".into();
    let greet = tool("greet", "", move |city: City, _| {
        let greeting = Arc::clone(&greeting);
        async move { Ok::<_, BoxError>(format!("{greeting}, {}", city.name)) }
    });
    assert_eq!(call(greet, &json!({ "name": "Oslo" })).0, Ok("Hello, Oslo".into()));
}

#[test]
fn the_schema_is_what_a_model_needs() {
    /// How to look.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[allow(dead_code)]
    struct Search {
        /// What to look for.
        ///
        /// A regular expression.
        text_pattern: String,
        #[serde(default)]
        order: Order,
        within: Option<Vec<Place>>,
    }
    /// By what.
    #[derive(Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        #[default]
        Name,
        Age,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)]
    struct Place {
        path: String,
    }

    assert_eq!(
        parameters::<Search>(),
        json!({
            "type": "object",
            "description": "How to look.",
            "properties": {
                "textPattern": { "type": "string", "description": "What to look for.\n\nA regular expression." },
                "order": { "type": "string", "description": "By what.", "enum": ["name", "age"], "default": "name" },
                "within": {
                    "type": ["array", "null"],
                    "items": {
                        "type": "object",
                        "properties": { "path": { "type": "string" } },
                        "required": ["path"],
                    },
                },
            },
            "additionalProperties": false,
            "required": ["textPattern"],
        })
    );
}

#[test]
fn a_title_of_ones_own_stays() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[schemars(title = "Where to go")]
    struct Place {}

    assert_eq!(parameters::<Place>()["title"], "Where to go");
}

#[test]
fn no_arguments_are_an_empty_object_c108() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    assert_eq!(parameters::<Nothing>(), json!({ "type": "object", "properties": {} }));
    let now = tool("now", "", async |_: Nothing, _| "noon");
    assert_eq!(call(now, &json!({})).0, Ok("noon".into()));
}

#[test]
fn recursive_arguments_work() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Tree {
        children: Vec<Tree>,
    }
    fn size(tree: &Tree) -> usize {
        1 + tree.children.iter().map(size).sum::<usize>()
    }

    let leaf = || json!({ "children": [] });
    let count = || tool("size", "", async |tree: Tree, _| size(&tree).to_string());
    let (result, _) = call(count(), &json!({ "children": [leaf(), { "children": [leaf()] }] }));
    assert_eq!(result, Ok("4".into()));
    let (result, _) = call(count(), &json!({ "children": [{ "children": 1 }] }));
    assert!(result.is_err());
}

#[test]
fn what_the_type_refuses_is_an_error_and_nothing_runs() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)]
    struct Port {
        // The schema is looser than the type.
        #[schemars(with = "String")]
        address: std::net::IpAddr,
    }

    let runs = Arc::new(AtomicU32::new(0));
    let make = || {
        tool_with(Arc::clone(&runs), "ping", "", async |runs, _: Port, _| {
            runs.fetch_add(1, Ordering::Relaxed);
            "pong"
        })
    };
    let (result, updates) = call(make(), &json!({ "timeout": 1.5, "address": "here" }));
    assert_eq!(
        result.unwrap_err(),
        concat!(
            "Validation failed for tool \"ping\":\n",
            "  - invalid IP address syntax\n",
            "\n",
            "Received arguments:\n",
            "{\n  \"timeout\": 1.5,\n  \"address\": \"here\"\n}",
        )
    );
    assert!(updates.is_empty());
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    assert_eq!(call(make(), &json!({ "address": "::1" })).0, Ok("pong".into()));
}

#[test]
fn parameters_can_be_given() {
    let loose = json!({ "type": "object", "properties": { "name": { "minLength": 2 } } });
    let make = || tool("weather", "", weather).with_parameters(loose.clone());
    assert_eq!(make().parameters(), &loose);
    let (result, _) = call(make(), &json!({}));
    assert!(result.unwrap_err().contains("  - missing field `name`\n"));
}

#[test]
#[cfg(feature = "jsonschema")]
fn arguments_are_coerced_before_the_type_sees_them_c105_c116() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Wait {
        seconds: u32,
        note: Option<String>,
    }

    let make = || {
        tool("wait", "", async |wait: Wait, cx| {
            let original = Value::Object(cx.call().arguments.clone());
            format!("{} {:?} {original}", wait.seconds, wait.note)
        })
    };
    let (result, _) = call(make(), &json!({ "seconds": "3", "note": null }));
    assert_eq!(result, Ok(r#"3 None {"seconds":"3","note":null}"#.into()));
    let (result, _) = call(make(), &json!({ "seconds": 3.0, "note": 5 }));
    assert_eq!(result, Ok(r#"3 Some("5") {"seconds":3.0,"note":5}"#.into()));
    let (result, _) = call(make(), &json!({ "seconds": -1 }));
    assert!(
        result
            .unwrap_err()
            .starts_with("Validation failed for tool \"wait\":\n  - seconds: ")
    );
}
