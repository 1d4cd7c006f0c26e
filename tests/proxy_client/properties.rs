//! What holds for every body, and what it costs.

use proptest::prelude::*;
use turnstate::AssistantEvent;
use turnstate::proxy::{DecoderLimits, ProxyDecoder};

use crate::{call_delta, call_start, decode, decode_pieces, done, fold, px, text_start};

/// Pieces of bodies, good and bad, that mean something next to each other.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"data: "[..], b"data:", b"data", b"\n", b"\r", b"\r\n", b"\n\n", b": ping\n", b"\xEF\xBB\xBF", b"event: x\n",
        b"{\"type\":\"start\"}", b"{\"type\":\"text_start\",\"contentIndex\":0}",
        b"{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":\"\\ud83d\"}",
        b"{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":\"\\ude00\xC3\xA9\"}",
        b"{\"type\":\"text_end\",", b"\"contentIndex\":0}", b"{\"type\":\"toolcall_start\",\"contentIndex\":1}",
        b"{\"type\":\"toolcall_delta\",\"contentIndex\":1,\"delta\":\"{\"}", b"{\"type\":\"toolcall_end\",\"contentIndex\":1}",
        b"{\"type\":\"weird\",\"delta\":1}", b"{\"type\":\"done\",\"reason\":\"stop\"}", b"[DONE]", b"\xFF", b"{", b"}", b"\"",
        b"data: {\"type\":\"text_start\",\"contentIndex\":0}\n\ndata: {\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":\"a\\ud83d\"}\n\n",
    ]);
    prop_oneof![4 => known.prop_map(<[u8]>::to_vec), 1 => prop::collection::vec(any::<u8>(), 0..8)]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(fragment(), 0..24).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn the_events_do_not_depend_on_the_cuts(body in body(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces = Vec::new();
        for cut in cuts.into_iter().chain([body.len()]) {
            pieces.push(&body[from..cut]);
            from = cut;
        }
        let whole = decode(&body);
        prop_assert_eq!(&decode_pieces(pieces), &whole);
        prop_assert_eq!(&decode_pieces(body.chunks(1)), &whole);
    }

    /// Total: each event fits (`fold` applies them all), exactly one terminal event comes, last.
    #[test]
    fn every_body_is_a_good_answer(body in prop_oneof![body(), prop::collection::vec(any::<u8>(), 0..200)]) {
        let events = decode(&body);
        let terminal = events.iter().filter(|event| event.is_terminal()).count();
        prop_assert_eq!(terminal, 1);
        prop_assert!(events.last().unwrap().is_terminal());
        fold(events);
    }

    /// Where the plain reader of an event accepts it, the decoder reads the same.
    #[test]
    fn an_event_reads_as_by_its_own_reader(text in any::<String>(), signature in any::<Option<String>>(), index in 0_usize..100) {
        let events = [
            AssistantEvent::start(),
            AssistantEvent::TextStart { content_index: index },
            AssistantEvent::text_delta(index, text.as_str()),
            AssistantEvent::TextEnd { content_index: index, content_signature: signature.clone() },
            AssistantEvent::ThinkingStart { content_index: index },
            AssistantEvent::thinking_delta(index, text.as_str()),
            AssistantEvent::ThinkingEnd { content_index: index, content_signature: signature },
            AssistantEvent::tool_call_start(index, text.as_str(), "t"),
            AssistantEvent::tool_call_delta(index, text.as_str()),
            AssistantEvent::ToolCallEnd { content_index: index, tool_call: None },
            AssistantEvent::error(text.as_str()),
        ];
        let json: Vec<_> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
        prop_assert_eq!(decode(px(&json)), events);
    }
}

/// Decodes `body` in pieces of `size` bytes and checks that no byte was touched more than a few times.
fn cost(body: &[u8], size: usize, limits: DecoderLimits) -> usize {
    let mut decoder = ProxyDecoder::new(limits);
    let mut events = 0;
    for piece in body.chunks(size) {
        decoder.push(piece);
        events += std::iter::from_fn(|| decoder.next_event()).count();
    }
    decoder.end();
    events += std::iter::from_fn(|| decoder.next_event()).count();
    let steps = decoder.steps();
    assert!(
        steps <= 4 * body.len() as u64,
        "{steps} steps for {} bytes in pieces of {size}",
        body.len()
    );
    events
}

#[test]
fn the_cost_is_linear_in_the_body() {
    let limits = DecoderLimits::default();
    let text = "x".repeat(8 << 20);
    let long_line = px(&[serde_json::json!({"type": "error", "reason": "error", "errorMessage": text})]);
    for size in [1, 1000, usize::MAX] {
        assert_eq!(cost(&long_line, size, limits), 1);
    }

    let mut small = vec![call_start(0, "a")];
    small.extend((0..1 << 14).map(|_| call_delta(0, "x")));
    small.push(done("toolUse"));
    for size in [1, 1000, usize::MAX] {
        assert_eq!(cost(&px(&small), size, limits), small.len());
    }

    // An event of many lines, and lines that are no events.
    let many = format!("data: {{\"type\":\"start\"\n{}data: }}\n\n", "data: \n".repeat(1 << 14));
    let none = ": ping\n\ndata: {}\n\ndata: [DONE]\n\n".repeat(1 << 12);
    for (body, events) in [(many, 2), (none, 1)] {
        for size in [1, 1000, usize::MAX] {
            assert_eq!(cost(body.as_bytes(), size, limits), events);
        }
    }
}

#[test]
fn a_megabyte_of_arguments_in_deltas_of_one_character() {
    let text = format!("{{\"k\":\"{}\"}}", "y".repeat(1 << 20));
    let mut events = vec![call_start(0, "a")];
    events.extend(text.chars().map(|delta| call_delta(0, &delta.to_string())));
    events.push(done("toolUse"));
    let message = fold(decode(px(&events)));
    let call = message.tool_calls().next().unwrap();
    assert_eq!(call.arguments["k"].as_str().unwrap().len(), 1 << 20);
}

#[test]
fn no_order_of_indices_is_slow() {
    let blocks: Vec<_> = (0..4_000).rev().map(text_start).chain([done("stop")]).collect();
    assert_eq!(decode(px(&blocks)).len(), 4_001);
}
