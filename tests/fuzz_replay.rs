//! The committed corpora of the fuzz targets, through the same bodies, without a fuzzer.
#![cfg(all(feature = "jsonschema", feature = "proxy"))]
#![allow(dead_code, reason = "the shared files have more than is used here")]

#[path = "../fuzz/src/bodies.rs"]
mod bodies;
#[path = "../fuzz/src/chance.rs"]
mod chance;
#[path = "machine/driver.rs"]
mod driver;
#[path = "machine/invariants.rs"]
mod invariants;
#[path = "../fuzz/src/tape.rs"]
mod tape;
#[path = "machine/words.rs"]
mod words;

use std::fs;
use std::path::Path;

/// Runs `body` on each file of its corpus. A package without `fuzz/` has none.
fn replay(target: &str, body: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    if !fuzz.exists() {
        return;
    }
    let mut count = 0;
    for file in fs::read_dir(fuzz.join("corpus").join(target)).expect("there is a corpus") {
        let path = file.expect("a file").path();
        println!("{}", path.display());
        body(&fs::read(path).expect("it can be read"));
        count += 1;
    }
    assert!(count > 4, "{count} inputs of {target}");
}

#[test]
fn partial_json() {
    replay("partial_json", bodies::partial_json);
}

#[test]
fn schema() {
    replay("schema", bodies::schema);
}

#[test]
fn proxy() {
    replay("proxy", bodies::proxy);
}

#[test]
fn message() {
    replay("message", bodies::message);
}

#[test]
fn machine() {
    replay("machine", bodies::machine);
}
