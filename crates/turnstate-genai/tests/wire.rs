//! Whole answers over a socket: what arrives at the server, and what is told of its answer.

use futures_util::StreamExt;
use loopback::{Reply, Server};
use serde_json::{Value, json};
use turnstate::{
    Agent, AgentEvent, AssistantEvent, CancellationToken, ErrorReason, Failure, Message, Model, Request, Retry,
    StreamFn, json_tool,
};
use turnstate_genai::GenaiModel;

fn model(api: &str, url: &str) -> Model {
    let mut model = Model::new("m-1").with_provider("mine", api);
    model.base_url = format!("{url}/v1");
    model
}

fn request(model: Model) -> Request {
    let mut request = Request::new(model);
    request.system_prompt = "Be brief.".into();
    request.messages.push(Message::user("hi").into());
    request
}

/// What is told of an answer, as JSON, without the usage where it is nothing.
async fn told(api: &str, reply: Reply) -> Vec<Value> {
    let server = Server::start([reply]).await.unwrap();
    let stream = GenaiModel::new().stream(request(model(api, server.url())), CancellationToken::new());
    let events: Vec<AssistantEvent> = stream.collect().await;
    let json = |event: &AssistantEvent| {
        let mut json = serde_json::to_value(event).unwrap();
        if let Some(usage) = json.get_mut("usage") {
            *usage = json!([usage["input"], usage["output"], usage["cacheRead"], usage["cacheWrite"]]);
        }
        json
    };
    events.iter().map(json).collect()
}

fn start(api: &str, id: &str) -> Value {
    json!({"type": "start", "api": api, "provider": "mine", "responseModel": "m-1-2026", "responseId": id})
}

#[tokio::test]
async fn chat_completions() {
    let text = Reply::data([
        r#"{"id":"r1","model":"m-1-2026","error":null,"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"id":"r1","choices":[{"index":0,"delta":{"reasoning_content":"Hm."}}]}"#,
        r#"{"id":"r1","choices":[{"index":0,"delta":{"content":"Hel","tool_calls":null}}]}"#,
        r#"{"id":"r1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}"#,
        r#"{"id":"r1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"id":"r1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        "[DONE]",
    ]);
    assert_eq!(
        told("openai-completions", text).await,
        [
            start("openai-completions", "r1"),
            json!({"type": "thinking_start", "contentIndex": 0}),
            json!({"type": "thinking_delta", "contentIndex": 0, "delta": "Hm."}),
            json!({"type": "thinking_end", "contentIndex": 0}),
            json!({"type": "text_start", "contentIndex": 1}),
            json!({"type": "text_delta", "contentIndex": 1, "delta": "Hel"}),
            json!({"type": "text_delta", "contentIndex": 1, "delta": "lo"}),
            json!({"type": "text_end", "contentIndex": 1}),
            json!({"type": "done", "reason": "stop", "usage": [8, 3, 4, 0]}),
        ]
    );
}

/// Interleaved, one without an id, one whose name comes late, and an index that no list may grow to.
#[tokio::test]
async fn calls_of_chat_completions() {
    let calls = Reply::data([
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":""}},{"index":4294967295,"function":{"name":"list","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":1}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":4294967295,"function":{"arguments":"}"}},{"index":2,"id":"c","function":{"arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":2,"function":{"name":"now"}}]},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]);
    assert_eq!(
        told("openai-completions", calls).await[1..],
        [
            json!({"type": "toolcall_start", "contentIndex": 0, "id": "a", "toolName": "read"}),
            json!({"type": "toolcall_start", "contentIndex": 1, "id": "call_1_1", "toolName": "list"}),
            json!({"type": "toolcall_delta", "contentIndex": 1, "delta": "{"}),
            json!({"type": "toolcall_delta", "contentIndex": 0, "delta": "{\"p\":1}"}),
            json!({"type": "toolcall_delta", "contentIndex": 1, "delta": "}"}),
            json!({"type": "toolcall_start", "contentIndex": 2, "id": "c", "toolName": ""}),
            json!({"type": "toolcall_end", "contentIndex": 0}),
            json!({"type": "toolcall_end", "contentIndex": 1}),
            json!({"type": "toolcall_end", "contentIndex": 2, "toolCall": {"name": "now"}}),
            json!({"type": "done", "reason": "toolUse", "usage": [0, 0, 0, 0]}),
        ]
    );
}

