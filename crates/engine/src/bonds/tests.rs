use quictun_wire::bond::{BondRequest, SERVER_NUMBERS};
use rand_core::SeedableRng;

use super::bond::ENDED_MAX;
use super::*;
use crate::strangers::SourcePrefix;

fn bonds() -> Bonds {
    Bonds::new(ChaCha20Rng::from_seed([1; 32]), 0, Duration::from_mins(1))
}

fn named(name: &str) -> Holder {
    Holder::Identified(ProvenIdentity::Named(name.to_owned()))
}

fn at(last: u8) -> Holder {
    Holder::new(ProvenIdentity::Anyone, SourcePrefix::V4([192, 0, 2, last]))
}

fn granted(bonds: &mut Bonds, holder: &Holder) -> Option<BondKey> {
    bonds.grant(holder.clone())
}

/// Adds flows to a bond. Their keys are equal to their numbers.
fn add(bonds: &mut Bonds, key: BondKey, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let flow = FlowKey(usize::try_from(number).expect("small"));
        assert!(bonds.insert(key, number, flow));
    }
}

fn sent(sent: u64) -> KeptMemory {
    let to_repeat = 0;
    KeptMemory { sent, to_repeat }
}

fn detach(bonds: &mut Bonds, key: BondKey, numbers: std::ops::Range<u64>) -> Option<FlowKey> {
    let mut ends = None;
    for number in numbers {
        ends = bonds.note_detached(key, number, usize::MAX);
    }
    ends
}

// PROTOCOL LIMIT-1: at the limit, and one above it.
#[test]
fn a_client_at_its_limit_of_bonds_does_not_affect_another() {
    let most = BONDS_OF_ONE_MAX;
    for (one, other) in [(named("one"), named("other")), (at(1), at(2))] {
        let mut bonds = bonds();
        let keys: Vec<BondKey> = std::iter::from_fn(|| granted(&mut bonds, &one))
            .take(most + 1)
            .collect();
        assert_eq!(keys.len(), most);
        assert!(granted(&mut bonds, &other).is_some());
        bonds.remove_unused(keys[0]);
        assert!(granted(&mut bonds, &one).is_some());
        assert_eq!(granted(&mut bonds, &one), None);
    }
}

#[test]
fn all_clients_together_have_a_limit_of_bonds() {
    let mut bonds = bonds();
    for number in 0..BONDS_MAX {
        let holder = named(&(number / BONDS_OF_ONE_MAX).to_string());
        assert!(granted(&mut bonds, &holder).is_some());
    }
    assert_eq!(granted(&mut bonds, &named("one more")), None);
}

#[test]
fn waiting_flows_count_for_their_client_over_all_its_bonds() {
    let mut bonds = bonds();
    let [first, second] = [0, 1].map(|_| granted(&mut bonds, &named("one")).expect("a bond"));
    let other = granted(&mut bonds, &named("other")).expect("a bond");
    let half = DETACHED_OF_ONE_MAX as u64 / 2;
    for (key, from) in [(first, 0), (second, 10_000), (other, 20_000)] {
        add(&mut bonds, key, from..from + half + 1);
    }
    assert_eq!(detach(&mut bonds, second, 10_000..10_000 + half), None);
    assert_eq!(detach(&mut bonds, first, 0..half), None);
    assert_eq!(bonds.excess(first), None, "exactly at the limit");
    assert_eq!(detach(&mut bonds, other, 20_000..20_000 + half), None);
    bonds.note_detached(first, half, usize::MAX);
    let oldest = Some(FlowKey(10_000));
    assert_eq!((bonds.excess(first), bonds.excess(other)), (oldest, None));
    bonds.note_attached(second, 10_000);
    assert_eq!(bonds.excess(first), None);
    let more = bonds.note_detached(second, 10_000, DETACHED_OF_ONE_MAX);
    assert_eq!(more, Some(FlowKey(10_001)), "flow 10 000 waits anew");
    bonds.end(second, 10_001, None);
    assert_eq!(bonds.excess(second), None);
}

#[test]
fn if_too_many_flows_wait_the_client_with_the_most_loses_one() {
    let mut bonds = bonds();
    let large = granted(&mut bonds, &named("large")).expect("a bond");
    let small = granted(&mut bonds, &named("small")).expect("a bond");
    let most = DETACHED_MAX as u64;
    add(&mut bonds, small, 0..2);
    add(&mut bonds, large, 2..most + 1);
    assert_eq!(detach(&mut bonds, small, 0..1), None, "the oldest of all");
    assert_eq!(detach(&mut bonds, large, 2..most + 1), None);
    let ends = detach(&mut bonds, small, 1..2);
    assert_eq!(ends, Some(FlowKey(2)));
}

