//! What the loop costs per delta, turn, tool call and message, beside the limit of each.
//!
//! Only the loop is timed: agents, transcripts, prompts and the model's events are made before, results are dropped
//! after. In each group `limit` is what no engine can beat: the same deltas, tool futures or JSON without one. Run one
//! group with `cargo bench --bench loop -- text/`; the proxy's needs `--features proxy`. What the figures mean is told in
//! `turnstate::docs::performance`.

mod agents;
#[cfg(feature = "proxy")]
mod proxy;
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use futures_util::stream::{self, FuturesUnordered};
use turnstate::{AgentEvent, AgentState, AssistantEvent, Message, QueueKind, Queues, Start, ToolContext, ToolSet};

use support::{
    Answers, agent, arguments, call, calls, config, drain, drain_text, next, noop, one_by_one, text, through_machine,
    transcript,
};

/// A group of figures per element, of moderate length.
fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group
        .sample_size(20)
        .sampling_mode(SamplingMode::Flat)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    group
}

fn elements(n: usize) -> Throughput {
    Throughput::Elements(n as u64)
}

/// Times `run` of what `make` gives; what it returns is dropped outside.
fn time<I, O>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    n: usize,
    mut make: impl FnMut() -> I,
    mut run: impl FnMut(I) -> O,
) {
    group.bench_function(BenchmarkId::new(name, n), |b| {
        b.iter_batched(&mut make, &mut run, BatchSize::PerIteration);
    });
}

/// The loop with its types known, boxed, and in an agent that has a listener; `messages` are there before.
fn three_ways(
    group: &mut BenchmarkGroup<'_, WallTime>,
    n: usize,
    messages: &[Arc<Message>],
    answers: impl Fn() -> Vec<Vec<AssistantEvent>>,
) {
    let prompt = || vec![Arc::new(Message::user("go"))];
    let made = || (prompt(), config(transcript(messages)), Answers::new(answers()));
    time(group, "static", n, made, |(prompt, config, model)| {
        let run = turnstate::agent_loop(prompt, config, model, ()).expect("a prompt");
        let mut run = Box::pin(run);
        drain(run.as_mut());
        run
    });
    time(group, "boxed", n, made, |(prompt, config, model)| {
        let run = turnstate::BoxedAgentLoop::boxed(Start::Prompt(prompt), config, model, ()).expect("a prompt");
        let mut run = Box::pin(run);
        drain(run.as_mut());
        run
    });
    let made = || (prompt(), agent(transcript(messages), Answers::new(answers())));
    time(group, "agent", n, made, |(prompt, agent)| {
        let mut run = Box::pin(agent.prompt(prompt).expect("an idle agent"));
        drain(run.as_mut());
        (agent, run)
    });
}

/// One answer of so many deltas, per delta. The limit puts the text together, and nothing else.
fn text_deltas(c: &mut Criterion) {
    let mut group = group(c, "text");
    for n in [1_000, 10_000, 100_000] {
        group.throughput(elements(n));
        let deltas = || Box::pin(stream::iter(text(n)));
        time(&mut group, "limit", n, deltas, |mut deltas| {
            let said = drain_text(deltas.as_mut());
            assert_eq!(said.len(), 5 * n);
            (deltas, said)
        });
        time(&mut group, "machine", n, || text(n), through_machine);
        three_ways(&mut group, n, &[], || vec![text(n)]);
    }
}

/// One call whose arguments come in so many deltas, and the turn after it, per delta. The limit puts their text together and
/// parses it once.
fn argument_deltas(c: &mut Criterion) {
    let mut group = group(c, "arguments");
    for n in [1_000, 10_000, 100_000] {
        group.throughput(elements(n));
        let deltas = || Box::pin(stream::iter(arguments(n)));
        time(&mut group, "limit", n, deltas, |mut deltas| {
            let said = drain_text(deltas.as_mut());
            let parsed: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            (deltas, said, parsed)
        });
        three_ways(&mut group, n, &[], || vec![arguments(n), text(1)]);
    }
}

