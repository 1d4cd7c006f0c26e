//! Decisions by the bytes of an input.

/// Decides by one byte each; at their end the answer is always 0.
pub(crate) struct Tape<'a>(pub(crate) &'a [u8]);

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

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// The next `most` bytes, or what there is.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        head
    }
}