#[test]
fn flows_that_keep_the_most_are_those_of_the_client_that_keeps_the_most() {
    let mut bonds = bonds();
    let [one, two] = [0, 1].map(|_| granted(&mut bonds, &at(1)).expect("a bond"));
    let other = granted(&mut bonds, &at(2)).expect("a bond");
    add(&mut bonds, one, 0..10);
    add(&mut bonds, two, 10..20);
    add(&mut bonds, other, 20..21);
    for number in 0..10 {
        bonds.note_kept(one, number, sent(10));
    }
    bonds.note_kept(two, 10, sent(350));
    bonds.note_kept(other, 20, sent(400));
    assert_eq!(bonds.kept(), sent(850));
    let relieve = |bonds: &Bonds, most| bonds.flows_to_relieve(KeptPart::Sent, most);
    assert_eq!(relieve(&bonds, 850), [], "exactly at the limit");
    assert_eq!(relieve(&bonds, 849), [FlowKey(10)]);
    bonds.note_kept(two, 10, sent(0));
    assert_eq!(relieve(&bonds, 499), [FlowKey(20)]);
    assert_eq!(relieve(&bonds, 0).len(), 11, "everything");
    bonds.end(other, 20, None);
    assert_eq!(bonds.kept(), sent(100));
    assert_eq!(relieve(&bonds, 96).len(), 2, "no more than needed");
    // The flow to end is among those that wait.
    detach(&mut bonds, one, 0..1);
    add(&mut bonds, other, 30..40);
    detach(&mut bonds, other, 30..34);
    assert_eq!(bonds.first_to_end(10), Some(FlowKey(0)));
    assert_eq!(bonds.first_to_end(100), Some(FlowKey(30)));
    bonds.note_held(other, 30, 1000);
    assert_eq!(bonds.first_to_end(10), Some(FlowKey(30)));
    bonds.note_attached(other, 30);
    assert_eq!(bonds.first_to_end(10), Some(FlowKey(0)));
}

// PROTOCOL BOND-14: the bytes of many clients are forgotten in one search, and the next one is due only much later.
#[test]
fn one_search_reduces_what_is_kept_for_all_clients() {
    let mut bonds = bonds();
    let mut keys = Vec::new();
    for number in 0..100 {
        let key = granted(&mut bonds, &named(&number.to_string())).expect("a bond");
        add(&mut bonds, key, 2 * number..2 * number + 2);
        for (flow, kept) in [(2 * number, 60), (2 * number + 1, 40)] {
            bonds.note_kept(key, flow, sent(kept));
        }
        keys.push(key);
    }
    let most = 1600;
    let relieved = bonds.flows_to_relieve(KeptPart::Sent, most);
    assert_eq!(bonds.flows_to_relieve(KeptPart::ToRepeat, 0), []);
    for FlowKey(flow) in &relieved {
        bonds.note_kept(keys[flow / 2], *flow as u64, sent(0));
    }
    assert!(bonds.kept().sent <= most - most / RELIEF_PART);
    assert!(
        bonds.kept().sent > most / 2,
        "no more than needed: {:?}",
        bonds.kept()
    );
    let larger = relieved.iter().filter(|FlowKey(flow)| flow % 2 == 0);
    assert_eq!(
        larger.count(),
        100,
        "each client lost its larger flow first"
    );
}

#[test]
fn the_record_of_ended_flows_is_bounded_and_counted() {
    let mut bonds = bonds();
    let key = granted(&mut bonds, &at(1)).expect("a bond");
    let empty = bonds.memory();
    assert!(empty > 0);
    let mut most = 0;
    for number in 0..3 * ENDED_MAX as u64 {
        add(&mut bonds, key, number..number + 1);
        bonds.end(key, number, Some(FlowCode::AppReset));
        most = most.max(bonds.memory());
        let least = (number + 1).min(ENDED_MAX as u64) * 16;
        assert!(bonds.memory() >= empty + least, "{number}");
    }
    assert!(most <= empty + 32 * ENDED_MAX as u64, "{most}");
    bonds.remove_unused(key);
    assert_eq!(bonds.memory(), 0);
}

// PROTOCOL BOND-5, REVERSE-13.
#[test]
fn the_two_sides_of_a_bond_never_choose_the_same_flow_number() {
    let mut bonds = bonds();
    let server = granted(&mut bonds, &named("one")).expect("a bond");
    let client = bonds.create(ServerId::default());
    for (key, first) in [(server, SERVER_NUMBERS), (client, 0)] {
        let bond = bonds.get_mut(key).expect("a bond");
        assert_eq!([0, 1].map(|_| bond.next_number()), [first, first + 1]);
    }
}

