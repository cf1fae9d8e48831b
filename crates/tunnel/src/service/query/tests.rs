//! Tests queries to name servers that run in this process.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket as StdUdpSocket};
use std::thread::JoinHandle;

use super::*;

const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

const NXDOMAIN: u8 = 3;
const SERVFAIL: u8 = 2;

fn service() -> ServiceName {
    ServiceName::parse("example.com").expect("a service")
}

/// Returns whether a query announces a size by EDNS.
fn is_extended(question: &[u8]) -> bool {
    question[11] == 1
}

/// Builds the answer to a query, with this code and with records of these priorities, ports and targets.
fn answer(question: &[u8], rcode: u8, records: &[(u8, u16, &str)]) -> Vec<u8> {
    const OPTIONS: usize = 11;
    let options = if is_extended(question) { OPTIONS } else { 0 };
    let mut message = question[..question.len() - options].to_vec();
    let count = u8::try_from(records.len()).expect("a few");
    message[2..12].copy_from_slice(&[0x81, 0x80 | rcode, 0, 1, 0, count, 0, 0, 0, 0]);
    for (priority, port, target) in records {
        let parts = target.split('.').filter(|part| !part.is_empty());
        let mut name: Vec<u8> = Vec::new();
        for part in parts {
            name.push(u8::try_from(part.len()).expect("a short part"));
            name.extend(part.as_bytes());
        }
        name.push(0);
        let length = u8::try_from(6 + name.len()).expect("a short name");
        message.extend([
            0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, length, 0, *priority, 0, 5,
        ]);
        message.extend(port.to_be_bytes());
        message.extend(name);
    }
    message
}

/// Starts a name server that answers one query with these datagrams.
fn answers(what: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let socket = StdUdpSocket::bind(LOCAL).expect("a socket");
    let address = socket.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).expect("a question");
        for datagram in what(&buffer[..length]) {
            socket.send_to(&datagram, from).expect("sent");
        }
    });
    (address, thread)
}

fn run(servers: &[SocketAddr], paused: bool) -> Result<FoundRecords, RecordsError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .expect("a runtime");
    runtime.block_on(query(&service(), servers, || 7))
}

fn record(port: u16, target: &str) -> SrvRecord {
    SrvRecord {
        tls_port: None,
        priority: 10,
        weight: 5,
        port,
        target: target.to_owned(),
    }
}

#[test]
fn a_forged_answer_is_ignored_and_the_right_one_after_it_is_used() {
    let one = &[(10, 7500, "one.example")][..];
    let (server, thread) = answers(move |question| {
        let mut forged = answer(question, 0, &[(10, 1, "evil.example")]);
        forged[1] ^= 1;
        let mut other = answer(question, 0, &[(10, 1, "evil.example")]);
        other[13] ^= 1;
        vec![Vec::new(), forged, other, answer(question, 0, one)]
    });
    let found = run(&[server], false).expect("records");
    assert_eq!(found, (vec![record(7500, "one.example")], 60));
    thread.join().expect("it has answered");
}

#[test]
fn the_next_name_server_is_asked_if_one_cannot_answer() {
    // Nothing listens on the port of a socket that was closed.
    let gone = StdUdpSocket::bind(LOCAL).and_then(|socket| socket.local_addr());
    let gone = gone.expect("an address");
    let (failing, first) = answers(|question| vec![answer(question, SERVFAIL, &[])]);
    let (good, second) = answers(|question| vec![answer(question, 0, &[(10, 1, "a.b")])]);
    let found = run(&[gone, failing, good], false).expect("records");
    assert_eq!(found.0, [record(1, "a.b")]);
    first.join().expect("it has answered");
    second.join().expect("it has answered");
}

#[test]
fn an_answer_that_fits_into_no_datagram_is_asked_for_over_tcp() {
    // Both sockets need the same port, which may be in use for one of them.
    let (tcp, udp) = loop {
        let tcp = TcpListener::bind(LOCAL).expect("a listener");
        let at = tcp.local_addr().expect("bound");
        if let Ok(udp) = StdUdpSocket::bind(at) {
            break (tcp, udp);
        }
    };
    let server = udp.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = udp.recv_from(&mut buffer).expect("a question");
        let mut cut = answer(&buffer[..length], 0, &[]);
        cut[2] |= 2;
        udp.send_to(&cut, from).expect("sent");
        let (mut stream, _) = tcp.accept().expect("a connection");
        let mut head = [0; 2];
        stream.read_exact(&mut head).expect("a length");
        let mut question = vec![0; usize::from(u16::from_be_bytes(head))];
        stream.read_exact(&mut question).expect("a question");
        let whole = answer(&question, 0, &[(10, 1, "a.b"), (10, 2, "c.d")]);
        let length = u16::try_from(whole.len()).expect("a short answer");
        stream.write_all(&length.to_be_bytes()).expect("sent");
        stream.write_all(&whole).expect("sent");
    });
    let found = run(&[server], false).expect("records");
    assert_eq!(found.0, [record(1, "a.b"), record(2, "c.d")]);
    thread.join().expect("it has answered");
}

