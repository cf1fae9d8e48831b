use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use std::time::Duration;

use quictun_io::poller::WaitPlan;

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

/// Creates dials in a process with plenty of descriptors.
fn new_dials() -> Dials {
    with_descriptors(CommonShares::new(1000, 4))
}

fn with_descriptors(descriptors: CommonShares) -> Dials {
    Dials::new(descriptors, DialMemory::default())
}

fn client(number: u8) -> Holder {
    Holder::at([192, 0, 2, number].into())
}

fn is_idle(dials: &Dials) -> bool {
    dials.pending.is_empty()
        && dials.by_flow.is_empty()
        && dials.by_attempt.is_empty()
        && dials.timeouts.is_empty()
        && dials.next_timeout().is_none()
}

#[test]
fn a_cancelled_dial_leaves_nothing_and_its_late_answer_is_ignored() {
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
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
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = target.local_addr().expect("bound");
    let now = Instant::now();
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    let dialed = dials.handle_resolved(now, &poller, FlowId(1), Ok(vec![address]));
    assert!(dialed.is_none(), "{dialed:?}");
    let (mut accepted, _) = target.accept().expect("it connects");
    dials.cancel(FlowId(1));
    assert!(is_idle(&dials));
    let end = accepted.read(&mut [0]).expect_err("a reset");
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
}

/// Returns a socket that is connected to itself, as if the kernel had chosen the port of the target as the source.
fn connected_to_itself() -> (AppSocket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("bound");
    let own = socket.local_addr().expect("an address");
    socket.connect(&own).expect("it connects");
    let address = own.as_socket().expect("an IP address");
    (AppSocket::tcp(socket.into()), address)
}

#[test]
fn a_dial_that_connects_to_itself_is_refused_and_frees_the_port() {
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
    let now = Instant::now();
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    let key = dials.by_flow[&FlowId(1)];
    let (socket, address) = connected_to_itself();
    let mut race = Race::new(vec![address], now, now + DEADLINE);
    assert_eq!(race.poll(now), Some(Step::Begin(address)));
    race.handle_begun(now, address);
    let attempt = Attempt {
        number: 0,
        socket,
        address,
        extra: false,
    };
    dials.by_attempt.insert(0, key);
    dials.pending[key].state = State::Racing {
        race,
        attempts: vec![attempt],
        reason: FlowCode::NameNotFound,
    };
    let dialed = dials.handle_ready(now, &poller, 0, |_, _| None);
    let result = dialed.map(|dialed| dialed.result.map(|_| ()));
    assert_eq!(result, Some(Err(FlowCode::Refused)));
    assert!(is_idle(&dials));
    TcpListener::bind(address).expect("the target can listen");
}

#[test]
fn a_dial_continues_with_the_addresses_that_are_still_permitted() {
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
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
        assert!(dials.rejudge(now, &poller, flow, permitted).is_none());
        // If nothing listens at the first address, that attempt may have failed by now, which is as good.
        let begun = dials.handle_resolved(now, &poller, flow, Ok(addresses));
        let ended = begun.or_else(|| dials.rejudge(now, &poller, flow, permitted));
        assert_eq!(ended.is_some(), ends, "{ended:?}");
        let Some(&key) = dials.by_flow.get(&flow) else {
            continue;
        };
        let State::Racing { race, attempts, .. } = &dials.pending[key].state else {
            panic!("it connects");
        };
        assert_eq!(race.running().collect::<Vec<_>>(), [address]);
        assert_eq!(attempts.len(), 1);
    }
}

// PROTOCOL LIMIT-2.
#[test]
fn one_client_gets_half_of_the_places_and_leaves_some_for_others() {
    let mut dials = new_dials();
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

/// Waits for the poller and hands its events to the dials until the dial ends.
fn end_of(dials: &mut Dials, poller: &mut Poller) -> DialResult {
    end_with(dials, poller, None)
}

/// Does the same as [`end_of`], with this header for every target.
fn end_with(dials: &mut Dials, poller: &mut Poller, header: Option<&[u8]>) -> DialResult {
    loop {
        if let Some(dialed) = look(dials, poller, header) {
            return dialed;
        }
    }
}

/// Waits for the poller once and hands its events to the dials.
fn look(dials: &mut Dials, poller: &mut Poller, header: Option<&[u8]>) -> Option<DialResult> {
    let until = Instant::now() + DEADLINE;
    let mut ready = Vec::new();
    let waited = poller.wait(Some(until), WaitPlan::default(), &mut ready);
    waited.expect("it waits");
    assert!(!ready.is_empty(), "nothing happens");
    ready.iter().find_map(|event| {
        let Key::Dial(key) = event.key else {
            panic!("{event:?}");
        };
        let header = |_, _| header.map(<[u8]>::to_vec);
        dials.handle_ready(Instant::now(), poller, key, header)
    })
}

#[test]
fn after_a_refusal_the_next_address_is_tried_and_the_flow_gets_its_socket() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
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
    // From now on the poller has the socket under the flow's key.
    accepted.write_all(b"x").expect("room");
    let mut ready = Vec::new();
    let until = Some(Instant::now() + DEADLINE);
    let waited = poller.wait(until, WaitPlan::default(), &mut ready);
    waited.expect("it waits");
    assert!(
        ready.iter().any(|event| event.key == Key::Flow(flow)),
        "{ready:?}"
    );
}