#[tokio::test]
async fn messages() {
    let body = [
        r#"{"type":"message_start","message":{"id":"r2","model":"m-1-2026","usage":{"input_tokens":2147483647,"output_tokens":1,"cache_read_input_tokens":7}}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"si"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"gn"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"secret"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Look."}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let expected = [
        start("anthropic-messages", "r2"),
        json!({"type": "thinking_start", "contentIndex": 0}),
        json!({"type": "thinking_delta", "contentIndex": 0, "delta": "Hm."}),
        json!({"type": "thinking_end", "contentIndex": 0, "contentSignature": "sign"}),
        json!({"type": "thinking_start", "contentIndex": 1}),
        json!({"type": "thinking_delta", "contentIndex": 1, "delta": "[Reasoning redacted]"}),
        json!({"type": "thinking_end", "contentIndex": 1, "contentSignature": "secret"}),
        json!({"type": "text_start", "contentIndex": 2}),
        json!({"type": "text_delta", "contentIndex": 2, "delta": "Look."}),
        json!({"type": "text_end", "contentIndex": 2}),
        json!({"type": "toolcall_start", "contentIndex": 3, "id": "t", "toolName": "read"}),
        json!({"type": "toolcall_delta", "contentIndex": 3, "delta": "{}"}),
        json!({"type": "toolcall_end", "contentIndex": 3}),
        json!({"type": "done", "reason": "toolUse", "usage": [2_147_483_647, 9, 7, 0]}),
    ];
    for (line, end) in [("\n", "\n\n"), ("\r\n", "\r\n\r\n")] {
        let event = |frame: &&str| {
            let kind = serde_json::from_str::<Value>(frame).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned();
            format!("event: {kind}{line}data: {frame}{end}")
        };
        let body: String = body.iter().map(event).collect();
        assert_eq!(
            told("anthropic-messages", Reply::stream(body)).await,
            expected,
            "{line:?}"
        );
    }
}

#[tokio::test]
async fn responses() {
    let body = Reply::data([
        r#"{"type":"response.created","response":{"id":"r3","model":"m-1-2026"}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"Hm."}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","encrypted_content":"enc"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"f","name":"read","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"f","name":"read","arguments":"{\"a\":1}"}}"#,
        r#"{"type":"response.completed","response":{"id":"r3","status":"completed","output":[],"usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11}}}"#,
    ]);
    assert_eq!(
        told("openai-responses", body).await,
        [
            start("openai-responses", "r3"),
            json!({"type": "thinking_start", "contentIndex": 0}),
            json!({"type": "thinking_delta", "contentIndex": 0, "delta": "Hm."}),
            json!({"type": "thinking_end", "contentIndex": 0, "contentSignature": "enc"}),
            json!({"type": "toolcall_start", "contentIndex": 1, "id": "f", "toolName": "read"}),
            json!({"type": "toolcall_delta", "contentIndex": 1, "delta": "{\"a\":"}),
            json!({"type": "toolcall_delta", "contentIndex": 1, "delta": "1}"}),
            json!({"type": "toolcall_end", "contentIndex": 1}),
            json!({"type": "done", "reason": "toolUse", "usage": [5, 6, 0, 0]}),
        ]
    );
}

