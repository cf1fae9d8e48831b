//! The resources that clients of the interface cannot exhaust or break.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quictun_engine::FlowId;
use quictun_engine::report::FlowReport;

use super::*;
use crate::rest::http::Limits;
use crate::snapshot::WorkerSnapshot;

#[test]
fn a_large_body_and_large_headers_are_refused() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let response =
        server.exchange("GET /tunnels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4097\r\n\r\n");
    assert_eq!(response.status(), "413");
    let mut stream = server.connect();
    // The server may close the connection before it has read everything.
    stream
        .write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000)).as_bytes())
        .ok();
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 431");
}

#[test]
fn malformed_requests_are_answered_and_harm_no_connection() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    assert_eq!(
        server.exchange("\x16\x03\x01 nonsense\r\n\r\n").status(),
        "400"
    );
    assert_eq!(server.get("/healthz").status(), "200");
}

#[test]
fn a_client_that_does_not_finish_its_headers_is_cut_off() {
    let limits = Limits {
        header_deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let mut stream = server.connect();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost:")
        .expect("sent");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed by the server");
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_connection_ends_at_its_deadline_whatever_it_does() {
    let limits = Limits {
        connection_deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let mut stream = server.connect();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed by the server");
    assert!(rest.is_empty());
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let limits = Limits {
        connections: 2,
        header_deadline: HOUR,
        connection_deadline: HOUR,
        ..Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let idle = [server.connect(), server.connect()];
    let mut third = server.connect();
    third
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    third
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a socket");
    let error = third.read(&mut [0; 1]).expect_err("no place yet");
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    drop(idle);
    third.set_read_timeout(None).expect("a socket");
    assert_eq!(read_response(&mut third).status(), "200");
}

/// Returns the state of a server with so many flows that their list fills every socket buffer.
fn many_flows(round: u64) -> Vec<WorkerSnapshot> {
    let mut snapshots = fake::snapshots(round);
    let flow = snapshots[0].flows[0].clone();
    let flows = (0..40_000).map(|number| FlowReport {
        id: FlowId(number),
        ..flow.clone()
    });
    snapshots[0].flows = flows.collect();
    snapshots
}

#[test]
fn large_answers_that_are_not_read_take_bounded_memory() {
    let server = Server::start(state(Side::Server, many_flows));
    let ask = || {
        let mut stream = server.connect();
        stream
            .write_all(b"GET /v1/tunnels HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("an answer");
        (stream, first)
    };
    let (stalled, first) = ask();
    assert_eq!(&first, b"HTTP/1.1 200");
    let (_, second) = ask();
    assert_eq!(&second, b"HTTP/1.1 503", "the first was not read");
    assert_eq!(server.get("/healthz").status(), "200");
    drop(stalled);
    let deadline = Instant::now() + Duration::from_secs(20);
    while &ask().1 != b"HTTP/1.1 200" {
        assert!(Instant::now() < deadline, "the place was not given back");
    }
}

#[test]
fn shutdown_closes_the_listener_and_does_not_wait_for_idle_clients() {
    let limits = Limits {
        drain_deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let mut server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let idle = server.connect();
    // Connections are accepted in order, so the idle one has been accepted by now.
    assert_eq!(server.get("/healthz").status(), "200");
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(TcpStream::connect(server.address).is_err());
    drop(idle);
}

#[test]
fn a_client_that_shuts_its_sending_side_is_answered() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let mut stream = server.connect();
    stream
        .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
        .expect("sent");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("a socket");
    assert_eq!(read_response(&mut stream).status(), "200");
}

/// The child half of the next test. It does nothing in an ordinary run.
#[test]
fn child_runs_out_of_descriptors() {
    if std::env::var_os("QUICTUN_TEST_CHILD").is_none() {
        return;
    }
    let server = Server::start(state(Side::Server, fake::snapshots));
    assert_eq!(server.get("/healthz").status(), "200");
    let limit = rustix::process::Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
        .expect("lowering is allowed");
    let hoard: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let mut stdin = std::io::stdin().lines();
    std::io::stdout()
        .write_all(format!("\nADDRESS {}\n", server.address).as_bytes())
        .expect("the parent reads");
    stdin
        .next()
        .expect("the parent has connected")
        .expect("text");
    drop(hoard);
    // The parent closes its end when it has the answer.
    assert!(stdin.next().is_none());
}

#[test]
fn running_out_of_descriptors_does_not_end_the_server() {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "rest::tests::limits::child_runs_out_of_descriptors",
            "--nocapture",
        ])
        .env("QUICTUN_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let address = output
        .find_map(|line| line.strip_prefix("ADDRESS ").map(str::to_owned))
        .expect("an address");
    let mut stream = TcpStream::connect(address).expect("the backlog takes it");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"connected\n").expect("the child reads");
    assert_eq!(read_response(&mut stream).status(), "200");
    drop(stdin);
    assert!(child.wait().expect("ends").success());
}
