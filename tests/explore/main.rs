//! All that can happen in small scopes: the queues, the machine with the queues, and the agent, each explored breadth
//! first through every interleaving. What must always hold (I1 to I6) is checked in every state, what should be
//! possible is seen somewhere, and the graph of states has neither dead ends nor cycles (I2).
//!
//! `cargo test --test explore -- --nocapture` prints how many states there are. The number is asserted, so that a change
//! that makes the world larger or smaller is noticed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed assumption in a test is the test's failure"
)]

mod agent;
mod explorer;
mod listening;
mod machine;
#[path = "../machine/phase.rs"]
mod phase;
mod pushed;
mod queues;
#[path = "../cases/rules.rs"]
mod rules;
mod stage;
#[path = "../machine/words.rs"]
#[allow(dead_code, reason = "a part of it serves here")]
mod words;

use agent::AgentWorld;
use explorer::{Report, explore};
use machine::MachineWorld;
use queues::QueueWorld;
use turnstate::QueueMode;
use turnstate::machine::{ExecutionMode, Limits};

#[test]
fn queues() {
    let report = explore("queues", &QueueWorld::new);
    report.sometimes(&[
        "queued",
        "leased",
        "committed",
        "taken back",
        "two runs at once",
        "a last look closes",
    ]);
    assert_eq!(report.states, 11_456);
}

/// Explores a machine, which ends whatever happens.
fn explore_machine(scope: machine::Scope) -> Report {
    let report = explore(&format!("machine {scope:?}"), &|| MachineWorld::new(scope));
    report.ends();
    report
}

/// What any machine can come to.
const PHASES: [&str; 22] = [
    "AwaitingSteering",
    "Requesting",
    "Streaming",
    "ExecutingTools",
    "TurnEnd",
    "FollowUp",
    "Ended",
    "Completed",
    "Stopped",
    "Terminated",
    "Failed",
    "Aborted",
    "abort in AwaitingSteering",
    "abort in Requesting",
    "abort in Streaming",
    "abort in ExecutingTools",
    "abort in TurnEnd",
    "abort in FollowUp",
    "a call of two is rejected",
    "a batch is given up",
    "cut",
    "truncated",
];

#[test]
fn machine_with_tools() {
    for (mode, states) in [(ExecutionMode::Parallel, 12_534), (ExecutionMode::Sequential, 6_861)] {
        let report = explore_machine(machine::Scope {
            mode,
            calling: 2,
            updates: 2,
            ..Default::default()
        });
        report.sometimes(&PHASES);
        report.sometimes(&["an update", "late news"]);
        assert_eq!(report.states, states, "{mode:?}");
    }
}

#[test]
fn machine_with_queues_one_at_a_time() {
    let report = explore_machine(machine::Scope {
        messages: 2,
        calling: 1,
        ..Default::default()
    });
    report.sometimes(&PHASES);
    report.sometimes(&["delivered", "given back", "side by side", "the second ends first"]);
    assert_eq!(report.states, 17_821);
}

#[test]
fn machine_with_queues_all_at_once() {
    let report = explore_machine(machine::Scope {
        mode: ExecutionMode::Sequential,
        queues: QueueMode::All,
        messages: 2,
        calling: 1,
        ..Default::default()
    });
    report.sometimes(&PHASES);
    report.sometimes(&["delivered", "given back"]);
    assert_eq!(report.states, 21_081);
}

#[test]
fn machine_with_a_limit() {
    let report = explore_machine(machine::Scope {
        messages: 1,
        calling: 1,
        limits: Limits::max_turns(2.try_into().unwrap()),
        ..Default::default()
    });
    report.sometimes(&PHASES);
    report.sometimes(&["AtLimit", "Limit", "abort in AtLimit"]);
    assert_eq!(report.states, 4_057);
}

/// Explores an agent, whose runs end whatever happens.
fn explore_agent(scope: agent::Scope) -> Report {
    let report = explore(&format!("agent {scope:?}"), &|| AgentWorld::new(scope));
    report.ends();
    report.sometimes(&["Completed", "Aborted"]);
    for mark in ["as", "ts", "ms", "me", "mu", "te", "Prompt"] {
        report.sometimes(&[&format!("abort after {mark}"), &format!("drop after {mark}")]);
    }
    report
}

#[test]
fn agent_with_tools() {
    for (mode, states) in [(ExecutionMode::Parallel, 2_042), (ExecutionMode::Sequential, 1_394)] {
        let report = explore_agent(agent::Scope {
            mode,
            calling: 1,
            runs: 2,
            ..Default::default()
        });
        report.sometimes(&[
            "abort after xs",
            "abort after xe",
            "drop after xs",
            "drop after xe",
            "Prompt",
            "Retry",
        ]);
        assert_eq!(report.states, states, "{mode:?}");
    }
}

#[test]
fn agent_with_tools_and_queues() {
    let report = explore_agent(agent::Scope {
        calling: 1,
        messages: 1,
        runs: 1,
        ..Default::default()
    });
    report.sometimes(&[
        "abort after xs",
        "abort after xe",
        "drop after xs",
        "drop after xe",
        "delivered",
    ]);
    assert_eq!(report.states, 10_011);
}

#[test]
fn agent_with_queues() {
    let report = explore_agent(agent::Scope {
        queues: QueueMode::All,
        messages: 2,
        runs: 1,
        ..Default::default()
    });
    report.sometimes(&["delivered", "ThisRun"]);
    assert_eq!(report.states, 74_707);
}

#[test]
fn agent_twice() {
    let report = explore_agent(agent::Scope {
        messages: 1,
        runs: 2,
        ..Default::default()
    });
    report.sometimes(&["delivered", "ThisRun", "NextRun", "Prompt", "Continue", "Retry"]);
    assert_eq!(report.states, 17_880);
}
