use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::settings::{ClientLimits, Pin};
use quictun_wire::join::SIGNATURE_LEN;

const NOW: u64 = 1_800_000_000;
const HOUR: u64 = 3600;
const PIN: Pin = Pin([5; 32]);
const EXPORTER: [u8; 32] = [6; 32];
const NONE: ClientLimits = ClientLimits {
    max_flows: None,
    rate_up: None,
    rate_down: None,
    quota: None,
    expires: None,
};

struct Fixture {
    clients: Directory,
    state: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        Self {
            clients: Directory::of(state.path()),
            state,
        }
    }

    #[track_caller]
    fn invite(&self, name: &str) -> InviteSecret {
        let allow = ["127.0.0.1:22".to_owned(), "*:443".to_owned()];
        let invited = self.clients.invite(name, &allow, &NONE, NOW + HOUR, NOW);
        invited.expect("invited").secret
    }

    fn text(&self, name: &str) -> String {
        let file = self.clients.file_of(name).expect("a name");
        fs::read_to_string(file).expect("a file")
    }
}

fn attempt(secret: &InviteSecret, name: &str, pin: Pin) -> JoinAttempt {
    JoinAttempt {
        exporter: EXPORTER,
        pin,
        join: secret.join(name, &EXPORTER, pin),
    }
}

#[test]
fn a_login_has_a_password_in_a_file_of_its_own_and_both_go_when_it_is_revoked() {
    let fixture = Fixture::new();
    let rules = ["*:443".to_owned()];
    fixture.invite("browser");
    let made = fixture.clients.add_login("browser", &rules, &NONE, NOW);
    let made = made.expect("made");
    assert!(made.replaced, "the invitation");
    let path = fixture.state.path().join("clients/browser.psk");
    let expected = format!(
        "# login by name and password\n[[client]]\nname = \"browser\"\npsk_file = \"{}\"\nallow = [\n    \"*:443\",\n]\n",
        path.display()
    );
    assert_eq!(fixture.text("browser"), expected);
    assert_eq!(fs::read_to_string(&path).expect("a file"), *made.password);
    assert_eq!(made.password.len(), 22);
    let mode = path.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fixture.clients.names().expect("names"), ["browser"]);
    let again = fixture.clients.add_login("browser", &rules, &NONE, NOW);
    assert!(matches!(again, Err(InviteError::Enrolled(_))), "{again:?}");
    assert!(fixture.clients.revoke("browser").expect("revoked"));
    let left = fs::read_dir(fixture.state.path().join("clients"));
    assert_eq!(left.expect("a directory").count(), 0);
}

// PROTOCOL JOIN-4.
#[test]
fn a_code_enrols_one_client_and_is_used_up() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    assert!(is_pending(&fixture.text("laptop")));
    let first = attempt(&secret, "laptop", PIN);
    let enrolled = fixture.clients.enrol(&first, NOW + 1).expect("enrolled");
    assert_eq!(enrolled.allow, ["127.0.0.1:22", "*:443"]);
    assert!(!enrolled.already_stored);
    let expected = format!(
        "# enrolled 2027-01-15T08:00:01Z by an invitation\n[[client]]\nname = \"laptop\"\nkey = \"{PIN}\"\nallow = [\n    \"127.0.0.1:22\",\n    \"*:443\",\n]\n"
    );
    assert_eq!(fixture.text("laptop"), expected);
    // Another client uses the same code.
    let again = attempt(&secret, "laptop", Pin([9; 32]));
    let refused = fixture.clients.enrol(&again, NOW + 2).expect_err("used");
    assert!(matches!(refused, JoinRefusal::Used), "{refused:?}");
    assert_eq!(fixture.text("laptop"), expected);
}

#[test]
fn a_client_that_joins_has_the_limits_of_its_invitation() {
    let fixture = Fixture::new();
    let day = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(24);
    let limits = ClientLimits {
        max_flows: Some(200),
        rate_down: Some(2_500_000),
        expires: Some(day),
        ..NONE
    };
    let allow = ["*:443".to_owned()];
    let invited = fixture
        .clients
        .invite("laptop", &allow, &limits, NOW + HOUR, NOW);
    let secret = invited.expect("invited").secret;
    let attempt = attempt(&secret, "laptop", PIN);
    for already_stored in [false, true] {
        let enrolled = fixture.clients.enrol(&attempt, NOW + 1).expect("enrolled");
        assert_eq!(
            (enrolled.limits, enrolled.already_stored),
            (limits, already_stored)
        );
    }
    let expected = "max_flows = 200\nrate_down = \"20000000bit\"\nexpires = \"1970-01-02T00:00:00Z\"\nallow = [\n";
    assert!(fixture.text("laptop").contains(expected));
    let never = ClientLimits {
        expires: Some(day + std::time::Duration::from_millis(1)),
        ..NONE
    };
    let refused = fixture
        .clients
        .invite("phone", &allow, &never, NOW + HOUR, NOW);
    assert!(matches!(refused, Err(InviteError::Limits)), "{refused:?}");
}

