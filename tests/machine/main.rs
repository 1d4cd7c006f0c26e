//! The state machine, driven by hand: exact events for every transition, and the invariants under any driver.
//!
//! Events and what the machine asks for are compared as one line of text, in the shorthand of [`words`].

mod aborts;
mod driver;
mod invariants;
mod properties;
mod script;
mod streaming;
mod tools;
mod turns;
mod words;
