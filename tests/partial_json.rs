//! What is shown of tool arguments while they stream, and what is executed: the cases of the contract.

use serde_json::{Map, Value, json};
use turnstate::partial_json::{ArgumentsError, PartialArguments, parse_arguments, quote_arguments};

/// What is shown after all of `deltas`.
fn shown<'a>(deltas: impl IntoIterator<Item = &'a str>) -> Value {
    let mut arguments = PartialArguments::new();
    let mut shown = Map::new();
    for delta in deltas {
        arguments.push(delta, &mut shown);
    }
    Value::Object(shown)
}

/// Asserts what is shown of each text, pushed whole and pushed char by char.
fn assert_shown<T: AsRef<str>>(cases: impl IntoIterator<Item = (T, Value)>) {
    for (text, expected) in cases {
        let text = text.as_ref();
        assert_eq!(shown([text]), expected, "whole: {text:?}");
        let chars = text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()]);
        assert_eq!(shown(chars), expected, "char by char: {text:?}");
    }
}

fn is_not_json(text: &str) -> bool {
    matches!(parse_arguments(text), Err(ArgumentsError::NotJson { .. }))
}

/// What the reference implementation (npm `@mariozechner/pi-ai` 0.73.1) showed after each delta: those of the conformance
/// fixtures, then some texts in single characters. Where it differs by design, see the cases below.
#[test]
fn shows_what_the_reference_shows() {
    #[derive(serde::Deserialize)]
    struct Case {
        deltas: Vec<String>,
        shown: Vec<Value>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/partial_arguments.json")).unwrap();
    assert!(cases.len() > 50);
    for Case {
        deltas,
        shown: expected,
    } in cases
    {
        assert_eq!(deltas.len(), expected.len());
        let mut arguments = PartialArguments::new();
        let mut shown = Map::new();
        for (delta, expected) in deltas.iter().zip(expected) {
            arguments.push(delta, &mut shown);
            assert_eq!(json!(shown), expected, "{:?}", arguments.text());
        }
    }
}

#[test]
fn c005_malformed_arguments_are_shown_but_not_executed() {
    let cases = [
        (r#"{"path":"/etc"#, json!({"path": "/etc"})),
        (r#"{"a":1,,}"#, json!({"a": 1})),
        (r#"{"a":1,}"#, json!({"a": 1})),
        (r#"{"a":1}{"b":2}"#, json!({"a": 1})),
        (r#"{"a":1} junk"#, json!({"a": 1})),
        (r#"{"a":1]"#, json!({"a": 1})),
        (r#"{"a":[1},"b":2}"#, json!({"a": [1]})),
        (r#"{"a":{"b":1],"c":2}"#, json!({"a": {"b": 1}})),
        (r#"{"a" 1}"#, json!({})),
        (r#"{"a":1 "b":2}"#, json!({"a": 1})),
        (r#"{"a":,"b":2}"#, json!({})),
        (r#"{"a":01}"#, json!({"a": 0})),
        (r#"{"a":trux,"b":2}"#, json!({"a": true})),
        (r#"{"a":NaN}"#, json!({})),
        (r#"{,"a":1}"#, json!({})),
        (r#"{"a":[,1]}"#, json!({"a": []})),
        ("{\"a\":\u{a0}1}", json!({})),
    ];
    for (text, _) in &cases {
        assert!(is_not_json(text), "{text}");
    }
    assert_shown(cases);
}

#[test]
fn c026_deep_nesting_does_not_overflow_the_stack() {
    let deepest = |open: &str, close: &str| {
        let levels = 126;
        format!(r#"{{"a":{}1{}}}"#, open.repeat(levels), close.repeat(levels))
    };
    for (open, close) in [(r#"{"a":"#, "}"), ("[", "]")] {
        // As deep as `serde_json` reads: shown whole.
        let text = deepest(open, close);
        let strict = parse_arguments(&text).unwrap();
        assert_eq!(shown([text.as_str()]), Value::Object(strict));

        // One level more: both refuse it.
        let text = deepest(&format!("{open}{open}"), "");
        assert!(is_not_json(&text));

        // And far beyond: the display stops at the deepest level it can show.
        let text = format!(r#"{{"a":{}"#, open.repeat(100_000));
        assert!(is_not_json(&text));
        let Value::Object(shown) = shown([text.as_str()]) else {
            unreachable!()
        };
        let mut levels = 0;
        let mut inner = shown.get("a");
        while let Some(value) = inner {
            levels += 1;
            inner = value.get("a").or_else(|| value.get(0));
        }
        assert_eq!(levels, 126);
    }
}

#[test]
fn c027_surrogate_halves_in_two_deltas() {
    assert_eq!(shown([r#"{"a":"\ud83d"#, r"\ude00"]), json!({"a": "😀"}));
    assert_shown([
        (r#"{"a":"\ud83d"#, json!({"a": ""})),
        (r#"{"a":"\ud83d""#, json!({"a": "\u{fffd}"})),
        (r#"{"a":"\ud83dx"#, json!({"a": "\u{fffd}x"})),
        (r#"{"a":"\ud83d\n"#, json!({"a": "\u{fffd}\n"})),
        (r#"{"a":"\ud83d\q"#, json!({"a": "\u{fffd}\\q"})),
        (r#"{"a":"\ud83d\u12z"#, json!({"a": "\u{fffd}\\u12z"})),
        (r#"{"a":"\ud83d\u0041"#, json!({"a": "\u{fffd}A"})),
        (r#"{"a":"\ud83d\ud83d"#, json!({"a": "\u{fffd}"})),
        (r#"{"a":"\ud83d\ud83d\ude00"#, json!({"a": "\u{fffd}😀"})),
        (r#"{"a":"\ude00"#, json!({"a": "\u{fffd}"})),
        (r#"{"\ud83d\ude00":1"#, json!({"😀": 1})),
    ]);
}

#[test]
fn c087_arguments_without_text_are_empty() {
    for text in ["", "   ", "\n", "\u{feff}", "{}", " { } "] {
        assert_eq!(parse_arguments(text), Ok(Map::new()), "{text:?}");
    }
    assert_eq!(shown([""]), json!({}));
}

#[test]
fn c088_arguments_are_an_object() {
    assert_eq!(parse_arguments("null"), Ok(Map::new()));
    assert_eq!(parse_arguments(" null\n"), Ok(Map::new()));
    for (text, expected) in [
        ("[1,2]", "an array"),
        ("42", "a number"),
        (r#""x""#, "a string"),
        ("\"a\nb\"", "a string"),
        ("true", "a boolean"),
    ] {
        let error = parse_arguments(text).unwrap_err();
        assert!(
            matches!(error, ArgumentsError::NotAnObject { found, .. } if found == expected),
            "{text}: {error}"
        );
        assert_shown([(text, json!({}))]);
    }
}

#[test]
fn c095_cut_inside_an_escape() {
    assert_shown([
        (r#"{"a":"x"#, json!({"a": "x"})),
        (r#"{"a":"x\"#, json!({"a": "x"})),
        (r#"{"a":"x\u"#, json!({"a": "x"})),
        (r#"{"a":"x\u0"#, json!({"a": "x"})),
        (r#"{"a":"x\u00"#, json!({"a": "x"})),
        (r#"{"a":"x\u00e"#, json!({"a": "x"})),
        (r#"{"a":"x\u00e9"#, json!({"a": "xé"})),
        (r#"{"a":"x\ud83d"#, json!({"a": "x"})),
        (r#"{"a":"x\ud83d\"#, json!({"a": "x"})),
        (r#"{"a":"x\ud83d\ude0"#, json!({"a": "x"})),
        (r#"{"a":"x\ud83d\ude00"#, json!({"a": "x😀"})),
        (r#"{"a":"\"\\\/\b\f\n\r\t"#, json!({"a": "\"\\/\u{8}\u{c}\n\r\t"})),
    ]);
}

#[test]
fn c096_raw_control_characters_in_an_open_string() {
    let text = "{\"a\":\"line\nbreak\tand\u{0}\u{1f}\"}";
    let value = "line\nbreak\tand\u{0}\u{1f}";
    let opened = r#"{"a":""#.len();
    assert_shown((0..=value.len()).map(|len| (&text[..opened + len], json!({"a": &value[..len]}))));
    assert_eq!(json!(parse_arguments(text).unwrap()), json!({"a": value}));
}

#[test]
fn c098_numbers_and_literals_cut_short() {
    assert_eq!(shown([r#"{"n":12"#]), json!({"n": 12}));
    assert_eq!(shown([r#"{"n":12"#, "3}"]), json!({"n": 123}));
    assert_shown([
        (r#"{"n":"#, json!({})),
        (r#"{"n":-"#, json!({})),
        (r#"{"n":-1"#, json!({"n": -1})),
        (r#"{"n":1."#, json!({"n": 1})),
        (r#"{"n":1.5"#, json!({"n": 1.5})),
        (r#"{"n":1e"#, json!({"n": 1})),
        (r#"{"n":1.5e-"#, json!({"n": 1.5})),
        (r#"{"n":1.5e-1"#, json!({"n": 0.15})),
        (r#"{"n":[1,-"#, json!({"n": [1]})),
        (r#"{"n":1.}"#, json!({"n": 1})),
        (r#"{"n":18446744073709551615"#, json!({"n": u64::MAX})),
        (r#"{"n":-9223372036854775808"#, json!({"n": i64::MIN})),
        (r#"{"n":1e999"#, json!({"n": 1e99})),
        (r#"{"n":1e999,"m":1}"#, json!({"n": 1e99})),
        (r#"{"f":t"#, json!({"f": true})),
        (r#"{"f":tru"#, json!({"f": true})),
        (r#"{"f":fals"#, json!({"f": false})),
        (r#"{"f":n"#, json!({"f": null})),
        (r#"{"f":[nul"#, json!({"f": [null]})),
    ]);
    for text in [
        r#"{"n":12"#,
        r#"{"n":1.}"#,
        r#"{"n":-}"#,
        r#"{"f":tru}"#,
        r#"{"n":1e999}"#,
    ] {
        assert!(is_not_json(text), "{text}");
    }
}

#[test]
fn c102_text_that_is_not_json() {
    for text in [
        "nonsense",
        "```json\n{\"a\":1}\n```",
        "{a:1}",
        "{'a':1}",
        "// comment\n{\"a\":1}",
        "\u{feff}\u{feff}{}",
        " \u{feff}{}",
        "{\"a\":1}\u{feff}",
        "<tool>",
        "é",
    ] {
        assert!(is_not_json(text), "{text:?}");
    }
    assert_shown([
        ("", json!({})),
        ("   ", json!({})),
        ("nonsense", json!({})),
        ("```json\n{\"a\":1}\n```", json!({})),
        ("{a:1}", json!({})),
        ("{'a':1}", json!({})),
        ("// comment\n{\"a\":1}", json!({})),
        ("{\"a\":1, // comment\n\"b\":2}", json!({"a": 1})),
        ("\u{feff}\u{feff}{\"a\":1}", json!({})),
        ("\u{feff} {\"a\":1", json!({"a": 1})),
    ]);
    assert_eq!(json!(parse_arguments("\u{feff} {\"a\":1}").unwrap()), json!({"a": 1}));
}

/// Keys show nothing before their value begins, and the later of two equal keys wins.
#[test]
fn keys() {
    assert_shown([
        ("{", json!({})),
        (r#"{""#, json!({})),
        (r#"{"a"#, json!({})),
        (r#"{"a""#, json!({})),
        (r#"{"a":"#, json!({})),
        (r#"{"a": {"#, json!({"a": {}})),
        (r#"{"a":"","#, json!({"a": ""})),
        (r#"{"a":[{"b":1},{"c"#, json!({"a": [{"b": 1}, {}]})),
        (r#"{"a":{"b":{}},"c":[[]]}"#, json!({"a": {"b": {}}, "c": [[]]})),
        (r#"{"":1}"#, json!({"": 1})),
        (r#"{"a":1,"b":2,"a":"#, json!({"a": 1, "b": 2})),
        (r#"{"a":1,"b":2,"a":"x"#, json!({"a": "x", "b": 2})),
        (r#"{"a":1,"b":2,"a":{"a":3,"a":[4"#, json!({"a": {"a": [4]}, "b": 2})),
        (
            r#"{"a":"old","b":2,"c":3,"\u0061":-"#,
            json!({"a": "old", "b": 2, "c": 3}),
        ),
    ]);
    let Value::Object(shown) = shown([r#"{"z":1,"y":2,"x":{"b":1,"a":2}}"#]) else {
        unreachable!()
    };
    assert_eq!(json!(shown).to_string(), r#"{"z":1,"y":2,"x":{"b":1,"a":2}}"#);
}

/// What `serde_json` refuses in a string is repaired the same way in both readings, in keys and in values.
#[test]
fn strings_are_repaired() {
    let cases = [
        (r#"{"a":"\q"}"#, json!({"a": r"\q"})),
        (r#"{"re":"^\d+\.\w$"}"#, json!({"re": r"^\d+\.\w$"})),
        (r#"{"path":"C:\users\x"}"#, json!({"path": r"C:\users\x"})),
        (r#"{"a":"\u12"}"#, json!({"a": r"\u12"})),
        (r#"{"a":"\u12\n"}"#, json!({"a": "\\u12\n"})),
        (r#"{"a":"\uABcé"}"#, json!({"a": r"\uABcé"})),
        ("{\"a\":\"\\\n\"}", json!({"a": "\\\n"})),
        (r#"{"a":"\é"}"#, json!({"a": r"\é"})),
        (r#"{"a\q":{"b\q":[1,"\d"]}}"#, json!({r"a\q": {r"b\q": [1, r"\d"]}})),
        (r#"{"a":"\ud800"}"#, json!({"a": "\u{fffd}"})),
        (r#"{"a":"\udc00\ud800"}"#, json!({"a": "\u{fffd}\u{fffd}"})),
        ("{\"a\\\"\n\":\"{\\\"\\q:\"}", json!({"a\"\n": "{\"\\q:"})),
    ];
    for (text, expected) in &cases {
        assert_eq!(&json!(parse_arguments(text).unwrap()), expected, "{text}");
    }
    assert_shown(cases);
}

#[test]
fn errors_point_at_the_fault() {
    for (text, expected) in [
        (r#"{"a":"caf\u00e9",,}"#, "key must be a string at line 1 column 18"),
        ("{\"a\":\"x\ny", "EOF while parsing a string at line 1 column 10"),
        (r#"{"a":1} junk"#, "trailing characters at line 1 column 9"),
    ] {
        let error = parse_arguments(text).unwrap_err();
        assert_eq!(error.to_string(), format!("arguments are not valid JSON: {expected}"));
    }
}

#[test]
fn refused_text_is_quoted_up_to_a_limit() {
    let short = "é".repeat(2_000);
    assert_eq!(quote_arguments(&short), short);
    let long = "é".repeat(2_001);
    assert_eq!(quote_arguments(&long), format!("{short}… (2 more bytes)"));
}

/// A caller who does not keep the object gets a wrong display, not a panic.
#[test]
fn a_foreign_object_stops_the_display() {
    for text in [r#"{"a":"x"#, r#"{"a":[1"#, r#"{"a":{"b":1"#, r#"{"a":1"#] {
        for foreign in [json!({}), json!({"a": 1}), json!({"a": "y"}), json!({"a": []})] {
            let mut arguments = PartialArguments::new();
            arguments.push(text, &mut Map::new());
            let mut shown = foreign.as_object().unwrap().clone();
            arguments.push(r#"2","b":[3]}]}"#, &mut shown);
            assert!(shown.len() <= 2);
        }
    }
}