/// Runs calls of the no-op tool without an engine, as many at once as `batch`.
fn bare_calls(group: &mut BenchmarkGroup<'_, WallTime>, n: usize, batch: usize) {
    let tools = ToolSet::new().with(noop());
    let made = || {
        let made = (0..n).map(|i| {
            let call = call(i);
            let (tool, arguments) = tools.check(&call).expect("valid arguments");
            let (cx, updates) = ToolContext::detached(call.clone());
            (Arc::clone(tool.tool()), arguments, cx, updates)
        });
        made.collect::<Vec<_>>()
    };
    time(group, "limit", n, made, |calls| {
        let mut results = Vec::with_capacity(n);
        let mut calls = calls.into_iter();
        let mut kept = Vec::with_capacity(n);
        for _ in 0..n / batch {
            let running = FuturesUnordered::new();
            for (tool, arguments, cx, updates) in calls.by_ref().take(batch) {
                running.push(tool.execute(arguments, cx));
                kept.push(updates);
            }
            let mut running = std::pin::pin!(running);
            while let Some(result) = next(running.as_mut()) {
                results.push(result);
            }
        }
        assert_eq!(results.len(), n);
        (results, kept)
    });
}

/// Turns of one call each, per turn.
fn tool_turns(c: &mut Criterion) {
    let mut group = group(c, "turns");
    for n in [100, 1_000] {
        group.throughput(elements(n));
        bare_calls(&mut group, n, 1);
        three_ways(&mut group, n, &[], || one_by_one(n));
    }
}

/// One turn of many calls side by side, per call.
fn parallel_calls(c: &mut Criterion) {
    let mut group = group(c, "calls");
    for n in [1, 10, 1_000] {
        group.throughput(elements(n));
        bare_calls(&mut group, n, n);
        three_ways(&mut group, n, &[], || vec![calls(0..n), text(1)]);
    }
}

/// A short turn behind so many messages of 1 KiB. Per turn: making what is timed takes longer than the turn.
fn long_transcripts(c: &mut Criterion) {
    let mut group = group(c, "transcript");
    group.measurement_time(Duration::from_millis(50));
    group.throughput(elements(1));
    for n in [100, 10_000] {
        let messages: Vec<_> = (0..n).map(support::kib).collect();
        three_ways(&mut group, n, &messages, || vec![text(10)]);
    }
}

/// The pure reducer, per delta.
fn reducer(c: &mut Criterion) {
    let mut group = group(c, "reducer");
    for n in [1_000, 100_000] {
        group.throughput(elements(n));
        let agent = agent(transcript(&[]), Answers::new(vec![text(n)]));
        let mut run = Box::pin(agent.prompt("go").expect("an idle agent"));
        let events: Vec<AgentEvent> = std::iter::from_fn(|| next(run.as_mut())).collect();
        time(&mut group, "apply", n, AgentState::<Message>::default, |mut state| {
            for event in &events {
                state.apply(event);
            }
            state
        });
    }
}

/// A steering message on its way: queued, taken, told. Per message; from one thread, and queued by another.
fn queue(c: &mut Criterion) {
    let mut group = group(c, "queue");
    let n = 1_000;
    group.throughput(elements(n));
    let made = || {
        let queues = Queues::<Message>::new();
        let ticket = queues.open_run();
        let messages: Vec<_> = (0..n).map(|_| Arc::new(Message::user("steer"))).collect();
        (queues, ticket, messages)
    };
    time(
        &mut group,
        "push_lease_commit",
        n,
        made,
        |(queues, ticket, messages)| {
            for message in &messages {
                black_box(queues.push(QueueKind::Steering, Arc::clone(message)));
                let mut lease = ticket.lease(QueueKind::Steering);
                assert!(lease.commit(message));
            }
            (queues, ticket, messages)
        },
    );
    time(&mut group, "two_threads", n, made, |(queues, ticket, messages)| {
        thread::scope(|scope| {
            scope.spawn(|| {
                for message in &messages {
                    black_box(queues.push(QueueKind::Steering, Arc::clone(message)));
                }
            });
            let mut taken = 0;
            while taken < n {
                let mut lease = ticket.lease(QueueKind::Steering);
                for message in lease.messages() {
                    assert!(lease.commit(&message));
                    taken += 1;
                }
            }
        });
        (queues, ticket, messages)
    });
}

criterion_group!(
    benches,
    text_deltas,
    argument_deltas,
    tool_turns,
    parallel_calls,
    long_transcripts,
    reducer,
    queue,
    agents::many_agents
);
#[cfg(feature = "proxy")]
criterion_group!(of_the_proxy, proxy::proxy_bodies);
#[cfg(feature = "proxy")]
criterion_main!(benches, of_the_proxy);
#[cfg(not(feature = "proxy"))]
criterion_main!(benches);
