//! Races in virtual time.

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// The end of an attempt, and the milliseconds from its beginning until then. An attempt without an outcome gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Connects(u64),
    Fails(u64),
    /// The attempt fails before it has begun, as without a route.
    NoRoute,
}
use Outcome::{Connects, Fails, NoRoute};

/// The number of an address, and a time in milliseconds.
type At = (u8, u64);

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 80))
}

/// Runs a race between addresses 1, 2, ... with these outcomes. Returns the beginning of each attempt and the end of each
/// that was given up, in milliseconds, and the winner with its time.
fn run(outcomes: &[Option<Outcome>]) -> (Vec<At>, Vec<At>, Option<At>) {
    let start = Instant::now();
    let ms = |at: Instant| u64::try_from((at - start).as_millis()).expect("short");
    let number = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => v4.ip().octets()[3],
        SocketAddr::V6(_) => 0,
    };
    let count = u8::try_from(outcomes.len()).expect("few");
    let addresses = (1..=count).map(address).collect();
    let mut race = Race::new(addresses, start, start + LIMIT);
    let (mut begun, mut given_up) = (Vec::new(), Vec::new());
    let mut now = start;
    loop {
        while let Some(step) = race.poll(now) {
            match step {
                Step::GiveUp(address) => given_up.push((number(address), ms(now))),
                Step::Begin(address) => {
                    begun.push((number(address), ms(now)));
                    match outcomes[usize::from(number(address)) - 1] {
                        Some(NoRoute) => race.handle_failed(now, address),
                        _ => race.handle_begun(now, address),
                    }
                }
            }
            assert!(race.running().count() <= RUNNING_MAX);
        }
        if race.is_lost() || now >= start + LIMIT {
            return (begun, given_up, None);
        }
        let answer = |&(address, began): &(SocketAddr, Instant)| {
            let outcome = outcomes[usize::from(number(address)) - 1]?;
            let (Connects(after) | Fails(after)) = outcome else {
                return None;
            };
            Some((began + Duration::from_millis(after), address, outcome))
        };
        let first = race.running.iter().filter_map(answer);
        let first = first.min_by_key(|(at, ..)| *at);
        match first {
            Some((at, address, outcome)) if at <= race.next_timeout() => {
                now = at;
                if matches!(outcome, Connects(_)) {
                    return (begun, given_up, Some((number(address), ms(now))));
                }
                race.handle_failed(now, address);
            }
            _ => now = race.next_timeout(),
        }
    }
}

#[test]
fn an_address_that_answers_at_once_is_the_only_one_that_is_tried() {
    let (begun, _, won) = run(&[Some(Connects(249)), Some(Connects(1))]);
    assert_eq!((begun, won), (vec![(1, 0)], Some((1, 249))));
}

#[test]
fn the_next_address_is_tried_250_ms_after_one_that_does_not_answer() {
    let (begun, _, won) = run(&[None, None, Some(Connects(30))]);
    assert_eq!(begun, [(1, 0), (2, 250), (3, 500)]);
    assert_eq!(won, Some((3, 530)));
}

#[test]
fn the_first_to_connect_wins_even_if_it_has_begun_earlier() {
    let (begun, _, won) = run(&[Some(Connects(400)), Some(Connects(200))]);
    assert_eq!((begun, won), (vec![(1, 0), (2, 250)], Some((1, 400))));
}

#[test]
fn after_a_failure_the_next_address_is_tried_at_once() {
    let (begun, _, won) = run(&[Some(Fails(20)), Some(NoRoute), Some(Connects(5))]);
    assert_eq!(begun, [(1, 0), (2, 20), (3, 20)]);
    assert_eq!(won, Some((3, 25)));
    // A late failure does not delay an attempt either.
    let (begun, _, _) = run(&[Some(Fails(300)), None, None, None]);
    assert_eq!(begun, [(1, 0), (2, 250), (3, 300), (4, 550)]);
}

#[test]
fn a_race_is_lost_when_all_addresses_have_failed() {
    let (begun, _, won) = run(&[Some(Fails(10)), Some(NoRoute)]);
    assert_eq!((begun.len(), won), (2, None));
    assert_eq!(run(&[]), (vec![], vec![], None));
}

#[test]
fn four_attempts_run_at_a_time_and_the_oldest_gives_way_after_its_share() {
    let (begun, given_up, _) = run(&[None; 4]);
    assert_eq!(begun, [(1, 0), (2, 250), (3, 500), (4, 750)]);
    assert_eq!(given_up, [], "no other address waits");
    // The fifth waits for half of the time that is left when the fourth begins.
    let (begun, given_up, won) = run(&[None, None, None, None, Some(Connects(10))]);
    assert_eq!(begun[4], (5, 4625));
    assert_eq!(given_up, [(1, 4625)]);
    assert_eq!(won, Some((5, 4635)));
}

#[test]
fn every_address_of_a_long_answer_is_tried_before_the_deadline() {
    let mut outcomes = [None; 32];
    outcomes[31] = Some(Connects(100));
    let (begun, _, won) = run(&outcomes);
    assert_eq!(begun.len(), 32, "{begun:?}");
    let (winner, at) = won.expect("the last address answers");
    assert!(winner == 32 && at < 10_000, "{at} ms");
}

#[test]
fn an_attempt_without_a_descriptor_is_tried_again_later() {
    let start = Instant::now();
    let mut race = Race::new(vec![address(1), address(2)], start, start + LIMIT);
    assert_eq!(race.poll(start), Some(Step::Begin(address(1))));
    race.handle_begun(start, address(1));
    let second = start + DELAY;
    assert_eq!(race.next_timeout(), second);
    assert_eq!(race.poll(second), Some(Step::Begin(address(2))));
    race.postpone(second, address(2));
    assert_eq!(race.poll(second), None);
    assert_eq!(race.poll(second + DELAY), Some(Step::Begin(address(2))));
}

#[test]
fn an_address_that_is_there_twice_is_tried_once() {
    let start = Instant::now();
    let mut race = Race::new(vec![address(1), address(1)], start, start + LIMIT);
    assert_eq!(race.poll(start), Some(Step::Begin(address(1))));
    race.handle_failed(start, address(1));
    assert!(race.is_lost());
}

#[test]
fn addresses_that_are_no_longer_permitted_leave_the_race() {
    let start = Instant::now();
    let mut race = Race::new((1..=3).map(address).collect(), start, start + LIMIT);
    assert_eq!(race.poll(start), Some(Step::Begin(address(1))));
    race.handle_begun(start, address(1));
    let revoked = race.retain(start, |it| it == address(3));
    assert_eq!(revoked, [address(1)]);
    assert_eq!(race.poll(start), Some(Step::Begin(address(3))));
    race.handle_begun(start, address(3));
    assert_eq!(race.retain(start, |_| false), [address(3)]);
    assert!(race.is_lost());
}
