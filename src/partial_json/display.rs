//! The incremental parser behind the display.

use serde_json::{Map, Value};

use super::number::NumberScanner;
use super::place::{Container, Place};
use super::string::StringDecoder;

/// Containers that may be open at once: as many as `serde_json` reads, and few enough to walk and drop by recursion.
const MAX_DEPTH: usize = 127;

/// The text of one tool call's arguments while it streams, and the parser that displays it.
///
/// The object that is shown belongs to the caller, who keeps it where it is read (in the partial message) and lends it to
/// each [`push`](Self::push). What is shown after some text does not depend on how the text was cut into deltas.
///
/// ```
/// use serde_json::{Map, json};
/// use turnstate::partial_json::{PartialArguments, parse_arguments};
///
/// let mut arguments = PartialArguments::new();
/// let mut shown = Map::new();
/// arguments.push(r#"{"path": "/etc/ho"#, &mut shown);
/// assert_eq!(json!(shown), json!({"path": "/etc/ho"}));
/// arguments.push(r#"sts", "lines": 1"#, &mut shown);
/// assert_eq!(json!(shown), json!({"path": "/etc/hosts", "lines": 1}));
///
/// // Good enough to show, not to run: more digits may follow.
/// assert!(parse_arguments(arguments.text()).is_err());
/// arguments.push("0}", &mut shown);
/// assert_eq!(parse_arguments(arguments.text())?, shown);
/// # Ok::<(), turnstate::partial_json::ArgumentsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct PartialArguments {
    text: String,
    parser: Parser,
}

impl PartialArguments {
    /// Arguments of which no text has arrived.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `delta` to the text and brings `shown` up to date.
    ///
    /// `shown` is empty at the first call and is changed by nobody else between calls. (If it is changed, the display may be
    /// wrong or stop; nothing panics.) Never fails: from the first syntax error, or from nesting deeper than `serde_json`
    /// reads, the text is still collected but `shown` stays as it is.
    ///
    /// Costs O(length of `delta`), plus the nesting depth of the value that is open; allocates only as text and values grow.
    pub fn push(&mut self, delta: &str, shown: &mut Map<String, Value>) {
        let from = self.text.len();
        self.text.push_str(delta);
        self.parser.advance(&self.text, from, shown);
    }

    /// The whole text so far, which [`parse_arguments`](super::parse_arguments) reads when it is complete.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The work done so far, in bytes looked at and levels walked; tests assert by it that the cost is linear.
    #[doc(hidden)]
    pub fn steps(&self) -> u64 {
        self.parser.steps
    }
}

/// Everything but the text: a pushdown automaton over the tokens of JSON.
///
/// ```text
/// Start --{--> FirstKey --"--> Key --"--> Colon --:--> Value
/// Value --{--> FirstKey    Value --[--> FirstItem    Value ----> String | Number | Literal ----> Next
/// Next --,--> NextKey | Value    FirstKey, FirstItem, Next --} or ]--> Next | Settled
/// ```
#[derive(Debug, Clone, Default)]
struct Parser {
    state: State,
    /// The open containers, outermost first; the first one is the displayed object itself.
    open: Vec<Container>,
    /// The key that is being read, or whose value has shown nothing yet; else empty.
    key: String,
    steps: u64,
}

/// What the parser is in the middle of, or what it expects.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Before the opening brace of the arguments.
    #[default]
    Start,
    /// Behind `{`: a key or `}`.
    FirstKey,
    /// Behind a comma in an object: a key.
    NextKey,
    /// Within a key.
    Key(StringDecoder),
    /// Behind a key.
    Colon,
    /// Behind `[`: a value or `]`.
    FirstItem,
    /// Behind a colon, or behind a comma in an array.
    Value,
    /// Within a string value, which is shown.
    String(StringDecoder),
    /// Within a number.
    Number(NumberScanner),
    /// Within a literal, whose value is shown; `rest` is what has to follow.
    Literal { rest: &'static str },
    /// Behind a value: a comma, or the end of its container.
    Next,
    /// The object is closed, or the text is not one: nothing that follows changes the display.
    Settled,
}

impl Parser {
    /// Reads `text` from offset `from` to its end.
    fn advance(&mut self, text: &str, from: usize, shown: &mut Map<String, Value>) {
        let mut at = from;
        while at < text.len() && !matches!(self.state, State::Settled) {
            let Some(next) = self.token(text, at, shown) else {
                self.state = State::Settled;
                return;
            };
            debug_assert!(
                at < next || matches!(self.state, State::Next | State::Settled),
                "only the end of a number takes nothing"
            );
            self.steps += (next - at) as u64;
            at = next;
        }
    }

