//! What each target checks of one input.

use serde_json::{Map, Value, json};
use turnstate::partial_json::{PartialArguments, parse_arguments};
use turnstate::proxy::{DecoderLimits, ProxyDecoder};
use turnstate::schema::ArgumentsSchema;
use turnstate::{AssistantEvent, Message, Model, PartialMessage};

use crate::tape::Tape;

pub use crate::chance::machine;

/// The first byte says how far apart the cuts are; the rest is the text.
pub fn partial_json(data: &[u8]) {
    let Some((size, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let mut whole = Map::new();
    PartialArguments::new().push(&text, &mut whole);

    let (mut cut, mut shown) = (PartialArguments::new(), Map::new());
    let mut rest = &*text;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.ceil_char_boundary(usize::from(size % 8) + 1));
        let before = Value::Object(shown.clone());
        cut.push(piece, &mut shown);
        // A key that comes twice begins again.
        if let (Value::Object(before), true) = (&before, strings_once(&text)) {
            assert!(grew(&json!(before), &json!(shown)), "{before:?} became {shown:?}");
        }
        rest = tail;
    }
    // Not only equal: in the same order.
    assert_eq!(json!(shown).to_string(), json!(whole).to_string());
    assert_eq!(cut.text(), text);
    assert!(cut.steps() <= 130 * text.len() as u64 + 8_192, "{} steps", cut.steps());

    let strict = parse_arguments(&text);
    if let Ok(Value::Object(expected)) = serde_json::from_str::<Value>(&text) {
        assert_eq!(strict.as_ref(), Ok(&expected));
    }
    if let Ok(strict) = strict {
        assert_eq!(json!(shown).to_string(), json!(strict).to_string());
    }
}

/// Whether no key can come twice: there are not two.
fn strings_once(text: &str) -> bool {
    text.matches(':').count() <= 1
}

/// Whether `new` is what `old` may have become by more text.
fn grew(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::String(old), Value::String(new)) => new.starts_with(old.as_str()),
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| grew(old, new))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() <= new.len() && old.iter().zip(new).all(|(old, new)| grew(old, new))
        }
        (Value::Number(_), Value::Number(_)) => true,
        (old, new) => old == new,
    }
}

/// A JSON text `[schema, arguments]`, or else a tape that makes them.
pub fn schema(data: &[u8]) {
    let (schema, value, is_well_formed) = if let Ok((schema, value)) = serde_json::from_slice::<(Value, Value)>(data) {
        (schema, value, false)
    } else {
        let mut tape = Tape(data);
        (tape.schema(), tape.value(4), true)
    };
    let compiled = ArgumentsSchema::compile(&schema);
    let first = compiled.check("t", &Map::new(), value.clone());
    if is_well_formed {
        assert!(compiled.error().is_none(), "{schema}: {:?}", compiled.error());
        if !value.is_null() && jsonschema::is_valid(&schema, &value) {
            let got = first.as_ref().map(|got| got.as_value().clone());
            assert!(
                got.as_ref().is_ok_and(|got| same(got, &value)),
                "{schema}: {value} became {got:?}"
            );
        }
    }
    if let Ok(first) = first {
        let first = first.into_value();
        let second = compiled.check("t", &Map::new(), first.clone());
        let second = second.map(|second| second.as_value().to_string());
        assert_eq!(second, Ok(first.to_string()), "{schema} with {value}");
    }
}

/// Equal but for the spelling of numbers, and the last bits of a float that was read again.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (x, y) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a == b || (x - y).abs() <= x.abs() * 1e-12
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        (a, b) => a == b,
    }
}

/// The first byte says how far apart the cuts are, the second how long lines may be; the rest is the body.
pub fn proxy(data: &[u8]) {
    let [size, limit, body @ ..] = data else { return };
    let limits = if limit % 4 == 3 {
        DecoderLimits::default()
            .with_max_line(usize::from(*limit))
            .with_max_event(usize::from(*limit))
    } else {
        DecoderLimits::default()
    };
    let whole = decode(body, usize::MAX, limits);
    assert_eq!(decode(body, 1, limits), whole);
    assert_eq!(decode(body, usize::from(*size) + 1, limits), whole);
    assert_eq!(whole.iter().filter(|event| event.is_terminal()).count(), 1);
    assert!(whole.last().is_some_and(AssistantEvent::is_terminal));
    let mut partial = PartialMessage::new(&Model::new("m"), 0);
    for event in &whole {
        partial.apply(event).expect("each event fits");
    }
}

fn decode(body: &[u8], size: usize, limits: DecoderLimits) -> Vec<AssistantEvent> {
    let mut decoder = ProxyDecoder::new(limits);
    let mut events = Vec::new();
    for piece in body.chunks(size) {
        decoder.push(piece);
        events.extend(std::iter::from_fn(|| decoder.next_event()));
    }
    decoder.end();
    events.extend(std::iter::from_fn(|| decoder.next_event()));
    assert!(decoder.is_done());
    let bound = 4 * body.len() as u64 + 64;
    assert!(decoder.steps() <= bound, "{} steps for {}", decoder.steps(), body.len());
    events
}

/// Lines of JSON: messages, or events that are folded one after the other.
pub fn message(data: &[u8]) {
    let mut partial = PartialMessage::new(&Model::new("m"), 0);
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(message) = serde_json::from_slice::<Message>(line) {
            let json = serde_json::to_value(&message).expect("a message is JSON");
            let again: Message = serde_json::from_value(json.clone()).expect("its JSON is a message");
            assert_eq!(again, message);
            assert_eq!(serde_json::to_value(&again).expect("JSON"), json);
            let text = serde_json::to_string(&message).expect("a message is JSON");
            let read: Value = serde_json::from_str(&text).expect("its text is JSON");
            assert!(same(&read, &json), "{text}");
        }
        let Ok(event) = serde_json::from_slice::<AssistantEvent>(line) else {
            continue;
        };
        let json = serde_json::to_value(&event).expect("an event is JSON");
        let again: AssistantEvent = serde_json::from_value(json.clone()).expect("its JSON is an event");
        assert_eq!(again, event);
        let before = partial.clone();
        if partial.apply(&event).is_err() {
            assert_eq!(partial, before, "a misfit changes nothing (I7)");
        }
        let folded = partial.clone();
        match event {
            AssistantEvent::Done { reason, usage, message } => {
                let _ = folded.done(reason, *usage, message.map(|message| *message));
            }
            AssistantEvent::Error {
                reason,
                error_message,
                usage,
                message,
            } => {
                let _ = folded.broken(reason, error_message, *usage, message.map(|message| *message));
            }
            _ => {}
        }
    }
}