#[test]
fn when_all_addresses_refuse_the_last_reason_is_reported() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
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
fn the_next_address_is_dialled_after_a_quarter_of_a_second_and_the_deadline_ends_all() {
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let first = listener.local_addr().expect("bound");
    let second = SocketAddr::from(([127, 0, 0, 2], first.port()));
    let flow = FlowId(1 << 32);
    let now = Instant::now();
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    assert_eq!(dials.next_timeout(), Some(now + DEADLINE));
    // No event reaches the dials, as if neither address answered.
    let begun = dials.handle_resolved(now, &poller, flow, Ok(vec![first, second]));
    assert!(begun.is_none(), "{begun:?}");
    let delay = now + Duration::from_millis(250);
    assert_eq!(dials.next_timeout(), Some(delay));
    let just_before = now + Duration::from_nanos(249_999_999);
    let early = dials.handle_timeout(just_before, &poller);
    assert!(early.is_none() && dials.by_attempt.len() == 1);
    assert!(dials.handle_timeout(delay, &poller).is_none());
    assert_eq!(dials.by_attempt.len(), 2);
    assert_eq!(dials.next_timeout(), Some(now + DEADLINE));
    let ended = dials
        .handle_timeout(now + DEADLINE, &poller)
        .expect("an end");
    assert_eq!(ended.result.err(), Some(FlowCode::DialTimeout));
    assert!(is_idle(&dials));
}

/// Begins a dial of an address that does not answer, and of `listeners`, and returns the result. The other attempts have
/// begun before the first one answers.
fn race(dials: &mut Dials, poller: &mut Poller, addresses: Vec<SocketAddr>) -> DialResult {
    let (flow, now) = (FlowId(1 << 32), Instant::now());
    let steps = u32::try_from(addresses.len()).expect("few");
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    let begun = dials.handle_resolved(now, poller, flow, Ok(addresses));
    assert!(begun.is_none(), "{begun:?}");
    for step in 1..steps {
        let at = now + Duration::from_millis(250) * step;
        let ended = dials.handle_timeout(at, poller);
        assert!(ended.is_none(), "{ended:?}");
    }
    end_of(dials, poller)
}

// PROTOCOL CLOSE-10.
#[test]
fn only_the_first_socket_that_connects_is_kept_and_the_others_are_reset_without_a_byte() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
    let listeners = ["127.0.0.1:0", "127.0.0.2:0"].map(|at| TcpListener::bind(at).expect(at));
    let addresses = listeners
        .each_ref()
        .map(|it| it.local_addr().expect("bound"));
    let dialed = race(&mut dials, &mut poller, addresses.to_vec());
    let (mut socket, winner) = dialed.result.expect("it connects");
    socket.write(&[IoSlice::new(b"application")]).expect("room");
    socket.close();
    drop(socket);
    assert!(is_idle(&dials));
    for (listener, address) in listeners.iter().zip(addresses) {
        let (mut accepted, _) = listener.accept().expect("both have connected");
        let mut read = Vec::new();
        let end = accepted.read_to_end(&mut read);
        if winner == address.to_string() {
            assert_eq!((end.expect("a FIN"), &read[..]), (11, &b"application"[..]));
        } else {
            assert_eq!(
                end.expect_err("a reset").kind(),
                io::ErrorKind::ConnectionReset
            );
            assert_eq!(read, b"");
        }
    }
}

