//! Reading the answer of a proxy server.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstate::proxy::ProxyDecoder;
use turnstate::{AssistantEvent, DoneReason};

use super::group;

/// What fits into a packet of Ethernet.
const PACKET: usize = 1_460;

const PROSE: &str = "The forecast for Lysaker: rain until noon (\u{2265} 4 mm), then 12 \u{b0}C and \"mostly sunny\".\n\
                     Take the 07:42; it is 21 minutes to the fjord, and there\u{2019}s a bus behind it \u{1f68c}.\n";

/// The words of a text without end, as models stream them: with the space before them.
fn words() -> impl Iterator<Item = &'static str> {
    let mut words: Vec<&str> = PROSE.split_inclusive(' ').collect();
    words.retain(|word| !word.is_empty());
    words.into_iter().cycle()
}

/// A thought, a text and a tool call, over and over, until they are so many bytes of JSON.
fn answer(bytes: usize) -> Vec<AssistantEvent> {
    let mut events = vec![AssistantEvent::start()];
    let mut size = 0;
    for i in (0..).step_by(3) {
        let first = events.len();
        events.push(AssistantEvent::thinking_start(i));
        events.extend(words().take(60).map(|word| AssistantEvent::thinking_delta(i, word)));
        events.push(AssistantEvent::thinking_end(i));
        events.push(AssistantEvent::text_start(i + 1));
        events.extend(words().take(200).map(|word| AssistantEvent::text_delta(i + 1, word)));
        events.push(AssistantEvent::text_end(i + 1));
        events.extend(call(i + 2, &words().take(20).collect::<String>()));
        size += events[first..].iter().map(|event| json(event).len()).sum::<usize>();
        if size >= bytes {
            break;
        }
    }
    events.push(AssistantEvent::done(DoneReason::ToolUse));
    events
}

/// A call that writes a text to a file, its arguments in pieces of 8 bytes or a few more.
fn call(index: usize, text: &str) -> Vec<AssistantEvent> {
    let arguments = serde_json::json!({ "path": "/tmp/forecast.md", "text": text }).to_string();
    let mut events = vec![AssistantEvent::tool_call_start(index, format!("call_{index}"), "write")];
    let mut rest = arguments.as_str();
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(rest.ceil_char_boundary(8));
        events.push(AssistantEvent::tool_call_delta(index, piece));
        rest = left;
    }
    events.push(AssistantEvent::tool_call_end(index));
    events
}

fn json(event: &AssistantEvent) -> String {
    serde_json::to_string(event).expect("an event is JSON")
}

/// Decodes a body that arrives in such pieces; gives the number of events.
fn decode(body: &[u8], piece: usize) -> usize {
    let (mut decoder, mut events) = (ProxyDecoder::default(), 0);
    for piece in body.chunks(piece) {
        decoder.push(piece);
        while let Some(event) = decoder.next_event() {
            assert!(!matches!(event, AssistantEvent::Error { .. }));
            black_box(event);
            events += 1;
        }
    }
    events
}

/// One body: its events' JSON alone read by serde (the limit), and the whole of it decoded.
fn body(c: &mut Criterion, name: &str, events: &[AssistantEvent]) {
    let lines: Vec<_> = events.iter().map(json).collect();
    let body = format!("data: {}\n\n", lines.join("\n\ndata: "));
    let mut group = group(c, "proxy");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function(BenchmarkId::new("limit", name), |b| {
        b.iter(|| {
            for line in &lines {
                black_box(serde_json::from_str::<AssistantEvent>(line).expect("an event"));
            }
        });
    });
    for (piece, size) in [("packets", PACKET), ("whole", body.len())] {
        group.bench_function(BenchmarkId::new(piece, name), |b| {
            b.iter(|| assert_eq!(decode(body.as_bytes(), size), events.len()));
        });
    }
}

/// Bodies of realistic events, and of one call with long arguments. Per byte.
pub(crate) fn proxy_bodies(c: &mut Criterion) {
    for (name, bytes) in [("100kB", 100_000), ("1MB", 1_000_000)] {
        body(c, name, &answer(bytes));
    }
    for (name, bytes) in [("arguments-10kB", 10_000), ("arguments-100kB", 100_000)] {
        let text: String = words().take(bytes / 6).collect();
        let mut events = vec![AssistantEvent::start()];
        events.extend(call(0, &text));
        events.push(AssistantEvent::done(DoneReason::ToolUse));
        body(c, name, &events);
    }
}
