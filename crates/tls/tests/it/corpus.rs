//! Replays the committed fuzz corpora, and runs the same checks on random bytes.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use quictun_tls::check;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files = fs::read_dir(&corpus).expect("a corpus");
    let mut files: Vec<_> = files
        .map(|entry| entry.expect("readable directory").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{}: the corpus is gone", corpus.display());
    for file in files {
        check(&fs::read(&file).expect("readable file"));
    }
}

#[test]
fn tls_handshake() {
    replay("tls_handshake", check::handshake);
}

#[test]
fn tls_records() {
    replay("tls_records", check::records);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_changes_of_a_handshake(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        check::handshake(&bytes);
    }

    /// A change at a small position, in each flight.
    #[test]
    fn single_changes_of_a_handshake(side in 2..4_u8, at in 0..2_000_u16, mask in 1..=u8::MAX) {
        let [high, low] = at.to_be_bytes();
        check::handshake(&[side, high, low, mask]);
    }

    #[test]
    fn random_records(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check::records(&bytes);
    }

    /// Short inner plaintexts of known content types.
    #[test]
    fn random_messages(
        side in 0..2_u8,
        groups in prop::collection::vec(
            (0..4_u8, prop::collection::vec(0..30_u8, 0..20), 20..24_u8),
            0..20,
        ),
    ) {
        let mut bytes = vec![side];
        for (kind, mut inner, content) in groups {
            inner.push(content);
            bytes.push(kind);
            bytes.push(u8::try_from(inner.len()).expect("short"));
            bytes.extend(inner);
        }
        check::records(&bytes);
    }
}
