use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use quictun_io::poller::WaitPlan;
use socket2::{Domain, Socket, Type};

use super::*;

const REQUEST: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x02db\x00\x16early";

/// A proxy and the poller that watches its sockets.
struct Fixture {
    proxy: Proxy,
    poller: Poller,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self {
            proxy: Proxy::new(None),
            poller: Poller::new().expect("a descriptor"),
            now: Instant::now(),
        }
    }

    /// Connects an application that has sent these bytes.
    fn connect(&mut self, said: &[u8]) -> (UnixStream, Option<FlowToOpen>) {
        let (mut application, ours) = UnixStream::pair().expect("descriptors");
        application.write_all(said).expect("it has room");
        let socket = AppSocket::unix(ours).expect("a socket");
        let asked = self.proxy.accept(self.now, &self.poller, socket);
        (application, asked.map(flow_of))
    }

    /// Handles all ready sockets.
    fn turn(&mut self) -> Option<FlowToOpen> {
        let mut ready = Vec::new();
        let none = WaitPlan::default();
        let waited = self.poller.wait(Some(self.now), none, &mut ready);
        waited.expect("it can be waited for");
        let mut asked = None;
        for ready in ready {
            let found = self.proxy.handle_ready(self.now, &self.poller, ready);
            asked = asked.or(found.map(flow_of));
        }
        asked
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.proxy.next_timeout().is_some_and(|at| at <= self.now) {
            self.proxy.handle_timeout(self.now);
        }
    }

    /// Makes the socket that of flow 7, and ends this flow.
    fn end(&mut self, asked: FlowToOpen, ending: Ending) {
        if let AppSocket::Proxied(socket) = &asked.socket {
            socket.name(FlowId(7));
        }
        let key = Key::Flow(FlowId(7));
        let watched = self.poller.add_flow(asked.socket.descriptor(), key);
        watched.expect("it was not watched");
        let mut socket = asked.socket;
        socket.abort();
        drop(socket);
        self.proxy
            .handle_closed(self.now, &self.poller, FlowId(7), ending);
    }
}

fn flow_of(asked: ProxyRequest) -> FlowToOpen {
    match asked {
        ProxyRequest::Flow(asked) => asked,
        ProxyRequest::Association(_) => panic!("the application has asked for a connection"),
    }
}

fn has_leaving(proxy: &Proxy) -> bool {
    let mut pending = proxy.pending.iter();
    pending.any(|(_, pending)| matches!(pending.state, PendingState::Leaving(_)))
}

/// Reads everything that the application receives until the end.
fn read_all(application: &mut impl std::io::Read) -> Vec<u8> {
    let mut all = Vec::new();
    application.read_to_end(&mut all).expect("an end");
    all
}

fn read(socket: &mut AppSocket) -> Vec<u8> {
    let mut read = Vec::with_capacity(64);
    socket.read(&mut read).expect("there is something");
    read
}

