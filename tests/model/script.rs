//! What happens in a case, as data: the agent's settings, the commands it gets, what the model answers, what happens
//! outside meanwhile, and who is let go on when all wait.

use proptest::collection::vec;
use proptest::prelude::*;
use turnstate::{AssistantEvent, DoneReason, ErrorReason};

/// A case.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) setup: Setup,
    /// One after the other, each when the agent is idle.
    pub(crate) commands: Vec<Command>,
    /// What the model answers; beyond the last, [`FALLBACK`].
    pub(crate) answers: Vec<Vec<Item>>,
    /// Who goes on when several wait: the place among them, modulo their number; over and over.
    pub(crate) picks: Vec<u8>,
}

/// How the agent is made.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Setup {
    pub(crate) sequential: bool,
    pub(crate) max_concurrent: Option<usize>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) steering_all: bool,
    pub(crate) follow_up_all: bool,
    /// What is queued from the start: true for steering.
    pub(crate) queued: Vec<bool>,
    /// An async listener waits at each event.
    pub(crate) slow_listener: bool,
    /// A listener fails or panics at each event, which changes nothing.
    pub(crate) bad_listener: bool,
    /// There are hooks, and each waits once.
    pub(crate) hooks: bool,
    /// What one of them does the `n`th time it is asked, counted from 0.
    pub(crate) trouble: Option<(Hook, usize, Trouble)>,
}

/// A hook of a run or a turn. Those of a call do what the call's id says: see [`IDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Prepare,
    Transform,
    Convert,
    ApiKey,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Fails,
    Panics,
    NeverEnds,
    /// The stop hook says yes; the others are fine.
    SaysYes,
}

/// What the agent is told to do.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) start: Start,
    /// What happens during the run: when, as the number of steps since its begin (a step is an event told, or a wait
    /// reached), and what.
    pub(crate) ops: Vec<(usize, Op)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    Prompt(usize),
    Continue,
    Retry,
    Reset,
}

/// What happens outside, at any time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Steer,
    FollowUp,
    /// Takes back one of what was queued so far.
    Recall(u8),
    ClearSteering,
    ClearFollowUps,
    SteeringMode(bool),
    FollowUpMode(bool),
    ExecutionMode(bool),
    Abort,
    /// The run is dropped.
    Drop,
    StopAfterTurn,
    /// Each is refused: a run is active.
    Busy,
    /// Tools that are over report all the same.
    LateUpdate,
}

/// One step of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Start,
    Text(usize),
    TextMore(usize),
    TextEnd(usize),
    Thinking(usize),
    ThinkingMore(usize),
    ThinkingEnd(usize),
    /// A call of a tool of [`TOOLS`], by an id of [`IDS`].
    Call(usize, usize, usize),
    CallMore(usize),
    CallEnd(usize),
    Done(DoneReason),
    Error,
    /// The provider says that it was aborted.
    Aborted,
    Panic,
    /// Nothing comes any more.
    Silence,
}

/// What the names of the tools make them do.
pub(crate) const TOOLS: [&str; 12] = [
    "instant", "slow", "chatty", "fails", "panics", "enough", "deaf", "polite", "solo", "late", "quits", "nobody",
];

/// What the ids of calls make the hooks do. Ids repeat, and may be empty.
pub(crate) const IDS: [&str; 14] = [
    "",
    "x",
    "y",
    "block",
    "rewrite",
    "spoil",
    "no",
    "boom",
    "never",
    "patch",
    "unpatched",
    "halt",
    "no after",
    "boom after",
];

/// What the model says when nothing is scripted.
pub(crate) const FALLBACK: [Item; 3] = [Item::Start, Item::Text(0), Item::Done(DoneReason::Stop)];

/// The arguments of a call, as they are streamed. Cut off, they cannot be read.
const ARGUMENTS: [&str; 3] = ["{\"n\":", "1}", " "];

/// An answer as the model streams it: its events, up to its end. `Err` is a panic (true) or silence.
pub(crate) fn spell(items: &[Item]) -> Vec<Result<AssistantEvent, bool>> {
    let mut pieces = [0; 4];
    let spelled = items.iter().map(|item| {
        Ok(match *item {
            Item::Start => AssistantEvent::start(),
            Item::Text(index) => AssistantEvent::text_start(index),
            Item::TextMore(index) => AssistantEvent::text_delta(index, "la"),
            Item::TextEnd(index) => AssistantEvent::text_end(index),
            Item::Thinking(index) => AssistantEvent::thinking_start(index),
            Item::ThinkingMore(index) => AssistantEvent::thinking_delta(index, "hm"),
            Item::ThinkingEnd(index) => AssistantEvent::thinking_end(index),
            Item::Call(index, tool, id) => {
                pieces[index] = 0;
                AssistantEvent::tool_call_start(index, IDS[id], TOOLS[tool])
            }
            Item::CallMore(index) => {
                pieces[index] += 1;
                AssistantEvent::tool_call_delta(index, ARGUMENTS[(pieces[index] - 1).min(2)])
            }
            Item::CallEnd(index) => AssistantEvent::tool_call_end(index),
            Item::Done(reason) => AssistantEvent::done(reason),
            Item::Error => AssistantEvent::error("the provider failed"),
            Item::Aborted => AssistantEvent::Error {
                reason: ErrorReason::Aborted,
                error_message: None,
                usage: Box::default(),
                message: None,
                failure: None,
            },
            Item::Panic => return Err(true),
            Item::Silence => return Err(false),
        })
    });
    spelled.collect()
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    (
        setup(),
        vec(command(), 1..4),
        vec(answer(), 0..5),
        vec(any::<u8>(), 1..8),
    )
        .prop_map(|(setup, commands, answers, picks)| Script {
            setup,
            commands,
            answers,
            picks,
        })
}

