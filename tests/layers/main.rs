//! The layers: a file imports only from its own layer or lower ones, and the lower ones are pure.

#[cfg(test)] // for clippy: helpers of tests may panic
mod imports;

use std::path::{Path, PathBuf};
use std::{fs, io};

use imports::{Import, imports};

/// The modules of the crate, by layer. `agent::state` is a layer of its own right: it is pure, the agent is not.
const LAYERS: [&[&str]; 8] = [
    &["error", "partial_json", "schema", "sync"],
    &["message"],
    &["event"],
    &["machine", "queue", "agent::state"],
    &["tool"],
    &["hooks", "stream_fn"],
    &["agent_loop", "proxy"],
    &["agent"],
];

/// The layers up to this one neither wait, nor know the time, nor do input and output.
const LAST_PURE: usize = 3;

/// A number with a unit, which is all that is pure of `std::time`.
const A_VALUE: &str = "std::time::Duration";

/// What no pure layer imports.
const IMPURE: &[&str] = &[
    "futures",
    "futures_channel",
    "futures_core",
    "futures_util",
    "rand",
    "reqwest",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
    "tokio",
    "tokio_util",
];

/// What of `std::sync` others than the facade may name: nobody waits for it.
const SHARED: [&str; 2] = ["std::sync::Arc", "std::sync::Weak"];

/// The layer of an item or module, by its path from the root of the crate.
fn layer(path: &[String]) -> Option<usize> {
    let named = |name: &str| {
        let mut names = name.split("::");
        let begins = names.by_ref().zip(path).all(|(name, segment)| name == segment);
        begins && name.split("::").count() <= path.len()
    };
    // Deepest first, as `agent::state` is no part of `agent`.
    let found = |deep: bool| {
        LAYERS
            .iter()
            .position(|modules| modules.iter().any(|m| m.contains("::") == deep && named(m)))
    };
    found(true).or_else(|| found(false))
}

/// What is wrong with the imports of the module at `path`, whose text is `source`.
fn violations(path: &[String], source: &str) -> Vec<String> {
    let module = path.join("::");
    let Some(own) = layer(path) else {
        return vec![format!("{module} has no layer: say in tests/layers which")];
    };
    let wrong = imports(path, source).into_iter().filter_map(|import| match import {
        Import::Outside(outside)
            if module != "sync" && outside.starts_with("std::sync") && !SHARED.contains(&outside.as_str()) =>
        {
            Some(format!("{module} imports {outside}, past crate::sync"))
        }
        Import::Outside(outside) => {
            let impure = IMPURE
                .iter()
                .any(|bad| outside == *bad || outside.starts_with(&format!("{bad}::")));
            let impure = impure && outside != A_VALUE;
            (impure && own <= LAST_PURE).then(|| format!("{module} is pure but imports {outside}"))
        }
        Import::Async => (own <= LAST_PURE).then(|| format!("{module} is pure but waits")),
        Import::Inside(target) => match layer(&target) {
            None => Some(format!(
                "{module} imports crate::{}, past the module it is in",
                target.join("::")
            )),
            Some(other) if other > own => Some(format!(
                "{module} of layer {own} imports crate::{} of layer {other}",
                target.join("::")
            )),
            Some(_) => None,
        },
    });
    wrong.collect()
}