#[test]
fn absent_records_are_reported_with_the_remedy() {
    let cases = [
        (
            NXDOMAIN,
            vec![],
            "_quictun._udp.example.com does not exist in the DNS: give it SRV records, or name a server with --server HOST",
        ),
        (
            0,
            vec![],
            "_quictun._udp.example.com has no SRV record that names a server: give it one, or name a server with --server HOST",
        ),
        (
            0,
            vec![(0, 0, ".")],
            "the SRV record of _quictun._udp.example.com says that there is no such service (its target is \".\"): ask the administrator of that domain, or name a server with --server HOST",
        ),
    ];
    for (rcode, records, expected) in cases {
        let (server, thread) = answers(move |question| vec![answer(question, rcode, &records)]);
        let error = run(&[server], false).expect_err("no records");
        assert_eq!(error.to_string(), expected);
        thread.join().expect("it has answered");
    }
}

#[test]
fn name_servers_that_are_silent_are_asked_twice_and_given_up() {
    let silent = StdUdpSocket::bind(LOCAL).expect("a socket");
    let server = silent.local_addr().expect("bound");
    // The test's clock advances as soon as nothing else happens.
    let error = run(&[server], true).expect_err("no name server answers");
    let expected = "no name server has answered a query for the SRV records of _quictun._udp.example.com (127.0.0.1): is the DNS server reachable?";
    assert_eq!(error.to_string(), expected);
    silent.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 512];
    // Devices that drop EDNS are silent as well, so the second query is without it.
    for question in [service().question(7), service().plain_question(7)] {
        let length = silent.recv(&mut buffer).expect("a question");
        assert_eq!(buffer[..length], question);
    }
    assert!(silent.recv(&mut buffer).is_err(), "asked once more");
}

/// Starts a name server that answers queries until one is without EDNS, and those with EDNS by `to_extended`. The
/// thread returns the number of queries.
fn without_edns(
    to_extended: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
) -> (SocketAddr, JoinHandle<usize>) {
    let socket = StdUdpSocket::bind(LOCAL).expect("a socket");
    let address = socket.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        for count in 1.. {
            let (length, from) = socket.recv_from(&mut buffer).expect("a question");
            let question = &buffer[..length];
            if !is_extended(question) {
                let one = answer(question, 0, &[(10, 1, "a.b")]);
                socket.send_to(&one, from).expect("sent");
                return count;
            }
            socket.send_to(&to_extended(question), from).expect("sent");
        }
        unreachable!("the loop has no end")
    });
    (address, thread)
}

#[test]
fn a_name_server_that_does_not_know_edns_is_asked_again_at_once_without_it() {
    let header_alone = |question: &[u8]| {
        let mut header = answer(question, FORMERR, &[])[..12].to_vec();
        header[4..12].fill(0);
        header
    };
    for (server, thread) in [
        without_edns(|question| answer(question, FORMERR, &[])),
        without_edns(|question| answer(question, NOTIMP, &[])),
        without_edns(header_alone),
    ] {
        let found = run(&[server], false).expect("records");
        assert_eq!(found.0, [record(1, "a.b")]);
        assert_eq!(thread.join().expect("it has answered"), 2);
    }
}

#[test]
fn a_name_server_that_fails_is_named() {
    let socket = StdUdpSocket::bind(LOCAL).expect("a socket");
    let server = socket.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        for _ in 0..ROUNDS {
            let (length, from) = socket.recv_from(&mut buffer).expect("a question");
            let refusal = answer(&buffer[..length], 5, &[]);
            socket.send_to(&refusal, from).expect("sent");
        }
    });
    let error = run(&[server], false).expect_err("it refuses").to_string();
    assert!(
        error.ends_with(&format!("{server} answers REFUSED")),
        "{error}"
    );
    thread.join().expect("it has answered twice");
}