fn setup() -> impl Strategy<Value = Setup> {
    let trouble = (
        prop::sample::select(vec![
            Hook::Prepare,
            Hook::Transform,
            Hook::Convert,
            Hook::ApiKey,
            Hook::Stop,
        ]),
        0..4_usize,
        prop::sample::select(vec![
            Trouble::Fails,
            Trouble::Panics,
            Trouble::NeverEnds,
            Trouble::SaysYes,
        ]),
    );
    (
        any::<bool>(),
        prop::option::weighted(0.3, 1..3_usize),
        prop::option::weighted(0.3, 1..4_u32),
        any::<[bool; 2]>(),
        vec(any::<bool>(), 0..4),
        (prop::bool::weighted(0.3), prop::bool::weighted(0.2)),
        prop::bool::weighted(0.6),
        prop::option::weighted(0.2, trouble),
    )
        .prop_map(
            |(sequential, max_concurrent, max_turns, all, queued, (slow_listener, bad_listener), hooks, trouble)| {
                Setup {
                    sequential,
                    max_concurrent,
                    max_turns,
                    steering_all: all[0],
                    follow_up_all: all[1],
                    queued,
                    slow_listener,
                    bad_listener,
                    hooks,
                    trouble,
                }
            },
        )
}

fn command() -> impl Strategy<Value = Command> {
    let start = prop_oneof![
        6 => (1..3_usize).prop_map(Start::Prompt),
        1 => Just(Start::Prompt(0)),
        3 => Just(Start::Continue),
        3 => Just(Start::Retry),
        1 => Just(Start::Reset),
    ];
    (start, vec((0..50_usize, op()), 0..6)).prop_map(|(start, ops)| Command { start, ops })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => Just(Op::Steer),
        5 => Just(Op::FollowUp),
        1 => any::<u8>().prop_map(Op::Recall),
        1 => Just(Op::ClearSteering),
        1 => Just(Op::ClearFollowUps),
        1 => any::<bool>().prop_map(Op::SteeringMode),
        1 => any::<bool>().prop_map(Op::FollowUpMode),
        1 => any::<bool>().prop_map(Op::ExecutionMode),
        4 => Just(Op::Abort),
        3 => Just(Op::Drop),
        1 => Just(Op::StopAfterTurn),
        1 => Just(Op::Busy),
        4 => Just(Op::LateUpdate),
    ]
}

/// Half of the answers are as a good provider gives them, the others are anything.
fn answer() -> impl Strategy<Value = Vec<Item>> {
    let end = prop_oneof![
        8 => Just(vec![Item::Done(DoneReason::Stop)]),
        3 => Just(vec![Item::Done(DoneReason::ToolUse)]),
        2 => Just(vec![Item::Done(DoneReason::Length)]),
        1 => Just(vec![Item::Error]),
        1 => Just(vec![Item::Aborted]),
        1 => Just(vec![]),
        1 => Just(vec![Item::Panic]),
        1 => Just(vec![Item::Silence]),
        1 => Just(vec![Item::Done(DoneReason::Stop), Item::Start, Item::TextMore(0)]),
    ];
    let item = prop_oneof![
        3 => Just(Item::Start),
        1 => (0..4_usize).prop_map(Item::Text),
        1 => (0..4_usize).prop_map(Item::TextMore),
        1 => (0..4_usize).prop_map(Item::TextEnd),
        1 => (0..4_usize).prop_map(Item::Thinking),
        1 => (0..4_usize).prop_map(Item::ThinkingMore),
        1 => (0..4_usize).prop_map(Item::ThinkingEnd),
        1 => (0..4_usize, 0..TOOLS.len(), 0..IDS.len()).prop_map(|(index, tool, id)| Item::Call(index, tool, id)),
        1 => (0..4_usize).prop_map(Item::CallMore),
        1 => (0..4_usize).prop_map(Item::CallEnd),
    ];
    let anything = (vec(item, 0..6), end.clone());
    // Blocks, each with so many deltas, the first half of which come before the next block begins.
    let block = prop_oneof![
        1 => (Just(None), 0..3_usize, any::<bool>()),
        3 => ((0..TOOLS.len(), 0..IDS.len()).prop_map(Some), prop_oneof![1 => Just(0), 1 => Just(1), 6 => Just(2)], any::<bool>()),
    ];
    let enough = (Just(Some((5, 1))), Just(2), any::<bool>());
    let blocks = prop_oneof![7 => vec(block, 0..4), 1 => vec(enough, 1..3)];
    let good = (blocks, end).prop_map(|(blocks, end)| {
        let (mut items, mut late) = (vec![Item::Start], Vec::new());
        for (index, (call, deltas, ends)) in blocks.into_iter().enumerate() {
            let (begin, more, close) = match call {
                Some((tool, id)) => (Item::Call(index, tool, id), Item::CallMore(index), Item::CallEnd(index)),
                None if ends => (Item::Text(index), Item::TextMore(index), Item::TextEnd(index)),
                None => (
                    Item::Thinking(index),
                    Item::ThinkingMore(index),
                    Item::ThinkingEnd(index),
                ),
            };
            items.push(begin);
            items.extend(std::iter::repeat_n(more, deltas.div_ceil(2)));
            late.extend(std::iter::repeat_n(more, deltas / 2));
            late.extend(ends.then_some(close));
        }
        (items.into_iter().chain(late).collect::<Vec<_>>(), end)
    });
    prop_oneof![1 => anything, 2 => good].prop_map(|(items, end)| items.into_iter().chain(end).collect())
}
