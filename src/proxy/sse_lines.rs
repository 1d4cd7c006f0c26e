//! The lines of a body that arrives in pieces.

use std::ops::ControlFlow;

use memchr::memchr2;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line was longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// Cuts a body into lines at CR, LF and CRLF, and at nothing else.
///
/// A line that lies whole in one piece of the body is lent from there; only what a piece leaves unfinished is copied.
/// Each byte is looked at once, however the body was cut.
#[derive(Debug)]
pub(super) struct Lines {
    /// The line that has begun.
    unfinished: Vec<u8>,
    /// The last line ended with a CR at the end of a piece: an LF that follows belongs to it.
    after_cr: bool,
    /// The byte order mark can only stand on the first line.
    first: bool,
    max_line: usize,
    steps: u64,
}

impl Lines {
    pub(super) fn new(max_line: usize) -> Self {
        Self {
            unfinished: Vec::new(),
            after_cr: false,
            first: true,
            max_line,
            steps: 0,
        }
    }

    /// Hands the lines that `piece` completes to `each`, without their ends, until it breaks.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), LineTooLong> {
        let mut rest = piece;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(at) = memchr2(b'\r', b'\n', rest) {
            let (line, end) = rest.split_at(at);
            self.steps += end.len().min(1) as u64 + line.len() as u64;
            rest = self.behind(end);
            if self.line(line, &mut each)?.is_break() {
                return Ok(());
            }
        }
        self.keep(rest)
    }

    /// The end of the body: what is left is a line too.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) {
        // Nothing is not an empty line. Something was found short enough when it was kept.
        if !self.unfinished.is_empty() {
            let _ = self.line(&[], &mut each);
        }
    }

    /// Drops what it holds.
    pub(super) fn clear(&mut self) {
        self.unfinished = Vec::new();
    }

    pub(super) fn max_line(&self) -> usize {
        self.max_line
    }

    /// Bytes looked at and bytes copied.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// What follows the line end that `rest` begins with.
    fn behind<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match rest {
            [b'\r', b'\n', behind @ ..] => behind,
            [end, behind @ ..] => {
                self.after_cr = *end == b'\r' && behind.is_empty();
                behind
            }
            [] => rest,
        }
    }

    fn line(
        &mut self,
        tail: &[u8],
        each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LineTooLong> {
        let mut line = tail;
        if self.unfinished.is_empty() {
            if tail.len() > self.max_line {
                return Err(LineTooLong);
            }
        } else {
            self.keep(tail)?;
            line = &self.unfinished;
        }
        if self.first {
            self.first = false;
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let flow = each(line);
        self.unfinished.clear();
        Ok(flow)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), LineTooLong> {
        if part.len() > self.max_line.saturating_sub(self.unfinished.len()) {
            return Err(LineTooLong);
        }
        self.steps += part.len() as u64;
        self.unfinished.extend_from_slice(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(100);
        let mut seen = Vec::new();
        let mut each = |line: &[u8]| {
            seen.push(String::from_utf8(line.to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        for piece in pieces {
            lines.push(piece, &mut each).unwrap();
        }
        lines.finish(&mut each);
        seen
    }

    #[test]
    fn three_ends_and_no_other() {
        let body = "a\rb\nc\r\n\r\n\n\rd\u{2028}e\u{85}\u{b}\u{c}";
        let expected = ["a", "b", "c", "", "", "", "d\u{2028}e\u{85}\u{b}\u{c}"];
        assert_eq!(lines(&[body.as_bytes()]), expected);
        for at in 0..body.len() {
            let (one, two) = body.as_bytes().split_at(at);
            assert_eq!(lines(&[one, two]), expected, "cut at {at}");
        }
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_very_start() {
        assert_eq!(lines(&[b"\xEF", b"\xBB\xBFa\n"]), ["a"]);
        assert_eq!(lines(&["\na\n\u{feff}b".as_bytes()]), ["", "a", "\u{feff}b"]);
    }

    #[test]
    fn the_limit_does_not_depend_on_the_cuts() {
        for (length, fits) in [(5, true), (6, false)] {
            let body = [vec![b'x'; length], b"\n".to_vec()].concat();
            for size in 1..=body.len() {
                let mut lines = Lines::new(5);
                let mut pieces = body.chunks(size);
                let pushed = pieces.try_for_each(|piece| lines.push(piece, |_| ControlFlow::Continue(())));
                assert_eq!(pushed.is_ok(), fits, "{length} by {size}");
            }
        }
    }
}