// PROTOCOL JOIN-5: the answer arrived too late, or the disk failed after the key had been stored.
#[test]
fn a_client_whose_key_is_stored_may_repeat_its_attempt() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    let first = attempt(&secret, "laptop", PIN);
    let enrolled = fixture.clients.enrol(&first, NOW + 1).expect("enrolled");
    let stored = fixture.text("laptop");
    let again = fixture
        .clients
        .enrol(&first, NOW + 2 * HOUR)
        .expect("again");
    assert!(again.already_stored);
    assert_eq!(again.allow, enrolled.allow);
    assert_eq!(fixture.text("laptop"), stored);
    // An administrator has changed the file since, so the configuration decides what the client may do.
    let file = fixture.clients.file_of("laptop").expect("a name");
    fs::write(&file, stored.replace("allow = [", "# more\nallow = [")).expect("written");
    let refused = fixture.clients.enrol(&first, NOW + 2).expect_err("used");
    assert!(matches!(refused, JoinRefusal::Used), "{refused:?}");
}

// PROTOCOL JOIN-4.
#[test]
fn one_of_many_simultaneous_attempts_wins() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    let attempts: Vec<JoinAttempt> = (1..=8)
        .map(|n| attempt(&secret, "laptop", Pin([n; 32])))
        .collect();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = attempts
            .iter()
            .map(|attempt| scope.spawn(|| fixture.clients.enrol(attempt, NOW)))
            .collect();
        let ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.map(|end| end.expect("no panic")).collect()
    });
    let winners: Vec<usize> = (0..8).filter(|n| outcomes[*n].is_ok()).collect();
    let [winner] = winners[..] else {
        panic!("{outcomes:?}");
    };
    let key = format!("key = \"{}\"", attempts[winner].pin);
    assert!(fixture.text("laptop").contains(&key));
}

// PROTOCOL INVITE-3, JOIN-3: by the server's clock, at the limit and one second before it.
#[test]
fn an_expired_code_is_refused() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    let late = attempt(&secret, "laptop", PIN);
    for now in [NOW + HOUR, NOW + 2 * HOUR, u64::MAX] {
        let refused = fixture.clients.enrol(&late, now).expect_err("late");
        assert!(matches!(refused, JoinRefusal::Late), "{refused:?}");
    }
    fixture
        .clients
        .enrol(&late, NOW + HOUR - 1)
        .expect("in time");
}

// PROTOCOL JOIN-3.
#[test]
fn an_attempt_that_the_secret_has_not_signed_is_refused() {
    let fixture = Fixture::new();
    let (secret, other) = (fixture.invite("laptop"), fixture.invite("phone"));
    let good = attempt(&secret, "laptop", PIN);
    let wrong = |change: &dyn Fn(&mut JoinAttempt)| {
        let mut attempt = good.clone();
        change(&mut attempt);
        fixture.clients.enrol(&attempt, NOW)
    };
    let changes: [&dyn Fn(&mut JoinAttempt); 5] = [
        &|attempt| attempt.exporter[0] ^= 1,
        &|attempt| attempt.pin.0[31] ^= 1,
        &|attempt| attempt.join.signature[0] ^= 1,
        &|attempt| attempt.join.signature = [0; SIGNATURE_LEN],
        &|attempt| attempt.join = other.join("laptop", &EXPORTER, PIN),
    ];
    for change in changes {
        let refused = wrong(change).expect_err("wrong");
        assert!(matches!(refused, JoinRefusal::Wrong), "{refused:?}");
    }
    let elsewhere = wrong(&|attempt| attempt.join.name = "phone".to_owned());
    assert!(
        matches!(elsewhere, Err(JoinRefusal::Wrong)),
        "{elsewhere:?}"
    );
    for name in ["unknown", "../laptop", ""] {
        let unknown = wrong(&|attempt| attempt.join.name = name.to_owned());
        assert!(matches!(unknown, Err(JoinRefusal::Unknown)), "{unknown:?}");
    }
    fixture.clients.enrol(&good, NOW).expect("unharmed by that");
}

