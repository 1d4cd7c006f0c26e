//! Properties of the argument parsers: independence of cuts, agreement with `serde_json`, totality, linear cost.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use turnstate::partial_json::{PartialArguments, parse_arguments};

fn whole(text: &str) -> Map<String, Value> {
    let mut shown = Map::new();
    PartialArguments::new().push(text, &mut shown);
    shown
}

/// What is shown after each character.
fn each_prefix(text: &str) -> Vec<Map<String, Value>> {
    let mut arguments = PartialArguments::new();
    let mut shown = Map::new();
    let mut all = Vec::new();
    for char in text.chars() {
        arguments.push(char.encode_utf8(&mut [0; 4]), &mut shown);
        all.push(shown.clone());
    }
    all
}

/// Pieces of `text`, cut at (the char boundaries before) `cuts`.
fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    let mut pieces = Vec::new();
    let mut rest = text;
    for cut in cuts {
        let done = text.len() - rest.len();
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(cut.saturating_sub(done)));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Any JSON object, as a value.
fn object() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let value = scalar.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".{0,4}", inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    });
    prop::collection::vec((".{0,4}", value), 0..6).prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

/// Text made of JSON's tokens, mostly in places where they do not belong.
fn token_soup() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"a\":", "\"b\":\"", "{\"a\":", "\\", "\\u", "\\ud83d",
        "\\ude00", "\\n", "\\q", "00e9", "x", "é", "😀", "-", "0", "12", ".5", "e9", "E+", "99", "true", "fal", "nul",
        "l", " ", "\n", "\u{0}", "\u{feff}", "/",
    ]);
    let soup = prop::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat());
    (
        prop::sample::select(vec!["", "{", "{\"a\":", "{\"a\":[", "{\"a\":\""]),
        soup,
    )
        .prop_map(|(head, tail)| format!("{head}{tail}"))
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => token_soup(),
        2 => object().prop_map(|value| value.to_string()),
        1 => object().prop_map(|value| format!("{value:#}")),
        1 => ".*",
    ]
}

/// Whether `new` is what `old` may have become by more text within an open string.
fn grew(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::String(old), Value::String(new)) => new.starts_with(old.as_str()),
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| grew(old, new))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() <= new.len() && old.iter().zip(new).all(|(old, new)| grew(old, new))
        }
        // Provisional values are replaced by values of their kind.
        (Value::Number(_), Value::Number(_)) => true,
        (old, new) => old == new,
    }
}

proptest! {
    #[test]
    fn any_cut_shows_the_same(text in any_text(), cuts: [prop::sample::Index; 4]) {
        let mut arguments = PartialArguments::new();
        let mut shown = Map::new();
        for piece in cut(&text, &cuts) {
            arguments.push(piece, &mut shown);
            prop_assert_eq!(&shown, &whole(arguments.text()));
        }
        prop_assert_eq!(arguments.text(), &text);
        // Not only equal: in the same order.
        prop_assert_eq!(json!(shown).to_string(), json!(whole(&text)).to_string());
        let prefixes = each_prefix(&text);
        prop_assert_eq!(prefixes.last().cloned().unwrap_or_default(), shown);
    }

    #[test]
    fn what_is_accepted_is_what_is_shown(text in any_text()) {
        match (serde_json::from_str::<Value>(&text), parse_arguments(&text)) {
            (Ok(Value::Object(expected)), strict) => {
                prop_assert_eq!(json!(strict.unwrap()).to_string(), json!(expected).to_string());
                prop_assert_eq!(whole(&text), expected);
            }
            (_, Ok(repaired)) => prop_assert_eq!(whole(&text), repaired),
            (_, Err(_)) => {}
        }
    }

    #[test]
    fn shown_values_only_grow(object in object()) {
        let text = object.to_string();
        // Not always `object`: reading a float back may be off by the last bit.
        let expected: Value = serde_json::from_str(&text).unwrap();
        let prefixes = each_prefix(&text);
        for (old, new) in prefixes.iter().zip(prefixes.iter().skip(1)) {
            prop_assert!(grew(&json!(old), &json!(new)), "{:?} became {:?}", old, new);
        }
        prop_assert_eq!(prefixes.last().map(|shown| json!(shown)), Some(expected));
    }

    #[test]
    fn numbers_are_those_of_serde_json(
        number in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?",
    ) {
        let text = format!("{{\"n\":{number}}}");
        match serde_json::from_str::<Value>(&text) {
            Ok(expected) => prop_assert_eq!(json!(each_prefix(&text).last()), expected),
            // Out of range.
            Err(_) => prop_assert!(parse_arguments(&text).is_err()),
        }
    }

    #[test]
    fn strict_strings_are_shown_strings(inside in "([^\"\\\\]|\\\\[\"\\\\/bfnrtu0-9a-q]|\\\\ud[89c-f]00){0,20}") {
        let text = format!("{{\"a\":\"{inside}\"}}");
        let strict = parse_arguments(&text);
        prop_assert_eq!(strict, Ok(whole(&text)));
    }

    #[test]
    fn cost_is_linear(text in any_text()) {
        let mut arguments = PartialArguments::new();
        let mut shown = Map::new();
        for char in text.chars() {
            arguments.push(char.encode_utf8(&mut [0; 4]), &mut shown);
        }
        // A few looks at each byte, at the levels of nesting such texts have.
        prop_assert!(arguments.steps() <= 100 * text.len() as u64);
    }
}

