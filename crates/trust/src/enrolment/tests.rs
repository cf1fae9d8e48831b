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

struct World {
    clients: Directory,
    state: TempDir,
}

impl World {
    fn new() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        Self {
            clients: Directory::of(state.path()),
            state,
        }
    }

    #[track_caller]
    fn invite(&self, name: &str) -> Secret {
        let allow = ["127.0.0.1:22".to_owned(), "*:443".to_owned()];
        let invited = self.clients.invite(name, &allow, &NONE, NOW + HOUR, NOW);
        invited.expect("invited").secret
    }

    fn text(&self, name: &str) -> String {
        let file = self.clients.file_of(name).expect("a name");
        fs::read_to_string(file).expect("a file")
    }
}

fn attempt(secret: &Secret, name: &str, pin: Pin) -> Attempt {
    Attempt {
        exporter: EXPORTER,
        pin,
        join: secret.join(name, &EXPORTER, pin),
    }
}

// PROTOCOL JOIN-4.
#[test]
fn a_code_makes_one_client_known_and_is_used_up() {
    let world = World::new();
    let secret = world.invite("laptop");
    assert!(is_pending(&world.text("laptop")));
    let first = attempt(&secret, "laptop", PIN);
    let enrolled = world.clients.enrol(&first, NOW + 1).expect("enrolled");
    assert_eq!(enrolled.allow, ["127.0.0.1:22", "*:443"]);
    assert!(!enrolled.before);
    let expected = format!(
        "# enrolled 2027-01-15T08:00:01Z by an invitation\n[[client]]\nname = \"laptop\"\nkey = \"{PIN}\"\nallow = [\n    \"127.0.0.1:22\",\n    \"*:443\",\n]\n"
    );
    assert_eq!(world.text("laptop"), expected);
    // Another client uses the same code.
    let again = attempt(&secret, "laptop", Pin([9; 32]));
    let refused = world.clients.enrol(&again, NOW + 2).expect_err("used");
    assert!(matches!(refused, Refused::Used), "{refused:?}");
    assert_eq!(world.text("laptop"), expected);
}

#[test]
fn a_client_that_joins_has_the_limits_of_its_invitation() {
    let world = World::new();
    let day = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(24);
    let limits = ClientLimits {
        max_flows: Some(200),
        rate_down: Some(2_500_000),
        expires: Some(day),
        ..NONE
    };
    let allow = ["*:443".to_owned()];
    let invited = world
        .clients
        .invite("laptop", &allow, &limits, NOW + HOUR, NOW);
    let secret = invited.expect("invited").secret;
    let attempt = attempt(&secret, "laptop", PIN);
    for before in [false, true] {
        let enrolled = world.clients.enrol(&attempt, NOW + 1).expect("enrolled");
        assert_eq!((enrolled.limits, enrolled.before), (limits, before));
    }
    let expected = "max_flows = 200\nrate_down = \"20000000bit\"\nexpires = \"1970-01-02T00:00:00Z\"\nallow = [\n";
    assert!(world.text("laptop").contains(expected));
    let never = ClientLimits {
        expires: Some(day + std::time::Duration::from_millis(1)),
        ..NONE
    };
    let refused = world
        .clients
        .invite("phone", &allow, &never, NOW + HOUR, NOW);
    assert!(matches!(refused, Err(InviteError::Limits)), "{refused:?}");
}

// PROTOCOL JOIN-5: the answer arrived too late, or the disk failed after the key had been stored.
#[test]
fn a_client_whose_key_is_stored_is_enrolled_again_by_that() {
    let world = World::new();
    let secret = world.invite("laptop");
    let first = attempt(&secret, "laptop", PIN);
    let enrolled = world.clients.enrol(&first, NOW + 1).expect("enrolled");
    let stored = world.text("laptop");
    let again = world.clients.enrol(&first, NOW + 2 * HOUR).expect("again");
    assert!(again.before);
    assert_eq!(again.allow, enrolled.allow);
    assert_eq!(world.text("laptop"), stored);
    // An administrator has changed the file since, so the configuration decides what the client may do.
    let file = world.clients.file_of("laptop").expect("a name");
    fs::write(&file, stored.replace("allow = [", "# more\nallow = [")).expect("written");
    let refused = world.clients.enrol(&first, NOW + 2).expect_err("used");
    assert!(matches!(refused, Refused::Used), "{refused:?}");
}

// PROTOCOL JOIN-4.
#[test]
fn of_many_who_join_at_once_one_wins() {
    let world = World::new();
    let secret = world.invite("laptop");
    let attempts: Vec<Attempt> = (1..=8)
        .map(|n| attempt(&secret, "laptop", Pin([n; 32])))
        .collect();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = attempts
            .iter()
            .map(|attempt| scope.spawn(|| world.clients.enrol(attempt, NOW)))
            .collect();
        let ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.map(|end| end.expect("no panic")).collect()
    });
    let winners: Vec<usize> = (0..8).filter(|n| outcomes[*n].is_ok()).collect();
    let [winner] = winners[..] else {
        panic!("{outcomes:?}");
    };
    let key = format!("key = \"{}\"", attempts[winner].pin);
    assert!(world.text("laptop").contains(&key));
}

