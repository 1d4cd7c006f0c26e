//! Small pieces of serde that several message types need.

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::content::{Content, UserContent};

/// Reads `null` as the default: a tool result without content comes as `null` over some boundaries.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Keeps an explicit `null` apart from an absent field, so that it is written back.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads a string or a list of blocks, with the error of whichever form it has.
pub(crate) fn text_or_blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserContent, D::Error> {
    struct TextOrBlocks;
    impl<'de> Visitor<'de> for TextOrBlocks {
        type Value = UserContent;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string or a list of content blocks")
        }
        fn visit_str<E>(self, text: &str) -> Result<UserContent, E> {
            Ok(UserContent::Text(text.to_owned()))
        }
        fn visit_string<E>(self, text: String) -> Result<UserContent, E> {
            Ok(UserContent::Text(text))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, blocks: A) -> Result<UserContent, A::Error> {
            Vec::<Content>::deserialize(SeqAccessDeserializer::new(blocks)).map(UserContent::Blocks)
        }
    }
    deserializer.deserialize_any(TextOrBlocks)
}
