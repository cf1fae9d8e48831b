//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#![allow(
    clippy::print_stdout,
    reason = "if a file fails, the test harness shows the output, whose last line names the file"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use quictun_mux::check;

/// Runs `check` on each file of one corpus.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("readable directory").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{}: files are missing", corpus.display());
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).expect("readable file"));
    }
}

#[test]
fn mux_frames() {
    replay("mux_frames", check::mux_frames);
}

#[test]
fn mux_records() {
    let now = Instant::now();
    replay("mux_records", |bytes| check::mux_records(now, bytes));
}

/// Checks that each fuzz target of this crate has a test here.
#[test]
fn every_corpus_is_replayed() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut names: Vec<String> = fs::read_dir(targets)
        .expect("readable directory")
        .map(|entry| entry.expect("readable directory").path())
        .filter(|path| {
            let text = fs::read_to_string(path).expect("readable file");
            text.contains("quictun_mux::check")
        })
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["mux_frames", "mux_records"]);
}
