use quictun_wire::srv::ServiceName;

use super::*;

/// Always draws 0, which keeps the order of records given, except that records without a weight come first.
fn none(_: u32) -> u32 {
    1
}

fn record(priority: u16, weight: u16, target: &str) -> SrvRecord {
    SrvRecord {
        tls_port: None,
        priority,
        weight,
        port: 7500,
        target: target.to_owned(),
    }
}

/// Formats each place: its target, tenant and order, with `-` if no record names the target.
fn shown(places: &ServicePlaces) -> Vec<String> {
    let held = places.contents().map(|held| {
        let target = places.target(held.server).map(|target| target.host);
        let target = target.unwrap_or_else(|| "?".to_owned());
        let tenant = held.place.tenant;
        match held.place.rank {
            Some(rank) => format!("{target} {tenant} {}:{}", rank.priority, rank.order),
            None if held.place.wanted => "first".to_owned(),
            None => format!("{target} {tenant} -"),
        }
    });
    held.collect()
}

fn now() -> Instant {
    Instant::now()
}

#[test]
fn another_tcp_port_changes_the_place_and_neither_the_order_nor_the_server() {
    let mut places = ServicePlaces::new(ServerId(0), 2);
    let with = |tls_port| SrvRecord {
        tls_port,
        ..record(1, 1, "b")
    };
    let mut update = |port, draw: &mut dyn FnMut(u32) -> u32| {
        let records = vec![record(1, 1, "a"), with(port)];
        let changed = places.update(now(), records, draw);
        let ports: Vec<_> = places.contents().map(|held| held.place.tls_port).collect();
        (changed, ports, shown(&places))
    };
    let names = ["a 0 1:0", "b 0 1:1"].map(str::to_owned).to_vec();
    let last = &mut |most| most;
    assert_eq!(
        update(None, &mut none),
        (true, vec![None, None], names.clone())
    );
    assert_eq!(
        update(Some(443), last),
        (true, vec![None, Some(443)], names.clone())
    );
    assert_eq!(
        update(Some(443), last),
        (false, vec![None, Some(443)], names)
    );
    // Its flows still need the port.
    places.update(now(), vec![record(1, 1, "a")], &mut none);
    let left = places.contents().nth(1).map(|held| held.place.tls_port);
    assert_eq!(left, Some(Some(443)));
}

