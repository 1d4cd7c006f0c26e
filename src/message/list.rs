//! A shared, append-only list of messages.

use std::fmt;
use std::ops::Index;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sync::{Mutex, OnceLock, PoisonError};

/// Slots of the first segment; each further one has twice as many.
const FIRST: usize = 16;
/// Enough for more messages than memory can hold: the slots alone would take a terabyte. Each list pays for this array.
const SEGMENTS: usize = 32;

type Slot<T> = OnceLock<Arc<T>>;

/// A list of shared messages that costs nothing to copy and little to extend (I8).
///
/// It is a value: a copy does not change when the original is extended, nor the other way round. Yet copies share
/// what they have in common: [`clone`](Clone::clone) is one pointer and a length, whatever the list holds, and
/// [`push`](Self::push) writes behind what is there, without moving it, as long as nobody else wrote something
/// *different* there; only then are the pointers copied, once. Two owners who append the same messages, like the
/// loop and the agent's state that follows it, stay on the same storage; also where they part from a third: the first
/// that does copies the pointers, and those that part at the same place go with it.
///
/// ```
/// use turnstate::{Message, Messages};
/// let mut list: Messages<Message> = vec![Message::user("a")].into();
/// let before = list.clone();
/// list.push(Message::user("b").into());
/// assert_eq!((before.len(), list.len()), (1, 2));
/// assert_eq!(list[1].text(), "b");
/// ```
pub struct Messages<T> {
    shared: Arc<Shared<T>>,
    len: usize,
}

/// The storage: what the list was made from, then segments of doubling size that are filled from the front.
struct Shared<T> {
    base: Vec<Arc<T>>,
    segments: [OnceLock<Box<[Slot<T>]>>; SEGMENTS],
    /// Where those went that parted last, and from which index on.
    parted: Mutex<(usize, Weak<Self>)>,
}

/// Segment and offset of the `n`-th slot behind the base.
fn locate(n: usize) -> (usize, usize) {
    let n = n + FIRST;
    let segment = (usize::BITS - 1 - n.leading_zeros()) as usize;
    (segment - FIRST.trailing_zeros() as usize, n - (1 << segment))
}

impl<T> Shared<T> {
    fn new(base: Vec<Arc<T>>) -> Self {
        Self {
            base,
            segments: [const { OnceLock::new() }; SEGMENTS],
            parted: Mutex::new((0, Weak::new())),
        }
    }

    fn get(&self, index: usize) -> Option<&Arc<T>> {
        match index.checked_sub(self.base.len()) {
            None => self.base.get(index),
            Some(n) => {
                let (segment, offset) = locate(n);
                self.segments.get(segment)?.get()?.get(offset)?.get()
            }
        }
    }

    /// Puts `message` at `index`, if that place is free or holds it already. Gives it back if another is there.
    fn put(&self, index: usize, message: Arc<T>) -> Result<(), Arc<T>> {
        let taken = match index.checked_sub(self.base.len()) {
            None => self.base.get(index),
            Some(n) => {
                let (segment, offset) = locate(n);
                let slots = self.segments[segment].get_or_init(|| (0..FIRST << segment).map(|_| Slot::new()).collect());
                match slots[offset].set(message) {
                    Ok(()) => return Ok(()),
                    Err(refused) if slots[offset].get().is_some_and(|taken| Arc::ptr_eq(taken, &refused)) => {
                        return Ok(());
                    }
                    Err(refused) => return Err(refused),
                }
            }
        };
        match taken {
            Some(taken) if Arc::ptr_eq(taken, &message) => Ok(()),
            _ => Err(message),
        }
    }
}

impl<T> Messages<T> {
    /// An empty list.
    pub fn new() -> Self {
        Self::from(Vec::<Arc<T>>::new())
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The message at `index`.
    pub fn get(&self, index: usize) -> Option<&Arc<T>> {
        if index < self.len { self.shared.get(index) } else { None }
    }

    /// The last message.
    pub fn last(&self) -> Option<&Arc<T>> {
        self.get(self.len.checked_sub(1)?)
    }

    /// The messages, in order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.iter_from(0)
    }

    /// The messages from `index` on.
    pub fn iter_from(&self, index: usize) -> Iter<'_, T> {
        Iter {
            list: self,
            next: index.min(self.len),
        }
    }

    /// Appends a message.
    pub fn push(&mut self, message: Arc<T>) {
        let mut message = message;
        while let Err(refused) = self.shared.put(self.len, message) {
            // Another copy went a different way from here on.
            self.part();
            message = refused;
        }
        self.len += 1;
    }

    /// Leaves the storage, for one that others may have gone to from here before, or a new one.
    fn part(&mut self) {
        // Nothing foreign runs under the lock, and nothing panics half-way.
        let mut parted = self.shared.parted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = if parted.0 == self.len { parted.1.upgrade() } else { None };
        let storage = known.unwrap_or_else(|| Arc::new(Shared::new(self.iter().cloned().collect())));
        *parted = (self.len, Arc::downgrade(&storage));
        drop(parted);
        self.shared = storage;
    }

    /// The first `len` messages, on the same storage.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            len: len.min(self.len),
        }
    }
}

impl<T> Clone for Messages<T> {
    fn clone(&self) -> Self {
        self.prefix(self.len)
    }
}

