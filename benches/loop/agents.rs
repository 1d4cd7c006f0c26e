//! Many agents on one thread.

use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use criterion::Criterion;
use futures_core::Stream;
use turnstate::{Agent, AssistantEvent, CancellationToken, DoneReason, Request, StreamFn};

use super::{elements, group};

const DELTAS: usize = 100;
/// The deltas, the two ends of their block, those of the answer and the prompt, of the turn and the run.
const EVENTS: usize = DELTAS + 10;

/// A model that makes each event when it is asked for it, and lets the others go first.
struct OneByOne;

impl StreamFn for OneByOne {
    type Stream = Deltas;

    fn stream(&self, _: Request, _: CancellationToken) -> Deltas {
        Deltas::default()
    }
}

#[derive(Default)]
struct Deltas {
    next: usize,
    gave_way: bool,
}

impl Stream for Deltas {
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        self.gave_way = !self.gave_way;
        if self.gave_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.next += 1;
        Poll::Ready(match self.next {
            1 => Some(AssistantEvent::start()),
            2 => Some(AssistantEvent::text_start(0)),
            n if n <= DELTAS + 2 => Some(AssistantEvent::text_delta(0, "delta")),
            n if n == DELTAS + 3 => Some(AssistantEvent::text_end(0)),
            n if n == DELTAS + 4 => Some(AssistantEvent::done(DoneReason::Stop)),
            _ => None,
        })
    }
}

/// Reads a model's stream to its end, with no agent.
async fn read(mut deltas: Deltas) -> String {
    let mut said = String::new();
    while let Some(event) = std::future::poll_fn(|cx| Pin::new(&mut deltas).poll_next(cx)).await {
        if let AssistantEvent::TextDelta { delta, .. } = event {
            said.push_str(&delta);
        }
    }
    said
}

/// Counts the events of a run.
async fn run(agent: Agent) -> usize {
    let mut run = agent.prompt("go").expect("an idle agent");
    let mut count = 0;
    while let Some(event) = run.next().await {
        black_box(event);
        count += 1;
    }
    count
}

/// Times `task` in `n` tasks that run side by side; each has to give `expected`.
fn side_by_side<T, F>(c: &mut Criterion, name: &str, n: usize, task: impl Fn() -> F, expected: &T)
where
    T: PartialEq + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut group = group(c, "agents");
    group.sample_size(10).throughput(elements(n * EVENTS));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    group.bench_function(criterion::BenchmarkId::new(name, n), |b| {
        b.iter_custom(|iterations| {
            let rounds = (0..iterations).map(|_| {
                let tasks: Vec<_> = (0..n).map(|_| task()).collect();
                runtime.block_on(async {
                    let begun = Instant::now();
                    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
                    for task in tasks {
                        assert!(task.await.is_ok_and(|given| given == *expected));
                    }
                    begun.elapsed()
                })
            });
            rounds.sum()
        });
    });
}

/// 1,000 and 10,000 agents on one thread, whose models give way to the others behind each delta. Per event told.
pub(crate) fn many_agents(c: &mut Criterion) {
    for n in [1_000, 10_000] {
        let said = "delta".repeat(DELTAS);
        side_by_side(c, "limit", n, || read(Deltas::default()), &said);
        side_by_side(c, "agent", n, || run(Agent::builder("m", OneByOne).build()), &EVENTS);
    }
}
