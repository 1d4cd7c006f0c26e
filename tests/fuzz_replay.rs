//! The committed corpora of the fuzz targets, through the same bodies, without a fuzzer.
#![cfg(all(feature = "jsonschema", feature = "proxy"))]

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

// As the shared files name them.
use fuzz::{driver, invariants, phase, rules, tape, words};

use std::cell::Cell;
use std::fs;
use std::panic;
use std::path::Path;
use std::sync::Once;

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Has every panic counted, also one that is caught. Those which a script plants unwind without the hook.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            hook(info);
        }));
    });
}

/// Runs `body` on each file of its corpus, which has at least `least`.
fn replay(target: &str, body: fn(&[u8]), least: usize) {
    count_panics();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for file in fs::read_dir(corpus).expect("the target has a corpus") {
        let path = file.expect("it can be listed").path();
        println!("{}", path.display());
        body(&fs::read(&path).expect("it can be read"));
        assert_eq!(PANICS.get(), 0, "a panic was caught, of {}", path.display());
        count += 1;
    }
    assert!(count >= least, "{count} inputs of {target}");
}

#[test]
fn agent() {
    replay("agent", fuzz::agent, 8);
}

#[test]
fn arguments() {
    replay("arguments", fuzz::arguments, 8);
}

#[test]
fn machine() {
    replay("machine", fuzz::machine, 8);
}

#[test]
fn message() {
    replay("message", fuzz::message, 8);
}

#[test]
fn partial_json() {
    replay("partial_json", fuzz::partial_json, 8);
}

#[test]
fn proxy() {
    replay("proxy", fuzz::proxy, 8);
}

#[test]
fn schema() {
    replay("schema", fuzz::schema, 8);
}