/// The module a file of `src` is.
fn module_path(file: &Path) -> Vec<String> {
    let mut path: Vec<_> = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    path.pop_if(|last| last == "mod");
    path
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn every_file_imports_downwards() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files).expect("the folders can be read");
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&src).expect("a file of src");
        // The root re-exports everything, and is imported by nobody.
        if name != Path::new("lib.rs") {
            wrong.extend(violations(
                &module_path(name),
                &fs::read_to_string(file).expect("it can be read"),
            ));
        }
    }
    assert!(files.len() > 40, "{files:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each of these would be found, in whatever form it is written.
#[test]
fn a_planted_import_is_found() {
    let table = [
        (
            "message",
            "use crate::event::AgentEvent;",
            "crate::event::AgentEvent of layer 2",
        ),
        (
            "message::partial",
            "use super::super::machine::Core;",
            "crate::machine::Core of layer 3",
        ),
        (
            "message::partial",
            "use crate::{partial_json, queue::{Queues as Q}};",
            "crate::queue::Queues of layer 3",
        ),
        (
            "message::partial",
            "use crate::{queue::{self}};",
            "crate::queue of layer 3",
        ),
        (
            "message",
            "mod inner { use super::super::event::AgentEvent; }",
            "crate::event::AgentEvent of layer 2",
        ),
        (
            "message",
            "fn f() -> crate::event::AgentEvent { todo!() }",
            "crate::event::AgentEvent of layer 2",
        ),
        (
            "message",
            "fn f() { let _ = super::machine::f(); }",
            "crate::machine::f of layer 3",
        ),
        (
            "message",
            "macro_rules! m { () => { $crate::event::X } }",
            "crate::event::X of layer 2",
        ),
        (
            "message",
            "fn f() { println!(\"{}\", crate::event::X) }",
            "crate::event::X of layer 2",
        ),
        ("message", "pub use crate::event::*;", "crate::event of layer 2"),
        (
            "message",
            "use crate::AgentEvent;",
            "crate::AgentEvent, past the module",
        ),
        ("message", "use crate::*;", "crate::, past the module"),
        ("message", "use crate as root;", "crate::, past the module"),
        ("message", "use super::*;", "crate::, past the module"),
        ("agent::state", "use super::Agent;", "crate::agent::Agent of layer 7"),
        ("agent::state", "use crate::tool::Tool;", "crate::tool::Tool of layer 4"),
        (
            "machine::core",
            "use futures_util::StreamExt;",
            "pure but imports futures_util::StreamExt",
        ),
        (
            "machine::core",
            "use std::{sync::Arc, time::Instant};",
            "pure but imports std::time::Instant",
        ),
        ("machine::core", "use std::time;", "pure but imports std::time"),
        (
            "machine::core",
            "fn f() { std::thread::yield_now() }",
            "pure but imports std::thread::yield_now",
        ),
        (
            "machine::core",
            "type T = ::tokio_util::sync::Token;",
            "pure but imports tokio_util::sync::Token",
        ),
        ("machine::core", "async fn f() {}", "pure but waits"),
        ("machine::core", "fn f() { let _ = async {}; }", "pure but waits"),
        (
            "agent::run",
            "fn f(flag: &std::sync::atomic::AtomicBool) {}",
            "imports std::sync::atomic::AtomicBool, past crate::sync",
        ),
        ("agent::run", "use std::sync;", "imports std::sync, past crate::sync"),
        ("queue", "extern crate rand;", "pure but imports rand"),
        ("unknown", "", "unknown has no layer"),
    ];
    for (module, source, expected) in table {
        let path: Vec<_> = module.split("::").map(str::to_owned).collect();
        let found = violations(&path, source);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{module}: {source}: {found:?}"
        );
    }
}

#[test]
fn what_is_no_import_is_let_be() {
    let table = [
        (
            "message",
            "/// See [`crate::AgentLoop`](crate::agent_loop::AgentLoop).\nuse super::partial_json::Place;",
        ),
        (
            "message",
            "#[cfg(test)]\nmod tests { use super::*; use crate::machine::Core; use std::time::Instant; }",
        ),
        (
            "message::partial",
            "use super::Model; pub(crate) fn f() {} pub(in crate::message) fn g() {}",
        ),
        (
            "machine::core",
            "use crate::{event::AgentEvent, message::Message}; use std::{num, sync::Arc}; use self::inner::X;",
        ),
        (
            "agent",
            "use crate::agent_loop::AgentLoop; use tokio_util::sync::CancellationToken; use std::time::Instant;",
        ),
        ("queue", "use std::sync::{Arc, Weak}; use crate::sync::Mutex;"),
        ("sync", "pub(crate) use std::sync::Mutex;"),
        ("agent::state", "use crate::{event::AgentEvent, queue::Queues};"),
        ("machine", "macro_rules! m { () => { crate::message::AgentMessage } }"),
    ];
    for (module, source) in table {
        let path: Vec<_> = module.split("::").map(str::to_owned).collect();
        assert_eq!(violations(&path, source), [""; 0], "{module}: {source}");
    }
}