impl<T> Default for Messages<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Messages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: PartialEq> PartialEq for Messages<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Messages<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<T>::deserialize(deserializer).map(Self::from)
    }
}

impl<T: Serialize> Serialize for Messages<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|message| &**message))
    }
}

impl<T> Index<usize> for Messages<T> {
    type Output = Arc<T>;

    /// # Panics
    /// If `index` is not below [`len`](Messages::len), as slices do.
    #[expect(clippy::panic, reason = "the contract of indexing")]
    fn index(&self, index: usize) -> &Arc<T> {
        match self.get(index) {
            Some(message) => message,
            None => panic!("message {index} of a list of {}", self.len),
        }
    }
}

impl<T> From<Vec<Arc<T>>> for Messages<T> {
    fn from(base: Vec<Arc<T>>) -> Self {
        Self {
            len: base.len(),
            shared: Arc::new(Shared::new(base)),
        }
    }
}

impl<T> From<Vec<T>> for Messages<T> {
    fn from(messages: Vec<T>) -> Self {
        messages.into_iter().collect()
    }
}

impl<T> FromIterator<T> for Messages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(messages: I) -> Self {
        messages.into_iter().map(Arc::new).collect()
    }
}

impl<T> FromIterator<Arc<T>> for Messages<T> {
    fn from_iter<I: IntoIterator<Item = Arc<T>>>(messages: I) -> Self {
        Self::from(messages.into_iter().collect::<Vec<_>>())
    }
}

impl<T> Extend<Arc<T>> for Messages<T> {
    fn extend<I: IntoIterator<Item = Arc<T>>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl<'a, T> IntoIterator for &'a Messages<T> {
    type Item = &'a Arc<T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The messages of a list, in order. Made by [`Messages::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    list: &'a Messages<T>,
    next: usize,
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a Arc<T>;

    fn next(&mut self) -> Option<&'a Arc<T>> {
        let message = self.list.get(self.next)?;
        self.next += 1;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len - self.next;
        (left, Some(left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &Messages<u32>) -> Vec<u32> {
        list.iter().map(|item| **item).collect()
    }

    #[test]
    fn places_are_consecutive_over_segments() {
        let places: Vec<_> = (0..FIRST * 7).map(locate).collect();
        let mut expected = Vec::new();
        for segment in 0..3 {
            expected.extend((0..FIRST << segment).map(|offset| (segment, offset)));
        }
        assert_eq!(places, expected);
    }

    #[test]
    fn a_copy_keeps_its_value_while_the_original_grows() {
        let mut list: Messages<u32> = (0..5).collect();
        let copy = list.clone();
        list.extend((5..100).map(Arc::new));
        assert_eq!(texts(&list), (0..100).collect::<Vec<_>>());
        assert_eq!(texts(&copy), (0..5).collect::<Vec<_>>());
        assert!(copy.get(5).is_none());
    }

    #[test]
    fn copies_that_append_the_same_share_storage() {
        let mut one: Messages<u32> = (0..5).collect();
        let mut two = one.clone();
        for message in (5..50).map(Arc::new) {
            one.push(Arc::clone(&message));
            two.push(message);
        }
        assert!(Arc::ptr_eq(&one.shared, &two.shared));
        assert_eq!(texts(&one), texts(&two));
    }

    #[test]
    fn copies_that_part_ways_keep_their_own() {
        let mut one: Messages<u32> = (0..3).collect();
        let mut two = one.clone();
        one.push(Arc::new(10));
        two.push(Arc::new(20));
        two.push(Arc::new(21));
        assert_eq!(texts(&one), [0, 1, 2, 10]);
        assert_eq!(texts(&two), [0, 1, 2, 20, 21]);
        let mut three = one.prefix(3);
        let message = Arc::new(20);
        three.push(Arc::clone(&message));
        assert_eq!(texts(&three), [0, 1, 2, 20]);
        let mut shorter = two.prefix(1);
        shorter.push(Arc::new(30));
        assert_eq!(texts(&shorter), [0, 30]);
        assert_eq!(texts(&two), [0, 1, 2, 20, 21]);
    }

    #[test]
    fn copies_that_part_at_the_same_place_share_storage() {
        let mut one: Messages<u32> = (0..5).collect();
        let (mut two, mut three) = (one.clone(), one.clone());
        one.push(Arc::new(50));
        for message in [5, 6].map(Arc::new) {
            two.push(Arc::clone(&message));
            three.push(message);
        }
        assert!(Arc::ptr_eq(&two.shared, &three.shared));
        assert!(!Arc::ptr_eq(&one.shared, &two.shared));
        assert_eq!(texts(&one), [0, 1, 2, 3, 4, 50]);
        assert_eq!(texts(&three), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn storage_that_was_left_is_not_kept() {
        let mut one: Messages<u32> = (0..5).collect();
        let held = one.clone();
        one.push(Arc::new(5));
        let first = Arc::downgrade(&{
            let mut two = held.clone();
            two.push(Arc::new(6));
            Arc::clone(&two.shared)
        });
        assert!(first.upgrade().is_none());
        let mut three = held.clone();
        three.push(Arc::new(7));
        assert_eq!(texts(&three), [0, 1, 2, 3, 4, 7]);
    }
}
