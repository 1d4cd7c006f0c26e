//! JSON pointers, their tokens, and the dotted form shown to models.

use std::borrow::Cow;

/// Appends `token` to `pointer`, escaped.
pub(super) fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// `pointer` extended by `tokens`.
pub(super) fn join(pointer: &str, tokens: &[&str]) -> String {
    let mut pointer = pointer.to_owned();
    for token in tokens {
        push(&mut pointer, token);
    }
    pointer
}

/// The tokens of `pointer`, unescaped.
pub(super) fn tokens(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> {
    pointer.split('/').skip(1).map(|token| {
        if token.contains('~') {
            Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
        } else {
            Cow::Borrowed(token)
        }
    })
}

/// The dotted form of `pointer`, extended by `last`; `root` for the top.
pub(super) fn dotted(pointer: &str, last: Option<&str>) -> String {
    let path: Vec<_> = tokens(pointer).chain(last.map(Cow::Borrowed)).collect();
    if path.is_empty() {
        "root".to_owned()
    } else {
        path.join(".")
    }
}

/// `pointer` as the fragment of a URI reference, `#` included.
pub(super) fn to_fragment(pointer: &str) -> String {
    let mut fragment = String::from("#");
    for byte in pointer.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'$' => {
                fragment.push(char::from(byte));
            }
            byte => {
                fragment.push('%');
                for nibble in [byte >> 4, byte & 15] {
                    let digit = char::from_digit(nibble.into(), 16).unwrap_or_default();
                    fragment.push(digit.to_ascii_uppercase());
                }
            }
        }
    }
    fragment
}

/// A URI fragment with its percent escapes decoded. What is no escape, or no UTF-8, is taken literally.
pub(super) fn percent_decode(fragment: &str) -> Cow<'_, str> {
    if !fragment.contains('%') {
        return Cow::Borrowed(fragment);
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            bytes.push(high * 16 + low);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(fragment), Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