// PROTOCOL INVITE-3, JOIN-3: by the server's clock, at the limit and one second before it.
#[test]
fn a_code_that_is_late_is_refused() {
    let world = World::new();
    let secret = world.invite("laptop");
    let late = attempt(&secret, "laptop", PIN);
    for now in [NOW + HOUR, NOW + 2 * HOUR, u64::MAX] {
        let refused = world.clients.enrol(&late, now).expect_err("late");
        assert!(matches!(refused, Refused::Late), "{refused:?}");
    }
    world.clients.enrol(&late, NOW + HOUR - 1).expect("in time");
}

// PROTOCOL JOIN-3.
#[test]
fn what_the_secret_has_not_signed_is_refused() {
    let world = World::new();
    let (secret, other) = (world.invite("laptop"), world.invite("phone"));
    let good = attempt(&secret, "laptop", PIN);
    let wrong = |change: &dyn Fn(&mut Attempt)| {
        let mut attempt = good.clone();
        change(&mut attempt);
        world.clients.enrol(&attempt, NOW)
    };
    let changes: [&dyn Fn(&mut Attempt); 5] = [
        &|attempt| attempt.exporter[0] ^= 1,
        &|attempt| attempt.pin.0[31] ^= 1,
        &|attempt| attempt.join.signature[0] ^= 1,
        &|attempt| attempt.join.signature = [0; SIGNATURE_LEN],
        &|attempt| attempt.join = other.join("laptop", &EXPORTER, PIN),
    ];
    for change in changes {
        let refused = wrong(change).expect_err("wrong");
        assert!(matches!(refused, Refused::Wrong), "{refused:?}");
    }
    let elsewhere = wrong(&|attempt| attempt.join.name = "phone".to_owned());
    assert!(matches!(elsewhere, Err(Refused::Wrong)), "{elsewhere:?}");
    for name in ["unknown", "../laptop", ""] {
        let unknown = wrong(&|attempt| attempt.join.name = name.to_owned());
        assert!(matches!(unknown, Err(Refused::Unknown)), "{unknown:?}");
    }
    world.clients.enrol(&good, NOW).expect("unharmed by that");
}

// PROTOCOL INVITE-2: the file does not reveal the secret, so that reading it is not enough to join.
#[test]
fn the_file_has_nothing_of_the_secret() {
    let world = World::new();
    let secret = world.invite("laptop");
    let file = world.clients.file_of("laptop").expect("a name");
    let mode = |path: &std::path::Path| {
        let found = fs::metadata(path).expect("there").permissions();
        found.mode() & 0o777
    };
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(world.clients.path()), 0o700);
    let key = Entry::parse("laptop", &world.text("laptop"))
        .expect("an entry")
        .key;
    let as_secret = Secret::of(key.first_chunk().expect("long enough"));
    assert_ne!(as_secret.public_key(), key);
    assert_ne!(key[..16], *secret.as_bytes());
    assert_eq!(format!("{secret:?}"), "Secret");
}

#[test]
fn a_second_invitation_takes_the_place_of_a_pending_one() {
    let world = World::new();
    let first = world.invite("laptop");
    let again = world.clients.invite("laptop", &[], &NONE, NOW + HOUR, NOW);
    let again = again.expect("invited");
    assert!(again.replaced);
    let old = world.clients.enrol(&attempt(&first, "laptop", PIN), NOW);
    assert!(matches!(old, Err(Refused::Wrong)), "{old:?}");
    let new = attempt(&again.secret, "laptop", PIN);
    let enrolled = world.clients.enrol(&new, NOW).expect("enrolled");
    assert!(enrolled.allow.is_empty());
    let taken = world.clients.invite("laptop", &[], &NONE, NOW + HOUR, NOW);
    assert!(matches!(taken, Err(InviteError::Enrolled(_))), "{taken:?}");
}

#[test]
fn what_is_revoked_leads_nowhere() {
    let world = World::new();
    assert!(matches!(
        world.clients.revoke("laptop"),
        Err(InviteError::Nobody(_))
    ));
    let secret = world.invite("laptop");
    let attempt = attempt(&secret, "laptop", PIN);
    assert!(!world.clients.revoke("laptop").expect("revoked"));
    let gone = world.clients.enrol(&attempt, NOW);
    assert!(matches!(gone, Err(Refused::Unknown)), "{gone:?}");
    let secret = world.invite("laptop");
    let attempt = self::attempt(&secret, "laptop", PIN);
    world.clients.enrol(&attempt, NOW).expect("enrolled");
    assert!(world.clients.revoke("laptop").expect("revoked"));
    assert_eq!(world.clients.names().expect("names"), [""; 0]);
}

