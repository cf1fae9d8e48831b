use std::time::Instant;

use quictun_trust::access::Policy;
use quictun_trust::settings::{Access, ClientLimits, ClientProof, NamedClient, Pin};

use super::*;

/// Creates the allowances of a client with a quota of 1000 bytes, in a state directory.
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
        names_sources: false,
    };
    let policy = Policy::new(&Access::Named {
        clients: vec![client],
        ca: None,
    });
    let allowances = Allowances::new(Instant::now());
    allowances.apply(&policy.expect("a policy"));
    allowances
}

fn open(directory: &Directory) -> UsageStore {
    UsageStore::open(allowances(), directory.clone())
}

/// Ends the process's part, as its runtime does.
fn end(usage: UsageStore) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time();
    runtime.build().expect("a runtime").block_on(usage.end());
}

fn used(keeper: &UsageStore) -> u64 {
    keeper.allowances.of("laptop").used()
}

#[test]
fn usage_survives_a_restart_and_ends_with_the_month() {
    let state = tempfile::tempdir().expect("a directory");
    let directory = Directory::of(state.path());
    let keeper = open(&directory);
    assert_eq!(used(&keeper), 0);
    keeper.allowances.of("laptop").set_used(400);
    end(keeper);
    let mut keeper = open(&directory);
    assert_eq!(used(&keeper), 400);
    keeper.begin_month(Month::parse("9999-12").expect("a month"));
    assert_eq!(used(&keeper), 0);
    let earlier = UsageRecord {
        month: Month::parse("2020-01").expect("a month"),
        clients: BTreeMap::from([("laptop".to_owned(), 700)]),
    };
    keeper::store(&directory, StateFile::Usage, &earlier.encode()).expect("stored");
    assert_eq!(used(&open(&directory)), 0);
}

#[test]
fn usage_is_stored_every_few_ticks_and_at_once_when_a_quota_is_used_up() {
    let state = tempfile::tempdir().expect("a directory");
    let mut keeper = open(&Directory::of(state.path()));
    let allowance = keeper.allowances.of("laptop");
    allowance.set_used(10);
    let due: Vec<bool> = (0..WRITE_TICKS).map(|_| keeper.due().is_some()).collect();
    let (last, before) = due.split_last().expect("some");
    assert!(*last && !before.contains(&true), "{due:?}");
    let stored = keeper.now();
    keeper.finish_write(stored, Ok(()));
    assert_eq!(keeper.due(), None);
    allowance.set_used(1000);
    let stored = keeper.due().expect("the used-up quota is stored");
    assert_eq!(stored.clients["laptop"], 1000);
    keeper.finish_write(stored, Ok(()));
    for _ in 0..2 * WRITE_TICKS {
        assert_eq!(keeper.due(), None, "nothing has changed");
    }
}

#[test]
fn a_damaged_file_is_renamed_and_counting_starts_at_zero() {
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
        let path = directory.state_file(StateFile::Usage);
        std::fs::write(&path, damaged).expect("written");
        let keeper = open(&directory);
        assert_eq!(used(&keeper), 0, "{damaged}");
        assert!(!path.exists());
        let names = std::fs::read_dir(state.path()).expect("a directory");
        let mut names = names.map(|entry| entry.expect("an entry").path());
        let aside = names.next().expect("a file");
        let name = aside.file_name().and_then(|name| name.to_str());
        assert!(name.is_some_and(|name| name.starts_with("usage.json.damaged-")));
        assert_eq!(std::fs::read_to_string(&aside).expect("kept"), damaged);
        keeper.allowances.of("laptop").set_used(1);
        end(keeper);
        assert_eq!(used(&open(&directory)), 1);
    }
}

#[test]
fn a_clock_that_is_wrong_at_first_does_not_renew_a_quota() {
    let state = tempfile::tempdir().expect("a directory");
    let directory = Directory::of(state.path());
    let later = Month::parse("9999-11").expect("a month");
    let stored = UsageRecord {
        month: later,
        clients: BTreeMap::from([("laptop".to_owned(), 700)]),
    };
    keeper::store(&directory, StateFile::Usage, &stored.encode()).expect("stored");
    let mut keeper = open(&directory);
    let now = Month::of(SystemTime::now());
    keeper.begin_month(now);
    keeper.begin_month(later);
    assert_eq!(used(&keeper), 700);
    for _ in 0..=EARLIER_MONTH_TICKS {
        keeper.begin_month(now);
    }
    assert_eq!((used(&keeper), keeper.stored.month), (700, now));
}

#[test]
fn a_file_that_cannot_be_read_stays_unchanged() {
    let state = tempfile::tempdir().expect("a directory");
    let directory = Directory::of(state.path());
    // A directory in place of the file makes reading fail.
    std::fs::create_dir(directory.state_file(StateFile::Usage)).expect("made");
    let mut keeper = open(&directory);
    keeper.allowances.of("laptop").set_used(1000);
    assert_eq!(keeper.due(), None);
    end(keeper);
    assert!(directory.state_file(StateFile::Usage).is_dir());
}

#[test]
fn any_client_name_is_stored() {
    let stored = UsageRecord {
        month: Month::parse("2026-11").expect("a month"),
        clients: BTreeMap::from([
            ("laptop".to_owned(), u64::MAX),
            ("a \"b\"\n\u{e9}".to_owned(), 0),
        ]),
    };
    assert_eq!(UsageRecord::decode(&stored.encode()), Some(stored));
}
