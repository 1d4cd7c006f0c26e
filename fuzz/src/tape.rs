//! Decisions and JSON by the bytes of an input.

use serde_json::{Map, Value, json};

/// Decides by bytes; at their end the answer is always 0.
pub(crate) struct Tape<'a>(pub(crate) &'a [u8]);

const SCALARS: &[&str] = &[
    "null",
    "true",
    "0",
    "1",
    "3.0",
    "-0.0",
    "2.5",
    "1e300",
    "18446744073709551615",
    "\"true\"",
    "\"5\"",
    "\"3.0\"",
    "\" 7 \"",
    "\"x\"",
    "\"\"",
    "\"nan\"",
    "\"0x1f\"",
    "false",
    "-1",
];
const NAMES: &[&str] = &["a", "b", "c/~d"];
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "null", "object", "array"];

impl<'a> Tape<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A number below `below`.
    pub(crate) fn below(&mut self, below: u8) -> u8 {
        self.byte() % below
    }

    /// Yes, once in `times`.
    pub(crate) fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == times - 1
    }

    /// The next `most` bytes, or what there is.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[usize::from(self.byte()) % words.len()]
    }

    pub(crate) fn value(&mut self, depth: u8) -> Value {
        match self.below(4) {
            2 if depth > 0 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            3 if depth > 0 => self.members(|tape| tape.value(depth - 1)),
            _ => serde_json::from_str(self.pick(SCALARS)).expect("it is JSON"),
        }
    }

    fn members(&mut self, mut member: impl FnMut(&mut Self) -> Value) -> Value {
        let members = (0..self.below(4)).map(|_| (self.pick(NAMES).to_owned(), member(self)));
        Value::Object(members.collect::<Map<_, _>>())
    }

    /// A well-formed schema, whose definitions refer to each other and to the whole.
    pub(crate) fn schema(&mut self) -> Value {
        let (a, b, whole) = (self.part(3), self.part(3), self.part(3));
        let mut whole = if whole.is_object() { whole } else { json!({}) };
        whole["$defs"] = json!({ "a": a, "b": b });
        whole
    }

    fn part(&mut self, depth: u8) -> Value {
        if depth == 0 || self.once_in(3) {
            return match self.below(6) {
                0 | 1 => json!({ "type": self.pick(TYPES) }),
                2 => json!({ "$ref": self.pick(&["#/$defs/a", "#/$defs/b", "#"]) }),
                3 => json!({ "enum": [self.value(0), 1, "5"] }),
                4 => json!({ "type": ["integer", "string"], "minimum": 2 }),
                _ => Value::from(self.once_in(2)),
            };
        }
        let depth = depth - 1;
        match self.below(8) {
            0 | 1 => json!({
                "type": "object", "properties": self.members(|tape| tape.part(depth)),
                "required": [self.pick(NAMES)], "additionalProperties": self.part(depth),
            }),
            2 => json!({ "patternProperties": { "^[ab]$": self.part(depth) } }),
            3 => json!({ "type": "array", "items": self.part(depth) }),
            4 => json!({ "anyOf": [self.part(depth), self.part(depth)] }),
            5 => json!({ "oneOf": [self.part(depth), self.part(depth)] }),
            6 => json!({ "allOf": [self.part(depth), self.part(depth)] }),
            _ => json!({ "prefixItems": [self.part(depth)], "items": self.part(depth), "not": self.part(depth) }),
        }
    }
}