#[test]
fn attempts_beyond_the_first_need_places_for_their_descriptors_and_give_them_back() {
    let listeners: Vec<_> = (1..=4)
        .map(|number| SocketAddr::from(([127, 0, 0, number], 0)))
        .map(|at| TcpListener::bind(at).expect("a listener"))
        .collect();
    let addresses: Vec<_> = listeners
        .iter()
        .map(|it| it.local_addr().expect("bound"))
        .collect();
    let (flow, now) = (FlowId(1 << 32), Instant::now());
    // With a weight of 4, one holder gets four of five places.
    for (places, attempts) in [(0, 1), (1, 2), (2, 3), (5, 4)] {
        let descriptors = CommonShares::new(places, 4);
        let mut dials = with_descriptors(descriptors.clone());
        let poller = Poller::new().expect("a poller");
        assert!(dials.resolve(flow, &client(1), now + DEADLINE));
        let begun = dials.handle_resolved(now, &poller, flow, Ok(addresses.clone()));
        assert!(begun.is_none(), "{begun:?}");
        for step in 1..10 {
            let at = now + Duration::from_millis(250) * step;
            assert!(dials.handle_timeout(at, &poller).is_none());
        }
        assert_eq!(dials.by_attempt.len(), attempts, "{places} places");
        dials.cancel(flow);
        assert!(is_idle(&dials));
        let free = std::iter::repeat_with(|| descriptors.take(&client(1)));
        let expected = CommonShares::new(places, 4);
        let all = std::iter::repeat_with(|| expected.take(&client(1)));
        assert_eq!(
            free.take_while(|taken| *taken).count(),
            all.take_while(|taken| *taken).count()
        );
    }
}

#[test]
fn an_address_that_was_outrun_is_tried_last_until_the_network_changes() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
    let (good, silent) = (
        TcpListener::bind("127.0.0.1:0").expect("a listener"),
        SilentAddress::new(),
    );
    let addresses = vec![silent.address, good.local_addr().expect("bound")];
    let first = race(&mut dials, &mut poller, addresses.clone());
    assert_eq!(
        first.result.expect("it connects").1,
        addresses[1].to_string()
    );
    let (flow, now) = (FlowId(2 << 32), Instant::now());
    let first_tried = |dials: &mut Dials| {
        assert!(dials.resolve(flow, &client(1), now + DEADLINE));
        let begun = dials.handle_resolved(now, &poller, flow, Ok(addresses.clone()));
        assert!(begun.is_none(), "{begun:?}");
        let State::Racing { attempts, .. } = &dials.pending[dials.by_flow[&flow]].state else {
            panic!("it connects");
        };
        let tried = attempts[0].address;
        dials.cancel(flow);
        tried
    };
    assert_eq!(first_tried(&mut dials), addresses[1]);
    dials.handle_network_change();
    assert_eq!(first_tried(&mut dials), addresses[0]);
}

/// An address that does not answer a SYN: the queue of its listener is full.
struct SilentAddress {
    address: SocketAddr,
    _held: (Socket, Vec<TcpStream>),
}

impl SilentAddress {
    fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 3], 0)).into())
            .expect("bound");
        listener.listen(0).expect("it listens");
        let address = listener
            .local_addr()
            .expect("bound")
            .as_socket()
            .expect("IP");
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queued.push(stream);
        }
        Self {
            address,
            _held: (listener, queued),
        }
    }
}

