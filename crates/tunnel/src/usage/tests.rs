use std::time::Instant;

use quictun_trust::access::Policy;
use quictun_trust::settings::{Access, ClientLimits, ClientProof, NamedClient, Pin};

use super::*;

/// A client with a quota of 1000 bytes, in a state directory.
fn allowances() -> Allowances {
    let client = NamedClient {
        name: "laptop".to_owned(),
        proofs: vec![ClientProof::Pin(Pin([1; 32]))],
        allow: Vec::new(),
        listen: Vec::new(),
        limits: ClientLimits {
            quota: Some(1000),
            ..ClientLimits::default()
        },
    };
    let policy = Policy::new(&Access::Named {
        clients: vec![client],
        ca: None,
    });
    let allowances = Allowances::new(Instant::now());
    allowances.apply(&policy.expect("a policy"));
    allowances
}

fn open(directory: &Directory) -> UsageKeeper {
    UsageKeeper::open(allowances(), directory.clone())
}

fn used(keeper: &UsageKeeper) -> u64 {
    keeper.allowances.of("laptop").used()
}

#[test]
fn what_was_used_is_there_after_a_restart_and_gone_in_the_next_month() {
    let state = tempfile::tempdir().expect("a directory");
    let directory = Directory::of(state.path());
    let keeper = open(&directory);
    assert_eq!(used(&keeper), 0);
    keeper.allowances.of("laptop").set_used(400);
    keeper.end();
    let mut keeper = open(&directory);
    assert_eq!(used(&keeper), 400);
    keeper.begin_month(Month::parse("9999-12").expect("a month"));
    assert_eq!(used(&keeper), 0);
    let earlier = Stored {
        month: Month::parse("2020-01").expect("a month"),
        clients: BTreeMap::from([("laptop".to_owned(), 700)]),
    };
    keeper::store_usage(&directory, &earlier.encode()).expect("stored");
    assert_eq!(used(&open(&directory)), 0);
}

#[test]
fn it_is_stored_every_few_ticks_and_at_once_when_a_quota_is_used_up() {
    let state = tempfile::tempdir().expect("a directory");
    let mut keeper = open(&Directory::of(state.path()));
    let allowance = keeper.allowances.of("laptop");
    allowance.set_used(10);
    let due: Vec<bool> = (0..EVERY).map(|_| keeper.due().is_some()).collect();
    let (last, before) = due.split_last().expect("some");
    assert!(*last && !before.contains(&true), "{due:?}");
    let stored = keeper.now();
    keeper.note(stored, Ok(()));
    assert_eq!(keeper.due(), None);
    allowance.set_used(1000);
    let stored = keeper.due().expect("it is used up");
    assert_eq!(stored.clients["laptop"], 1000);
    keeper.note(stored, Ok(()));
    for _ in 0..2 * EVERY {
        assert_eq!(keeper.due(), None, "nothing has changed");
    }
}

#[test]
fn a_damaged_file_is_kept_aside_and_counting_begins_at_nothing() {
    for damaged in [
        "",
        "{",
        "[]",
        r#"{"version": 2, "month": "2026-11", "used_bytes": {}}"#,
        r#"{"version": 1, "month": "2026-13", "used_bytes": {}}"#,
        r#"{"version": 1, "month": "9999-11", "used_bytes": {"laptop": -1}}"#,
        r#"{"version": 1, "month": "9999-11", "used_bytes": {"laptop": "many"}}"#,
    ] {
        let state = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(state.path());
        let path = directory.usage_file();
        std::fs::write(&path, damaged).expect("written");
        let keeper = open(&directory);
        assert_eq!(used(&keeper), 0, "{damaged}");
        assert!(!path.exists());
        let aside = state.path().join("usage.json.damaged");
        assert_eq!(std::fs::read_to_string(aside).expect("kept"), damaged);
        keeper.allowances.of("laptop").set_used(1);
        keeper.end();
        assert_eq!(used(&open(&directory)), 1);
    }
}

#[test]
fn names_are_stored_whatever_they_are() {
    let stored = Stored {
        month: Month::parse("2026-11").expect("a month"),
        clients: BTreeMap::from([
            ("laptop".to_owned(), u64::MAX),
            ("a \"b\"\n\u{e9}".to_owned(), 0),
        ]),
    };
    assert_eq!(Stored::decode(&stored.encode()), Some(stored));
}
