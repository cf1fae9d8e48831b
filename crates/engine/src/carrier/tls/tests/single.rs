//! Connections of programs: as one stream alone, and by HTTP/2. How they begin and end.

mod http2;

use std::time::Duration;

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream as _, StreamId, WriteEnd};
use quictun_wire::code::{CloseCode, FlowCode};

use super::*;
use crate::loss::LossReason;
use crate::report::Protocol;

/// A program that uses the proxy, and the server's connection with it.
struct Proxied {
    client: ClientConnection,
    served: Served,
    now: Instant,
}

impl Proxied {
    /// Completes the handshake, and lets the client send its first bytes.
    fn begin(first: &[u8]) -> Self {
        Self::begin_with(&[b"http/1.1"], first)
    }

    fn begin_with(protocols: &[&[u8]], first: &[u8]) -> Self {
        let mut new = Self::connect(Served::with(true), protocols);
        new.say(first);
        let events = new.served.events();
        assert!(matches!(
            &events[..],
            [CarrierEvent::Connected, CarrierEvent::Opened]
        ));
        assert_eq!(new.served.carrier.accept(), Some(StreamId::FIRST));
        assert_eq!(new.served.carrier.protocol(), Protocol::Http);
        new
    }

    fn connect(served: Served, protocols: &[&[u8]]) -> Self {
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider supports TLS 1.3")
            .with_root_certificates(served.roots.clone())
            .with_no_client_auth();
        let mut config = config;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = "server.example".try_into().expect("a name");
        let client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let now = Instant::now();
        let mut new = Self {
            client,
            served,
            now,
        };
        new.exchange();
        new
    }

    /// Carries records until neither side has any.
    fn exchange(&mut self) {
        loop {
            let mut flight = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut flight).expect("memory");
            }
            let silent = flight.is_empty();
            let answer = self.served.give(&flight);
            if silent && answer.is_empty() {
                return;
            }
            let mut left = &answer[..];
            while !left.is_empty() {
                self.client.read_tls(&mut left).expect("records");
                // An alert is an error here, which the server causes.
                if self.client.process_new_packets().is_err() {
                    return;
                }
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).expect("memory");
        self.exchange();
    }

    /// Returns what the client has read, and whether `close_notify` followed.
    fn heard(&mut self) -> (String, bool) {
        let mut text = Vec::new();
        let ended = self.client.reader().read_to_end(&mut text).is_ok();
        (String::from_utf8(text).expect("text"), ended)
    }

    fn read(&mut self) -> (Vec<u8>, ReadEnd) {
        let mut bytes = Vec::new();
        let mut stream = self.served.carrier.stream(StreamId::FIRST);
        let end = stream.read(true, usize::MAX, &mut |_, piece| {
            bytes.extend_from_slice(&piece);
        });
        (bytes, end)
    }

    fn write(&mut self, text: &'static str) {
        let mut stream = self.served.carrier.stream(StreamId::FIRST);
        let mut chunk = Bytes::from_static(text.as_bytes());
        assert_eq!(stream.write(&mut chunk), WriteEnd::Taken);
        self.exchange();
    }

    fn is_done(&mut self) -> bool {
        let events = self.served.events();
        let done = LossReason::of_close(CloseCode::Done.to_u64());
        matches!(events.last(), Some(CarrierEvent::Lost(reason)) if *reason == done)
    }
}

#[test]
fn a_server_without_a_proxy_has_no_protocol_in_common_with_programs() {
    let mut proxied = Proxied::connect(Served::with(false), &[b"http/1.1"]);
    assert!(proxied.client.is_handshaking());
    assert!(proxied.served.carrier.is_over());
    let events = proxied.served.events();
    assert!(matches!(&events[..], [CarrierEvent::Lost(_)]), "{events:?}");
}

// PROTOCOL PROXY-1.
#[test]
fn a_program_that_offers_no_protocol_speaks_http() {
    let mut proxied = Proxied::begin_with(&[], b"request");
    assert_eq!(proxied.read(), (b"request".to_vec(), ReadEnd::Blocked));
}

#[test]
fn bytes_pass_unchanged_and_each_direction_ends_by_itself() {
    let mut proxied = Proxied::begin(b"request");
    assert_eq!(proxied.read(), (b"request".to_vec(), ReadEnd::Blocked));
    proxied.write("answer");
    assert_eq!(proxied.heard(), ("answer".to_owned(), false));
    proxied.client.send_close_notify();
    proxied.exchange();
    assert_eq!(proxied.read(), (Vec::new(), ReadEnd::Finished));
    proxied.write(" and more");
    assert_eq!(proxied.heard(), (" and more".to_owned(), false));
    assert!(!proxied.served.carrier.is_closed());
    proxied.served.carrier.stream(StreamId::FIRST).finish();
    proxied.exchange();
    assert_eq!(proxied.heard(), (String::new(), true));
    let pipe = &proxied.served.pipe;
    assert!(pipe.finished && !pipe.aborted);
    assert!(proxied.is_done() && proxied.served.carrier.is_over());
}

#[test]
fn the_server_may_end_its_direction_first() {
    let mut proxied = Proxied::begin(b"request");
    proxied.write("answer");
    proxied.served.carrier.stream(StreamId::FIRST).finish();
    proxied.exchange();
    assert_eq!(proxied.heard(), ("answer".to_owned(), true));
    assert!(proxied.served.pipe.finished && !proxied.served.carrier.is_closed());
    proxied.say(b" continued");
    assert_eq!(
        proxied.read(),
        (b"request continued".to_vec(), ReadEnd::Blocked)
    );
    proxied.client.send_close_notify();
    proxied.exchange();
    assert_eq!(proxied.read(), (Vec::new(), ReadEnd::Finished));
    proxied.exchange();
    assert!(proxied.is_done() && proxied.served.carrier.is_over());
}