#[test]
fn the_numbers_of_a_dissolved_bond_can_be_given_again() {
    let mut bonds = bonds();
    let key = bonds.create(ServerId::default());
    let empty = bonds.memory();
    add(&mut bonds, key, SERVER_NUMBERS..SERVER_NUMBERS + 2);
    for number in SERVER_NUMBERS..SERVER_NUMBERS + 2 {
        bonds.end(key, number, None);
        assert!(!bonds.insert(key, number, FlowKey(1)));
    }
    bonds.request_new(key);
    assert_eq!(bonds.memory(), empty);
    add(&mut bonds, key, SERVER_NUMBERS..SERVER_NUMBERS + 2);
}

// PROTOCOL CODE-2, BOND-6, REVERSE-14.
#[test]
fn no_peer_is_sent_that_the_connection_of_a_flow_was_lost() {
    let mut bonds = bonds();
    let key = granted(&mut bonds, &named("one")).expect("a bond");
    add(&mut bonds, key, 0..2);
    bonds.end(key, 0, Some(FlowCode::ConnectionLost));
    bonds.end(key, 1, Some(FlowCode::TooOld));
    let bond = bonds.get(key).expect("a bond");
    assert_eq!(
        [0, 1].map(|number| bond.ending(number)),
        [None, Some(FlowCode::TooOld)]
    );
    let codes: Vec<u64> = bond.ended().map(|ended| ended.code).collect();
    let expected = [FlowCode::AppReset, FlowCode::TooOld].map(FlowCode::to_u64);
    assert_eq!(codes, expected);
}

// PROTOCOL BOND-4.
#[test]
fn a_bond_belongs_to_what_its_client_has_proven_and_not_to_a_name() {
    let proofs =
        |proofs: &[u8]| -> ClientProofs { proofs.iter().map(|byte| [*byte; 32]).collect() };
    let named = |name: &str| ProvenIdentity::Named(name.to_owned());
    let exporter = [3; 32];
    let mut bonds = bonds();
    let key = granted(&mut bonds, &self::named("laptop")).expect("a bond");
    bonds.set_owner(key, "laptop", &proofs(&[1]));
    let BondRequest::Resume { id, ticket } = bonds.by_key[&key].request(&exporter) else {
        panic!("not granted");
    };
    let found = |bonds: &Bonds, name: &str, with: &[u8]| {
        let found = bonds.find(&id, &ticket, &exporter, (&named(name), &proofs(with)));
        found.is_some()
    };
    assert!(found(&bonds, "laptop", &[1]));
    // The client has got another name, and another client has its old one.
    assert!(found(&bonds, "notebook", &[1]) && !found(&bonds, "laptop", &[2]));
    // A second key of the same client, beside the first one and in its place.
    assert!(found(&bonds, "laptop", &[2, 1]));
    bonds.set_owner(key, "laptop", &proofs(&[2, 1]));
    assert!(found(&bonds, "laptop", &[2]) && !found(&bonds, "laptop", &[3]));
    assert!(!found(&bonds, "laptop", &[]));
    let anyone = bonds.find(&id, &ticket, &exporter, (&ProvenIdentity::Anyone, &[]));
    assert_eq!(anyone, None);
}

// PROTOCOL LIMIT-1.
#[test]
fn a_bond_counts_for_the_present_name_of_its_client() {
    let mut bonds = bonds();
    let keys: Vec<BondKey> = std::iter::from_fn(|| granted(&mut bonds, &named("old"))).collect();
    assert_eq!(keys.len(), BONDS_OF_ONE_MAX);
    add(&mut bonds, keys[0], 0..3);
    add(&mut bonds, keys[1], 3..5);
    detach(&mut bonds, keys[0], 0..3);
    detach(&mut bonds, keys[1], 3..5);
    bonds.set_owner(keys[0], "new", &[[1; 32]].into());
    assert!(granted(&mut bonds, &named("old")).is_some());
    assert_eq!(granted(&mut bonds, &named("old")), None);
    // Its flows are among those of the new name: the limit of one waiting flow ends the oldest of both bonds.
    let more = granted(&mut bonds, &named("new")).expect("a bond");
    add(&mut bonds, more, 5..6);
    assert_eq!(bonds.note_detached(more, 5, 1), Some(FlowKey(0)));
    bonds.set_owner(keys[0], "old", &[[1; 32]].into());
    bonds.note_attached(keys[0], 0);
    assert_eq!(bonds.holders[&named("old")].waiting.len(), 4);
    assert_eq!(bonds.holders[&named("new")].bonds.len(), 1);
}
