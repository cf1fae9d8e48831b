//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#![allow(
    clippy::print_stdout,
    reason = "if a file fails, the test harness shows the output, whose last line names the file"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use quictun_http2::check;

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
fn http2_fields() {
    replay("http2_fields", check::http2_fields);
}

#[test]
fn http2_frames() {
    let now = Instant::now();
    replay("http2_frames", |bytes| check::http2_frames(now, bytes));
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
            text.contains("quictun_http2::check")
        })
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["http2_fields", "http2_frames"]);
}
