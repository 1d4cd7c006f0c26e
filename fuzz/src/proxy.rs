//! The decoder of the proxy's SSE body: the same events whatever the cuts.

use turnstate::proxy::{DecoderLimits, ProxyDecoder};
use turnstate::{AssistantEvent, Model, PartialMessage};

/// Three bytes for the lengths of the pieces, in turn, one for how long lines may be; the rest is the body.
pub fn proxy(data: &[u8]) {
    let [a, b, c, limit, body @ ..] = data else { return };
    let limits = if limit % 4 == 3 {
        DecoderLimits::default()
            .with_max_line(usize::from(*limit))
            .with_max_event(usize::from(*limit))
    } else {
        DecoderLimits::default()
    };
    let whole = decode(body, &[usize::MAX], limits);
    assert_eq!(decode(body, &[1], limits), whole, "byte by byte");
    let sizes = [a, b, c].map(|size| usize::from(*size));
    assert_eq!(decode(body, &sizes, limits), whole, "in pieces of {sizes:?}");

    let terminals = whole.iter().filter(|event| event.is_terminal()).count();
    assert_eq!(terminals, 1, "{whole:?}");
    assert!(whole.last().is_some_and(AssistantEvent::is_terminal), "{whole:?}");
    let mut partial = PartialMessage::new(&Model::new("m"), 0);
    for event in &whole {
        assert_eq!(partial.apply(event), Ok(()), "of {whole:?}");
    }
}

/// All events of a body that comes in pieces of these sizes, again and again. Pieces may be empty.
fn decode(mut body: &[u8], sizes: &[usize], limits: DecoderLimits) -> Vec<AssistantEvent> {
    // A byte is looked at, kept of a line that was cut, read as JSON, kept as an event's first line, and read again.
    let bound = 5 * body.len() as u64 + 64;
    let mut decoder = ProxyDecoder::new(limits);
    let mut events = Vec::new();
    let empty = sizes.iter().all(|size| *size == 0);
    for size in sizes.iter().cycle() {
        let (piece, rest) = body.split_at(body.len().min(size + usize::from(empty)));
        decoder.push(piece);
        events.extend(std::iter::from_fn(|| decoder.next_event()));
        body = rest;
        if body.is_empty() {
            break;
        }
    }
    decoder.end();
    events.extend(std::iter::from_fn(|| decoder.next_event()));
    assert!(decoder.is_done());
    assert!(decoder.steps() <= bound, "{} steps, more than {bound}", decoder.steps());
    events
}