#[test]
fn bytes_after_a_request_are_read_first_and_the_answer_precedes_the_target() {
    let mut fixture = Fixture::new();
    let (mut application, asked) = fixture.connect(REQUEST);
    let FlowToOpen {
        mut socket, token, ..
    } = asked.expect("the request was whole");
    assert_eq!(token, "tcp:db:22");
    application.write_all(b" and late").expect("it has room");
    assert_eq!(read(&mut socket), b"early");
    assert_eq!(read(&mut socket), b" and late");
    let hello = socket.write(&[IoSlice::new(b"hello")]).expect("room");
    assert_eq!(hello, 5);
    socket.finish().expect("it is open");
    let said = read_all(&mut application);
    assert_eq!(said, b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0hello");
}

#[test]
fn a_target_that_ends_without_a_byte_still_counts_as_connected() {
    let mut fixture = Fixture::new();
    let (mut application, asked) = fixture.connect(REQUEST);
    let mut socket = asked.expect("the request was whole").socket;
    socket.finish().expect("it is open");
    assert!(read_all(&mut application).ends_with(b"\x05\x00\x00\x01\0\0\0\0\0\0"));
}

#[test]
fn a_request_may_come_in_pieces() {
    let mut fixture = Fixture::new();
    let (mut application, asked) = fixture.connect(b"");
    assert!(asked.is_none());
    let mut found = None;
    for byte in REQUEST {
        assert!(found.is_none(), "a target before it was named");
        application.write_all(&[*byte]).expect("it has room");
        found = fixture.turn();
        if found.is_some() {
            break;
        }
    }
    let asked = found.expect("the request is whole");
    assert_eq!(asked.token, "tcp:db:22");
    assert!(matches!(asked.watched, Some(Key::Asking(_))));
    assert_eq!(
        fixture.proxy.next_timeout().map(|at| at > fixture.now),
        Some(true)
    );
}

#[test]
fn a_refused_flow_is_answered_with_the_servers_reason() {
    for (ending, code) in [
        (Ending::PeerReset(Some(FlowCode::Refused)), 5),
        (Ending::Abandoned(FlowCode::Denied), 2),
        (Ending::NoConnection, 3),
        (Ending::PeerReset(None), 1),
    ] {
        let mut fixture = Fixture::new();
        let (mut application, asked) = fixture.connect(REQUEST);
        fixture.end(asked.expect("the request was whole"), ending);
        let said = read_all(&mut application);
        assert_eq!(said, [&[5, 0, 5, code, 0, 1], &[0; 6][..]].concat());
        assert_eq!(fixture.proxy.pending.len(), 1, "it is still open");
        drop(application);
        fixture.turn();
        assert_eq!(fixture.proxy.pending.len(), 0, "it has closed");
    }
}

#[test]
fn a_closed_application_gets_no_answer_and_a_connected_one_no_second_answer() {
    let mut fixture = Fixture::new();
    let (mut application, asked) = fixture.connect(REQUEST);
    fixture.end(asked.expect("the request was whole"), Ending::AppReset);
    assert_eq!(read_all(&mut application), b"\x05\x00");
    let (mut application, asked) = fixture.connect(REQUEST);
    let mut asked = asked.expect("the request was whole");
    asked.socket.finish().expect("it is open");
    fixture.end(asked, Ending::PeerReset(Some(FlowCode::AppReset)));
    assert_eq!(read_all(&mut application).len(), 12);
    assert_eq!(fixture.proxy.pending.len(), 0);
}

// A reset would discard the answer, so the proxy reads what the application has sent before it closes.
#[test]
fn a_refusal_over_tcp_arrives_although_the_application_keeps_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut application = TcpStream::connect(address).expect("it listens");
    let (ours, _) = listener.accept().expect("a connection is queued");
    let body = vec![b'x'; MAX_HEAD / 2];
    application
        .write_all(&[b"POST / HTTP/1.1\r\n\r\n", &body[..]].concat())
        .expect("it has room");
    let mut fixture = Fixture::new();
    ours.set_nonblocking(true).expect("an option");
    let socket = AppSocket::accepted(ours).expect("a socket");
    assert!(
        fixture
            .proxy
            .accept(fixture.now, &fixture.poller, socket)
            .is_none()
    );
    application.write_all(&body).expect("it is open");
    application.shutdown(Shutdown::Write).expect("it is open");
    while !fixture.proxy.pending.is_empty() {
        fixture.now = Instant::now() + Duration::from_millis(1);
        fixture.turn();
    }
    let mut said = String::new();
    application.read_to_string(&mut said).expect("no reset");
    assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
}

// Between the read that brought the request and the one that takes the bytes behind it, more may have arrived, and its
// event may have passed while the flow waited for a connection.
#[test]
fn bytes_behind_the_early_ones_are_read_without_another_event() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut application = TcpStream::connect(address).expect("it listens");
    let (ours, _) = listener.accept().expect("a connection is queued");
    application
        .write_all(b"CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\nearly")
        .expect("it has room");
    let mut fixture = Fixture::new();
    ours.set_nonblocking(true).expect("an option");
    let socket = AppSocket::accepted(ours).expect("a socket");
    let asked = fixture.proxy.accept(fixture.now, &fixture.poller, socket);
    let mut asked = asked.map(flow_of);
    while asked.is_none() {
        fixture.now = Instant::now();
        asked = fixture.turn();
    }
    let mut socket = asked.expect("the request is whole").socket;
    let mut read = Vec::with_capacity(100);
    socket.read(&mut read).expect("early bytes");
    assert_eq!(read, b"early");
    assert!(!socket.is_drained(), "more may have arrived meanwhile");
}

#[test]
fn slow_and_excess_applications_are_dropped_and_others_are_served() {
    let mut fixture = Fixture::new();
    let (mut slow, asked) = fixture.connect(b"\x05\x01");
    assert!(asked.is_none());
    fixture.pass(REQUEST_TIMEOUT / 2);
    let (_other, asked) = fixture.connect(b"");
    assert!(asked.is_none());
    slow.write_all(b"\x00\x05").expect("it has room");
    fixture.turn();
    assert_eq!(fixture.proxy.pending.len(), 2);
    // Progress does not extend the deadline.
    fixture.pass(REQUEST_TIMEOUT / 2);
    assert_eq!(fixture.proxy.pending.len(), 1);
    assert_eq!(read_all(&mut slow), b"\x05\x00");
    fixture.pass(REQUEST_TIMEOUT / 2);
    assert_eq!(fixture.proxy.pending.len(), 0);
    assert_eq!(fixture.proxy.next_timeout(), None);
}

