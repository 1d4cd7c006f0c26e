//! The one freedom of the comparison: the order of events while a batch of tool calls runs in parallel.
//!
//! Fixed are only these orders: starts come in call order; each call's own start, updates and end come in order; if a
//! call is scripted to finish after another, the other's end comes first.
//!
//! Whether a batch ran in parallel can be read off the expected events: the result messages of a parallel batch follow
//! it, those of a sequential one follow each call. So more than one start without another event between them is a
//! parallel batch, and everything else has one order.

use std::collections::HashSet;

use serde_json::Value;

use crate::fixture::Setup;
use crate::json::same;

/// The events of a batch that ran in parallel, from its first start to its last end.
pub(crate) struct ParallelBatch<'a> {
    start: usize,
    end: usize,
    lanes: Vec<Lane<'a>>,
}

/// The events of one call, in order. Calls are told apart by position, since their ids need not be unique.
struct Lane<'a> {
    events: Vec<&'a Value>,
}

impl<'a> Lane<'a> {
    fn new(start: &'a Value) -> Self {
        Self { events: vec![start] }
    }

    fn start(&self) -> &Value {
        self.events[0]
    }

    fn has_ended(&self) -> bool {
        self.events.last().is_some_and(|last| is(last, "end"))
    }
}

/// Whether this is the `tool_execution_` event of that name.
fn is(event: &Value, name: &str) -> bool {
    tool_event(event) == Some(name)
}

fn tool_event(event: &Value) -> Option<&str> {
    event["type"].as_str()?.strip_prefix("tool_execution_")
}

/// Whether an event can belong to the call that `start` began. An end does not repeat the arguments.
fn belongs(event: &Value, start: &Value) -> bool {
    let agrees = |key: &str| same(&start[key], &event[key]);
    agrees("toolCallId") && agrees("toolName") && (is(event, "end") || agrees("args"))
}

impl<'a> ParallelBatch<'a> {
    /// The parallel batch that starts at an index of the expected events, if one does.
    pub(crate) fn at(expected: &'a [Value], start: usize) -> Option<Self> {
        let length = expected[start.min(expected.len())..]
            .iter()
            .take_while(|event| tool_event(event).is_some())
            .count();
        let end = start + length;
        let window = &expected[start.min(end)..end];
        let starts = window.iter().filter(|event| is(event, "start"));
        let mut lanes: Vec<_> = starts.map(Lane::new).collect();
        if lanes.len() < 2 || !is(&window[0], "start") {
            return None;
        }
        assign_updates(&mut lanes, window);
        assign_ends(&mut lanes, window, &expected[end..]);
        // An event that belongs to no call is a mistake of the fixture: it gets no freedom.
        let assigned: usize = lanes.iter().map(|lane| lane.events.len()).sum();
        (assigned == length).then_some(Self { start, end, lanes })
    }

    /// The index after the batch.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Whether the observed events have the same batch at the same place, in an order that is allowed.
    ///
    /// The error is the index of the first event that no allowed order has there.
    pub(crate) fn accepts(&self, setup: &Setup, got: &[Value]) -> Result<(), usize> {
        let mut search = Search {
            batch: self,
            setup,
            got,
            dead_ends: HashSet::new(),
            furthest: self.start,
        };
        if search.fits(&mut vec![0; self.lanes.len()]) {
            Ok(())
        } else {
            Err(search.furthest)
        }
    }
}

/// Gives each lane its updates.
///
/// Calls with the same id, tool and arguments have the same script and report all their progress at once, so that
/// their updates split evenly among them, in call order.
fn assign_updates<'a>(lanes: &mut [Lane<'a>], window: &'a [Value]) {
    for first in 0..lanes.len() {
        let start = lanes[first].events[0];
        let alike = |&lane: &usize| belongs(lanes[lane].start(), start);
        let twins: Vec<_> = (0..lanes.len()).filter(alike).collect();
        if twins[0] < first {
            // Served with the first of them.
            continue;
        }
        let updates = window.iter().filter(|event| is(event, "update"));
        let updates: Vec<_> = updates.filter(|event| belongs(event, start)).collect();
        let share = updates.len().div_ceil(twins.len()).max(1);
        for (&twin, updates) in twins.iter().zip(updates.chunks(share)) {
            lanes[twin].events.extend(updates);
        }
    }
}

