//! Events that fit, events that do not, and what follows.

use serde_json::{Value, json};
use turnstate::proxy::{DecoderLimits, ProxyDecoder};
use turnstate::{AssistantContent, AssistantEvent, StopReason};

use crate::{
    CLOSED, call_delta, call_end, call_start, decode, done, error_of, fold, px, said, start, text_delta, text_start,
};

fn kinds(events: &[AssistantEvent]) -> Vec<&'static str> {
    events.iter().map(AssistantEvent::kind).collect()
}

/// The arguments of the only call, or why they could not be read.
fn arguments(deltas: &[&str]) -> Result<Value, String> {
    let mut events = vec![start(), call_start(0, "a")];
    events.extend(deltas.iter().map(|delta| call_delta(0, delta)));
    events.extend([call_end(0), done("toolUse")]);
    let message = fold(decode(px(&events)));
    let call = message.tool_calls().next().unwrap();
    match &call.arguments_error {
        None => Ok(Value::Object(call.arguments.clone())),
        Some(error) => {
            assert!(call.arguments.is_empty());
            Err(error.clone())
        }
    }
}

#[test]
fn c002_a_body_that_ends_early_is_an_error_with_the_partial() {
    let events = decode(px(&said("hi")));
    assert_eq!(error_of(&events), CLOSED);
    let message = fold(events);
    assert_eq!(
        (message.text().as_str(), message.stop_reason),
        ("hi", StopReason::Error)
    );
    for body in [
        "",
        "{\"error\":\"no\"}",
        "{\n  \"data\": 1\n}\n",
        "<html>\n",
        "\n\n",
        "data",
    ] {
        let events = decode(body);
        assert_eq!((events.len(), error_of(&events).as_str()), (1, CLOSED), "{body}");
    }
}

#[test]
fn c003_the_last_event_needs_no_line_end() {
    let body = px(&[said("hi"), vec![done("stop")]].concat());
    for cut in 0..=2 {
        let body = &body[..body.len() - cut];
        assert_eq!(decode(body).last().unwrap().kind(), "done", "{cut}");
    }
    // Cut anywhere before that, it is a truncation, not malformed.
    let last = px(&[done("stop")]).len();
    for cut in 3..last {
        let events = decode(&body[..body.len() - cut]);
        assert_eq!((events.len(), error_of(&events).as_str()), (4, CLOSED), "{cut}");
    }
    // Also within a character, and behind the line end of the half.
    let half = px(&[start(), text_start(0), text_delta(0, "é")]);
    let at = half.iter().position(|byte| *byte == 0xC3).unwrap() + 1;
    assert_eq!(error_of(&decode(&half[..at])), CLOSED);
    assert_eq!(error_of(&decode("data: {\"type\":\"st\n")), CLOSED);
}

