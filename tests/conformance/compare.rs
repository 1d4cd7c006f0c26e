//! Compares what an engine did with what a fixture expects: exactly, but for the freedom of [`crate::batch`].

use serde::Serialize;
use serde_json::Value;

use crate::batch::ParallelBatch;
use crate::fixture::{ExpectedOutcome, Fixture, Request, Setup, State};
use crate::json::{same, trim, trim_event};
use crate::report::{list_mismatch, value_mismatch};

/// What a driver saw an engine do. Nothing in it needs to be trimmed.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Every event in Pi's JSON. A `message_update` has its partial message, or was made by
    /// [`crate::json::message_update`].
    pub(crate) events: Vec<Value>,
    /// What each model request was given.
    pub(crate) requests: Vec<Request>,
    /// What came of each prompt (also of triggers), continue and reset, in the order in which they returned.
    pub(crate) outcomes: Vec<Outcome>,
    /// The agent at the end.
    pub(crate) state: State,
}

/// What came of a prompt, a continue or a reset.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Whether it is the prompt of a trigger.
    pub(crate) nested: bool,
    /// Whether it was accepted.
    pub(crate) accepted: bool,
    /// The number of events it produced.
    pub(crate) events: usize,
}

/// Compares an observation with what the fixture expects; the error shows the first difference of each part.
pub(crate) fn compare(fixture: &Fixture, observed: Observed) -> Result<(), String> {
    let expect = &fixture.expect;
    let expected: Vec<_> = expect.events.iter().cloned().map(trim_event).collect();
    let got: Vec<_> = observed.events.into_iter().map(trim_event).collect();
    let parts = [
        compare_events(&fixture.setup, &expected, &got)
            .map_err(|index| list_mismatch("events", index, &expected, &got)),
        compare_requests(&expect.requests, &observed.requests),
        compare_outcomes(&expect.outcomes, &observed.outcomes),
        compare_state(&expect.state, &observed.state),
    ];
    let differences: Vec<_> = parts.into_iter().filter_map(Result::err).collect();
    if differences.is_empty() {
        return Ok(());
    }
    let about = format!("{} ({})", fixture.name, fixture.about);
    Err(format!("{about}\n{}", differences.join("\n")))
}

/// Compares trimmed events in order. A parallel batch may come in another order, at the same place.
///
/// The error is the index of the first event that is wrong.
pub(crate) fn compare_events(setup: &Setup, expected: &[Value], got: &[Value]) -> Result<(), usize> {
    let mut at = 0;
    while at < expected.len().max(got.len()) {
        if let Some(batch) = ParallelBatch::at(expected, at) {
            batch.accepts(setup, got)?;
            at = batch.end();
        } else if equal_at(at, expected, got) {
            at += 1;
        } else {
            return Err(at);
        }
    }
    Ok(())
}

fn equal_at(index: usize, expected: &[Value], got: &[Value]) -> bool {
    match (expected.get(index), got.get(index)) {
        (Some(expected), Some(got)) => same(expected, got),
        _ => false,
    }
}

fn compare_requests(expected: &[Request], got: &[Request]) -> Result<(), String> {
    let expected = expected.iter().map(trimmed).collect::<Result<Vec<_>, _>>()?;
    let got = got.iter().map(trimmed).collect::<Result<Vec<_>, _>>()?;
    let longer = expected.len().max(got.len());
    match (0..longer).find(|&index| !equal_at(index, &expected, &got)) {
        Some(index) => Err(list_mismatch("requests", index, &expected, &got)),
        None => Ok(()),
    }
}

fn compare_outcomes(expected: &[ExpectedOutcome], got: &[Outcome]) -> Result<(), String> {
    let agree = |(expected, got): (&ExpectedOutcome, &Outcome)| {
        expected.nested == got.nested
            && expected.accepted == got.accepted
            && expected.events.is_none_or(|events| events == got.events)
    };
    if expected.len() == got.len() && expected.iter().zip(got).all(agree) {
        return Ok(());
    }
    Err(format!("outcomes differ\n  expected {expected:?}\n  got      {got:?}"))
}

fn compare_state(expected: &State, got: &State) -> Result<(), String> {
    value_mismatch("state", &trimmed(expected)?, &trimmed(got)?).map_or(Ok(()), Err)
}

fn trimmed(value: &impl Serialize) -> Result<Value, String> {
    let mut value = serde_json::to_value(value).map_err(|error| error.to_string())?;
    trim(&mut value);
    Ok(value)
}
