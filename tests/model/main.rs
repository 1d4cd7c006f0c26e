//! The agent against an independent model of it, in random worlds.
//!
//! A [script](script::Script) says what the model answers, what tools and hooks do, what happens outside and when, and
//! who goes on when several wait. [`world`] plays it on the real agent, polled by hand; [`flat`] plays it on the contract
//! written down as plain code. Both must tell the same events, send the same requests, and leave the same transcript and
//! queues. Beside that, I1 to I8 are looked at without the model, by [`Watch`](robust_support::watch::Watch) at each event
//! and by [`invariants`] from outside; of I8, that a request shares the transcript's messages (`tests/alloc.rs` counts).
//!
//! `cargo test --test model` plays 4,000 scripts, the same each time. `TURNSTATE_MODEL_CASES=200000 cargo test --release
//! --test model -- --nocapture` plays others, and more; a script that fails is shrunk and printed, and its seed is kept in
//! `main.regressions`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "a failed assumption in a test is the test's failure"
)]

mod flat;
mod flat_message;
mod flat_tools;
mod gate;
mod invariants;
mod outside;
#[path = "../robust_support/mod.rs"]
mod robust_support;
mod said;
mod script;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Once;

use proptest::prelude::*;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner,
};

use flat::{Flat, Run};
use script::Script;
use world::World;

thread_local! {
    /// How often something panicked that the script did not plant.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// What is rare must have happened at least so often in 4,000 scripts: about half as often as it did when this was written.
const RARE: [(&str, usize); 53] = [
    ("EmptyTranscript", 630),
    ("NothingToContinue", 105),
    ("a call that an abort keeps from its begin", 5),
    ("a delta of no block", 300),
    ("a hang that an abort ended", 90),
    ("a hook that never ends", 15),
    ("a late start", 25),
    ("a late update", 6),
    ("a listener that fails", 200),
    ("a result that no hook saw", 10),
    ("a second start", 40),
    ("a silent model", 60),
    ("a tool goes on while a listener waits", 8),
    ("a tool that gives up by itself", 30),
    ("a tool that never ends", 65),
    ("abort behind a batch", 130),
    ("abort behind the last answer", 40),
    ("abort in the hook behind a tool", 9),
    ("abort in tools", 100),
    ("abort while streaming", 190),
    ("abort while tools run", 5),
    ("block", 10),
    ("boom", 9),
    ("boom after", 15),
    ("calls cut off by the limit", 65),
    ("drop", 265),
    ("drop before the first poll", 10),
    ("drop in a listener", 35),
    ("drop in tools", 15),
    ("enough", 120),
    ("failed", 490),
    ("fails", 30),
    ("follow-up", 420),
    ("halt", 10),
    ("lease returned", 9),
    ("lease returned in part", 9),
    ("limit", 70),
    ("never", 15),
    ("no", 10),
    ("no after", 15),
    ("panics", 35),
    ("patch", 10),
    ("queued after an abort", 50),
    ("quits", 20),
    ("retry", 135),
    ("rewrite", 15),
    ("solo", 30),
    ("spoil", 10),
    ("stop after this turn", 40),
    ("stopped", 45),
    ("taken back", 110),
    ("terminated", 20),
    ("unpatched", 10),
];

/// Plays a script on both, and compares after each command.
fn play(script: &Script, rare: &RefCell<BTreeMap<&'static str, usize>>) -> TestCaseResult {
    let panics = PANICS.get();
    let mut world = World::new(script);
    let mut flat = Flat::new(script);
    for steering in &script.setup.queued {
        world.queue(*steering);
        flat.push(usize::from(!steering));
    }
    let mut runs = 0;
    for (place, command) in script.commands.iter().enumerate() {
        flat.run = Run {
            ops: command.ops.clone(),
            ..Run::default()
        };
        let expected = flat.run(command.start);
        flat.rare.push(match &expected {
            Ok(end) => end.unwrap_or("reset, or dropped before the first poll"),
            Err(refused) => refused,
        });
        let expected = expected.map_err(str::to_owned);
        let ended = world.command(command).map_err(TestCaseError::fail)?;
        let told = world.told.lock().unwrap().clone();
        prop_assert_eq!(
            shorten(&told, &flat.told),
            shorten(&flat.told, &told),
            "events of command {}",
            place
        );
        prop_assert_eq!(
            &*world.requests.lock().unwrap(),
            &flat.requests,
            "requests of command {}",
            place
        );
        prop_assert_eq!(ended, expected.clone(), "end of command {}", place);
        let transcript = world.agent.transcript();
        let transcript: Vec<_> = transcript.iter().map(|message| said::message(message)).collect();
        let expected_transcript: Vec<_> = flat.transcript.iter().map(ToString::to_string).collect();
        prop_assert_eq!(transcript, expected_transcript, "transcript after command {}", place);
        let queues: [Vec<String>; 2] = flat
            .queues
            .clone()
            .map(|queue| queue.into_iter().map(|queued| queued.text).collect());
        prop_assert_eq!(world.queues(), queues, "queues after command {}", place);
        prop_assert!(!world.agent.is_streaming(), "still active");
        prop_assert_eq!(PANICS.get(), panics, "something panicked that was not planted");
        let end = expected.clone().ok().flatten().unwrap_or_default();
        let checked = world.ledger.check(&world.agent, &world.queues(), end);
        checked.map_err(TestCaseError::fail)?;
        if let Ok(Some(_)) = expected {
            runs += 1;
            if script.setup.bad_listener {
                flat.rare.push("a listener that fails");
            }
            world.watch.check(&world.agent, runs);
        }
    }
    flat.rare
        .extend(std::iter::repeat_n("a late update", world.late_updates));
    for what in flat.rare {
        *rare.borrow_mut().entry(what).or_default() += 1;
    }
    Ok(())
}

/// The first lines that differ, with what leads there.
fn shorten(told: &[String], other: &[String]) -> String {
    let same = told.iter().zip(other).take_while(|(a, b)| a == b).count();
    if same == told.len() && told.len() == other.len() {
        return String::new();
    }
    told[same.saturating_sub(4)..told.len().min(same + 3)].join("\n")
}

#[test]
fn the_agent_does_what_the_contract_says() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            hook(info);
        }));
    });
    let others = std::env::var("TURNSTATE_MODEL_CASES").ok();
    let others = others.map(|cases| cases.parse().expect("TURNSTATE_MODEL_CASES is a number"));
    let config = Config {
        cases: others.unwrap_or(4_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file!()),
        ..Config::default()
    };
    let mut runner = match others {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32])),
    };
    let rare = RefCell::default();
    match runner.run(&script::script(), |script| play(&script, &rare)) {
        Ok(()) => {}
        Err(TestError::Fail(why, script)) => panic!("{why}\n{script:?}"),
        Err(error) => panic!("{error}"),
    }
    let rare = rare.into_inner();
    for (what, times) in &rare {
        println!("{times:>7} {what}");
    }
    for (what, least) in RARE {
        let times = rare.get(what).copied().unwrap_or_default();
        let enough = times >= least || others.is_some_and(|cases| cases < 4_000);
        assert!(enough, "{what}: {times} times, which is less than {least}");
    }
}
