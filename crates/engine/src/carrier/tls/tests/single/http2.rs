//! Connections by HTTP/2: how their streams and they themselves end.

use super::*;

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Makes a frame on the first stream, or on none.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

fn request() -> Vec<u8> {
    let fields = b"\0\x07:method\x07CONNECT\0\x0a:authority\x03a:1";
    [GREETING, &frame(1, 4, 1, fields)].concat()
}

fn goaway(code: u8, last: u8) -> Vec<u8> {
    vec![0, 0, 0, last, 0, 0, 0, code]
}

impl Proxied {
    /// Opens a tunnel on the first stream, whose request is read.
    fn begin_http2() -> Self {
        let mut new = Self::connect(Served::with(true), &[b"http/1.1", b"h2"]);
        assert_eq!(new.served.carrier.protocol(), Protocol::Http2);
        new.say(&request());
        let events = new.served.events();
        let [CarrierEvent::Connected, CarrierEvent::Opened, ..] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(new.served.carrier.accept(), Some(StreamId::FIRST));
        let head = b"CONNECT a:1 HTTP/1.1\r\n\r\n".to_vec();
        assert_eq!(new.read(), (head, ReadEnd::Blocked));
        new.write("HTTP/1.1 200 Connection established\r\n\r\n");
        let last = new.frames().pop();
        assert_eq!(last, Some((1, 1, vec![0x88])));
        new
    }

    /// Returns the type, the stream and the payload of the frames that the client has got.
    fn frames(&mut self) -> Vec<(u8, u8, Vec<u8>)> {
        let mut bytes = Vec::new();
        // The end of the connection is another matter.
        let _ended = self.client.reader().read_to_end(&mut bytes);
        let (mut frames, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let end = 9 + usize::from(rest[1]) * 256 + usize::from(rest[2]);
            frames.push((rest[3], rest[8], rest[9..end].to_vec()));
            rest = &rest[end..];
        }
        frames
    }

    fn lost(&mut self) -> Option<LossReason> {
        self.served
            .events()
            .into_iter()
            .find_map(|event| match event {
                CarrierEvent::Lost(reason) => Some(reason),
                _ => None,
            })
    }
}

#[test]
fn each_stream_carries_bytes_and_ends_by_itself() {
    let mut proxied = Proxied::begin_http2();
    proxied.say(&frame(0, 1, 1, b"request"));
    assert_eq!(proxied.read(), (b"request".to_vec(), ReadEnd::Finished));
    proxied.write("answer");
    proxied.served.carrier.stream(StreamId::FIRST).finish();
    proxied.exchange();
    let expected = [(0, 1, b"answer".to_vec()), (0, 1, Vec::new())];
    assert_eq!(proxied.frames(), expected);
    assert!(
        !proxied.served.carrier.is_closed(),
        "another stream may follow"
    );
    assert_eq!(proxied.served.carrier.peer_streams(), 0);
}

// PROTOCOL PROXY-9.
#[test]
fn the_end_of_the_connection_is_no_end_of_its_streams() {
    for polite in [true, false] {
        let mut proxied = Proxied::begin_http2();
        proxied.say(&frame(0, 0, 1, b"a part"));
        if polite {
            proxied.client.send_close_notify();
        } else {
            proxied.served.pipe.ended = true;
        }
        proxied.exchange();
        assert_eq!(proxied.lost(), Some(LossReason::ProgramLeft));
        assert_eq!(proxied.read(), (b"a part".to_vec(), ReadEnd::Blocked));
    }
    // Without streams it is in order.
    let mut proxied = Proxied::begin_http2();
    proxied.say(&frame(3, 0, 1, &[0, 0, 0, 8]));
    let code = FlowCode::AppReset.to_u64();
    assert_eq!(proxied.read(), (Vec::new(), ReadEnd::Reset(code)));
    proxied.client.send_close_notify();
    proxied.exchange();
    let done = LossReason::of_close(CloseCode::Done.to_u64());
    assert_eq!(proxied.lost(), Some(done));
}

#[test]
fn a_reset_of_the_target_is_a_reset_of_the_stream() {
    let mut proxied = Proxied::begin_http2();
    proxied.write("a part");
    let mut stream = proxied.served.carrier.stream(StreamId::FIRST);
    stream.reset(FlowCode::AppReset);
    stream.stop(FlowCode::AppReset);
    proxied.exchange();
    let expected = [(0, 1, b"a part".to_vec()), (3, 1, vec![0, 0, 0, 0xa])];
    assert_eq!(proxied.frames(), expected);
    assert!(!proxied.served.carrier.is_closed());
}

#[test]
fn a_broken_rule_ends_the_connection_with_its_code() {
    let mut proxied = Proxied::begin_http2();
    proxied.say(&frame(0, 0, 3, b"x"));
    let (kind, _, text) = proxied.frames().pop().expect("GOAWAY");
    assert_eq!((kind, &text[..8]), (7, &goaway(1, 1)[..]));
    let reason = proxied.lost().expect("a loss").to_string();
    assert!(reason.contains("the program broke HTTP/2: "), "{reason}");
    assert!(proxied.served.pipe.finished);
}

#[test]
fn a_drained_connection_ends_after_its_last_stream() {
    let mut proxied = Proxied::begin_http2();
    proxied.served.carrier.drain();
    proxied.exchange();
    let (kind, _, text) = proxied.frames().pop().expect("GOAWAY");
    assert_eq!((kind, &text[..8]), (7, &goaway(0, 1)[..]));
    proxied.say(&frame(0, 1, 1, b"last"));
    assert_eq!(proxied.read(), (b"last".to_vec(), ReadEnd::Finished));
    proxied.served.carrier.stream(StreamId::FIRST).finish();
    proxied.exchange();
    assert!(proxied.is_done() && proxied.served.pipe.finished);
    assert!(!proxied.served.pipe.aborted);
    proxied.frames();
    assert!(proxied.heard().1, "close_notify");
}

#[test]
fn a_connection_without_streams_is_closed_after_the_idle_timeout() {
    let mut proxied = Proxied::begin_http2();
    assert_eq!(
        proxied.served.carrier.next_timeout(),
        None,
        "the system probes the program"
    );
    proxied.say(&frame(3, 0, 1, &[0, 0, 0, 8]));
    proxied.read();
    let at = proxied.served.carrier.next_timeout().expect("a time");
    proxied.served.carrier.handle_timeout(at);
    proxied.exchange();
    let (kind, _, text) = proxied.frames().pop().expect("GOAWAY");
    assert_eq!((kind, &text[..8]), (7, &goaway(0, 1)[..]));
    assert_eq!(proxied.lost(), Some(LossReason::TimedOut));
    assert!(proxied.served.pipe.finished && !proxied.served.pipe.aborted);
}

#[test]
fn a_closed_connection_answers_the_streams_that_wait() {
    let mut proxied = Proxied::connect(Served::with(true), &[b"h2"]);
    proxied.say(&request());
    proxied.served.events();
    let now = proxied.now;
    let carrier = &mut proxied.served.carrier;
    carrier.close(now, CloseCode::Expired, Bytes::from_static(b"why"));
    proxied.exchange();
    let frames = proxied.frames();
    let [.., (1, 1, block), (7, 0, text)] = &frames[..] else {
        panic!("{frames:?}");
    };
    assert!(block.windows(3).any(|digits| digits == b"403"), "{block:?}");
    assert_eq!(text[..], [&goaway(0, 1)[..], b"why"].concat());
}
