//! Tests which names the system's resolver is asked for, in which order, and how its answers are used.

use super::*;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Instant;

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let output = runtime.block_on(future);
    // Does not wait for abandoned look-ups.
    runtime.shutdown_background();
    output
}

fn addresses(text: &str) -> Vec<SocketAddr> {
    text.split_whitespace()
        .map(|ip| SocketAddr::new(ip.parse().expect("an address"), 22))
        .collect()
}

/// Returns a resolver on a machine without names in its hosts file.
fn with(lookup: LookupFn, deadline: Duration, places: usize) -> Resolver {
    Resolver::with(lookup, deadline, places, Hosts::none())
}

fn fixed(text: &'static str) -> Resolver {
    with(Arc::new(move |_, _| Ok(addresses(text))), DEADLINE, 1)
}

fn client(number: u8) -> Holder {
    Holder::at([192, 0, 2, number].into())
}

fn check_order(given: &'static str, family: Family, expected: &str) {
    let got = run(fixed(given).resolve(&Holder::Own, "name", 22, family)).expect("addresses");
    assert_eq!(got, addresses(expected), "{given} as {family:?}");
}

#[test]
fn families_take_turns_and_the_first_stays_first() {
    check_order(
        "::1 ::2 ::3 1.1.1.1 1.1.1.2",
        Family::Any,
        "::1 1.1.1.1 ::2 1.1.1.2 ::3",
    );
    check_order(
        "1.1.1.1 1.1.1.2 1.1.1.3 ::1",
        Family::Any,
        "1.1.1.1 ::1 1.1.1.2 1.1.1.3",
    );
    check_order(
        "::1 1.1.1.1 1.1.1.2 1.1.1.3",
        Family::Any,
        "::1 1.1.1.1 1.1.1.2 1.1.1.3",
    );
    check_order("::1 1.1.1.1 ::2 1.1.1.2", Family::V4, "1.1.1.1 1.1.1.2");
    check_order("::1 1.1.1.1 ::2 1.1.1.2", Family::V6, "::1 ::2");
}

#[test]
fn an_endless_answer_is_cut() {
    let many = with(
        Arc::new(|_, _| Ok(addresses("1.1.1.1").repeat(1000))),
        DEADLINE,
        1,
    );
    assert_eq!(
        run(many.resolve(&Holder::Own, "name", 22, Family::Any))
            .expect("addresses")
            .len(),
        MAX_ADDRESSES
    );
}

#[test]
fn literals_are_answered_without_a_look_up() {
    let resolver = with(Arc::new(|_, _| panic!("looked up")), DEADLINE, 0);
    for literal in ["127.0.0.1", "::1"] {
        let got = run(resolver.resolve(&Holder::Own, literal, 22, Family::Any)).expect("a literal");
        assert_eq!(got, addresses(literal));
    }
    let error =
        run(resolver.resolve(&Holder::Own, "::1", 22, Family::V4)).expect_err("wrong family");
    assert_eq!(error.to_string(), "::1 has no IPv4 address");
}

#[test]
fn names_that_no_resolver_accepts_are_refused() {
    let resolver = with(Arc::new(|_, _| panic!("looked up")), DEADLINE, 0);
    for bad in [String::new(), "a\0b".to_owned(), "a".repeat(MAX_NAME + 1)] {
        assert!(
            matches!(run(resolver.resolve(&Holder::Own, &bad, 22, Family::Any)), Err(ResolveError::BadName(name)) if name == bad)
        );
    }
}

#[test]
fn the_resolvers_answer_is_passed_on_with_the_name() {
    let resolver = with(
        Arc::new(|_, _| Err(io::Error::other("no such name"))),
        DEADLINE,
        1,
    );
    let error = run(resolver.resolve(&Holder::Own, "nowhere.example", 22, Family::Any))
        .expect_err("no such name");
    assert_eq!(
        error.to_string(),
        "cannot resolve nowhere.example: no such name"
    );
    let error = run(fixed("").resolve(&Holder::Own, "empty.example", 22, Family::Any))
        .expect_err("no address");
    assert_eq!(error.to_string(), "empty.example has no IP address");
}

/// Returns a resolver whose look-ups wait until the sender sends or is dropped.
fn held(deadline: Duration, places: usize) -> (Resolver, mpsc::Sender<()>) {
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let lookup = move |_: &str, _| {
        held.lock()
            .expect("not poisoned")
            .recv()
            .map_err(io::Error::other)?;
        Ok(addresses("1.1.1.1"))
    };
    (with(Arc::new(lookup), deadline, places), release)
}

