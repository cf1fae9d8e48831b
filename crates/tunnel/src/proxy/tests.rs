use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use quictun_io::poller::Patience;

use super::*;

const REQUEST: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x02db\x00\x16early";

/// A proxy and the poller that watches its sockets.
struct Stage {
    proxy: Proxy,
    poller: Poller,
    now: Instant,
}

impl Stage {
    fn new() -> Self {
        Self {
            proxy: Proxy::new(None),
            poller: Poller::new().expect("a descriptor"),
            now: Instant::now(),
        }
    }

    /// Connects an application that has sent these bytes.
    fn connect(&mut self, said: &[u8]) -> (UnixStream, Option<Asked>) {
        let (mut application, ours) = UnixStream::pair().expect("descriptors");
        application.write_all(said).expect("it has room");
        let socket = AppSocket::unix(ours).expect("a socket");
        let asked = self.proxy.accept(self.now, &self.poller, socket);
        (application, asked)
    }

    /// Handles all ready sockets.
    fn turn(&mut self) -> Option<Asked> {
        let mut ready = Vec::new();
        let none = Patience::default();
        let waited = self.poller.wait(Some(self.now), none, &mut ready);
        waited.expect("it can be waited for");
        let mut asked = None;
        for ready in ready {
            let found = self.proxy.handle_ready(self.now, &self.poller, ready);
            asked = asked.or(found);
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
    fn end(&mut self, asked: Asked, ending: Ending) {
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

/// Reads everything that the application receives until the end.
fn read_all(application: &mut UnixStream) -> Vec<u8> {
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
fn what_follows_a_request_comes_first_and_the_answer_before_the_target() {
    let mut stage = Stage::new();
    let (mut application, asked) = stage.connect(REQUEST);
    let Asked {
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
fn a_target_that_says_nothing_and_ends_is_connected_all_the_same() {
    let mut stage = Stage::new();
    let (mut application, asked) = stage.connect(REQUEST);
    let mut socket = asked.expect("the request was whole").socket;
    socket.finish().expect("it is open");
    assert!(read_all(&mut application).ends_with(b"\x05\x00\x00\x01\0\0\0\0\0\0"));
}

#[test]
fn a_request_may_come_in_pieces() {
    let mut stage = Stage::new();
    let (mut application, asked) = stage.connect(b"");
    assert!(asked.is_none());
    let mut found = None;
    for byte in REQUEST {
        assert!(found.is_none(), "a target before it was named");
        application.write_all(&[*byte]).expect("it has room");
        found = stage.turn();
        if found.is_some() {
            break;
        }
    }
    let asked = found.expect("the request is whole");
    assert_eq!(asked.token, "tcp:db:22");
    assert!(matches!(asked.watched, Some(Key::Asking(_))));
    assert_eq!(
        stage.proxy.next_timeout().map(|at| at > stage.now),
        Some(true)
    );
}

#[test]
fn a_refused_flow_is_answered_with_what_the_server_said() {
    for (ending, code) in [
        (Ending::PeerReset(Some(FlowCode::Refused)), 5),
        (Ending::Abandoned(FlowCode::Denied), 2),
        (Ending::NoConnection, 3),
        (Ending::PeerReset(None), 1),
    ] {
        let mut stage = Stage::new();
        let (mut application, asked) = stage.connect(REQUEST);
        stage.end(asked.expect("the request was whole"), ending);
        let said = read_all(&mut application);
        assert_eq!(said, [&[5, 0, 5, code, 0, 1], &[0; 6][..]].concat());
        assert_eq!(stage.proxy.pending.len(), 1, "it is still open");
        drop(application);
        stage.turn();
        assert_eq!(stage.proxy.pending.len(), 0, "it has closed");
    }
}

#[test]
fn an_application_that_has_gone_is_told_nothing_and_one_that_was_connected_no_second_answer() {
    let mut stage = Stage::new();
    let (mut application, asked) = stage.connect(REQUEST);
    stage.end(asked.expect("the request was whole"), Ending::AppReset);
    assert_eq!(read_all(&mut application), b"\x05\x00");
    let (mut application, asked) = stage.connect(REQUEST);
    let mut asked = asked.expect("the request was whole");
    asked.socket.finish().expect("it is open");
    stage.end(asked, Ending::PeerReset(Some(FlowCode::AppReset)));
    assert_eq!(read_all(&mut application).len(), 12);
    assert_eq!(stage.proxy.pending.len(), 0);
}

// A reset would discard the answer, so the proxy reads what the application has sent before it closes.
#[test]
fn a_refusal_over_tcp_arrives_although_the_application_goes_on_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut application = TcpStream::connect(address).expect("it listens");
    let (ours, _) = listener.accept().expect("a connection is queued");
    let body = vec![b'x'; MAX_HEAD / 2];
    application
        .write_all(&[b"POST / HTTP/1.1\r\n\r\n", &body[..]].concat())
        .expect("it has room");
    let mut stage = Stage::new();
    let socket = AppSocket::tcp(ours).expect("a socket");
    assert!(
        stage
            .proxy
            .accept(stage.now, &stage.poller, socket)
            .is_none()
    );
    application.write_all(&body).expect("it is open");
    application.shutdown(Shutdown::Write).expect("it is open");
    while !stage.proxy.pending.is_empty() {
        stage.now = Instant::now() + Duration::from_millis(1);
        stage.turn();
    }
    let mut said = String::new();
    application.read_to_string(&mut said).expect("no reset");
    assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
}

#[test]
fn whoever_is_slow_or_one_too_many_is_let_go_and_others_are_served() {
    let mut stage = Stage::new();
    let (mut slow, asked) = stage.connect(b"\x05\x01");
    assert!(asked.is_none());
    stage.pass(REQUEST_TIMEOUT / 2);
    let (_other, asked) = stage.connect(b"");
    assert!(asked.is_none());
    slow.write_all(b"\x00\x05").expect("it has room");
    stage.turn();
    assert_eq!(stage.proxy.pending.len(), 2);
    // Progress does not extend the deadline.
    stage.pass(REQUEST_TIMEOUT / 2);
    assert_eq!(stage.proxy.pending.len(), 1);
    assert_eq!(read_all(&mut slow), b"\x05\x00");
    stage.pass(REQUEST_TIMEOUT / 2);
    assert_eq!(stage.proxy.pending.len(), 0);
    assert_eq!(stage.proxy.next_timeout(), None);
}

#[test]
fn an_application_that_was_refused_and_stays_is_left_after_a_moment_and_so_many_bytes() {
    let mut stage = Stage::new();
    let (mut application, _) = stage.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(stage.proxy.pending.len(), 1);
    application
        .write_all(&vec![b'x'; LEAVE_MAX - 1])
        .expect("it has room");
    stage.turn();
    assert_eq!(stage.proxy.pending.len(), 1);
    application.write_all(b"x").expect("it has room");
    stage.turn();
    assert_eq!(stage.proxy.pending.len(), 0);
    let (_application, _) = stage.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(stage.proxy.pending.len(), 1);
    stage.pass(LEAVE_TIMEOUT);
    assert_eq!(stage.proxy.pending.len(), 0);
}

#[test]
fn connections_without_a_request_have_a_limit() {
    let mut stage = Stage::new();
    stage.proxy.most = 2;
    let (_first, _) = stage.connect(b"\x05");
    // A refused connection counts while it stays, and gets its answer even at the limit.
    let (_second, _) = stage.connect(b"GET / HTTP/1.1\r\n");
    assert_eq!(stage.proxy.pending.len(), 2);
    let (mut third, asked) = stage.connect(REQUEST);
    assert!(asked.is_none());
    // Its request was not read.
    let gone = third.read(&mut [0]).expect_err("it was reset");
    assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
    stage.pass(REQUEST_TIMEOUT);
    let (_fourth, asked) = stage.connect(REQUEST);
    assert!(asked.is_some());
}

#[test]
fn what_happens_often_is_told_now_and_then_with_its_count() {
    let mut occasional = Occasional::default();
    let start = Instant::now();
    assert_eq!(occasional.note(start), Some(1));
    assert_eq!(occasional.note(start), None);
    assert_eq!(occasional.note(start + WARN_EVERY / 2), None);
    assert_eq!(occasional.note(start + WARN_EVERY), Some(3));
    assert_eq!(occasional.note(start + WARN_EVERY), None);
}