/// How answers end, and what is kept of it.
#[tokio::test]
async fn ends() {
    let chunk = |rest: &str| format!(r#"{{"choices":[{{"delta":{{"content":"x"}}{rest}}}]}}"#);
    let finish = |reason: &str| chunk(&format!(r#","finish_reason":"{reason}""#));
    let connect = Some(json!({"kind": "connect"}));
    for (frames, reply, reason, message, failure) in [
        (vec![finish("length"), "[DONE]".into()], None, "length", None, None),
        // Cut behind the finish reason: all was said.
        (vec![finish("stop")], None, "stop", None, None),
        (
            vec![chunk("")],
            None,
            "error",
            Some("the answer was cut off: it ended without a stop reason"),
            None,
        ),
        (
            vec![],
            None,
            "error",
            Some("the answer was cut off: it ended without a stop reason"),
            connect,
        ),
        (
            vec![finish("content_filter")],
            None,
            "error",
            Some("the provider withheld the answer: content_filter"),
            None,
        ),
        (
            vec![finish("network_error")],
            None,
            "error",
            Some("the provider stopped: network_error"),
            None,
        ),
        (
            vec![
                chunk(""),
                r#"{"error":{"message":"gone","code":502},"choices":[]}"#.into(),
            ],
            None,
            "error",
            Some("gone"),
            Some(json!({"kind": "status", "status": 502})),
        ),
        (
            vec![],
            Some(Reply::error(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "7")),
            "error",
            Some("429 Too Many Requests: slow down"),
            Some(json!({"kind": "status", "status": 429, "retryAfterMs": 7000})),
        ),
    ] {
        let reply = reply.unwrap_or_else(|| Reply::data(frames.iter().map(String::as_str)));
        let events = told("openai-completions", reply).await;
        let last = events.last().unwrap();
        assert_eq!(
            (
                last["reason"].as_str().unwrap(),
                last["errorMessage"].as_str(),
                last.get("failure").cloned()
            ),
            (reason, message, failure),
            "{frames:?}"
        );
    }
}

#[tokio::test]
async fn an_abort_closes_the_connection() {
    let reply = Reply::data([r#"{"choices":[{"delta":{"content":"x"}}]}"#]).open();
    let mut server = Server::start([reply]).await.unwrap();
    let cancel = CancellationToken::new();
    let mut stream = GenaiModel::new().stream(request(model("", server.url())), cancel.clone());
    while !matches!(stream.next().await, Some(AssistantEvent::TextDelta { .. })) {}
    cancel.cancel();
    let rest: Vec<_> = stream.by_ref().collect().await;
    let last = rest.last().unwrap();
    assert!(
        matches!(
            last,
            AssistantEvent::Error {
                reason: ErrorReason::Aborted,
                ..
            }
        ),
        "{last:?}"
    );
    server.closed().await;
}

/// A run with a tool, over both protocols, behind a provider that is busy first: every request, to the letter.
#[tokio::test]
async fn runs() {
    let openai = [
        Reply::data([
            r#"{"id":"1","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"add","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ]),
        Reply::data([
            r#"{"id":"2","choices":[{"delta":{"content":"Two."},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ]),
    ];
    let anthropic = [
        Reply::data([
            r#"{"type":"message_start","message":{"id":"1"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"add"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            r#"{"type":"message_stop"}"#,
        ]),
        Reply::data([
            r#"{"type":"message_start","message":{"id":"2"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Two."}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            r#"{"type":"message_stop"}"#,
        ]),
    ];
    let openai_messages = json!([
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": "c", "function": {"name": "add", "arguments": "{\"a\":1}"}},
        ]},
        {"role": "tool", "content": "2", "tool_call_id": "c"},
    ]);
    let anthropic_messages = json!([
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "2"}], "is_error": false},
        ]},
    ]);
    for (api, path, replies, messages) in [
        ("openai-completions", "/v1/chat/completions", openai, openai_messages),
        ("anthropic-messages", "/v1/messages", anthropic, anthropic_messages),
    ] {
        let busy = Reply::error(529, "{}").header("retry-after", "3");
        let server = Server::start(std::iter::once(busy).chain(replies)).await.unwrap();
        let waits = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = waits.clone();
        let model_fn = Retry::new(GenaiModel::new(), |_| std::future::ready(()))
            .on_retry(move |retry| told.lock().unwrap().push((retry.delay.as_secs(), retry.failure)));
        let agent = Agent::builder(model(api, server.url()), model_fn)
            .tool(json_tool("add", "Adds", json!({"type": "object"}), async |_, _| "2"))
            .build();
        let outcome = agent.prompt("1 + 1?").unwrap().await;
        let answer = outcome.into_result().unwrap();
        assert_eq!(answer.text(), "Two.", "{api}");
        let busy = Failure::Status {
            status: 529,
            retry_after_ms: Some(3_000),
        };
        assert_eq!(*waits.lock().unwrap(), [(3, busy)]);
        let asked = server.asked();
        assert_eq!(
            asked.iter().map(|asked| asked.path.as_str()).collect::<Vec<_>>(),
            [path; 3]
        );
        assert_eq!(asked[0], asked[1]);
        assert_eq!(asked[2].body["messages"], messages);
        assert_eq!(asked[2].body["model"], "m-1");
        // No key was given, and no provider named whose key would be in the environment.
        let key = asked[0].header("x-api-key").or(asked[0].header("authorization"));
        assert!(matches!(key, Some("no-key" | "Bearer no-key")), "{key:?}");
    }
}

/// Images, own and foreign reasoning, failed results and options, as they are on the wire.
#[tokio::test]
async fn requests() {
    let transcript = |api: &str| {
        let thinking = json!({"type": "thinking", "thinking": "Hm.", "thinkingSignature": "sign"});
        let redacted = json!({"type": "thinking", "thinking": "[Reasoning redacted]", "thinkingSignature": "secret"});
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "Look."},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            ], "timestamp": 0},
            {"role": "assistant", "api": api, "provider": "mine", "model": "other", "content": [
                thinking, {"type": "text", "text": "Foreign."},
            ]},
            {"role": "assistant", "api": api, "provider": "mine", "model": "m-1", "content": [
                thinking, redacted, {"type": "text", "text": ""},
                {"type": "toolCall", "id": "c", "name": "see", "arguments": {}},
            ]},
            {"role": "toolResult", "toolCallId": "c", "toolName": "see", "isError": true, "timestamp": 0, "content": [
                {"type": "text", "text": "dark"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            ]},
        ])
    };
    let anthropic = json!([
        {"role": "user", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ]},
        {"role": "assistant", "content": "Foreign."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sign"},
            {"type": "redacted_thinking", "data": "secret"},
            {"type": "tool_use", "id": "c", "name": "see", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [
            {"type": "text", "text": "dark"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ]}]},
    ]);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}});
    let openai = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {"role": "assistant", "content": "Foreign."},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.\n[Reasoning redacted]", "tool_calls": [
            {"type": "function", "id": "c", "function": {"name": "see", "arguments": "{}"}},
        ]},
        {"role": "tool", "content": "dark", "tool_call_id": "c"},
        {"role": "user", "content": [{"type": "text", "text": "Images of the tool results:"}, image]},
    ]);
    for (api, messages) in [("anthropic-messages", anthropic), ("openai-completions", openai)] {
        let server = Server::start([Reply::error(500, "")]).await.unwrap();
        let mut request = Request::new(model(api, server.url()));
        request.system_prompt = "Be brief.".into();
        for message in transcript(api).as_array().unwrap() {
            let message: Message = serde_json::from_value(message.clone()).unwrap();
            request.messages.push(message.into());
        }
        request.api_key = Some("secret".into());
        let options = json!({"temperature": 0.5, "maxTokens": 7, "headers": {"x-own": "1"}});
        request.options = std::sync::Arc::new(serde_json::from_value(options).unwrap());
        let _: Vec<_> = GenaiModel::new()
            .stream(request, CancellationToken::new())
            .collect()
            .await;
        let asked = server.asked().remove(0);
        assert_eq!(asked.body["messages"], messages, "{api}");
        assert_eq!(
            (&asked.body["temperature"], &asked.body["max_tokens"]),
            (&json!(0.5), &json!(7))
        );
        assert_eq!(asked.header("x-own"), Some("1"));
        let key = asked.header("x-api-key").or(asked.header("authorization"));
        assert!(matches!(key, Some("secret" | "Bearer secret")), "{key:?}");
    }
}

/// What the user says while a tool runs is in the next request, behind the result.
#[tokio::test]
async fn steering() {
    let server = Server::start([
        Reply::data([
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"now","arguments":""}}]},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ]),
        Reply::data([r#"{"choices":[{"delta":{"content":"Noon."},"finish_reason":"stop"}]}"#, "[DONE]"]),
    ])
    .await
    .unwrap();
    let agent = Agent::builder(model("openai-completions", server.url()), GenaiModel::new())
        .tool(json_tool(
            "now",
            "The time",
            json!({"type": "object"}),
            async |_, _| "12:00",
        ))
        .build();
    let mut run = agent.prompt("What time is it?").unwrap();
    while let Some(event) = run.next().await {
        if let AgentEvent::ToolExecutionStart { .. } = event {
            agent.steer("In one word.");
        }
    }
    assert_eq!(run.await.into_result().unwrap().text(), "Noon.");
    assert_eq!(
        server.asked()[1].body["messages"],
        json!([
            {"role": "user", "content": "What time is it?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"type": "function", "id": "c", "function": {"name": "now", "arguments": "{}"}},
            ]},
            {"role": "tool", "content": "12:00", "tool_call_id": "c"},
            {"role": "user", "content": "In one word."},
        ])
    );
}