#[test]
fn a_refused_application_that_stays_is_closed_after_a_limit_of_time_or_bytes() {
    let mut fixture = Fixture::new();
    let (mut application, _) = fixture.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(fixture.proxy.pending.len(), 1);
    application
        .write_all(&vec![b'x'; LEAVE_MAX - 1])
        .expect("it has room");
    fixture.turn();
    assert_eq!(fixture.proxy.pending.len(), 1);
    application.write_all(b"x").expect("it has room");
    fixture.turn();
    assert_eq!(fixture.proxy.pending.len(), 0);
    let (_application, _) = fixture.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(fixture.proxy.pending.len(), 1);
    fixture.pass(LEAVE_TIMEOUT);
    assert_eq!(fixture.proxy.pending.len(), 0);
}

#[test]
fn connections_without_a_request_have_a_limit() {
    let mut fixture = Fixture::new();
    fixture.proxy.places = CommonShares::new(2, WEIGHT);
    let (_first, _) = fixture.connect(b"\x05");
    // A refused connection counts while it stays, and gets its answer even at the limit.
    let (_second, _) = fixture.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(fixture.proxy.pending.len(), 2);
    let (mut third, asked) = fixture.connect(REQUEST);
    assert!(asked.is_none());
    // Its request was not read.
    let gone = third.read(&mut [0]).expect_err("it was reset");
    assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
    fixture.pass(REQUEST_TIMEOUT);
    let (_fourth, asked) = fixture.connect(REQUEST);
    assert!(asked.is_some());
}

// Connections over TCP from two addresses of this machine, as from two hosts.
#[test]
fn a_host_that_sends_no_requests_leaves_places_for_other_hosts() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    let mut fixture = Fixture::new();
    fixture.proxy.places = CommonShares::new(10, WEIGHT);
    let mut connect = |host: [u8; 4]| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::from((host, 0));
        socket.bind(&from.into()).expect("an address of loopback");
        socket.connect(&at.into()).expect("it listens");
        let (ours, _) = listener.accept().expect("a connection is queued");
        ours.set_nonblocking(true).expect("an option");
        let ours = AppSocket::accepted(ours).expect("a socket");
        let before = fixture.proxy.pending.len();
        let asked = fixture.proxy.accept(fixture.now, &fixture.poller, ours);
        assert!(asked.is_none());
        (socket, fixture.proxy.pending.len() > before)
    };
    let flood: Vec<_> = (0..20).map(|_| connect([127, 0, 0, 1])).collect();
    let waiting = flood.iter().filter(|(_, waits)| *waits);
    assert_eq!(waiting.count(), 8);
    let (_other, waits) = connect([127, 0, 0, 2]);
    assert!(waits, "the other host has a place");
    // The places are free again once the slow host has been dropped.
    fixture.pass(REQUEST_TIMEOUT);
    assert_eq!(fixture.proxy.pending.len(), 0);
    let (_application, asked) = fixture.connect(REQUEST);
    assert!(asked.is_some());
}

// RFC 1928 section 7. Over TCP, as from one host.
#[test]
fn associations_have_a_limit_and_its_refusal_is_answered() {
    const ASSOCIATE: &[u8] = b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\x13\x88";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    let mut fixture = Fixture::new();
    fixture.proxy.association_places = CommonShares::new(5, WEIGHT);
    let mut connect = || {
        let mut application = TcpStream::connect(at).expect("it listens");
        application.write_all(ASSOCIATE).expect("it has room");
        let (ours, _) = listener.accept().expect("a connection is queued");
        ours.set_nonblocking(true).expect("an option");
        let ours = AppSocket::accepted(ours).expect("a socket");
        let mut asked = fixture.proxy.accept(fixture.now, &fixture.poller, ours);
        while asked.is_none() && !has_leaving(&fixture.proxy) {
            let mut ready = Vec::new();
            let until = Some(Instant::now() + Duration::from_millis(10));
            let waited = fixture.poller.wait(until, WaitPlan::default(), &mut ready);
            waited.expect("it can be waited for");
            for ready in ready {
                let found = fixture
                    .proxy
                    .handle_ready(fixture.now, &fixture.poller, ready);
                asked = asked.or(found);
            }
        }
        (application, asked)
    };
    let mut held = Vec::new();
    for _ in 0..4 {
        let (_, asked) = connect();
        let Some(ProxyRequest::Association(asked)) = asked else {
            panic!("an association was asked for: {asked:?}");
        };
        assert_eq!(asked.from_port, Some(5000));
        held.push(asked);
    }
    let (mut application, asked) = connect();
    assert!(asked.is_none());
    let answer = read_all(&mut application);
    assert_eq!(answer, b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0");
}