/// Pushes `head`, then `size` bytes of `delta` again and again, char by char; no more than `limit` steps per byte.
fn assert_linear(about: &str, head: &str, delta: &str, size: usize, limit: u64) {
    let mut arguments = PartialArguments::new();
    let mut shown = Map::new();
    let deltas = std::iter::repeat_n(delta, size / delta.len());
    for char in std::iter::once(head).chain(deltas).flat_map(str::chars) {
        arguments.push(char.encode_utf8(&mut [0; 4]), &mut shown);
        // Checked on the way: the whole of a quadratic cost takes too long. The slack is for one number's provisional values.
        let bytes = arguments.text().len();
        let steps = arguments.steps();
        assert!(
            steps <= limit * bytes as u64 + 8_192,
            "{about}: {steps} steps for {bytes} bytes"
        );
    }
}

#[test]
fn c117_a_megabyte_in_single_characters_costs_linear_work() {
    const MEGABYTE: usize = 1 << 20;
    const LONG: usize = MEGABYTE / 8;
    let mut deep = r#"{"a":"#.repeat(126);
    deep.push('[');
    let mut keys = String::from("{");
    (0..20_000).for_each(|key| write!(keys, "\"key{key}\":{key},").unwrap());
    let long_key = "k".repeat(LONG / 2);
    let long_key = format!(r#"{{"{long_key}":1,"{long_key}":""#);

    for (about, head, delta, size, limit) in [
        ("string", r#"{"a":""#, "x", MEGABYTE, 2),
        ("escapes", r#"{"a":""#, r"\u00e9", LONG, 2),
        ("halves", r#"{"a":""#, r"\ud83d", LONG, 2),
        ("bad escapes", r#"{"a":""#, r"\q", LONG, 2),
        ("key", r#"{""#, "k", LONG, 1),
        ("white space", "{", " ", LONG, 1),
        ("items", r#"{"a":["#, "1,", LONG, 4),
        ("duplicate keys", &keys, r#""key7":"x","#, LONG, 4),
        ("duplicate long key", &long_key, "x", LONG, 2),
        ("number", r#"{"a":"#, "9", LONG, 1),
        ("fraction", r#"{"a":0."#, "1", LONG, 1),
        ("exponent", r#"{"a":1e"#, "0", LONG, 1),
        ("out of range", r#"{"a":1e"#, "9", LONG, 1),
        ("many numbers", r#"{"a":["#, "-12.5e-3,", LONG, 8),
        // At most every byte walks down to the deepest level.
        ("deep string", &format!("{deep}\""), "x", LONG, 130),
        ("deep items", &deep, "[],", LONG, 130),
        ("too deep", "", r#"{"a":"#, LONG, 2),
        ("after an error", "{]", "1", LONG, 1),
    ] {
        assert_linear(about, head, delta, size, limit);
    }
}

#[test]
fn c117_the_value_at_the_end_is_exact() {
    let value = "line\n\"é😀\" ".repeat(80_000);
    let text = json!({"a": 1, "text": value, "z": [true]}).to_string();
    let mut arguments = PartialArguments::new();
    let mut shown = Map::new();
    for char in text.chars() {
        arguments.push(char.encode_utf8(&mut [0; 4]), &mut shown);
    }
    assert_eq!(parse_arguments(arguments.text()), Ok(shown));
    // What the bounds above limit is a count: it misses no byte.
    assert!(arguments.steps() >= text.len() as u64);
}
