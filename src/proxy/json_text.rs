//! Strings that JavaScript may write and Rust may not hold.
//!
//! A JavaScript string is a list of UTF-16 code units. A server that slices an answer between two of them puts half of a
//! surrogate pair at the end of one delta and the other half at the start of the next, each as an escape that
//! `serde_json` refuses for a `String`. Read as bytes it gives them: encoded like any code point (WTF-8).

use std::char::{REPLACEMENT_CHARACTER, decode_utf16};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A string as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonText {
    /// The usual case.
    Text(String),
    /// Not UTF-8: it has halves of surrogate pairs in it, or bytes that are no text at all.
    Wtf8(Vec<u8>),
}

impl Default for JsonText {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl JsonText {
    /// The text, given the first half of a pair that the text before it ended with, and leaving there the one that this
    /// text ends with. What never becomes a pair is U+FFFD.
    pub(super) fn resume(self, high: &mut Option<u16>) -> String {
        let bytes = match self {
            Self::Text(text) if high.is_none() || text.is_empty() => return text,
            Self::Text(text) => text.into_bytes(),
            Self::Wtf8(bytes) => bytes,
        };
        let mut text = String::with_capacity(bytes.len() + REPLACEMENT_CHARACTER.len_utf8());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (valid, unit, behind) = next_half(rest);
            if !valid.is_empty() {
                text.extend(high.take().map(|_| REPLACEMENT_CHARACTER));
                text.push_str(valid);
            }
            match unit {
                Some(unit @ 0xD800..=0xDBFF) => text.extend(high.replace(unit).map(|_| REPLACEMENT_CHARACTER)),
                Some(unit) => {
                    let units = high.take().into_iter().chain([unit]);
                    text.extend(decode_utf16(units).map(|decoded| decoded.unwrap_or(REPLACEMENT_CHARACTER)));
                }
                None => {}
            }
            rest = behind;
        }
        text
    }

    /// The text by itself: every half is U+FFFD.
    pub(super) fn alone(self) -> String {
        let mut high = None;
        let mut text = self.resume(&mut high);
        text.extend(high.map(|_| REPLACEMENT_CHARACTER));
        text
    }
}

/// Cuts `bytes` into the text at their start, the code unit behind it, and the rest. What is neither text nor half of a
/// surrogate pair stands as U+FFFD, like in every lossy decoder.
fn next_half(bytes: &[u8]) -> (&str, Option<u16>, &[u8]) {
    let Err(error) = std::str::from_utf8(bytes) else {
        return (std::str::from_utf8(bytes).unwrap_or_default(), None, &[]);
    };
    let (valid, rest) = bytes.split_at(error.valid_up_to());
    let valid = std::str::from_utf8(valid).unwrap_or_default();
    if let [0xED, second @ 0xA0..=0xBF, third @ 0x80..=0xBF, behind @ ..] = rest {
        let unit = 0xD000 | u16::from(second & 0x3F) << 6 | u16::from(third & 0x3F);
        return (valid, Some(unit), behind);
    }
    let wrong = error.error_len().unwrap_or(rest.len());
    (valid, Some(0xFFFD), rest.split_at(wrong).1)
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;
        impl Visitor<'_> for AnyText {
            type Value = JsonText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<JsonText, E> {
                Ok(match std::str::from_utf8(bytes) {
                    Ok(text) => JsonText::Text(text.to_owned()),
                    Err(_) => JsonText::Wtf8(bytes.to_vec()),
                })
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<JsonText, E> {
                Ok(JsonText::Text(text.to_owned()))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<JsonText, E> {
                Ok(JsonText::Text(text))
            }
        }
        // As bytes, because only so are halves of surrogate pairs let through (and raw control characters, too).
        deserializer.deserialize_bytes(AnyText)
    }
}

/// Rewrites a JSON text so that its strings can be read as Rust strings: halves of surrogate pairs become U+FFFD, raw
/// control characters their escapes. Everything else is left to the parser's judgement.
pub(super) fn repair_strings(json: &str) -> String {
    let mut repaired = String::with_capacity(json.len());
    let mut inside = false;
    let mut rest = json;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        let replacement = match next {
            '"' => {
                inside = !inside;
                None
            }
            '\\' if inside => {
                length = escape_length(rest);
                // A whole pair is longer, and fine.
                let half = length == 6 && matches!(code_unit(rest), Some(0xD800..=0xDFFF));
                half.then(|| "\\ufffd".to_owned())
            }
            control if inside && control < ' ' => Some(format!("\\u{:04x}", u32::from(control))),
            _ => None,
        };
        let (plain, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        repaired.push_str(replacement.as_deref().unwrap_or(plain));
        rest = behind;
    }
    repaired
}

/// The length of the escape that `text` begins with; that of a whole pair if it is one.
fn escape_length(text: &str) -> usize {
    match (code_unit(text), text.get(6..).and_then(code_unit)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
        (Some(_), _) => 6,
        (None, _) => 1 + text.chars().nth(1).map_or(0, char::len_utf8),
    }
}

/// The code unit of the `\uXXXX` that `text` begins with.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let all_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    all_hex.then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> JsonText {
        serde_json::from_str(json).unwrap()
    }

    /// C027.
    #[test]
    fn halves_meet_across_texts() {
        for (parts, expected) in [
            (&[r#""\ud83d\ude00""#][..], "😀"),
            (&[r#""a\ud83d""#, r#""\ude00b""#], "a😀b"),
            (&[r#""\ud83d""#, r#""""#, r#""\ude00""#], "😀"),
            (&[r#""\ud83d""#, r#""x""#], "\u{fffd}x"),
            (&[r#""\ud83d\ud83d""#, r#""\ude00\ude00""#], "\u{fffd}😀\u{fffd}"),
            (&[r#""\ude00""#, r#""\ud83d""#], "\u{fffd}\u{fffd}"),
            (&[r#""\ud83d\n""#], "\u{fffd}\n"),
        ] {
            let mut high = None;
            let mut text: String = parts.iter().map(|part| read(part).resume(&mut high)).collect();
            text.extend(high.map(|_| REPLACEMENT_CHARACTER));
            assert_eq!(text, expected, "{parts:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let text: JsonText = serde_json::from_slice(b"\"a\xFFb\xE4\xBD\"").unwrap();
        assert_eq!(text.alone(), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn repaired_strings_can_be_read() {
        for (json, expected) in [
            (r#"["\ud83d","\ude00\ud83d\ude00"]"#, "[\"\u{fffd}\",\"\u{fffd}😀\"]"),
            ("{\"a\\\"\u{1}\": \"\\\\\"}", "{\"a\\\"\\u0001\":\"\\\\\"}"),
            (r#""\ud83dx\u00e9""#, "\"\u{fffd}xé\""),
        ] {
            let value: serde_json::Value = serde_json::from_str(&repair_strings(json)).unwrap();
            assert_eq!(value.to_string(), expected, "{json}");
        }
        for wrong in [r#""\"#, r#""\u12"#, "\"\\u\u{1F600}", "\\"] {
            assert!(serde_json::from_str::<serde_json::Value>(&repair_strings(wrong)).is_err());
        }
    }
}
