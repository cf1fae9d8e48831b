//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#![allow(
    clippy::print_stdout,
    reason = "the test harness shows it where a file fails: its name is the last line"
)]

use std::fs;
use std::path::Path;

use quictun_wire::check;

/// Runs `check` on each file of one corpus.
fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("readable directory").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{}: the corpus is gone", corpus.display());
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).expect("readable file"));
    }
}

#[test]
fn varint() {
    replay("varint", check::varint);
}

#[test]
fn token_unpack() {
    replay("token_unpack", check::token_unpack);
}

#[test]
fn target_parse() {
    replay("target_parse", check::target_parse);
}

#[test]
fn open_decode() {
    replay("open_decode", check::open_decode);
}

#[test]
fn open_ack_decode() {
    replay("open_ack_decode", check::open_ack_decode);
}

#[test]
fn move_decode() {
    replay("move_decode", check::move_decode);
}

#[test]
fn move_ack_decode() {
    replay("move_ack_decode", check::move_ack_decode);
}

#[test]
fn incoming_decode() {
    replay("incoming_decode", check::incoming_decode);
}

#[test]
fn bond() {
    replay("bond", check::bond);
}

#[test]
fn handover() {
    replay("handover", check::handover);
}

#[test]
fn connect() {
    replay("connect", check::connect);
}

#[test]
fn control() {
    replay("control", check::control);
}

#[test]
fn dns() {
    replay("dns", check::dns);
}

#[test]
fn invitation() {
    replay("invitation", check::invitation);
}

#[test]
fn outbound_proxy() {
    replay("outbound_proxy", check::outbound_proxy);
}

#[test]
fn proxy() {
    replay("proxy", check::proxy);
}

#[test]
fn relay_header() {
    replay("relay_header", check::relay_header);
}

#[test]
fn spice_classify() {
    replay("spice_classify", check::spice_classify);
}

/// Checks that each fuzz target of this crate has a test, and each test a fuzz target.
#[test]
fn every_corpus_is_replayed() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut names: Vec<String> = fs::read_dir(targets)
        .expect("readable directory")
        .map(|entry| entry.expect("readable directory").path())
        .filter(|path| {
            let text = fs::read_to_string(path).expect("readable file");
            text.contains("quictun_wire::check")
        })
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    let replayed = [
        "bond",
        "connect",
        "control",
        "datagram",
        "dns",
        "handover",
        "incoming_decode",
        "invitation",
        "move_ack_decode",
        "move_decode",
        "open_ack_decode",
        "open_decode",
        "outbound_proxy",
        "proxy",
        "relay_header",
        "spice_classify",
        "srv",
        "target_parse",
        "token_unpack",
        "varint",
    ];
    assert_eq!(names, replayed);
}

#[test]
fn srv() {
    replay("srv", check::srv);
}

#[test]
fn datagram() {
    replay("datagram", check::datagram);
}
