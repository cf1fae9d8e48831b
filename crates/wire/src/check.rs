//! Properties that hold for every parser and every input: one function each, which panics if its property is violated.
//!
//! The fuzz targets in `fuzz/` call these functions, and so do the tests that replay the committed corpora, so that
//! faults found by fuzzing do not return. Not part of the crate's interface.

use std::fmt::Debug;

use crate::alpn::Protocol;
use crate::bond::{BondGrant, BondRequest, MAX_TTL_S};
use crate::code::{CloseCode, FlowCode};
use crate::control::{Frame, MAX_FRAME};
use crate::datagram::{DatagramHeader, MAX_FRAGMENTS, MAX_HEADER, MAX_PAYLOAD};
use crate::dns::{AnswerReader, Query};
use crate::handover::exchange::HandoverMessage;
use crate::handover::{Handover, HandoverKind};
use crate::invitation::{Code, MAX_TEXT, is_client_name};
use crate::listening::{Incoming, ListenAddress, MAX_ADDRESS, MAX_INCOMING_FRAME};
use crate::moving::{self, MAX_MOVE_ACK_FRAME, MAX_MOVE_FRAME, Move, MoveAck};
use crate::open::{Decoded, MAX_OPEN_ACK_FRAME, MAX_OPEN_FRAME, Open, OpenAck};
use crate::opening;
use crate::outbound_proxy::{
    MAX_ANSWER, OutboundError, OutboundHandshake, OutboundProtocol, OutboundStep, OutboundTarget,
};
use crate::proxy::{Credentials, Dialect, Handshake, HandshakeStep, MAX_HEAD, RelayHeader};
use crate::spice::{self, Spice};
use crate::srv::{RECORDS_MAX, ServiceName, SrvAnswer};
use crate::target::Target;
use crate::token::{self, TOKEN_LEN};
use crate::varint;

/// Checks that decoding leaves the rest alone, and that the shortest form is not longer than the bytes read.
pub fn varint(bytes: &[u8]) {
    let Some((value, rest)) = varint::decode(bytes) else {
        assert!(
            bytes.len() < varint::MAX_LEN,
            "eight bytes always hold an integer"
        );
        return;
    };
    let consumed = bytes.len() - rest.len();
    assert!(bytes.ends_with(rest));
    let mut again = Vec::new();
    varint::encode(value, &mut again);
    assert!(
        again.len() <= consumed,
        "{value} read from {consumed} bytes, written in {}",
        again.len()
    );
    assert_eq!(varint::decode(&again), Some((value, &[][..])));
    for cut in 0..consumed {
        assert_eq!(varint::decode(&bytes[..cut]), None);
    }
}

/// Checks that a control frame survives its own encoding, that no more than the limit is requested, and that a prefix
/// of a frame is never another frame.
pub fn control(bytes: &[u8]) {
    match Frame::decode(bytes) {
        Ok(Decoded::Need) => assert!(bytes.len() < MAX_FRAME),
        Ok(Decoded::Done { frame, consumed }) => {
            assert!(consumed <= bytes.len() && consumed <= MAX_FRAME);
            assert!(!matches!(
                Frame::decode(&bytes[..consumed - 1]),
                Ok(Decoded::Done { .. })
            ));
            let mut again = Vec::new();
            frame.encode(&mut again);
            if !matches!(frame, Frame::Unknown { .. }) {
                let consumed = again.len();
                assert_eq!(Frame::decode(&again), Ok(Decoded::Done { frame, consumed }));
            }
        }
        Err(_) => {}
    }
}

/// Checks that the header of a datagram survives its own encoding, that its numbers are possible, and that the payload is
/// the end of the frame.
pub fn datagram(bytes: &[u8]) {
    let Some((header, payload)) = DatagramHeader::decode(bytes) else {
        return;
    };
    assert!(bytes.ends_with(payload) && payload.len() <= MAX_PAYLOAD);
    if let Some(fragment) = header.fragment {
        assert!(fragment.index < fragment.count && fragment.count <= MAX_FRAGMENTS);
        assert!(!payload.is_empty());
    }
    let mut again = Vec::new();
    header.encode(&mut again);
    assert!(again.len() <= MAX_HEADER && again.len() + payload.len() <= bytes.len());
    again.extend_from_slice(payload);
    assert_eq!(DatagramHeader::decode(&again), Some((header, payload)));
}