#[test]
fn a_silent_resolver_is_given_up_at_the_deadline() {
    let (resolver, release) = held(Duration::from_millis(20), 1);
    let begun = Instant::now();
    let error = run(resolver.resolve(&Holder::Own, "slow.example", 22, Family::Any))
        .expect_err("the resolver is silent");
    assert!(matches!(error, ResolveError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(20));
    drop(release);
}

#[test]
fn a_look_up_that_was_given_up_keeps_its_place_until_it_ends() {
    let (resolver, release) = held(Duration::from_millis(20), 1);
    run(async {
        let first = resolver
            .resolve(&Holder::Own, "slow.example", 22, Family::Any)
            .await
            .expect_err("the resolver is silent");
        assert!(matches!(first, ResolveError::TimedOut { .. }), "{first}");
        let second = resolver
            .resolve(&Holder::Own, "other.example", 22, Family::Any)
            .await
            .expect_err("no place");
        assert!(matches!(second, ResolveError::Busy { .. }), "{second}");
        let another_class = fixed("1.1.1.1")
            .resolve(&Holder::Own, "third.example", 22, Family::Any)
            .await;
        assert!(another_class.is_ok());
        release.send(()).expect("the first look-up waits");
        let place = resolver.places.place(&Holder::Own).await.expect("free");
        drop(place);
        release.send(()).expect("the resolver waits");
        assert!(
            resolver
                .resolve(&Holder::Own, "fast.example", 22, Family::Any)
                .await
                .is_ok()
        );
    });
}

#[test]
fn the_systems_resolver_knows_localhost() {
    if !quictun_skip::knows_localhost("resolve::tests::the_systems_resolver_knows_localhost") {
        return;
    }
    let got = run(Resolver::new().resolve(&Holder::Own, "localhost", 22, Family::Any))
        .expect("localhost");
    assert!(
        got.iter()
            .all(|address| address.ip().is_loopback() && address.port() == 22)
    );
}

/// Returns a resolver that gets no answer for `slow.example`, and resolves all other names at once.
fn silent_on_slow(places: usize, hosts: Hosts) -> (Resolver, mpsc::Sender<()>) {
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let lookup = move |host: &str, _| {
        if host == "slow.example" {
            // `recv` fails once the sender is dropped, which ends the wait.
            held.lock().expect("not poisoned").recv().ok();
        }
        Ok(addresses("1.1.1.1"))
    };
    let resolver = Resolver::with(Arc::new(lookup), DEADLINE, places, hosts);
    (resolver, release)
}

/// Starts look-ups of `slow.example` for this client. Returns once all of them have requested a place.
async fn hang(resolver: &Resolver, number: u8, count: usize) -> tokio::task::JoinSet<()> {
    let mut hanging = tokio::task::JoinSet::new();
    for _ in 0..count {
        let resolver = resolver.clone();
        hanging.spawn(async move {
            let own = client(number);
            let slow = resolver.resolve(&own, "slow.example", 22, Family::Any);
            slow.await.ok();
        });
    }
    // The tasks of this runtime take turns, so each has run once.
    tokio::task::yield_now().await;
    hanging
}

// PROTOCOL LIMIT-2.
#[test]
fn names_of_one_client_that_hang_leave_places_for_others() {
    let (resolver, release) = silent_on_slow(64, Hosts::none());
    run(async {
        let hanging = hang(&resolver, 1, 200).await;
        for number in 2..=7 {
            let own = client(number);
            let answer = resolver.resolve(&own, "fast.example", 22, Family::Any);
            let answer = tokio::time::timeout(DEADLINE / 2, answer).await;
            assert!(matches!(answer, Ok(Ok(_))), "client {number}: {answer:?}");
        }
        assert_eq!(hanging.len(), 200);
        drop((hanging, release));
    });
}

#[test]
fn names_in_the_hosts_file_do_not_wait_behind_dns() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "127.0.0.1 localhost\n").expect("written");
    let (resolver, release) = silent_on_slow(4, Hosts::at(file.path().to_owned()));
    run(async {
        // Four clients hold all of the places.
        let mut hanging = Vec::new();
        for number in 1..=4 {
            hanging.push(hang(&resolver, number, 8).await);
        }
        let mine = client(1);
        let local = resolver.resolve(&mine, "LocalHost", 22, Family::Any);
        let local = tokio::time::timeout(DEADLINE / 2, local).await;
        assert!(matches!(local, Ok(Ok(_))), "{local:?}");
        drop((hanging, release));
    });
}

#[test]
fn an_absolute_name_is_asked_for_with_a_final_dot_unless_the_hosts_file_has_it() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "10.0.0.1 known.example\n").expect("written");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let lookup = move |host: &str, _| {
        log.lock().expect("not poisoned").push(host.to_owned());
        Ok(addresses("1.1.1.1"))
    };
    let hosts = Hosts::at(file.path().to_owned());
    let resolver = Resolver::with(Arc::new(lookup), DEADLINE, 1, hosts);
    for host in ["a.example", "dotted.example.", "Known.example", "192.0.2.1"] {
        let answer = resolver.resolve_absolute(&Holder::Own, host, 22, Family::Any);
        assert!(run(answer).is_ok(), "{host}");
    }
    assert_eq!(
        *asked.lock().expect("not poisoned"),
        ["a.example.", "dotted.example.", "Known.example"]
    );
}

// PROTOCOL OPEN-12.
#[test]
fn a_caller_that_gives_up_waiting_causes_no_look_up() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (release, held) = mpsc::channel::<()>();
    let (held, log) = (Mutex::new(held), asked.clone());
    let lookup = move |host: &str, _| {
        log.lock().expect("not poisoned").push(host.to_owned());
        if host == "slow.example" {
            held.lock().expect("not poisoned").recv().ok();
        }
        Ok(addresses("1.1.1.1"))
    };
    let resolver = with(Arc::new(lookup), DEADLINE, 1);
    run(async {
        let hanging = hang(&resolver, 1, 1).await;
        let other = client(2);
        let waiting = resolver.resolve(&other, "given-up.example", 22, Family::Any);
        let given_up = tokio::time::timeout(Duration::ZERO, waiting).await;
        assert!(given_up.is_err(), "there is one place, and it is taken");
        drop(release);
        let answer = resolver.resolve(&other, "next.example", 22, Family::Any);
        assert!(answer.await.is_ok());
        drop(hanging);
    });
    assert_eq!(
        *asked.lock().expect("not poisoned"),
        ["slow.example", "next.example"]
    );
}