#[test]
fn c005_malformed_arguments_are_never_salvaged() {
    for text in [
        "{\"path\":\"/etc",
        "{\"a\":1,,}",
        "{\"a\":1}{\"b\":2}",
        "{\"a\":1} junk",
    ] {
        let error = arguments(&[text]).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn c006_a_call_still_open_at_done_is_parsed_strictly() {
    for (text, fine) in [("{\"path\":\"/et", false), ("{\"path\":\"/etc\"}", true)] {
        let body = px(&[start(), call_start(0, "a"), call_delta(0, text), done("toolUse")]);
        let message = fold(decode(body));
        let call = message.tool_calls().next().unwrap();
        assert_eq!(call.arguments_error.is_none(), fine);
        assert_eq!(call.arguments.is_empty(), !fine);
    }
}

#[test]
fn c025_nothing_after_done_counts() {
    let events = [said("hi"), vec![done("stop"), text_delta(0, " LATE"), done("length")]].concat();
    let mut decoder = ProxyDecoder::default();
    decoder.push(&px(&events));
    decoder.push(&px(&[text_delta(0, " LATER")]));
    decoder.end();
    decoder.cut("too late");
    decoder.fail(turnstate::ErrorReason::Aborted, "too late");
    let events: Vec<_> = std::iter::from_fn(|| decoder.next_event()).collect();
    assert_eq!(kinds(&events), ["start", "text_start", "text_delta", "done"]);
    assert_eq!(fold(events).text(), "hi");
}

#[test]
fn c026_deep_nesting_is_an_error_not_a_crash() {
    for deep in ["{\"a\":".repeat(100_000), format!("{{\"a\":{}", "[".repeat(100_000))] {
        assert!(arguments(&[&deep]).is_err());
    }
    // The same in the event itself.
    for field in ["toolCall", "unknown", "message"] {
        let body = format!(
            "data: {{\"type\":\"toolcall_end\",\"contentIndex\":0,\"{field}\":{}\n\n",
            "[".repeat(100_000)
        );
        error_of(&decode(body));
    }
    error_of(&decode(format!("data: {}\n\n", "[".repeat(100_000))));
}

#[test]
fn c027_halves_of_a_surrogate_pair_meet() {
    let events = |deltas: &[&str], kind: &str| {
        let line = |what: &str, delta: &str| {
            format!("data: {{\"type\":\"{kind}_{what}\",\"contentIndex\":0,\"delta\":\"{delta}\"}}\n\n")
        };
        let deltas: Vec<_> = deltas.iter().map(|delta| line("delta", delta)).collect();
        [
            line("start", ""),
            deltas.concat(),
            line("end", ""),
            format!("data: {}", done("stop")),
        ]
        .concat()
    };
    for (deltas, expected) in [
        (&["a\\ud83d", "\\ude00b"][..], "a😀b"),
        (&["\\ud83d", "", "\\ude00"], "😀"),
        (&["\\ud83d", "x"], "\u{fffd}x"),
        (&["\\ude00"], "\u{fffd}"),
        (&["a\\ud83d"], "a\u{fffd}"),
    ] {
        for kind in ["text", "thinking"] {
            let message = fold(decode(events(deltas, kind)));
            assert_eq!(message.stop_reason, StopReason::Stop);
            let text = match &message.content[0] {
                AssistantContent::Text(text) => &text.text,
                AssistantContent::Thinking(thinking) => &thinking.thinking,
                other => panic!("{other:?}"),
            };
            assert_eq!(text, expected, "{deltas:?}");
        }
    }
    // A half at the end of a block becomes visible before the end of the block.
    let seen = decode(events(&["\\ud83d"], "text"));
    assert_eq!(
        kinds(&seen),
        ["text_start", "text_delta", "text_delta", "text_end", "done"]
    );
    assert_eq!(seen[1], AssistantEvent::text_delta(0, ""));
    assert_eq!(seen[2], AssistantEvent::text_delta(0, "\u{fffd}"));
    // Blocks do not share their halves, and a truncated answer keeps its own.
    let body = r#"data: {"type":"text_start","contentIndex":0}
data: {"type":"text_start","contentIndex":1}
data: {"type":"text_delta","contentIndex":0,"delta":"\ud83d"}
data: {"type":"text_delta","contentIndex":1,"delta":"\ude00"}
data: {"type":"text_delta","contentIndex":0,"delta":"\ude00\ud83d"}"#;
    assert_eq!(fold(decode(body)).text(), "😀\u{fffd}\n\u{fffd}");
}

#[test]
fn c027_halves_meet_in_tool_arguments_too() {
    // Sliced by the server: the halves are escapes of the event.
    let body = r#"data: {"type":"toolcall_start","contentIndex":0,"id":"a","toolName":"t"}
data: {"type":"toolcall_delta","contentIndex":0,"delta":"{\"k\":\"\ud83d"}
data: {"type":"toolcall_delta","contentIndex":0,"delta":"\ude00\"}"}
data: {"type":"toolcall_end","contentIndex":0}
data: {"type":"done","reason":"toolUse"}"#;
    let message = fold(decode(body));
    assert_eq!(
        Value::from(message.tool_calls().next().unwrap().arguments.clone()),
        json!({"k": "😀"})
    );
    // Written by the model: the halves are escapes of the arguments, one level deeper.
    assert_eq!(arguments(&["{\"k\":\"\\ud83d", "\\ude00\"}"]), Ok(json!({"k": "😀"})));
    assert_eq!(arguments(&["{\"k\":\"\\ud8", "3d\"}"]), Ok(json!({"k": "\u{fffd}"})));
    // In a call that the server sends whole.
    let body = body.replace(
        "\"contentIndex\":0}\ndata: {\"type\":\"done\"",
        "\"contentIndex\":0,\"toolCall\":{\"arguments\":{\"k\":\"\\ud83d\"}}}\ndata: {\"type\":\"done\"",
    );
    let message = fold(decode(body));
    assert_eq!(message.tool_calls().next().unwrap().arguments["k"], "\u{fffd}");
}

#[test]
fn c084_a_malformed_line_ends_the_answer_and_is_not_quoted() {
    for bad in [
        "{oops",
        "oops",
        "{\"type\":\"text_delta\",\"contentIndex\":\"oops\",\"delta\":\"x\"}",
        "{\"type\":\"text_delta\",\"contentIndex\":-1,\"delta\":\"oops\"}",
        "{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":[\"oops\"]}",
        "{\"type\":\"text_delta\",\"contentIndex\":0}",
        "{\"type\":\"text_start\"}",
        "{\"type\":\"done\",\"reason\":\"oops\"}",
        "{\"type\":\"done\"}",
        "{\"type\":\"text_start\",\"contentIndex\":0} oops",
    ] {
        let mut body = px(&said("hi"));
        body.extend(format!("data: {bad}\n\n").bytes());
        body.extend(px(&[text_delta(0, " more"), done("stop")]));
        let events = decode(body);
        assert_eq!(events.len(), 4, "{bad}");
        let error = error_of(&events);
        assert!(
            error.starts_with("Could not parse an event of the proxy server: "),
            "{error}"
        );
        assert!(!error.contains("oops"), "{error}");
        assert_eq!(fold(events).text(), "hi");
    }
    // Half a value, and then the blank line.
    let error = error_of(&decode("data: {\"type\":\n\n"));
    assert!(error.ends_with("ends too early"), "{error}");
}

#[test]
fn c085_an_event_for_a_missing_or_wrong_block() {
    let thinking = json!({"type": "thinking_start", "contentIndex": 0});
    let text_end = json!({"type": "text_end", "contentIndex": 0});
    for (events, message) in [
        (
            vec![start(), text_delta(0, "x")],
            "Received text_delta for non-text content",
        ),
        (
            vec![start(), thinking.clone(), text_end],
            "Received text_end for non-text content",
        ),
        (
            vec![start(), text_start(0), call_delta(0, "{")],
            "Received toolcall_delta for non-toolCall content",
        ),
        (
            vec![start(), call_start(0, "a"), call_end(0), call_delta(0, "{")],
            "Received toolcall_delta for non-toolCall content",
        ),
    ] {
        let good = events.len() - 1;
        let seen = decode(px(&[events, vec![done("stop")]].concat()));
        assert_eq!(seen.len(), good + 1);
        assert_eq!(error_of(&seen), message);
    }
    // Ignored, with no event.
    let seen = decode(px(&[text_start(0), call_end(0), call_end(7), done("stop")]));
    assert_eq!(kinds(&seen), ["text_start", "done"]);
    // Replaces the block.
    let seen = decode(px(&[said("old"), said("new"), vec![done("stop")]].concat()));
    assert_eq!(fold(seen).text(), "new");
}

#[test]
fn c086_interleaved_calls() {
    let events = [
        start(),
        call_start(0, "a"),
        call_start(1, "b"),
        call_delta(0, "{\"x\":"),
        call_delta(1, "{\"y\":"),
        call_delta(0, "1}"),
        call_delta(1, "2}"),
        call_end(1),
        call_end(0),
        done("toolUse"),
    ];
    let message = fold(decode(px(&events)));
    let calls: Vec<_> = message
        .tool_calls()
        .map(|call| (call.id.as_str(), Value::from(call.arguments.clone())))
        .collect();
    assert_eq!(calls, [("a", json!({"x": 1})), ("b", json!({"y": 2}))]);
}

#[test]
fn c087_no_or_empty_deltas_are_empty_arguments() {
    for deltas in [&[][..], &[""], &["   "]] {
        assert_eq!(arguments(deltas), Ok(json!({})));
    }
}

#[test]
fn c088_arguments_that_are_not_an_object() {
    assert_eq!(arguments(&["null"]), Ok(json!({})));
    for text in ["[1,2]", "42", "\"x\""] {
        assert!(arguments(&[text]).unwrap_err().contains(text));
    }
}

#[test]
fn c089_the_call_in_toolcall_end_counts() {
    let whole = json!({"type": "toolCall", "id": "a2", "name": "t2", "arguments": {"x": 2}, "thoughtSignature": "sig"});
    for deltas in [vec![], vec![call_delta(0, "{\"x\":1}")], vec![call_delta(0, "{\"x\":")]] {
        let end = json!({"type": "toolcall_end", "contentIndex": 0, "toolCall": whole});
        let body = px(&[vec![call_start(0, "a")], deltas, vec![end, done("toolUse")]].concat());
        let message = fold(decode(body));
        assert_eq!(
            serde_json::to_value(message.tool_calls().next().unwrap()).unwrap(),
            whole
        );
    }
}

#[test]
fn c094_an_abort_that_the_server_reports() {
    let events = decode(px(&[
        start(),
        json!({"type": "error", "reason": "aborted", "errorMessage": "stopped"}),
    ]));
    let message = fold(events);
    assert_eq!(message.stop_reason, StopReason::Aborted);
    assert_eq!(message.error_message.as_deref(), Some("stopped"));
}

#[test]
fn indices_may_have_gaps_but_not_be_absurd() {
    let body = px(&[
        text_start(9),
        text_delta(9, "b"),
        text_start(3),
        text_delta(3, "a"),
        done("stop"),
    ]);
    assert_eq!(fold(decode(body)).text(), "a\nb");
    for index in [4_096, u64::from(u32::MAX), u64::MAX] {
        error_of(&decode(px(&[text_start(index), done("stop")])));
    }
}

#[test]
fn usage_may_be_missing_or_odd() {
    for (usage, input) in [
        ("", 0),
        (",\"usage\":null", 0),
        (",\"usage\":{\"input\":7}", 7),
        (",\"usage\":{\"cost\":{\"total\":null}}", 0),
    ] {
        let events = decode(format!("data: {{\"type\":\"done\",\"reason\":\"stop\"{usage}}}"));
        let message = fold(events);
        assert_eq!(
            (message.stop_reason, message.usage.input),
            (StopReason::Stop, input),
            "{usage}"
        );
    }
}

#[test]
fn the_head_and_the_whole_message_arrive() {
    let head = json!({"type": "start", "api": "a", "provider": "p", "model": "m-2", "responseModel": "m-3", "responseId": "r"});
    let message = fold(decode(px(&[head, done("stop")])));
    assert_eq!(
        (
            message.model.as_str(),
            message.response_model.as_deref(),
            message.response_id.as_deref()
        ),
        ("m-2", Some("m-3"), Some("r"))
    );
    let whole = json!({"role": "assistant", "content": [{"type": "text", "text": "whole"}], "responseId": "r"});
    let message = fold(decode(px(&[
        start(),
        json!({"type": "done", "reason": "length", "message": whole}),
    ])));
    assert_eq!(
        (message.text().as_str(), message.stop_reason),
        ("whole", StopReason::Length)
    );
    // In the form of Pi's own process the events carry more.
    let body = px(&[
        json!({"type": "start", "partial": {"role": "assistant"}}),
        json!({"type": "text_start", "contentIndex": 0, "partial": {}}),
        json!({"type": "text_end", "contentIndex": 0, "content": "x", "partial": {}, "contentSignature": "s"}),
        done("stop"),
    ]);
    assert_eq!(kinds(&decode(body)), ["start", "text_start", "text_end", "done"]);
}

#[test]
fn lines_and_events_have_a_limit() {
    let run = |limits: DecoderLimits, body: &[u8]| {
        let mut decoder = ProxyDecoder::new(limits);
        let pieces = body.chunks(7).map(|piece| decoder.push(piece)).count();
        assert!(pieces > 0 && decoder.is_done());
        std::iter::from_fn(|| decoder.next_event()).collect::<Vec<_>>()
    };
    let small = DecoderLimits::default().with_max_line(100);
    for endless in ["data: ", ": ", "", "event: "] {
        let body = [px(&said("hi")), format!("{endless}{}", "x".repeat(200)).into_bytes()].concat();
        let events = run(small, &body);
        assert_eq!(events.len(), 4);
        assert_eq!(
            error_of(&events),
            "a line of the proxy server's answer is longer than 100 bytes"
        );
    }
    let small = DecoderLimits::default().with_max_event(100);
    let endless = format!("data: [\n{}", "data: 1,\n".repeat(60));
    assert_eq!(
        error_of(&run(small, endless.as_bytes())),
        "an event of the proxy server is longer than 100 bytes"
    );
    let long = format!("data: \"{}\"\n", "x".repeat(200));
    assert_eq!(
        error_of(&run(small, long.as_bytes())),
        "an event of the proxy server is longer than 100 bytes"
    );
}