/// Checks a decoded code: its name must be safe as a file name, and its text must decode to the same code. If the text
/// is refused, the message must be safe to print.
pub fn invitation(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<Code>() {
        Ok(code) => {
            assert!(is_client_name(code.name()) && !code.name().contains('/'));
            let again = code.to_string();
            assert!(again.len() <= MAX_TEXT);
            assert_eq!(again.parse(), Ok(code.clone()));
            assert_eq!(again.to_ascii_uppercase().parse(), Ok(code));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

/// Checks that an unpacked token is text without NUL that packs and unpacks to itself. The input is cut or padded to a
/// block.
pub fn token_unpack(bytes: &[u8]) {
    let mut block = [0; TOKEN_LEN];
    let len = bytes.len().min(TOKEN_LEN);
    block[..len].copy_from_slice(&bytes[..len]);
    if let Some(token) = token::unpack(&block) {
        assert!(!token.is_empty() && !token.contains('\0'));
        let packed = token::pack(&token).expect("what was unpacked packs");
        assert_eq!(token::unpack(&packed), Some(token));
    }
}

/// Checks that a parsed target survives its canonical text, and that a refusal is safe to log.
pub fn target_parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Target::parse(text) {
        Ok(target) => {
            let canonical = target.to_string();
            assert_eq!(
                Target::parse(&canonical).as_ref(),
                Ok(&target),
                "{text:?} -> {canonical:?}"
            );
            check_target(&target);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                !message.chars().any(char::is_control),
                "{message:?} would break a log line"
            );
        }
    }
}

fn check_target(target: &Target) {
    match target {
        Target::Udp { host, port } => assert!(*port != 0 && !host.is_empty()),
        Target::Tcp { family, host, port } => {
            assert!(*port != 0 && !host.is_empty());
            assert!(
                !host.contains(|c: char| c.is_ascii_uppercase()
                    || c.is_whitespace()
                    || c.is_control())
            );
            match target.ip_literal() {
                Some(ip) => assert!(family.allows(ip) && ip.to_string() == *host),
                None => assert!(!host.contains(':')),
            }
        }
        Target::Unix { path } => {
            assert!(path.starts_with('/') && !path.contains(char::is_control));
            assert_eq!(target.ip_literal(), None);
        }
    }
}

/// Checks an OPEN as `check_frame` does.
pub fn open_decode(bytes: &[u8]) {
    check_frame(bytes, MAX_OPEN_FRAME, Open::decode, |open, out| {
        assert_eq!(open.encode(out), Ok(()));
    });
}

/// Checks an `OPEN_ACK` as `check_frame` does.
pub fn open_ack_decode(bytes: &[u8]) {
    check_frame(bytes, MAX_OPEN_ACK_FRAME, OpenAck::decode, |ack, out| {
        ack.encode(out);
    });
}

/// Checks a MOVE as `check_frame` does, and that the first bytes identify the frame.
pub fn move_decode(bytes: &[u8]) {
    if check_frame(bytes, MAX_MOVE_FRAME, Move::decode, Move::encode).is_some() {
        assert_eq!(moving::begins(bytes), Some(true));
    }
}

/// Checks a `MOVE_ACK` as `check_frame` does.
pub fn move_ack_decode(bytes: &[u8]) {
    check_frame(bytes, MAX_MOVE_ACK_FRAME, MoveAck::decode, MoveAck::encode);
}

/// Checks an INCOMING as `check_frame` does, and that the application's address is safe to print.
pub fn incoming_decode(bytes: &[u8]) {
    let frame = check_frame(
        bytes,
        MAX_INCOMING_FRAME,
        Incoming::decode,
        Incoming::encode,
    );
    if let Some(frame) = frame {
        assert!(!frame.peer.to_string().contains(char::is_control));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        listen_address(text);
    }
}

/// Checks that an address to listen on survives its own text, which fits into a frame and is safe to log.
pub fn listen_address(text: &str) {
    if let Ok(address) = ListenAddress::parse(text) {
        let again = address.to_string();
        assert!(again.len() <= MAX_ADDRESS && !again.contains(char::is_control));
        assert_eq!(ListenAddress::parse(&again), Ok(address));
    }
}

/// Checks that a decoded BOND, of either side, survives its own encoding, and that a server's keeps its limit.
pub fn bond(bytes: &[u8]) {
    if let Ok(ask) = BondRequest::decode(bytes) {
        assert_eq!(ask.encode(), bytes);
    }
    if let Ok(grant) = BondGrant::decode(bytes) {
        assert!(grant.ttl_s <= MAX_TTL_S);
        let again = grant.encode();
        assert!(again.len() <= bytes.len());
        assert_eq!(BondGrant::decode(&again), Ok(grant));
    }
}

/// Checks that the state of a server or a client, and each message of a hand-over, survives its own encoding.
pub fn handover(bytes: &[u8]) {
    for kind in [HandoverKind::Server, HandoverKind::Client] {
        if let Ok(state) = Handover::decode(bytes, kind) {
            assert_eq!(Handover::decode(&state.encode(), kind), Ok(state));
        }
    }
    if let Ok(message) = HandoverMessage::decode(bytes) {
        assert_eq!(HandoverMessage::decode(&message.encode()), Ok(message));
    }
}

/// Checks that the outcome is the same however the bytes arrive: a prefix gives `Need` or the final error, no more than
/// `max` bytes are requested, and the bytes after the frame do not matter. A decoded frame must encode to one that decodes
/// to itself.
fn check_frame<T: Debug + PartialEq>(
    bytes: &[u8],
    max: usize,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, FlowCode>,
    encode: impl Fn(&T, &mut Vec<u8>),
) -> Option<T> {
    let outcome = decode(bytes);
    let end = match &outcome {
        Ok(Decoded::Done { consumed, .. }) => *consumed,
        _ => bytes.len(),
    };
    assert!(end <= bytes.len());
    for cut in 0..end {
        match decode(&bytes[..cut]) {
            Ok(Decoded::Need) => {}
            early => assert!(
                early.is_err() && early == outcome,
                "{cut} bytes: {early:?}, all: {outcome:?}"
            ),
        }
    }
    assert_eq!(
        decode(&bytes[..end]),
        outcome,
        "what follows the frame mattered"
    );
    match outcome {
        Ok(Decoded::Need) => {
            assert!(
                bytes.len() < max,
                "asks for more after {} bytes",
                bytes.len()
            );
            None
        }
        Ok(Decoded::Done { frame, consumed }) => {
            assert!(0 < consumed && consumed <= max);
            let mut again = Vec::new();
            encode(&frame, &mut again);
            let encoded = again.len();
            again.extend_from_slice(b"application data");
            match decode(&again) {
                Ok(Decoded::Done {
                    frame: same,
                    consumed,
                }) => {
                    assert_eq!((&same, consumed), (&frame, encoded));
                }
                other => panic!("{frame:?} is decoded as {other:?}"),
            }
            Some(frame)
        }
        Err(_) => None,
    }
}

/// Checks that a reply to a program answers its question, for any question and any stream from the server.
///
/// Input: two bytes, the big-endian length of the question; the question; the stream from the server.
pub fn dns(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let (question, stream) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let Ok(query) = Query::parse(question) else {
        return;
    };
    assert_eq!(query.framed()[2..], *question);
    let mut answer = AnswerReader::default();
    answer.push(stream);
    for told in [
        query.failure(),
        query.reply(stream),
        answer
            .message()
            .map_or(query.failure(), |it| query.reply(it)),
    ] {
        assert_eq!(told[..2], question[..2], "another number");
        assert!(told.len() >= 12 && told[2] & 0x80 != 0, "no answer");
    }
}

/// Input: an answer to question 0 for the records of `example.com`, and the name of a service.
///
/// Checks that records name hosts that a resolver can be asked for, and that an accepted name makes a question.
pub fn srv(bytes: &[u8]) {
    let service = ServiceName::parse("example.com").expect("a service");
    if let Ok(SrvAnswer::Records { records, .. }) = service.answer(0, bytes) {
        assert!((1..=RECORDS_MAX).contains(&records.len()));
        for record in records {
            assert!(record.port != 0 && (1..=253).contains(&record.target.len()));
            let is_part = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
            assert!(record.target.bytes().all(is_part), "{}", record.target);
        }
    }
    let Ok(service) = str::from_utf8(bytes).map(ServiceName::parse) else {
        return;
    };
    if let Ok(service) = service {
        assert!(service.owner().ends_with(service.domain()));
        let mut echoed = service.question(0);
        echoed[2] |= 0x80;
        assert_eq!(service.answer(0, &echoed), Ok(SrvAnswer::NoRecord));
        let again = service.to_string();
        let again = again.strip_prefix("srv:").map(ServiceName::parse);
        assert_eq!(again, Some(Ok(service)));
    }
}

/// Input: one byte, the settings of the proxy and the size of the pieces; the application's bytes.
///
/// Checks that the bytes have the same meaning in any pieces, and that the handshake ends before more than the limit is
/// held.
pub fn proxy(bytes: &[u8]) {
    let Some((&how, said)) = bytes.split_first() else {
        return;
    };
    let (protected, known) = (how & 1 != 0, how & 2 != 0);
    let known = |_: &Credentials| known;
    let whole = proxy_run(protected, &known, said, said.len().max(1));
    let pieces = proxy_run(protected, &known, said, usize::from(how >> 2) + 1);
    assert_eq!(whole, pieces);
    match whole.1 {
        HandshakeStep::Connect(request) => {
            assert!(said.ends_with(&request.rest));
            if request.dialect == Dialect::Http {
                http_head(&said[..said.len() - request.rest.len()]);
            }
            let target = request.target;
            assert_eq!(Target::parse(&target.to_string()), Ok(target));
        }
        HandshakeStep::More => assert!(said.len() < MAX_HEAD, "the handshake waits for ever"),
        _ => {}
    }
}

/// Checks that an answer with the header of a datagram has the same header, and that the payload is the datagram's end.
pub fn relay_header(bytes: &[u8]) {
    let Some((header, target, payload)) = RelayHeader::decode(bytes) else {
        return;
    };
    assert!(bytes.ends_with(payload) && target.takes_datagrams());
    assert_eq!(Target::parse(&target.to_string()), Ok(target));
    assert_eq!(header.encode(payload), bytes);
}

/// Checks that the head of a request ends at its first empty line, as every other program reads it.
fn http_head(head: &[u8]) {
    let lines = head.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let request = lines.skip_while(|line| line.is_empty());
    // The empty line, and nothing after it.
    assert_eq!(request.filter(|line| line.is_empty()).count(), 2);
}

/// Feeds these bytes to a handshake in pieces. Returns the answers, and the end of the handshake, or `More` if it did
/// not end. The bytes after a request are there whole.
pub fn proxy_run(
    protected: bool,
    known: &dyn Fn(&Credentials) -> bool,
    bytes: &[u8],
    piece: usize,
) -> (Vec<u8>, HandshakeStep) {
    let mut handshake = Handshake::new(protected);
    let mut answered = Vec::new();
    let mut given = 0;
    for piece in bytes.chunks(piece) {
        handshake.push(piece);
        given += piece.len();
        let mut step = handshake.poll();
        loop {
            step = match step {
                HandshakeStep::More => break,
                HandshakeStep::Reply(reply) => {
                    answered.extend(reply);
                    handshake.poll()
                }
                HandshakeStep::Login(login) => handshake.handle_login(known(&login)),
                HandshakeStep::Connect(mut request) => {
                    request.rest.extend(&bytes[given..]);
                    return (answered, HandshakeStep::Connect(request));
                }
                over @ (HandshakeStep::Associate { .. } | HandshakeStep::Refuse(_)) => {
                    return (answered, over);
                }
            };
        }
    }
    (answered, HandshakeStep::More)
}

/// Input: the bytes of a program that uses a server's HTTPS proxy.
///
/// Checks that a request ends where it ends in every beginning of the bytes, that more than the limit is never needed,
/// and that each answer to a program is a whole one.
pub fn connect(bytes: &[u8]) {
    let read = |bytes: &[u8]| opening::read_request(Protocol::Http, bytes);
    let most = &bytes[..bytes.len().min(opening::request_max(Protocol::Http))];
    let found = read(most);
    match &found {
        Ok(Decoded::Need) => assert!(most.len() < MAX_HEAD, "the request waits for ever"),
        Ok(Decoded::Done { frame, consumed }) => {
            assert!(*consumed <= most.len());
            http_head(&bytes[..*consumed]);
            assert!(frame.proof.is_none() && frame.number.is_none() && frame.source.is_none());
            assert_eq!(read(&most[..*consumed]), found);
            assert_eq!(read(&most[..*consumed - 1]), Ok(Decoded::Need));
        }
        Err(code) => assert_eq!(*code, FlowCode::BadOpen),
    }
    for code in FlowCode::ALL {
        http_answer(&opening::refusal(Protocol::Http, code, most));
    }
    for code in CloseCode::ALL {
        http_answer(&opening::closing(Protocol::Http, code));
    }
}

/// Checks that these bytes are one whole answer of HTTP with a text, which is no success.
fn http_answer(answer: &[u8]) {
    let text = str::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
    assert!(head.starts_with("HTTP/1.1 4") || head.starts_with("HTTP/1.1 5"));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    assert!(head.ends_with("\r\nConnection: close") && body.ends_with('\n'));
}

/// Input: one byte, the settings of the client and the size of the pieces; the proxy's bytes.
///
/// Checks that the bytes have the same meaning in any pieces, that the handshake ends before more than the limit is
/// read, that it leaves the connection's bytes alone, and that an error is safe to print.
pub fn outbound_proxy(bytes: &[u8]) {
    let Some((&how, said)) = bytes.split_first() else {
        return;
    };
    let protocol = if how & 1 == 0 {
        OutboundProtocol::Http
    } else {
        OutboundProtocol::Socks5
    };
    let login = how & 2 != 0;
    let whole = outbound_run(protocol, login, said, said.len().max(1));
    let pieces = outbound_run(protocol, login, said, usize::from(how >> 2) + 1);
    assert_eq!((&whole.sent, whole.used), (&pieces.sent, pieces.used));
    assert!(whole.used <= MAX_ANSWER);
    match (&whole.step, &pieces.step) {
        (OutboundStep::Failed(whole), OutboundStep::Failed(pieces)) => {
            let is_other = |error: &OutboundError| {
                use OutboundError::{OtherProtocol, UnknownProtocol};
                matches!(error, OtherProtocol(_) | UnknownProtocol { .. })
            };
            // The more has arrived, the more is known of another protocol.
            assert!(whole == pieces || (is_other(whole) && is_other(pieces)));
            let text = whole.to_string();
            assert!(text.len() < 1000 && !text.contains(char::is_control));
        }
        (whole, pieces) => assert_eq!(whole, pieces),
    }
}

/// The end of a handshake with an outbound proxy.
#[derive(Debug)]
pub struct OutboundRun {
    /// All bytes for the proxy.
    pub sent: Vec<u8>,
    /// The step with which the handshake has ended, or `More`.
    pub step: OutboundStep,
    /// Number of bytes of the proxy that belong to the handshake.
    pub used: usize,
}

/// Has a proxy say these bytes in pieces, to a client of `server.example:7500` with or without the login of `ann`.
pub fn outbound_run(
    protocol: OutboundProtocol,
    login: bool,
    bytes: &[u8],
    piece: usize,
) -> OutboundRun {
    let target = OutboundTarget {
        host: "server.example".to_owned(),
        port: 7500,
    };
    let login = login.then(|| Credentials {
        user: b"ann".to_vec(),
        password: b"wonder".to_vec(),
    });
    let mut handshake = OutboundHandshake::new(protocol, target, login);
    let (mut sent, mut used) = (Vec::new(), 0);
    loop {
        match handshake.poll() {
            OutboundStep::Send(bytes) => sent.extend(bytes),
            OutboundStep::More if used < bytes.len() => {
                let end = bytes.len().min(used + piece);
                let taken = handshake.handle_bytes(&bytes[used..end]);
                assert!(taken > 0, "the handshake waits for what it does not take");
                used += taken;
            }
            step => return OutboundRun { sent, step, used },
        }
    }
}

/// Input: two bytes, the big-endian length of the client's part; the client's part; the server's part.
pub fn spice_classify(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let (client, server) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let Some(spice) = spice::classify(client, server) else {
        return;
    };
    check_spice(&spice);
    let heads = server.len().min(spice::MAX_HEAD);
    for cut in (0..heads).step_by(heads / 32 + 1) {
        let early = spice::classify(client, &server[..cut]).expect("the client's bytes decide");
        assert!(
            early.server_name.is_none() || spice.server_name.is_some(),
            "the name was lost"
        );
        assert!(
            early.server_uuid.is_none() || spice.server_uuid.is_some(),
            "the UUID was lost"
        );
    }
}

fn check_spice(spice: &Spice) {
    let hex = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    assert!(spice.session_id.len() == 8 && hex(&spice.session_id));
    assert!(
        spice
            .version
            .split('.')
            .all(|part| (1..=2).contains(&part.len()) && hex(part))
    );
    assert!(
        spice.channel_type.name() == "main"
            || spice.server_name.is_none() && spice.server_uuid.is_none()
    );
    if let Some(uuid) = &spice.server_uuid {
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(parts.into_iter().all(hex));
    }
}
