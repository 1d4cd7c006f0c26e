//! Tool arguments while they stream, and the strict parse at their end.
//!
//! A model writes the arguments of a tool call as the text of one JSON object, and that text arrives in pieces. There
//! are two readings of it, and they must not be confused:
//!
//! - [`PartialArguments`] is for **display**. It shows what the text so far says, never fails and costs no more than the
//!   piece that arrived.
//! - [`parse_arguments`] is for **execution**. It runs once, when the text is complete, and refuses what is not one JSON
//!   object. A call whose text it refuses is not run: a prefix of a command is a different command.
//!
//! Both repair the same three faults that models make inside strings, by the same code: raw control characters are kept,
//! a backslash that begins no escape stands for itself, and half of a surrogate pair becomes U+FFFD. Nothing outside
//! strings is repaired.
//!
//! # What is displayed
//!
//! | The text so far | Shows | Because |
//! |-----------------|-------|---------|
//! | `{"pa`          | `{}` | an unfinished key shows nothing |
//! | `{"path":`      | `{}` | nor does a key whose value has not begun |
//! | `{"path":"/et`  | `{"path":"/et"}` | an open string shows what is there |
//! | `{"path":"/et\u00` | `{"path":"/et"}` | an escape shows when it is complete |
//! | `{"n":-`        | `{}` | there is no number yet |
//! | `{"n":12.`      | `{"n":12}` | a number shows its longest prefix that is one |
//! | `{"f":tr`       | `{"f":true}` | a literal is known by its first letter |
//! | `{"a":1,,"b":2}` | `{"a":1}` | after a syntax error the display stays as it is |
//! | `[1,2`          | `{}` | arguments are an object |
//!
//! # Why not one lenient parser
//!
//! Parsing the whole text again for each delta is quadratic, and closing what is open at its end (the usual way to do so)
//! cannot be told from a text that ended there. The display parser is a state machine with an explicit stack instead; it
//! resumes where the last delta ended and writes into the object that is shown.

mod display;
mod number;
mod place;
mod strict;
mod string;

pub use self::display::PartialArguments;
pub use self::strict::{ArgumentsError, parse_arguments, quote_arguments};