// PROTOCOL INVITE-2: the file does not reveal the secret, so that reading it is not enough to join.
#[test]
fn the_file_does_not_contain_the_secret() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    let file = fixture.clients.file_of("laptop").expect("a name");
    let mode = |path: &std::path::Path| {
        let found = fs::metadata(path).expect("there").permissions();
        found.mode() & 0o777
    };
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(fixture.clients.path()), 0o700);
    let key = Entry::parse("laptop", &fixture.text("laptop"))
        .expect("an entry")
        .key;
    let as_secret = InviteSecret::of(key.first_chunk().expect("long enough"));
    assert_ne!(as_secret.public_key(), key);
    assert_ne!(key[..16], *secret.as_bytes());
    assert_eq!(format!("{secret:?}"), "Secret");
}

#[test]
fn a_second_invitation_replaces_a_pending_one() {
    let fixture = Fixture::new();
    let first = fixture.invite("laptop");
    let again = fixture
        .clients
        .invite("laptop", &[], &NONE, NOW + HOUR, NOW);
    let again = again.expect("invited");
    assert!(again.replaced);
    let old = fixture.clients.enrol(&attempt(&first, "laptop", PIN), NOW);
    assert!(matches!(old, Err(JoinRefusal::Wrong)), "{old:?}");
    let new = attempt(&again.secret, "laptop", PIN);
    let enrolled = fixture.clients.enrol(&new, NOW).expect("enrolled");
    assert!(enrolled.allow.is_empty());
    let taken = fixture
        .clients
        .invite("laptop", &[], &NONE, NOW + HOUR, NOW);
    assert!(matches!(taken, Err(InviteError::Enrolled(_))), "{taken:?}");
}

#[test]
fn a_revoked_client_cannot_join() {
    let fixture = Fixture::new();
    assert!(matches!(
        fixture.clients.revoke("laptop"),
        Err(InviteError::UnknownName(_))
    ));
    let secret = fixture.invite("laptop");
    let attempt = attempt(&secret, "laptop", PIN);
    assert!(!fixture.clients.revoke("laptop").expect("revoked"));
    let gone = fixture.clients.enrol(&attempt, NOW);
    assert!(matches!(gone, Err(JoinRefusal::Unknown)), "{gone:?}");
    let secret = fixture.invite("laptop");
    let attempt = self::attempt(&secret, "laptop", PIN);
    fixture.clients.enrol(&attempt, NOW).expect("enrolled");
    assert!(fixture.clients.revoke("laptop").expect("revoked"));
    assert_eq!(fixture.clients.names().expect("names"), [""; 0]);
}

// PROTOCOL INVITE-4: at the limit and one above. Expired invitations take no place.
#[test]
fn pending_invitations_are_bounded_and_expired_ones_are_removed() {
    let fixture = Fixture::new();
    let invite = |n: usize, now| {
        let name = format!("c{n}");
        fixture
            .clients
            .invite(&name, &[], &NONE, now + HOUR, now)
            .map(drop)
    };
    for n in 0..MAX_PENDING {
        invite(n, NOW).expect("a place");
    }
    assert!(matches!(invite(99, NOW), Err(InviteError::Pending)));
    // A pending invitation may be replaced at the limit.
    invite(0, NOW).expect("its own place");
    invite(99, NOW + HOUR).expect("the others have expired");
    assert_eq!(fixture.clients.names().expect("names"), ["c99"]);
}

#[test]
fn rules_that_a_file_cannot_store_verbatim_are_refused() {
    let fixture = Fixture::new();
    let invite = |rules: &[String]| {
        let invited = fixture
            .clients
            .invite("laptop", rules, &NONE, NOW + HOUR, NOW);
        invited.map(drop)
    };
    for rule in ["a:1\"", "unix:/a\\b", "a\n:1", ""] {
        let refused = invite(&[rule.to_owned()]);
        assert!(matches!(refused, Err(InviteError::Rule(_))), "{refused:?}");
    }
    let rules = vec!["unix:/a b/ä".to_owned(); MAX_RULES];
    invite(&rules).expect("as many as may be");
    let more = [&rules[..], &rules[..1]].concat();
    assert!(matches!(invite(&more), Err(InviteError::Rules(65))));
    assert!(matches!(
        fixture.clients.invite("../x", &[], &NONE, NOW, NOW),
        Err(InviteError::Name(_))
    ));
}

#[test]
fn a_file_that_was_edited_enrols_no_client() {
    let fixture = Fixture::new();
    let secret = fixture.invite("laptop");
    let attempt = attempt(&secret, "laptop", PIN);
    let file = fixture.clients.file_of("laptop").expect("a name");
    let good = fixture.text("laptop");
    for (from, to) in [
        ("allow = [", "allow = [ \"*\","),
        ("name = \"laptop\"", "name = \"phone\""),
        ("1: key ", "2: key "),
        (", until 1", ", until x"),
        ("]\n", "]\npsk_file = \"x\"\n"),
        ("    \"*:443\",", "    \"*:443\""),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        fs::write(&file, bad).expect("written");
        let refused = fixture.clients.enrol(&attempt, NOW);
        assert!(
            matches!(refused, Err(JoinRefusal::Changed)),
            "{to}: {refused:?}"
        );
    }
    fs::write(&file, good).expect("written");
    fixture.clients.enrol(&attempt, NOW).expect("as it was");
}

