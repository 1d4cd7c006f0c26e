//! The inside of a JSON string, decoded piece by piece.

use std::char::REPLACEMENT_CHARACTER;

/// Decodes the characters between the quotes of one string, which may arrive cut anywhere.
///
/// It accepts every text. What JSON forbids is repaired: see the [module documentation](super).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StringDecoder {
    escape: Escape,
    /// The first half of a surrogate pair, held back until it is known whether the second follows.
    high: Option<u16>,
}

/// How far into an escape sequence the text is.
#[derive(Debug, Clone, Copy, Default)]
enum Escape {
    #[default]
    Outside,
    Backslash,
    /// Behind `\u`, with the first `len` digits as they were written.
    Unicode {
        digits: [char; 4],
        len: usize,
    },
}

impl StringDecoder {
    /// Appends to `out` what `input` adds to the string, up to the closing quote or the end of `input`.
    ///
    /// Returns the rest of `input` behind the closing quote, or `None` if the string is still open.
    pub(super) fn decode<'a>(&mut self, input: &'a str, out: &mut String) -> Option<&'a str> {
        let mut rest = input;
        loop {
            if let Escape::Outside = self.escape {
                let run = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\'));
                let (plain, tail) = rest.split_at(run.unwrap_or(rest.len()));
                if !plain.is_empty() {
                    self.end_pair(out);
                    out.push_str(plain);
                }
                rest = tail;
            }
            let mut chars = rest.chars();
            let next = chars.next()?;
            let used = match self.escape {
                Escape::Outside if next == '"' => {
                    self.end_pair(out);
                    return Some(chars.as_str());
                }
                Escape::Outside => {
                    self.escape = Escape::Backslash;
                    true
                }
                Escape::Backslash => self.after_backslash(next, out),
                Escape::Unicode { digits, len } => self.after_unicode(digits, len, next, out),
            };
            debug_assert!(used || matches!(self.escape, Escape::Outside), "read again for ever");
            if used {
                rest = chars.as_str();
            }
        }
    }

    /// Takes the character behind a backslash; `false` if it is no escape and has to be read again as plain text.
    fn after_backslash(&mut self, next: char, out: &mut String) -> bool {
        let decoded = match next {
            '"' | '\\' | '/' => next,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.escape = Escape::Unicode {
                    digits: ['0'; 4],
                    len: 0,
                };
                return true;
            }
            _ => {
                self.end_pair(out);
                out.push('\\');
                self.escape = Escape::Outside;
                return false;
            }
        };
        self.end_pair(out);
        out.push(decoded);
        self.escape = Escape::Outside;
        true
    }

    /// Takes the character behind `\u` and `len` digits; `false` if it is not a digit and has to be read again.
    fn after_unicode(&mut self, mut digits: [char; 4], len: usize, next: char, out: &mut String) -> bool {
        if !next.is_ascii_hexdigit() {
            self.end_pair(out);
            out.push_str("\\u");
            out.extend(digits.iter().take(len));
            self.escape = Escape::Outside;
            return false;
        }
        if let Some(digit) = digits.get_mut(len) {
            *digit = next;
        }
        if len + 1 < digits.len() {
            let len = len + 1;
            self.escape = Escape::Unicode { digits, len };
        } else {
            let digits = digits.iter().filter_map(|digit| digit.to_digit(16));
            let digits = digits.filter_map(|digit| u16::try_from(digit).ok());
            self.code_unit(digits.fold(0, |unit, digit| unit * 16 + digit), out);
            self.escape = Escape::Outside;
        }
        true
    }

    /// Takes one UTF-16 code unit.
    fn code_unit(&mut self, unit: u16, out: &mut String) {
        if matches!(unit, 0xD800..=0xDBFF) {
            self.end_pair(out);
            self.high = Some(unit);
        } else {
            let units = self.high.take().into_iter().chain([unit]);
            let chars = char::decode_utf16(units);
            out.extend(chars.map(|decoded| decoded.unwrap_or(REPLACEMENT_CHARACTER)));
        }
    }

    /// Something else than the second half of a pair follows: a first half that waits for it turned out alone.
    fn end_pair(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(REPLACEMENT_CHARACTER);
        }
    }
}
