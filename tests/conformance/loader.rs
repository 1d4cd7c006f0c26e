//! Reads fixtures from the folders they come from.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Names a folder with further fixtures, in `loop/` and `proxy/` (either may be missing).
const EXTRA_FOLDER: &str = "TURNSTATE_CONFORMANCE_DIR";

/// The fixtures of the repository.
const OWN_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/fixtures");

/// A fixture and where it came from.
#[derive(Debug)]
pub(crate) struct Loaded<T> {
    /// Its file.
    pub(crate) file: PathBuf,
    /// What is in it.
    pub(crate) fixture: T,
}

/// The fixtures of a kind (`loop` or `proxy`): those of the repository, then those of the extra folder, sorted by name.
pub(crate) fn load_dir<T: DeserializeOwned>(kind: &str) -> Result<Vec<Loaded<T>>, String> {
    let mut fixtures = load_own(kind)?;
    if let Some(extra) = env::var_os(EXTRA_FOLDER) {
        fixtures.extend(load_extra(&extra, kind)?);
    }
    Ok(fixtures)
}

/// The fixtures of the repository only, for tests that rely on what is in them.
pub(crate) fn load_own<T: DeserializeOwned>(kind: &str) -> Result<Vec<Loaded<T>>, String> {
    load_folder(&Path::new(OWN_FOLDER).join(kind))
}

/// The fixtures of a kind in an extra folder, which must be readable even if it has none of that kind.
fn load_extra<T: DeserializeOwned>(folder: &OsStr, kind: &str) -> Result<Vec<Loaded<T>>, String> {
    let folder = Path::new(folder);
    fs::read_dir(folder).map_err(|error| format!("{EXTRA_FOLDER}: cannot read `{}`: {error}", folder.display()))?;
    let below = folder.join(kind);
    match fs::metadata(&below) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        _ => load_folder(&below),
    }
}

fn load_folder<T: DeserializeOwned>(folder: &Path) -> Result<Vec<Loaded<T>>, String> {
    let unreadable = |error| format!("cannot read `{}`: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.retain(|file| file.extension() == Some(OsStr::new("json")));
    files.sort();
    files.into_iter().map(load_file).collect()
}

fn load_file<T: DeserializeOwned>(file: PathBuf) -> Result<Loaded<T>, String> {
    let text = fs::read(&file).map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
    let fixture = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Loaded { file, fixture })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::fixture_proxy::ProxyFixture;

    /// A folder that is removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            fs::create_dir_all(folder.join("loop")).unwrap();
            Self(folder)
        }

        fn load(&self, kind: &str) -> Result<Vec<Loaded<Fixture>>, String> {
            load_extra(self.0.as_os_str(), kind)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.join("loop").join(file), text).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const EMPTY: &str = r#"{ "name": "empty", "steps": [], "expect": { "events": [], "requests": [], "outcomes": [],
        "state": { "messages": [], "isStreaming": false, "streaming": false, "pendingToolCalls": [], "errorMessage": null } } }"#;

    #[test]
    fn every_fixture_loads() {
        let loops = load_dir::<Fixture>("loop").unwrap();
        println!("{} fixtures", loops.len());
        assert!(loops.len() >= 115);
        let proxies = load_dir::<ProxyFixture>("proxy").unwrap();
        println!("{} proxy fixtures", proxies.len());
        assert!(proxies.len() >= 14);
    }

    #[test]
    fn an_extra_folder_may_lack_a_kind_but_must_be_readable() {
        let scratch = Scratch::new("extra");
        scratch.write("b.json", EMPTY);
        scratch.write("a.json", EMPTY);
        scratch.write("README.md", "not a fixture");
        let files: Vec<_> = scratch.load("loop").unwrap();
        let names: Vec<_> = files.iter().filter_map(|one| one.file.file_name()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
        assert!(scratch.load("proxy").unwrap().is_empty());

        let missing = scratch.0.join("missing");
        let error = load_extra::<Fixture>(missing.as_os_str(), "loop").unwrap_err();
        assert!(error.contains(EXTRA_FOLDER) && error.contains("missing"), "{error}");
        let file = scratch.0.join("loop/a.json");
        assert!(load_extra::<Fixture>(file.as_os_str(), "loop").is_err());
        assert!(load_extra::<Fixture>(OsStr::new(""), "loop").is_err());
    }

    #[test]
    fn a_wrong_file_is_named_with_the_reason() {
        let scratch = Scratch::new("wrong");
        scratch.write("odd.json", &EMPTY.replace("\"steps\"", "\"stops\": [], \"steps\""));
        let error = scratch.load("loop").unwrap_err();
        assert!(error.contains("odd.json") && error.contains("stops"), "{error}");
    }
}