/// A process that dies while it writes leaves a temporary file behind, which belongs to no client.
#[test]
fn a_leftover_file_is_not_a_client() {
    let fixture = Fixture::new();
    fixture.invite("laptop");
    let directory = fixture.clients.path();
    for name in [
        ".laptop.toml.0123",
        "laptop.toml~",
        "a b.toml",
        "toml",
        ".toml",
    ] {
        fs::write(directory.join(name), "").expect("written");
    }
    assert_eq!(fixture.clients.names().expect("names"), ["laptop"]);
    let nowhere = Directory::of(&fixture.state.path().join("nowhere"));
    assert_eq!(nowhere.names().expect("names"), [""; 0]);
}

/// A step in the life of one name, in any order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Invite,
    Revoke,
    /// Joins by the code of the latest invitation, or of the one before it, with one of two keys.
    Join {
        latest: bool,
        key: u8,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Invite),
        1 => Just(Step::Revoke),
        4 => (any::<bool>(), 1u8..3).prop_map(|(latest, key)| Step::Join { latest, key }),
        1 => (1..HOUR).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Absent,
    Pending { until_s: u64 },
    Enrolled { key: u8 },
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Compares the directory with a model, an enum and a clock, that decides who may join.
    #[test]
    fn only_the_latest_code_joins_once_and_in_time(steps in proptest::collection::vec(step(), 1..24)) {
        let fixture = Fixture::new();
        let (mut state, mut now, mut codes) = (State::Absent, NOW, Vec::new());
        for step in steps {
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Invite => {
                    let invited = fixture.clients.invite("x", &[], &NONE, now + HOUR, now);
                    let enrolled = matches!(state, State::Enrolled { .. });
                    prop_assert_eq!(invited.is_err(), enrolled);
                    if let Ok(invited) = invited {
                        codes.push(invited.secret);
                        state = State::Pending { until_s: now + HOUR };
                    }
                }
                Step::Revoke => {
                    let revoked = fixture.clients.revoke("x");
                    prop_assert_eq!(revoked.is_err(), state == State::Absent);
                    state = State::Absent;
                }
                Step::Join { latest, key } => {
                    let Some(at) = codes.len().checked_sub(if latest { 1 } else { 2 }) else {
                        continue;
                    };
                    let outcome = fixture.clients.enrol(&attempt(&codes[at], "x", Pin([key; 32])), now);
                    let has_joined = state == State::Enrolled { key };
                    let is_in_time = matches!(state, State::Pending { until_s } if now < until_s);
                    let may = has_joined || latest && is_in_time;
                    prop_assert_eq!(outcome.is_ok(), may, "{:?} at {}", state, now);
                    if may {
                        state = State::Enrolled { key };
                    }
                }
            }
            let file = fixture.clients.file_of("x").expect("a name");
            let text = fs::read_to_string(file).unwrap_or_default();
            match state {
                State::Absent => prop_assert_eq!(text, ""),
                State::Pending { .. } => prop_assert!(is_pending(&text)),
                State::Enrolled { key } => {
                    let pin = Pin([key; 32]).to_string();
                    prop_assert!(text.contains(&pin) && !is_pending(&text));
                }
            }
        }
    }

    #[test]
    fn an_attempt_is_decoded_as_it_was_encoded(
        exporter in any::<[u8; 32]>(),
        pin in any::<[u8; 32]>(),
        half in any::<[u8; 32]>(),
        name in "[a-z0-9][a-zA-Z0-9._-]{0,62}",
    ) {
        let mut signature = [0; SIGNATURE_LEN];
        signature[..32].copy_from_slice(&half);
        let join = quictun_wire::join::Join { name, signature };
        let attempt = JoinAttempt { exporter, pin: Pin(pin), join };
        prop_assert_eq!(JoinAttempt::decode(&attempt.encode()), Some(attempt));
    }

    #[test]
    fn no_text_of_a_file_makes_the_parser_panic(text in ".{0,80}|# quictun invitation 1: key [A-Za-z0-9_-]{0,50}, until [0-9]{0,25}\n.{0,80}") {
        let _entry = Entry::parse("x", &text);
        let _attempt = JoinAttempt::decode(text.as_bytes());
    }
}
