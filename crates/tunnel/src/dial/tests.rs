use std::net::TcpListener;

use quictun_io::poller::Patience;

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

fn client(number: u8) -> Holder {
    Holder::at([192, 0, 2, number].into())
}

fn is_idle(dials: &Dials) -> bool {
    dials.pending.is_empty()
        && dials.by_flow.is_empty()
        && dials.timeouts.is_empty()
        && dials.next_timeout().is_none()
}

#[test]
fn a_dial_that_is_cancelled_leaves_nothing_and_its_answer_finds_nobody() {
    let (mut dials, poller) = (Dials::new(), Poller::new().expect("a poller"));
    let now = Instant::now();
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    dials.cancel(FlowId(1));
    assert!(is_idle(&dials));
    dials.cancel(FlowId(1));
    assert!(dials.resolve(FlowId(2), &client(1), now + DEADLINE));
    let late = dials.handle_resolved(now, &poller, FlowId(1), Err(FlowCode::NameNotFound));
    assert!(late.is_none() && !is_idle(&dials));
}

#[test]
fn a_target_whose_dial_is_cancelled_sees_a_reset() {
    let (mut dials, poller) = (Dials::new(), Poller::new().expect("a poller"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = target.local_addr().expect("bound");
    let now = Instant::now();
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    let dialed = dials.handle_resolved(now, &poller, FlowId(1), Ok(vec![address]));
    assert!(dialed.is_none(), "{dialed:?}");
    let (mut accepted, _) = target.accept().expect("it connects");
    dials.cancel(FlowId(1));
    assert!(is_idle(&dials));
    let end = io::Read::read(&mut accepted, &mut [0]).expect_err("no ordinary end");
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_dial_goes_on_with_the_addresses_that_are_still_permitted() {
    let (mut dials, poller) = (Dials::new(), Poller::new().expect("a poller"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = target.local_addr().expect("bound");
    let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
    let now = Instant::now();
    let permitted = |ip: IpAddr| ip == address.ip();
    for (flow, addresses, ends) in [
        (1, vec![address, other], false),
        (2, vec![other, address], false),
        (3, vec![other], true),
    ] {
        let flow = FlowId(flow);
        assert!(dials.resolve(flow, &client(1), now + DEADLINE));
        assert!(dials.judge_again(now, &poller, flow, permitted).is_none());
        // Where nothing listens the first address may have failed by now, which is as good.
        let begun = dials.handle_resolved(now, &poller, flow, Ok(addresses));
        let ended = begun.or_else(|| dials.judge_again(now, &poller, flow, permitted));
        assert_eq!(ended.is_some(), ends, "{ended:?}");
        let Some(&key) = dials.by_flow.get(&flow) else {
            continue;
        };
        let State::Connecting {
            address: at, next, ..
        } = &dials.pending[key].state
        else {
            panic!("it connects");
        };
        assert_eq!((*at, next.len()), (address, 0));
    }
}

// PROTOCOL LIMIT-2.
#[test]
fn one_client_has_half_of_the_places_and_others_find_some() {
    let mut dials = Dials::new();
    let deadline = Instant::now() + DEADLINE;
    let begun = (0..MAX as u64)
        .filter(|&flow| dials.resolve(FlowId(flow), &client(1), deadline))
        .count();
    assert_eq!(begun, MAX / 2);
    let other = FlowId(1 << 32);
    assert!(dials.resolve(other, &client(2), deadline));
    dials.cancel(other);
    dials.cancel(FlowId(0));
    assert!(dials.resolve(FlowId(0), &client(1), deadline));
}

/// Waits for the poller and hands on what it finds until the dial ends.
fn end_of(dials: &mut Dials, poller: &mut Poller) -> Dialed {
    let until = Instant::now() + DEADLINE;
    let mut ready = Vec::new();
    loop {
        let waited = poller.wait(Some(until), Patience::default(), &mut ready);
        waited.expect("it waits");
        assert!(!ready.is_empty(), "nothing happens");
        for event in &ready {
            let Key::Dial(key) = event.key else {
                panic!("{event:?}");
            };
            if let Some(dialed) = dials.handle_ready(Instant::now(), poller, key) {
                return dialed;
            }
        }
    }
}

#[test]
fn where_one_address_refuses_the_next_is_tried_and_its_socket_is_the_flows() {
    let (mut dials, mut poller) = (Dials::new(), Poller::new().expect("a poller"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let good = target.local_addr().expect("bound");
    let refusing = SocketAddr::from(([127, 0, 0, 2], good.port()));
    let flow = FlowId(1 << 32);
    let now = Instant::now();
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    let begun = dials.handle_resolved(now, &poller, flow, Ok(vec![refusing, good]));
    assert!(begun.is_none(), "{begun:?}");
    let dialed = end_of(&mut dials, &mut poller);
    let (_socket, address) = dialed.result.expect("it connects");
    assert_eq!((dialed.flow, address), (flow, good.to_string()));
    assert!(is_idle(&dials));
    let (mut accepted, _) = target.accept().expect("it has connected");
    // From now on the poller knows it as the flow's.
    io::Write::write_all(&mut accepted, b"x").expect("room");
    let mut ready = Vec::new();
    let until = Some(Instant::now() + DEADLINE);
    let waited = poller.wait(until, Patience::default(), &mut ready);
    waited.expect("it waits");
    assert!(
        ready.iter().any(|event| event.key == Key::Flow(flow)),
        "{ready:?}"
    );
}

#[test]
fn where_all_refuse_the_last_reason_is_told() {
    let (mut dials, mut poller) = (Dials::new(), Poller::new().expect("a poller"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("bound").port();
    let refusing = SocketAddr::from(([127, 0, 0, 2], port));
    let now = Instant::now();
    let flow = FlowId(1 << 32);
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    let ended = dials.handle_resolved(now, &poller, flow, Ok(vec![refusing]));
    let ended = ended.unwrap_or_else(|| end_of(&mut dials, &mut poller));
    assert_eq!(ended.result.err(), Some(FlowCode::Refused));
    assert!(is_idle(&dials));
}

#[test]
fn each_address_has_its_share_of_the_time_and_the_deadline_ends_all() {
    let (mut dials, poller) = (Dials::new(), Poller::new().expect("a poller"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("bound");
    let flow = FlowId(1 << 32);
    let now = Instant::now();
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    assert_eq!(dials.next_timeout(), Some(now + DEADLINE));
    // Nobody looks at the sockets: as if neither answered.
    let begun = dials.handle_resolved(now, &poller, flow, Ok(vec![address, address]));
    assert!(begun.is_none(), "{begun:?}");
    let half = now + DEADLINE / 2;
    assert_eq!(dials.next_timeout(), Some(half));
    let just_before = now + Duration::from_nanos(4_999_999_999);
    let early = dials.handle_timeout(just_before, &poller);
    assert!(early.is_none() && dials.next_timeout() == Some(half));
    assert!(dials.handle_timeout(half, &poller).is_none());
    assert_eq!(dials.next_timeout(), Some(now + DEADLINE));
    let ended = dials
        .handle_timeout(now + DEADLINE, &poller)
        .expect("an end");
    assert_eq!(ended.result.err(), Some(FlowCode::DialTimeout));
    assert!(is_idle(&dials));
}

#[test]
fn a_name_that_is_not_found_in_time_is_a_timeout_and_one_without_addresses_is_unknown() {
    let (mut dials, poller) = (Dials::new(), Poller::new().expect("a poller"));
    let now = Instant::now();
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    let late = dials
        .handle_timeout(now + DEADLINE, &poller)
        .expect("an end");
    assert_eq!(late.result.err(), Some(FlowCode::DialTimeout));
    assert!(dials.resolve(FlowId(2), &client(1), now + DEADLINE));
    let none = dials.handle_resolved(now, &poller, FlowId(2), Ok(Vec::new()));
    assert_eq!(
        none.expect("an end").result.err(),
        Some(FlowCode::NameNotFound)
    );
    assert!(is_idle(&dials));
}