#[test]
fn places_are_shared_out_to_services_and_there_are_sixteen_in_all() {
    let service = |name: &str| Address::Service(ServiceName::parse(name).expect("a service"));
    let server = |number: usize| {
        Address::At(HostPort {
            host: format!("host-{number}"),
            port: 7500,
        })
    };
    let counts = |addresses: &[Address]| {
        let each = expand_services(addresses);
        let of = |address| each.iter().filter(|other| *other == address).count();
        addresses.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(counts(&[service("a")]), [16]);
    assert_eq!(counts(&[server(0), service("a")]), [1, 15]);
    assert_eq!(counts(&[service("a"), server(0), service("b")]), [7, 1, 7]);
    assert_eq!(counts(&[server(0), server(1)]), [1, 1]);
    let mut full: Vec<Address> = (0..15).map(server).collect();
    full.push(service("a"));
    assert_eq!(counts(&full), [1; 16]);
}

#[test]
fn the_first_place_represents_the_service_until_records_are_known() {
    let places = ServicePlaces::new(ServerId(3), 3);
    assert!(!places.is_known());
    assert_eq!(shown(&places), ["first", "? 0 -", "? 0 -"]);
    let of: Vec<ServerId> = places.contents().map(|held| held.server).collect();
    assert_eq!(of, [ServerId(3), ServerId(4), ServerId(5)]);
    assert_eq!(places.target(ServerId(2)), None);
    assert_eq!(places.target(ServerId(6)), None);
}

#[test]
fn a_server_keeps_its_place_while_a_record_names_it() {
    let mut places = ServicePlaces::new(ServerId(0), 3);
    let first = vec![record(10, 1, "a"), record(20, 1, "b")];
    assert!(places.update(now(), first.clone(), &mut none));
    assert_eq!(shown(&places), ["a 0 10:0", "b 0 20:1", "? 0 -"]);
    assert!(!places.update(now(), first, &mut none), "same records");
    let second = vec![record(5, 1, "b"), record(10, 1, "c")];
    assert!(places.update(now(), second, &mut none));
    assert_eq!(shown(&places), ["a 0 -", "b 0 5:0", "c 0 10:1"]);
    // A free place is used again once no unused place is left.
    let third = vec![record(5, 1, "b"), record(10, 1, "d")];
    assert!(places.update(now(), third, &mut none));
    assert_eq!(shown(&places), ["d 1 10:1", "b 0 5:0", "c 0 -"]);
    // A server that returns to its last place does not count as another tenant.
    let fourth = vec![record(5, 1, "b"), record(10, 1, "c")];
    assert!(places.update(now(), fourth, &mut none));
    assert_eq!(shown(&places), ["d 1 -", "b 0 5:0", "c 0 10:1"]);
}

#[test]
fn the_place_that_was_left_first_is_used_again_first() {
    let (mut places, start) = (ServicePlaces::new(ServerId(0), 3), now());
    let at = |seconds| start + std::time::Duration::from_secs(seconds);
    let all = ["a", "b", "c"].map(|name| record(1, 1, name));
    places.update(at(0), all.to_vec(), &mut none);
    places.update(at(1), vec![record(1, 1, "a"), record(1, 1, "c")], &mut none);
    places.update(at(2), vec![record(1, 1, "c")], &mut none);
    places.update(at(3), vec![record(1, 1, "c"), record(1, 1, "d")], &mut none);
    assert_eq!(shown(&places)[..2], ["a 0 -", "d 1 1:1"]);
}

#[test]
fn records_are_kept_where_an_answer_has_none() {
    let mut places = ServicePlaces::new(ServerId(0), 2);
    places.update(now(), vec![record(1, 1, "a")], &mut none);
    assert!(!places.update(now(), Vec::new(), &mut none));
    assert_eq!(shown(&places), ["a 0 1:0", "? 0 -"]);
}

#[test]
fn the_order_is_drawn_again_only_for_a_priority_that_has_changed() {
    let mut places = ServicePlaces::new(ServerId(0), 4);
    let mut drawn = Vec::new();
    let mut draw = |most| {
        drawn.push(most);
        1
    };
    let two = vec![record(1, 3, "a"), record(1, 4, "b")];
    let mut all = two.clone();
    all.push(record(2, 9, "c"));
    places.update(now(), all.clone(), &mut draw);
    all.reverse();
    assert!(!places.update(now(), all, &mut draw), "another order");
    let mut changed = two;
    changed.push(record(2, 8, "c"));
    assert!(places.update(now(), changed, &mut draw));
    assert_eq!(drawn, [7, 4, 9, 8]);
}

#[test]
fn the_same_records_stay_in_use_when_there_are_fewer_places() {
    let mut places = ServicePlaces::new(ServerId(0), 2);
    let records = ["a", "b", "c"].map(|name| record(1, 1, name)).to_vec();
    assert!(places.update(now(), records.clone(), &mut none));
    let first = shown(&places);
    let mut last = |most| most;
    assert!(!places.update(now(), records, &mut last), "same records");
    assert_eq!(shown(&places), first);
}

#[test]
fn duplicate_records_of_a_server_are_merged_alike_in_every_order_of_the_answer() {
    let records = [record(10, 1, "a"), record(10, 9, "a"), record(10, 5, "b")];
    let mut places = ServicePlaces::new(ServerId(0), 4);
    places.update(now(), records.to_vec(), &mut none);
    let first = shown(&places);
    for turned in 1..records.len() {
        let mut records = records.to_vec();
        records.rotate_left(turned);
        let mut draws = |_| panic!("the order is drawn again");
        assert!(!places.update(now(), records, &mut draws), "{turned}");
        assert_eq!(shown(&places), first);
    }
}

#[test]
fn one_server_has_one_place_and_no_more_records_are_taken_than_there_are_places() {
    for (given, expected) in [(16, 16), (17, 16)] {
        let mut places = ServicePlaces::new(ServerId(0), 16);
        let mut records: Vec<SrvRecord> = (0..given)
            .map(|number| record(100 - number, 1, &format!("h{number}")))
            .collect();
        records.push(record(200, 1, "h0"));
        places.update(now(), records, &mut none);
        let used = places.contents().filter(|held| held.place.wanted);
        assert_eq!(used.count(), expected);
        // This draw returns the highest number.
        let first = HostPort {
            host: "h0".to_owned(),
            port: 7500,
        };
        let has = (0..16).any(|server| places.target(ServerId(server)).as_ref() == Some(&first));
        assert_eq!(has, given == 16, "{given}");
    }
}

#[test]
fn a_server_with_flows_of_another_process_keeps_its_place_until_others_need_it() {
    let mut places = ServicePlaces::new(ServerId(4), 3);
    let at = |host: &str| HostPort {
        host: host.to_owned(),
        port: 7500,
    };
    for (host, place) in [("b", 4), ("gone", 5), ("b", 4)] {
        let reserved = places.reserve(now(), at(host));
        assert_eq!(reserved, Some(ServerId(place)), "{host}");
    }
    let records = vec![record(1, 1, "a"), record(1, 1, "b")];
    places.update(now(), records, &mut none);
    assert_eq!(shown(&places), ["b 0 1:1", "gone 0 -", "a 0 1:0"]);
    assert_eq!(places.reserve(now(), at("c")), None);
}
