//! The strict parse of the complete text.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::display::BYTE_ORDER_MARK;
use super::string::StringDecoder;

/// Characters of the text that [`quote_arguments`] keeps.
const QUOTED_CHARS: usize = 2_000;

/// Why the text of a tool call's arguments cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentsError {
    /// The text is not one JSON value: it is cut short, malformed, nested too deeply, or something follows the value.
    #[error("arguments are not valid JSON: {message}")]
    #[non_exhaustive]
    NotJson {
        /// What `serde_json` says. Its line and column count in the text after repairs.
        message: String,
    },
    /// The text is JSON, but arguments have to be an object.
    #[error("arguments are {found} instead of a JSON object")]
    #[non_exhaustive]
    NotAnObject {
        /// What the text is instead, with its article: `an array`.
        found: &'static str,
    },
}

/// Parses the complete text of a tool call's arguments.
///
/// What `serde_json` accepts as an object is exactly what it makes of it. Beyond that, text that says nothing (empty, white
/// space, `null`) is an empty object, one leading byte order mark is skipped, and three faults inside strings are repaired:
/// see the [module documentation](super).
///
/// ```
/// use serde_json::json;
/// use turnstate::partial_json::parse_arguments;
///
/// let arguments = parse_arguments(r#"{"pattern": "\d+", "limit": 3}"#)?;
/// assert_eq!(json!(arguments), json!({"pattern": r"\d+", "limit": 3}));
/// assert!(parse_arguments("")?.is_empty());
///
/// let error = parse_arguments(r#"{"path": "/etc"#).unwrap_err();
/// assert_eq!(error.to_string(), "arguments are not valid JSON: EOF while parsing a string at line 1 column 14");
/// let error = parse_arguments("[1, 2]").unwrap_err();
/// assert_eq!(error.to_string(), "arguments are an array instead of a JSON object");
/// # Ok::<(), turnstate::partial_json::ArgumentsError>(())
/// ```
///
/// # Errors
///
/// If the text is not exactly one JSON object, or is nested deeper than `serde_json`'s limit.
pub fn parse_arguments(text: &str) -> Result<Map<String, Value>, ArgumentsError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&repair_strings(text)))
        .map_err(|error| ArgumentsError::NotJson {
            message: error.to_string(),
        })?;
    let found = match value {
        Value::Object(arguments) => return Ok(arguments),
        Value::Null => return Ok(Map::new()),
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(ArgumentsError::NotAnObject { found })
}

/// Rewrites the strings in `text` that JSON refuses and leaves everything else to the parser's judgement.
fn repair_strings(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(quote) = rest.find('"') {
        let (outside, string) = rest.split_at(quote);
        repaired.push_str(outside);

        let inside = string.strip_prefix('"').unwrap_or_default();
        let mut decoded = String::new();
        let behind = StringDecoder::default().decode(inside, &mut decoded);
        rest = behind.unwrap_or_default();
        let (string, _) = string.split_at(string.len() - rest.len());
        if serde_json::from_str::<String>(string).is_ok() {
            // As it was written, so that the positions in an error message stay right.
            repaired.push_str(string);
        } else {
            repaired.push_str(&Value::String(decoded).to_string());
        }
        if behind.is_none() {
            // Unterminated it was and unterminated it stays.
            repaired.pop();
        }
    }
    repaired.push_str(rest);
    repaired
}

/// The text of refused arguments, for a message that quotes it: at most its first 2,000 characters, and how much is left out.
///
/// ```
/// use turnstate::partial_json::quote_arguments;
///
/// assert_eq!(quote_arguments(r#"{"path": "/e"#), r#"{"path": "/e"#);
/// assert!(quote_arguments(&"x".repeat(5_000)).ends_with("x… (3000 more bytes)"));
/// ```
pub fn quote_arguments(text: &str) -> Cow<'_, str> {
    let cut = text.char_indices().nth(QUOTED_CHARS);
    match cut.and_then(|(cut, _)| text.split_at_checked(cut)) {
        None => Cow::Borrowed(text),
        Some((quoted, rest)) => Cow::Owned(format!("{quoted}… ({} more bytes)", rest.len())),
    }
}
