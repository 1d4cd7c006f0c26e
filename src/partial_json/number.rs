//! A JSON number that may be cut anywhere.

use serde_json::Value;

/// The most bytes of an unfinished number that are evaluated for display.
///
/// An unfinished number is evaluated again with each delta, so this is what keeps a long one from costing quadratic time.
/// Numbers that carry information are shorter; a longer one shows what its first digits say until it is complete.
const PROVISIONAL_BYTES: usize = 64;

/// The scanner of one number: the grammar of RFC 8259, section 6, a byte at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberScanner {
    phase: Phase,
    /// Offset of the number in the text.
    start: usize,
    /// Length of what was scanned.
    len: usize,
    /// Length of the longest prefix, within the first [`PROVISIONAL_BYTES`], that is a number by the grammar.
    valid: usize,
    /// The value of [`valid`](Self::valid) when the number was last evaluated, 0 before.
    evaluated: usize,
}

/// The part of the number the last byte belongs to.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Phase {
    /// The phase `byte` leads to, or `None` if the number does not go on with it.
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start, b'-') => Self::Minus,
            (Self::Start | Self::Minus, b'0') => Self::Zero,
            (Self::Start | Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Self::ExponentDigits,
            _ => return None,
        })
    }

    /// Whether a number may end here.
    fn is_complete(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits)
    }
}

impl NumberScanner {
    /// A scanner for the number that begins at offset `start` of the text.
    pub(super) fn new(start: usize) -> Self {
        Self {
            phase: Phase::Start,
            start,
            len: 0,
            valid: 0,
            evaluated: 0,
        }
    }

    /// Scans `text` on to the end of the number; returns the offset behind what was scanned.
    pub(super) fn scan(&mut self, text: &str) -> usize {
        let unseen = text.as_bytes().iter().skip(self.start + self.len);
        for &byte in unseen {
            let Some(phase) = self.phase.next(byte) else {
                break;
            };
            self.phase = phase;
            self.len += 1;
            if phase.is_complete() && self.len <= PROVISIONAL_BYTES {
                self.valid = self.len;
            }
        }
        self.start + self.len
    }

    /// The number, if it may end where the scanner stands and `serde_json` can represent it.
    pub(super) fn complete(&self, text: &str, steps: &mut u64) -> Option<Value> {
        if !self.phase.is_complete() {
            return None;
        }
        self.evaluate(text, self.len, steps)
    }

    /// The value to show while the number may go on, if it has changed since the last call.
    ///
    /// It is that of the longest of the first prefixes that is a number in range, so it depends on what was scanned only and
    /// not on how the text was cut.
    pub(super) fn provisional(&mut self, text: &str, steps: &mut u64) -> Option<Value> {
        if self.valid <= self.evaluated {
            return None;
        }
        if let Some(value) = self.evaluate(text, self.valid, steps) {
            self.evaluated = self.valid;
            return Some(value);
        }
        // The exponent is out of range, and more digits will not bring it back: this value is the last one.
        self.evaluated = PROVISIONAL_BYTES;
        (1..self.valid).rev().find_map(|len| self.evaluate(text, len, steps))
    }

    /// Whether [`provisional`](Self::provisional) has given a value yet.
    pub(super) fn is_shown(&self) -> bool {
        self.evaluated > 0
    }

    /// The value of the first `len` bytes, which are counted in `steps`.
    fn evaluate(&self, text: &str, len: usize, steps: &mut u64) -> Option<Value> {
        *steps += len as u64;
        let digits = text.get(self.start..self.start + len)?;
        // The same code as in the strict parse, so that a complete number is the same value in both.
        serde_json::from_str(digits).ok()
    }
}
