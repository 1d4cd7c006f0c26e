//! The state machine, driven by hand: exact events for every transition, and the invariants under any driver.
//!
//! Events and what the machine asks for are compared as one line of text, in the shorthand of [`words`].
//!
//! (`cfg(test)` tells clippy that these are tests, whose helpers may panic.)

#[cfg(test)]
mod aborts;
#[cfg(test)]
mod chance;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod phase;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod script;
#[cfg(test)]
mod streaming;
#[cfg(test)]
#[allow(dead_code, reason = "the fuzz targets use more of it")]
mod tape;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod words;