/// Gives each lane its end: among calls with the same id and tool, the one whose result message agrees with it.
fn assign_ends<'a>(lanes: &mut [Lane<'a>], window: &'a [Value], following: &[Value]) {
    let is_result = |event: &&Value| event["type"] == "message_start" && event["message"]["role"] == "toolResult";
    let following = following.iter().take_while(|event| event["type"] != "turn_end");
    let results = following.filter(is_result).map(|event| &event["message"]);
    let results: Vec<_> = results.collect();
    for end in window.iter().filter(|event| is(event, "end")) {
        let open = |&i: &usize| !lanes[i].has_ended() && belongs(end, lanes[i].start());
        let answered = |&i: &usize| results.get(i).is_some_and(|result| agrees(end, result));
        let candidates: Vec<_> = (0..lanes.len()).filter(open).collect();
        let answered = candidates.iter().copied().find(answered);
        if let Some(lane) = answered.or(candidates.first().copied()) {
            lanes[lane].events.push(end);
        }
    }
}

/// Whether a result message is what the end of a call announced.
fn agrees(end: &Value, result: &Value) -> bool {
    let announced = &end["result"];
    same(&announced["content"], &result["content"])
        && same(&announced["details"], &result["details"])
        && same(&end["isError"], &result["isError"])
}

/// Tries to read the observed events as an allowed order of the batch.
///
/// It needs to try, not just to read, because events of calls with the same id may look the same.
struct Search<'a> {
    batch: &'a ParallelBatch<'a>,
    setup: &'a Setup,
    got: &'a [Value],
    /// How far each lane was read where no event could follow.
    dead_ends: HashSet<Vec<usize>>,
    /// The index of the first event that could never be read.
    furthest: usize,
}

impl Search<'_> {
    /// Whether the events that are left can be read, `read` being the number of events read of each lane.
    fn fits(&mut self, read: &mut Vec<usize>) -> bool {
        let at = self.batch.start + read.iter().sum::<usize>();
        self.furthest = self.furthest.max(at);
        if at == self.batch.end {
            return true;
        }
        let Some(event) = self.got.get(at) else {
            return false;
        };
        if self.dead_ends.contains(read) {
            return false;
        }
        for lane in 0..read.len() {
            if self.may_follow(read, lane, event) {
                read[lane] += 1;
                if self.fits(read) {
                    return true;
                }
                read[lane] -= 1;
            }
        }
        self.dead_ends.insert(read.clone());
        false
    }

    /// Whether the event can be the next one of a lane.
    fn may_follow(&self, read: &[usize], lane: usize, event: &Value) -> bool {
        let next = self.batch.lanes[lane].events.get(read[lane]);
        next.is_some_and(|next| same(next, event))
            && (!is(event, "start") || read[..lane].iter().all(|&read| read > 0))
            && (!is(event, "end") || self.may_end(read, event))
    }

    /// Whether the call that this one is scripted to wait for has ended, in this batch or before it.
    fn may_end(&self, read: &[usize], end: &Value) -> bool {
        let text = |key: &str| end[key].as_str().unwrap_or_default();
        let Some(awaited) = self.setup.after(text("toolName"), text("toolCallId")) else {
            return true;
        };
        let lanes = self.batch.lanes.iter().zip(read);
        let mut awaited_lanes = lanes
            .filter(|(lane, _)| lane.start()["toolCallId"] == awaited)
            .peekable();
        awaited_lanes.peek().is_none()
            || awaited_lanes.any(|(lane, &read)| read == lane.events.len())
            || self.ended_before(awaited)
    }

    fn ended_before(&self, call_id: &str) -> bool {
        let before = &self.got[..self.batch.start];
        before
            .iter()
            .any(|event| is(event, "end") && event["toolCallId"] == call_id)
    }
}
