//! What a run allocates (I8): per delta nothing but the growth of the text, per turn nothing that grows with the
//! transcript.
//!
//! Allocations are counted per thread; a run is driven by hand on the thread that counts. Run with `--nocapture` to
//! see the figures.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assumption in a test is the test's failure"
)]

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use allocation_counter::{AllocationInfo, measure};
use futures_core::Stream;
use futures_util::stream;
use serde_json::json;
use turnstate::{
    Agent, AgentBuilder, AgentEvent, AssistantContent, AssistantEvent, AssistantMessage, CancellationToken, DoneReason,
    LoopConfig, Message, Request, Response, Run, ScriptedModel, StreamFn, ToolSet, Transcript, agent_loop, json_tool,
};

/// The next event; nothing in these tests waits.
fn next<S: Stream>(stream: Pin<&mut S>) -> Option<S::Item> {
    match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => event,
        Poll::Pending => panic!("it waits"),
    }
}

/// Runs to the end.
fn finish(mut run: Run) {
    let mut last = None;
    while let Some(event) = next(Pin::new(&mut run)) {
        last = Some(event);
    }
    assert!(matches!(last, Some(AgentEvent::AgentEnd { .. })));
}

// --- Deltas

/// A kind of delta: what begins a block of it, and one of 5 bytes. `n` of them make a block.
struct Deltas {
    name: &'static str,
    begin: AssistantEvent,
    delta: fn(usize, usize) -> AssistantEvent,
}

fn kinds_of_deltas() -> [Deltas; 3] {
    [
        Deltas {
            name: "text",
            begin: AssistantEvent::TextStart { content_index: 0 },
            delta: |_, _| AssistantEvent::text_delta(0, "delta"),
        },
        Deltas {
            name: "thinking",
            begin: AssistantEvent::ThinkingStart { content_index: 0 },
            delta: |_, _| AssistantEvent::thinking_delta(0, "delta"),
        },
        Deltas {
            name: "arguments",
            begin: AssistantEvent::tool_call_start(0, "1", "t"),
            delta: |i, n| {
                let piece = match i {
                    0 => r#"{"a":"#,
                    1 => r#""argu"#,
                    i if i + 1 == n => r#"end"}"#,
                    _ => "delta",
                };
                AssistantEvent::tool_call_delta(0, piece)
            },
        },
    ]
}

/// A model that hands out what was made before, without allocating.
fn prepared(deltas: &Deltas, n: usize) -> impl StreamFn {
    let mut events = vec![AssistantEvent::start(), deltas.begin.clone()];
    events.extend((0..n).map(|i| (deltas.delta)(i, n)));
    // Failed, so that a call is not run.
    events.push(AssistantEvent::error("enough"));
    let events = Mutex::new(Some(events));
    move |_: Request, _: CancellationToken| stream::iter(events.lock().unwrap().take().unwrap())
}

/// What is allocated while `n` deltas stream, which are all there is behind the first updates.
fn of_deltas<S: Stream<Item = AgentEvent>>(mut run: Pin<&mut S>, n: usize) -> AllocationInfo {
    loop {
        if let AgentEvent::MessageUpdate { .. } = next(run.as_mut()).unwrap() {
            break;
        }
    }
    measure(|| {
        for _ in 0..n {
            assert!(matches!(next(run.as_mut()), Some(AgentEvent::MessageUpdate { .. })));
        }
    })
}

#[test]
fn deltas_allocate_only_as_the_text_grows() {
    for deltas in kinds_of_deltas() {
        for n in [1_000_usize, 10_000] {
            let doublings = u64::from((5 * n).ilog2());
            // Of arguments both the text and what is shown of it grow, each by the standard library's doubling.
            let bound = if deltas.name == "arguments" {
                4 * doublings + 8
            } else {
                doublings
            };
            let agent = Agent::builder("m", prepared(&deltas, n)).build();
            let heard = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&heard);
            agent.subscribe(move |_, cx| {
                // A listener may look at the partial each time.
                let blocks = cx.partial().map_or(0, |partial| partial.content.len());
                count.fetch_add(blocks as u64, Ordering::Relaxed);
            });
            let of_run = of_deltas(pin!(agent.prompt("go").unwrap()), n);
            assert!(heard.load(Ordering::Relaxed) >= n as u64);

            let prompt = vec![Message::user("go").into()];
            let run = agent_loop(prompt, LoopConfig::new("m"), prepared(&deltas, n), ()).unwrap();
            let of_loop = of_deltas(pin!(run), n);

            let figures = format!(
                "{n} deltas of {}: run {}, loop {}, bound {bound} allocations",
                deltas.name, of_run.count_total, of_loop.count_total
            );
            println!("{figures}");
            assert!(of_run.count_total <= bound, "{figures}");
            assert!(of_loop.count_total <= bound, "{figures}");
        }
    }
}

// --- Turns

/// So many messages of 1 KiB, user and assistant in turn.
fn long(n: usize) -> Vec<Message> {
    (0..n)
        .map(|i| match i % 2 {
            0 => Message::user("u".repeat(1024)),
            _ => answer("a".repeat(1024)).into(),
        })
        .collect()
}