#[test]
fn a_program_that_resets_after_its_end_has_left() {
    let mut proxied = Proxied::begin(b"request");
    proxied.write("answer");
    let carrier = &mut proxied.served.carrier;
    carrier.handle_ready(false, true, true);
    assert!(!carrier.is_closed(), "what has arrived is read first");
    let mut proxied = Proxied::begin(b"request");
    proxied.client.send_close_notify();
    proxied.exchange();
    assert_eq!(proxied.read(), (b"request".to_vec(), ReadEnd::Finished));
    proxied.served.carrier.handle_ready(true, true, false);
    assert!(!proxied.served.carrier.is_closed(), "half a connection");
    proxied.served.carrier.handle_ready(false, false, true);
    let lost = proxied.served.events().pop();
    let left = LossReason::ProgramLeft;
    assert!(matches!(lost, Some(CarrierEvent::Lost(reason)) if reason == left));
    assert!(proxied.served.carrier.is_over());
}

#[test]
fn a_failure_that_came_with_the_end_of_the_programs_bytes_is_not_lost() {
    let mut proxied = Proxied::begin(b"request");
    proxied.client.send_close_notify();
    proxied.served.carrier.handle_ready(true, true, true);
    assert!(!proxied.served.carrier.is_closed());
    proxied.exchange();
    let lost = proxied.served.events().pop();
    let left = LossReason::ProgramLeft;
    assert!(matches!(lost, Some(CarrierEvent::Lost(reason)) if reason == left));
}

// PROTOCOL CLOSE-4.
#[test]
fn a_reset_follows_what_was_sent_and_is_no_end() {
    let mut proxied = Proxied::begin(b"request");
    proxied.write("a part");
    proxied.served.pipe.unsent = 1;
    let code = FlowCode::AppReset;
    proxied.served.carrier.stream(StreamId::FIRST).reset(code);
    proxied.exchange();
    assert_eq!(proxied.heard(), ("a part".to_owned(), false));
    assert!(!proxied.served.pipe.aborted, "a byte is on its way");
    assert!(proxied.served.carrier.next_timeout().is_some());
    proxied.served.pipe.unsent = 0;
    proxied.exchange();
    let pipe = &proxied.served.pipe;
    assert!(pipe.aborted && !pipe.finished);
    assert!(proxied.served.carrier.is_over());
    assert_eq!(proxied.heard(), (String::new(), false), "no close_notify");
}

#[test]
fn bytes_that_cannot_leave_delay_a_reset_for_seconds_only() {
    let mut proxied = Proxied::begin(b"request");
    proxied.served.pipe.unsent = 1;
    let code = FlowCode::AppReset;
    proxied.served.carrier.stream(StreamId::FIRST).reset(code);
    let carrier = &mut proxied.served.carrier;
    let (mut now, late) = (proxied.now, proxied.now + Duration::from_secs(20));
    while !carrier.is_over() && now < late {
        carrier.write(now, &mut proxied.served.pipe, &mut SendBuffer::new());
        now = carrier.next_timeout().unwrap_or(late);
        carrier.handle_timeout(now);
    }
    assert!(carrier.is_over() && proxied.served.pipe.aborted);
}

#[test]
fn an_end_of_tcp_without_close_notify_is_a_loss() {
    let mut proxied = Proxied::begin(b"request");
    proxied.served.pipe.ended = true;
    proxied.exchange();
    let events = proxied.served.events();
    let lost = |event: &CarrierEvent| matches!(event, CarrierEvent::Lost(LossReason::ProgramLeft));
    assert!(events.last().is_some_and(lost), "{events:?}");
    assert!(proxied.served.pipe.aborted && proxied.served.carrier.is_over());
    assert_eq!(proxied.heard(), (String::new(), false));
}

#[test]
fn a_connection_that_is_closed_has_an_answer_if_it_had_none() {
    for (code, status) in [
        (CloseCode::NotAuthorized, "407"),
        (CloseCode::Expired, "403"),
        (CloseCode::TooManyConnections, "503"),
    ] {
        let mut proxied = Proxied::begin(b"request");
        let now = proxied.now;
        proxied.served.carrier.close(now, code, Bytes::new());
        proxied.exchange();
        let (text, ended) = proxied.heard();
        assert!(
            ended && text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text}"
        );
        assert!(!proxied.served.carrier.is_over(), "the client may read it");
        proxied.client.send_close_notify();
        proxied.exchange();
        assert!(proxied.served.carrier.is_over() && !proxied.served.pipe.aborted);

        let mut proxied = Proxied::begin(b"request");
        proxied.write("answer");
        proxied.served.carrier.close(now, code, Bytes::new());
        proxied.exchange();
        assert_eq!(proxied.heard(), ("answer".to_owned(), false));
        assert!(proxied.served.carrier.is_over() && proxied.served.pipe.aborted);
    }
}

#[test]
fn a_client_that_is_refused_is_read_until_it_ends() {
    let mut proxied = Proxied::begin(b"request");
    proxied.write("no");
    let mut stream = proxied.served.carrier.stream(StreamId::FIRST);
    stream.finish();
    stream.stop(FlowCode::Denied);
    proxied.exchange();
    assert_eq!(proxied.heard(), ("no".to_owned(), true));
    assert!(proxied.is_done() && !proxied.served.carrier.is_over());
    proxied.say(&[0; 10_000]);
    assert!(!proxied.served.carrier.is_over());
    proxied.client.send_close_notify();
    proxied.exchange();
    assert!(proxied.served.carrier.is_over() && !proxied.served.pipe.aborted);
}