    /// Reads one token, or what there is of it, at offset `at`; returns the offset behind it, `None` if there is no such
    /// token in JSON.
    fn token(&mut self, text: &str, at: usize, shown: &mut Map<String, Value>) -> Option<usize> {
        match self.state {
            State::Key(mut decoder) => {
                let rest = decoder.decode(text.get(at..)?, &mut self.key);
                self.state = rest.map_or(State::Key(decoder), |_| State::Colon);
                Some(text.len() - rest.map_or(0, str::len))
            }
            State::String(mut decoder) => {
                let Value::String(value) = self.place(shown)?.into_last()? else {
                    return None;
                };
                let rest = decoder.decode(text.get(at..)?, value);
                self.state = rest.map_or(State::String(decoder), |_| State::Next);
                Some(text.len() - rest.map_or(0, str::len))
            }
            State::Number(scanner) => self.number(scanner, text, shown),
            State::Literal { rest } => self.literal(rest, text, at),
            _ => self.structure(text, at, shown),
        }
    }

    /// Reads one byte between the scalars: punctuation, white space, or the first byte of a scalar.
    fn structure(&mut self, text: &str, at: usize, shown: &mut Map<String, Value>) -> Option<usize> {
        let byte = *text.as_bytes().get(at)?;
        self.state = match (self.state, byte) {
            (state, b' ' | b'\t' | b'\n' | b'\r') => state,
            (State::Start, b'{') => {
                self.open.push(Container::Object);
                State::FirstKey
            }
            (State::Start, _) if at == 0 && text.starts_with(BYTE_ORDER_MARK) => {
                return Some(BYTE_ORDER_MARK.len_utf8());
            }
            (State::FirstKey | State::NextKey, b'"') => State::Key(StringDecoder::default()),
            (State::Colon, b':') => State::Value,
            (State::FirstKey | State::Next, b'}') => self.close(Container::Object)?,
            (State::FirstItem | State::Next, b']') => self.close(Container::Array)?,
            (State::Next, b',') => match self.open.last()? {
                Container::Object => State::NextKey,
                Container::Array => State::Value,
            },
            (State::Value | State::FirstItem, _) => self.begin_value(byte, at, shown)?,
            _ => return None,
        };
        match self.state {
            // It has no opening mark: its first byte is its own.
            State::Number(scanner) => self.number(scanner, text, shown),
            _ => Some(at + 1),
        }
    }

    /// The state behind the end of a container, if it is one of this kind that is open.
    fn close(&mut self, container: Container) -> Option<State> {
        (self.open.pop()? == container).then_some(if self.open.is_empty() {
            State::Settled
        } else {
            State::Next
        })
    }

    /// The state within the value that begins with `byte`.
    fn begin_value(&mut self, byte: u8, at: usize, shown: &mut Map<String, Value>) -> Option<State> {
        let (value, state) = match byte {
            b'"' => (Value::String(String::new()), State::String(StringDecoder::default())),
            b'{' => (Value::Object(Map::new()), State::FirstKey),
            b'[' => (Value::Array(Vec::new()), State::FirstItem),
            b't' => (Value::Bool(true), State::Literal { rest: "rue" }),
            b'f' => (Value::Bool(false), State::Literal { rest: "alse" }),
            b'n' => (Value::Null, State::Literal { rest: "ull" }),
            b'-' | b'0'..=b'9' => return Some(State::Number(NumberScanner::new(at))),
            _ => return None,
        };
        let container = match value {
            Value::Object(_) => Some(Container::Object),
            Value::Array(_) => Some(Container::Array),
            _ => None,
        };
        if container.is_some() && self.open.len() == MAX_DEPTH {
            return None;
        }
        self.add(value, shown)?;
        self.open.extend(container);
        Some(state)
    }

    /// Reads on in a number and shows its value: the provisional one unless the number has ended and is in range.
    fn number(&mut self, mut scanner: NumberScanner, text: &str, shown: &mut Map<String, Value>) -> Option<usize> {
        let is_shown = scanner.is_shown();
        let end = scanner.scan(text);
        let (value, state) = if end == text.len() {
            (scanner.provisional(text, &mut self.steps), State::Number(scanner))
        } else if let Some(value) = scanner.complete(text, &mut self.steps) {
            (Some(value), State::Next)
        } else {
            (scanner.provisional(text, &mut self.steps), State::Settled)
        };
        match value {
            None => {}
            Some(value) if is_shown => *self.place(shown)?.into_last()? = value,
            Some(value) => self.add(value, shown)?,
        }
        self.state = state;
        Some(end)
    }

    /// Reads on in a literal of which `expected` is left.
    fn literal(&mut self, expected: &'static str, text: &str, at: usize) -> Option<usize> {
        let text = text.get(at..)?;
        let (now, later) = expected.split_at_checked(text.len().min(expected.len()))?;
        self.state = match later {
            "" => State::Next,
            rest => State::Literal { rest },
        };
        text.starts_with(now).then_some(at + now.len())
    }

    /// Adds a value to the innermost open container.
    fn add(&mut self, value: Value, shown: &mut Map<String, Value>) -> Option<()> {
        let place = self.place(shown)?;
        place.add(&mut self.key, value);
        Some(())
    }

    /// The innermost open container.
    fn place<'a>(&mut self, shown: &'a mut Map<String, Value>) -> Option<Place<'a>> {
        self.steps += self.open.len() as u64;
        Place::find(shown, self.open.len().checked_sub(1)?)
    }
}

/// Some programs write it before any text; it is no part of the JSON.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';
