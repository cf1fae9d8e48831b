use quictun_control::rest::ServerNames;
use quictun_engine::ServerPlace;

use super::*;
use crate::outage_log::Origin;

/// Creates a client's service with four places.
fn service() -> Service {
    let name = ServiceName::parse("example.com").expect("a service");
    let shown = ServerName {
        name: name.to_string(),
        ..ServerName::default()
    };
    let names = ServerNames::new(vec![Some(shown), None, None, None]);
    let vacant = ServerPlace {
        wanted: false,
        ..ServerPlace::default()
    };
    let places = [ServerPlace::default(), vacant, vacant, vacant];
    let servers = Arc::new(Servers::new(&places, names, true));
    Service::new(name, ServerId(0), 4, servers)
}

fn found(targets: &[&str], ttl_s: u32) -> FoundRecords {
    let record = |target: &&str| SrvRecord {
        tls_port: None,
        priority: 10,
        weight: 1,
        port: 7500,
        target: (*target).to_owned(),
    };
    (targets.iter().map(record).collect(), ttl_s)
}

fn apply(service: &Service, outcome: Result<FoundRecords, String>) -> Duration {
    let notifier = Mutex::new(ChangeNotifier::new(Vec::new()));
    service.apply(Instant::now(), outcome, &mut |_| 1, &notifier)
}

fn target(service: &Service) -> Option<Result<String, String>> {
    let known = service.known_target(ServerId(0), Instant::now())?;
    Some(known.map(|target| target.to_string()))
}

#[test]
fn records_are_valid_for_their_time_to_live_within_bounds() {
    let service = service();
    for (ttl_s, pause_s) in [
        (0, 30),
        (29, 30),
        (31, 31),
        (3600, 3600),
        (3601, 3600),
        (u32::MAX, 3600),
    ] {
        let pause = apply(&service, Ok(found(&["one.example"], ttl_s)));
        assert_eq!(pause, Duration::from_secs(pause_s), "{ttl_s} s");
    }
}

#[test]
fn a_failed_look_up_is_reported_at_once_for_a_while_and_then_repeated() {
    let service = service();
    assert_eq!(target(&service), None, "nothing is known yet");
    assert_eq!(apply(&service, Err("no such name".to_owned())), TTL_MIN);
    assert_eq!(target(&service), Some(Err("no such name".to_owned())));
    let later = Instant::now() + PAUSE;
    assert_eq!(service.known_target(ServerId(0), later), None);
}

#[test]
fn found_records_stay_in_use_when_look_ups_fail() {
    let service = service();
    apply(&service, Ok(found(&["one.example", "two.example"], 60)));
    let expected = "one.example:7500, two.example:7500";
    assert_eq!(service.servers.shown(), expected);
    apply(&service, Err("no such name".to_owned()));
    let one = Some(Ok("one.example:7500".to_owned()));
    assert_eq!(
        (service.servers.shown().as_str(), target(&service)),
        (expected, one)
    );
    let place = service.servers.place(ServerId(1)).expect("a place");
    assert!(place.wanted && place.rank.is_some());
    apply(&service, Ok(found(&["two.example"], 60)));
    assert_eq!(service.servers.shown(), "two.example:7500");
    // Its flows continue, so people still need its name.
    assert_eq!(service.servers.name(ServerId(0)), "one.example:7500");
    let left = service.servers.place(ServerId(0)).expect("a place");
    assert!(!left.wanted);
}

#[test]
fn records_are_looked_up_again_once_all_their_servers_fail() {
    let service = service();
    apply(&service, Ok(found(&["one.example", "two.example"], 3600)));
    let lookup_requests = service.lookup_requests.subscribe();
    for (server, wished) in [(0, false), (1, true)] {
        let status = service.servers.get(ServerId(server)).expect("a server");
        status
            .outages
            .failed(Instant::now(), "no answer", Origin::Path);
        assert!(target(&service).is_some_and(|target| target.is_ok()));
        assert_eq!(lookup_requests.has_changed().expect("a sender"), wished);
    }
}

#[test]
fn a_request_before_the_end_of_the_first_look_up_waits_for_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let known = Arc::new(service());
        let waiting = known.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { waiting.target(ServerId(0)).await });
        tokio::task::yield_now().await;
        apply(&known, Ok(found(&["one.example"], 60)));
        known.ended.send_modify(|count| *count += 1);
        let answer = tasks.join_next().await.expect("a task").expect("its end");
        assert_eq!(
            answer.map(|it| it.to_string()),
            Ok("one.example:7500".to_owned())
        );
        // If no look-up ends, the error reports that.
        let fresh = service();
        let silent = fresh.target(ServerId(0)).await;
        let expected = "the records of srv:example.com are still being looked up";
        assert_eq!(silent, Err(expected.to_owned()));
    });
}