// PROTOCOL INVITE-4: at the limit and one above. Expired invitations take no place.
#[test]
fn pending_invitations_are_bounded_and_expired_ones_are_removed() {
    let world = World::new();
    let invite = |n: usize, now| {
        let name = format!("c{n}");
        world
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
    assert_eq!(world.clients.names().expect("names"), ["c99"]);
}

#[test]
fn rules_that_a_file_cannot_hold_as_they_are_are_refused() {
    let world = World::new();
    let invite = |rules: &[String]| {
        let invited = world
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
        world.clients.invite("../x", &[], &NONE, NOW, NOW),
        Err(InviteError::Name(_))
    ));
}

#[test]
fn a_file_that_somebody_has_changed_enrols_nobody() {
    let world = World::new();
    let secret = world.invite("laptop");
    let attempt = attempt(&secret, "laptop", PIN);
    let file = world.clients.file_of("laptop").expect("a name");
    let good = world.text("laptop");
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
        let refused = world.clients.enrol(&attempt, NOW);
        assert!(
            matches!(refused, Err(Refused::Changed)),
            "{to}: {refused:?}"
        );
    }
    fs::write(&file, good).expect("written");
    world.clients.enrol(&attempt, NOW).expect("as it was");
}

/// A process that dies while it writes leaves a temporary file behind, which belongs to no client.
#[test]
fn what_was_left_behind_is_no_client() {
    let world = World::new();
    world.invite("laptop");
    let directory = world.clients.path();
    for name in [
        ".laptop.toml.0123",
        "laptop.toml~",
        "a b.toml",
        "toml",
        ".toml",
    ] {
        fs::write(directory.join(name), "").expect("written");
    }
    assert_eq!(world.clients.names().expect("names"), ["laptop"]);
    let nowhere = Directory::of(&world.state.path().join("nowhere"));
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
    Nobody,
    Pending { until_s: u64 },
    Enrolled { key: u8 },
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A model of one enum and a clock decides who may join.
    #[test]
    fn only_the_latest_code_joins_once_and_in_time(steps in proptest::collection::vec(step(), 1..24)) {
        let world = World::new();
        let (mut state, mut now, mut codes) = (State::Nobody, NOW, Vec::new());
        for step in steps {
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Invite => {
                    let invited = world.clients.invite("x", &[], &NONE, now + HOUR, now);
                    let enrolled = matches!(state, State::Enrolled { .. });
                    prop_assert_eq!(invited.is_err(), enrolled);
                    if let Ok(invited) = invited {
                        codes.push(invited.secret);
                        state = State::Pending { until_s: now + HOUR };
                    }
                }
                Step::Revoke => {
                    let revoked = world.clients.revoke("x");
                    prop_assert_eq!(revoked.is_err(), state == State::Nobody);
                    state = State::Nobody;
                }
                Step::Join { latest, key } => {
                    let Some(at) = codes.len().checked_sub(if latest { 1 } else { 2 }) else {
                        continue;
                    };
                    let outcome = world.clients.enrol(&attempt(&codes[at], "x", Pin([key; 32])), now);
                    let has_joined = state == State::Enrolled { key };
                    let is_in_time = matches!(state, State::Pending { until_s } if now < until_s);
                    let may = has_joined || latest && is_in_time;
                    prop_assert_eq!(outcome.is_ok(), may, "{:?} at {}", state, now);
                    if may {
                        state = State::Enrolled { key };
                    }
                }
            }
            let file = world.clients.file_of("x").expect("a name");
            let text = fs::read_to_string(file).unwrap_or_default();
            match state {
                State::Nobody => prop_assert_eq!(text, ""),
                State::Pending { .. } => prop_assert!(is_pending(&text)),
                State::Enrolled { key } => {
                    let pin = Pin([key; 32]).to_string();
                    prop_assert!(text.contains(&pin) && !is_pending(&text));
                }
            }
        }
    }

    #[test]
    fn an_attempt_survives_the_way_to_the_keeper(
        exporter in any::<[u8; 32]>(),
        pin in any::<[u8; 32]>(),
        half in any::<[u8; 32]>(),
        name in "[a-z0-9][a-zA-Z0-9._-]{0,62}",
    ) {
        let mut signature = [0; SIGNATURE_LEN];
        signature[..32].copy_from_slice(&half);
        let join = quictun_wire::join::Join { name, signature };
        let attempt = Attempt { exporter, pin: Pin(pin), join };
        prop_assert_eq!(Attempt::decode(&attempt.encode()), Some(attempt));
    }

    #[test]
    fn any_text_of_a_file_is_safe(text in ".{0,80}|# quictun invitation 1: key [A-Za-z0-9_-]{0,50}, until [0-9]{0,25}\n.{0,80}") {
        let _entry = Entry::parse("x", &text);
        let _attempt = Attempt::decode(text.as_bytes());
    }
}