#[test]
fn a_name_that_is_not_found_in_time_is_a_timeout_and_one_without_addresses_is_unknown() {
    let (mut dials, poller) = (new_dials(), Poller::new().expect("a poller"));
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

/// A length above what a socket takes at once. A real header is short and never waits.
const LONG: usize = 8 << 20;

fn pattern() -> Vec<u8> {
    (0..251).cycle().take(LONG).collect()
}

/// Begins a dial that waits for room for the rest of a header and has one more address to try. Returns the target's
/// listener and its end of the connection.
fn heading(dials: &mut Dials, poller: &mut Poller, now: Instant) -> (TcpListener, TcpStream) {
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = target.local_addr().expect("bound");
    assert!(dials.resolve(FlowId(1), &client(1), now + DEADLINE));
    let begun = dials.handle_resolved(now, poller, FlowId(1), Ok(vec![address, address]));
    assert!(begun.is_none(), "{begun:?}");
    let (accepted, _) = target.accept().expect("it connects");
    let dialed = look(dials, poller, Some(&pattern()));
    assert!(dialed.is_none(), "{dialed:?}");
    (target, accepted)
}

// PROTOCOL HEADER-3.
#[test]
fn a_target_reads_the_header_first_and_the_header_is_for_the_connected_address() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let good = target.local_addr().expect("bound");
    let refusing = SocketAddr::from(([127, 0, 0, 2], good.port()));
    let (flow, now) = (FlowId(1 << 32), Instant::now());
    assert!(dials.resolve(flow, &client(1), now + DEADLINE));
    let begun = dials.handle_resolved(now, &poller, flow, Ok(vec![refusing, good]));
    assert!(begun.is_none(), "{begun:?}");
    let mut asked = Vec::new();
    let dialed = loop {
        let mut ready = Vec::new();
        let waited = poller.wait(Some(now + DEADLINE), WaitPlan::default(), &mut ready);
        waited.expect("it waits");
        let dialed = ready.iter().find_map(|event| {
            let Key::Dial(key) = event.key else {
                panic!("{event:?}");
            };
            dials.handle_ready(now, &poller, key, |flow, address| {
                asked.push((flow, address));
                Some(b"header".to_vec())
            })
        });
        if let Some(dialed) = dialed {
            break dialed;
        }
    };
    assert_eq!(asked, [(flow, good)]);
    let (mut socket, _) = dialed.result.expect("it connects");
    socket.write(&[IoSlice::new(b"application")]).expect("room");
    socket.close();
    drop(socket);
    let mut read = String::new();
    let (mut accepted, _) = target.accept().expect("it has connected");
    accepted.read_to_string(&mut read).expect("an end");
    assert_eq!(read, "headerapplication");
}

// PROTOCOL HEADER-3.
#[test]
fn a_flow_waits_for_its_socket_while_the_header_waits_for_room() {
    let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
    let (_target, mut accepted) = heading(&mut dials, &mut poller, Instant::now());
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        accepted.read_to_end(&mut read).map(|_| read)
    });
    let dialed = end_with(&mut dials, &mut poller, None);
    assert!(is_idle(&dials));
    let (mut socket, _) = dialed.result.expect("it connects");
    // The target reads on, and gets the whole header in the end.
    let more = loop {
        match socket.write(&[IoSlice::new(b"application")]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            written => break written.expect("it reads on"),
        }
    };
    socket.close();
    drop(socket);
    let read = reader.join().expect("it ran").expect("an end");
    assert!(read[..LONG] == pattern()[..], "another header was read");
    assert_eq!(&read[LONG..], &b"application"[..more]);
}

// PROTOCOL HEADER-3.
#[test]
fn a_target_that_does_not_read_the_header_in_time_is_reset_and_no_other_address_is_tried() {
    let now = Instant::now();
    for end in ["deadline", "cancel", "revoked"] {
        let (mut dials, mut poller) = (new_dials(), Poller::new().expect("a poller"));
        let (target, mut accepted) = heading(&mut dials, &mut poller, now);
        assert!(dials.rejudge(now, &poller, FlowId(1), |_| true).is_none());
        let half = dials.handle_timeout(now + DEADLINE / 2, &poller);
        assert!(half.is_none(), "{half:?}");
        let ended = match end {
            "deadline" => dials.handle_timeout(now + DEADLINE, &poller),
            "revoked" => dials.rejudge(now, &poller, FlowId(1), |_| false),
            _ => {
                dials.cancel(FlowId(1));
                None
            }
        };
        let code = match end {
            "deadline" => Some(FlowCode::DialTimeout),
            "revoked" => Some(FlowCode::Revoked),
            _ => None,
        };
        assert_eq!(ended.and_then(|ended| ended.result.err()), code, "{end}");
        assert!(is_idle(&dials), "{end}");
        let mut read = Vec::new();
        let cut = accepted
            .read_to_end(&mut read)
            .expect_err("a reset, not FIN");
        assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset, "{end}");
        target.set_nonblocking(true).expect("an option");
        let other = target.accept().map(drop).expect_err("none connects");
        assert_eq!(other.kind(), io::ErrorKind::WouldBlock, "{end}");
    }
}

// PROTOCOL HEADER-3.
#[test]
fn a_unix_socket_reads_the_header_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("target.sock");
    let target = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    for (header, read) in [(Some(&b"header"[..]), "header-"), (None, "-")] {
        let header = header.map(<[u8]>::to_vec);
        let socket = dial_unix(path.to_str().expect("UTF-8"), None, header);
        let socket = socket.expect("it connects");
        socket.say(b"-").expect("room");
        drop(socket);
        let (mut accepted, _) = target.accept().expect("it has connected");
        let mut told = String::new();
        accepted.read_to_string(&mut told).expect("an end");
        assert_eq!(told, read);
    }
}