fn answer(text: String) -> AssistantMessage {
    AssistantMessage {
        content: vec![AssistantContent::text(text)],
        ..AssistantMessage::default()
    }
}

/// An agent with a long transcript, a listener, and a model that keeps its requests.
fn agent_of(n: usize, model: ScriptedModel, build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    let tool = json_tool("t", "t", json!({"type": "object"}), async |_, _| "fine");
    let agent = build(Agent::builder("m", model).tool(tool).transcript(long(n))).build();
    agent.subscribe(|_, cx| {
        let _ = cx.transcript().len();
    });
    agent
}

/// What a run allocates.
fn of_prompt(agent: &Agent) -> AllocationInfo {
    let run = measure(|| finish(agent.prompt("go").unwrap()));
    assert_eq!(agent.error_message(), None);
    run
}

/// A model of runs of one turn, or of one with so many tool calls and another.
fn answers(calls: usize) -> ScriptedModel {
    (0..4).fold(ScriptedModel::new(), |model, _| {
        let model = match calls {
            0 => model,
            _ => model.reply((0..calls).fold(Response::new(), |response, _| response.call("t", json!({})))),
        };
        model.text("an answer")
    })
}

const SHORT: usize = 10;
const LONG: usize = 10_000;

/// What the first and the second run of an agent allocate, while somebody holds a copy of the transcript or not.
fn of_two_prompts(
    n: usize,
    calls: usize,
    hold: bool,
    build: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> [AllocationInfo; 2] {
    let agent = agent_of(n, answers(calls), build);
    let mut held = Vec::new();
    [(); 2].map(|()| {
        if hold {
            held.push(agent.transcript());
        }
        of_prompt(&agent)
    })
}

/// Counts and bytes.
fn shown(info: &AllocationInfo) -> String {
    format!("{} allocations of {} bytes", info.count_total, info.bytes_total)
}

#[track_caller]
fn no_more(what: &str, long: &AllocationInfo, short: &AllocationInfo) {
    println!(
        "{what}: {} with {SHORT} messages, {} with {LONG}",
        shown(short),
        shown(long)
    );
    assert!(
        long.count_total <= short.count_total && long.bytes_total <= short.bytes_total,
        "{what}: {} with {SHORT} messages, {} with {LONG}",
        shown(short),
        shown(long)
    );
}

#[test]
fn a_turn_costs_nothing_that_grows_with_the_transcript() {
    for calls in [0, 1, 8] {
        for hold in [false, true] {
            // What is made only once, wherever.
            of_two_prompts(SHORT, calls, hold, |builder| builder);
            let short = of_two_prompts(SHORT, calls, hold, |builder| builder);
            let long = of_two_prompts(LONG, calls, hold, |builder| builder);
            for (run, (long, short)) in ["first", "second"].iter().zip(long.iter().zip(&short)) {
                no_more(
                    &format!("{run} run, {calls} calls, transcript held: {hold}"),
                    long,
                    short,
                );
            }
        }
    }
}

#[test]
fn nor_does_it_with_a_transform_that_changes_nothing() {
    let identity = |builder: AgentBuilder| builder.transform_context(async |cx| cx.transcript);
    of_two_prompts(SHORT, 1, true, identity);
    let short = of_two_prompts(SHORT, 1, true, identity);
    let long = of_two_prompts(LONG, 1, true, identity);
    for (run, (long, short)) in ["first", "second"].iter().zip(long.iter().zip(&short)) {
        no_more(&format!("{run} run, identity transform"), long, short);
    }
}

#[test]
fn a_transform_that_rebuilds_costs_at_most_a_pointer_per_message_beside() {
    let own = Arc::new(Mutex::new(AllocationInfo::default()));
    let rebuild = |builder: AgentBuilder| {
        let own = Arc::clone(&own);
        builder.transform_context(move |cx| {
            let mut rebuilt = None;
            let cost = measure(|| {
                let pointers: Vec<_> = cx.transcript.iter().cloned().collect();
                rebuilt = Some(Transcript::from(pointers));
            });
            *own.lock().unwrap() += cost;
            std::future::ready(rebuilt.unwrap())
        })
    };
    let beside = |n, build: &dyn Fn(AgentBuilder) -> AgentBuilder| {
        *own.lock().unwrap() = AllocationInfo::default();
        let runs = of_two_prompts(n, 0, true, build);
        let own = own.lock().unwrap();
        println!("rebuilding transform: {} itself with {n} messages", shown(&own));
        // What is measured within counts for the outer measure, too.
        runs.iter().map(|run| run.bytes_total).sum::<u64>() - own.bytes_total
    };
    beside(SHORT, &rebuild);
    let (short, long) = (beside(SHORT, &rebuild), beside(LONG, &rebuild));
    println!("rebuilding transform: {short} bytes beside with {SHORT} messages, {long} with {LONG}");
    assert!(long <= short + 2 * 8 * LONG as u64);
}

/// What the run allocates that follows on a failed one, or retries it.
fn after_failure(n: usize, retry: bool) -> AllocationInfo {
    let model = ScriptedModel::new()
        .fail("overloaded")
        .text("an answer")
        .text("an answer");
    let agent = agent_of(n, model, |builder| builder);
    finish(agent.prompt("go").unwrap());
    assert_eq!(agent.error_message().as_deref(), Some("overloaded"));
    if retry {
        measure(|| finish(agent.retry().unwrap()))
    } else {
        of_prompt(&agent)
    }
}

#[test]
fn a_turn_after_a_failed_one_costs_at_most_a_pointer_per_message() {
    for retry in [false, true] {
        after_failure(SHORT, retry);
        let (short, long) = (after_failure(SHORT, retry), after_failure(LONG, retry));
        let more = long.bytes_total - short.bytes_total;
        println!("after a failure, retried: {retry}: {more} bytes more with {LONG} messages than with {SHORT}");
        assert!(more <= 8 * LONG as u64, "{more}");
    }
}

// --- State

#[test]
fn looking_at_the_transcript_allocates_nothing() {
    let agent = agent_of(LONG, answers(0), |builder| builder);
    let of_agent = measure(|| assert_eq!(agent.transcript().len(), LONG));
    assert_eq!(of_agent.count_total, 0);

    let of_listener = Arc::new(Mutex::new(AllocationInfo::default()));
    let sum = Arc::clone(&of_listener);
    agent.subscribe(move |_, cx| {
        let mut len = 0;
        let cost = measure(|| len = cx.transcript().len());
        assert!(len >= LONG);
        *sum.lock().unwrap() += cost;
    });
    finish(agent.prompt("go").unwrap());
    assert_eq!(of_listener.lock().unwrap().count_total, 0);
    assert_eq!(agent.transcript().len(), LONG + 2);
}

// --- Many agents

#[test]
fn an_idle_agent_takes_less_than_4_kib_beside_its_transcript() {
    const AGENTS: i64 = 100;
    // Both shared by all, so that they are nobody's.
    let tools = ToolSet::new().with(json_tool("t", "t", json!({"type": "object"}), async |_, _| "fine"));
    let model = Arc::new(|_: Request, _: CancellationToken| {
        stream::iter([
            AssistantEvent::start(),
            AssistantEvent::text_start(0),
            AssistantEvent::text_delta(0, "an answer"),
            AssistantEvent::done(DoneReason::Stop),
        ])
    });
    let build = || {
        let agent = Agent::builder("m", Arc::clone(&model)).build();
        agent.set_tools(tools.clone());
        agent.subscribe(|_, _| {});
        agent
    };
    let mut agents = Vec::new();
    let idle = measure(|| agents.extend((0..AGENTS).map(|_| build())));
    let mut runs = Vec::new();
    let streaming = measure(|| {
        runs.extend(agents.iter().map(|agent| {
            let mut run = agent.prompt("go").unwrap();
            while !matches!(next(Pin::new(&mut run)), Some(AgentEvent::MessageUpdate { .. })) {}
            run
        }));
    });
    let [idle, streaming] = [idle, streaming].map(|info| info.bytes_current / AGENTS);
    println!("an agent: {idle} bytes idle, {streaming} more while an answer streams");
    assert!(idle < 4 << 10, "{idle}");
    // No promise, but where it was; an answer of some length is as much.
    assert!(streaming < 8 << 10, "{streaming}");
}

// --- Over many runs

/// Four runs, each with listeners of its own and ended in another way, and back to the beginning.
fn four_runs(agent: &Agent) {
    for end in ["itself", "abort", "drop", "unpolled"] {
        let subscription = agent.subscribe(|_, cx| drop(cx.agent().transcript()));
        let asynchronous = agent.subscribe_async(async |_, _| {});
        agent.steer("steering");
        agent.follow_up("follow-up");
        let mut run = agent.prompt("go").unwrap();
        if end != "unpolled" {
            for _ in 0..12 {
                next(Pin::new(&mut run)).expect("not the end");
            }
        }
        match end {
            "itself" => finish(run),
            "abort" => {
                agent.abort();
                finish(run);
            }
            _ => drop(run),
        }
        subscription.unsubscribe();
        asynchronous.unsubscribe();
        agent.reset().unwrap();
    }
}

#[test]
fn runs_leave_nothing_behind() {
    // C120
    let model = |_: Request, _: CancellationToken| {
        stream::iter([
            AssistantEvent::start(),
            AssistantEvent::tool_call_start(0, "1", "t"),
            AssistantEvent::tool_call_delta(0, "{}"),
            AssistantEvent::done(DoneReason::ToolUse),
        ])
    };
    let tool = json_tool("t", "t", json!({"type": "object"}), async |_, _| "fine");
    let agent = Agent::builder("m", model)
        .tool(tool)
        .max_turns(3.try_into().unwrap())
        .build();
    for _ in 0..3 {
        four_runs(&agent);
    }
    let total = measure(|| (0..250).for_each(|_| four_runs(&agent)));
    println!("1000 runs: {}, {} bytes live", shown(&total), total.bytes_current);
    assert_eq!((total.count_current, total.bytes_current), (0, 0));
}
