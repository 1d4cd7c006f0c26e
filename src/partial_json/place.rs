//! Where in the displayed object the parser writes.

use serde_json::{Map, Value};

/// The kind of an object or array that is not closed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Object,
    Array,
}

/// The innermost open object or array of the displayed value.
pub(super) enum Place<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

impl<'a> Place<'a> {
    /// Finds the container `depth` levels below `shown`.
    ///
    /// What is open is always the last entry of what holds it, so no key is looked up: the way costs `depth`, whatever the
    /// keys. `None` if `shown` is not what the parser left behind.
    pub(super) fn find(shown: &'a mut Map<String, Value>, depth: usize) -> Option<Self> {
        let mut place = Self::Object(shown);
        for _ in 0..depth {
            place = match place.into_last()? {
                Value::Object(map) => Self::Object(map),
                Value::Array(items) => Self::Array(items),
                _ => return None,
            };
        }
        Some(place)
    }

    /// The last value in the container.
    pub(super) fn into_last(self) -> Option<&'a mut Value> {
        match self {
            Self::Object(map) => map.values_mut().next_back(),
            Self::Array(items) => items.last_mut(),
        }
    }

    /// Adds `value` as the last one of the container, in an object under the `key` that is taken.
    pub(super) fn add(self, key: &mut String, value: Value) {
        match self {
            Self::Object(map) => {
                // A duplicate key: the later value wins, and it has to become the last. `swap_remove` disturbs the order
                // of the others, but takes constant time; the strict parse keeps the order.
                map.swap_remove(key.as_str());
                map.insert(std::mem::take(key), value);
            }
            Self::Array(items) => items.push(value),
        }
    }
}
