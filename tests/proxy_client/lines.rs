//! Lines and fields of the event stream.

use serde_json::json;
use turnstate::AssistantEvent;

use crate::{decode, decode_pieces, done, fold, px, said, start, text_delta, text_start};

fn good() -> (String, Vec<AssistantEvent>) {
    let body = String::from_utf8(px(&[said("h😀é中"), vec![done("stop")]].concat())).unwrap();
    let events = decode(&body);
    assert_eq!(fold(events.clone()).text(), "h😀é中");
    (body, events)
}

#[test]
fn c028_cut_anywhere_it_is_the_same() {
    let (body, events) = good();
    let body = body.as_bytes();
    assert_eq!(decode_pieces(body.chunks(1)), events);
    for at in 0..body.len() {
        let (one, two) = body.split_at(at);
        assert_eq!(decode_pieces([one, b"", two]), events, "{at}");
    }
}

#[test]
fn c029_the_space_behind_the_colon_is_optional() {
    let (body, events) = good();
    assert_eq!(decode(body.replace("data: ", "data:")), events);
    assert_eq!(decode(body.replace("data: ", "data:  ")), events);
}

#[test]
fn c078_cr_lf_and_crlf_end_lines() {
    let (body, events) = good();
    let mut mixed = body.clone();
    for end in ["\r\n", "\r", "\r\n\r", "\n\r"] {
        mixed = mixed.replacen("\n\n", end, 1);
        let body = body.replace('\n', end);
        assert_eq!(decode(&body), events, "{end:?}");
        for at in 0..body.len() {
            let (one, two) = body.as_bytes().split_at(at);
            assert_eq!(decode_pieces([one, two]), events, "{end:?} cut at {at}");
        }
    }
    assert_eq!(decode(mixed), events);
}

#[test]
fn c078_a_split_crlf_is_no_blank_line() {
    let pieces = [
        "data: {\"type\":\"text_start\",\r",
        "\ndata: \"contentIndex\":0}\r",
        "\n\r",
        "\n",
    ];
    let events = decode_pieces(pieces);
    assert_eq!(events[0], AssistantEvent::TextStart { content_index: 0 });
}

#[test]
fn c079_nothing_else_ends_a_line() {
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f";
    let mut body = px(&[start(), text_start(0)]);
    // Raw, as it is: even the control characters, which JSON wants escaped.
    body.extend(format!("data: {{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":\"{text}\"}}\n\n").bytes());
    body.extend(px(&[done("stop")]));
    assert_eq!(fold(decode(body)).text(), text);
}

#[test]
fn c080_an_event_over_several_data_lines() {
    let (body, events) = good();
    let spread = body
        .replace("\"contentIndex\"", "\ndata: \"contentIndex\"")
        .replace(":{", ":\ndata\ndata:{");
    assert_ne!(body, spread);
    assert_eq!(decode(&spread), events);
    assert_eq!(decode_pieces(spread.as_bytes().chunks(1)), events);
    // Comments and other fields between its lines do not part it, and the end of the body ends it.
    let last = "data: {\"type\":\n: ping\nid: 3\ndata: \"done\",\ndata: \"reason\":\"stop\"\ndata: }";
    assert_eq!(decode(last), [AssistantEvent::done(turnstate::DoneReason::Stop)]);
}

#[test]
fn c080_an_event_per_line() {
    let (body, events) = good();
    assert_eq!(decode(body.replace("\n\n", "\n")), events);
    assert_eq!(decode(body.replace("\n\n", "\r")), events);
}

#[test]
fn c080_the_blank_line_dispatches_at_once() {
    let mut decoder = turnstate::proxy::ProxyDecoder::default();
    decoder.push(b"data: {\"type\":\ndata: \"start\"}\n");
    assert_eq!(decoder.next_event(), None);
    decoder.push(b"\n");
    assert_eq!(decoder.next_event(), Some(AssistantEvent::start()));
    decoder.push(b"data: {\"type\":\"start\"}\r");
    assert_eq!(decoder.next_event(), Some(AssistantEvent::start()));
}

#[test]
fn c082_what_is_not_for_us_is_ignored() {
    let noise = [
        ": ping",
        ":",
        "event: message",
        "id: 7",
        "retry: 100",
        "data",
        "data:",
        "data: ",
        "data:   ",
        "nocolon",
        "dat",
        "datax: {}",
        " data: {}",
        "data: [DONE]",
        "data: 7",
        "data: null",
        "data: \"x\"",
        "data: [1]",
        "data: {}",
    ];
    let unknown = [
        json!({"type": "weird"}),
        json!({"type": "weird", "contentIndex": "x", "delta": {"a": 1}, "usage": [], "message": 3, "reason": {}}),
        json!({"type": 3}),
        json!({"type": null, "delta": 5}),
    ];
    let (body, events) = good();
    for end in ["\n", "\n\n", "\r\n"] {
        let unknown = unknown.iter().map(|event| format!("data: {event}"));
        let noise: Vec<_> = noise.iter().map(|line| (*line).to_owned()).chain(unknown).collect();
        let noise = noise.join(end) + end;
        assert_eq!(
            decode(format!("{noise}{}", body.replace("\n\n", &format!("\n\n{noise}")))),
            events
        );
    }
    // Half of a surrogate pair in an event that means nothing here.
    assert_eq!(
        decode(format!("data: {{\"type\":\"weird\",\"x\":\"\\ud83d\"}}\n\n{body}")),
        events
    );
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let (body, events) = good();
    let body = format!("\u{feff}{body}");
    assert_eq!(decode(&body), events);
    assert_eq!(decode_pieces(body.as_bytes().chunks(1)), events);
}

#[test]
fn bytes_that_are_not_utf_8_are_replaced() {
    let mut body = px(&[start(), text_start(0), text_delta(0, "a@b")]);
    body.iter_mut()
        .filter(|byte| **byte == b'@')
        .for_each(|byte| *byte = 0xFF);
    assert_eq!(fold(decode(body)).text(), "a\u{fffd}b");
}
