use proptest::prelude::*;

use super::*;

fn listen(address: &str) -> Listen {
    Listen {
        id: 3,
        wait: true,
        holder: [7; HOLDER_LEN],
        address: address.to_owned(),
    }
}

fn body_of(listen: &Listen) -> Vec<u8> {
    let mut body = Vec::new();
    listen.encode(&mut body);
    body
}

fn ack_of(result: Result<ListenAddress, ListenCode>) -> Vec<u8> {
    let mut body = Vec::new();
    ListenAck { id: 3, result }.encode(&mut body);
    body
}

fn incoming(peer: &str) -> Incoming {
    Incoming {
        id: 3,
        peer: IncomingPeer::parse(peer).expect(peer),
        number: None,
    }
}

#[test]
fn frames_byte_for_byte() {
    let body = body_of(&listen("tcp:[::1]:0"));
    assert_eq!(body[..2], [3, 1]);
    assert_eq!(body[2..18], [7; 16]);
    assert_eq!(body[18..], *b"\x0btcp:[::1]:0");
    let bound = ListenAddress::parse("tcp:127.0.0.1:80").expect("an address");
    assert_eq!(ack_of(Ok(bound)), *b"\x03\x00\x10tcp:127.0.0.1:80");
    assert_eq!(ack_of(Err(ListenCode::InUse)), [3, 3, 0]);
    let mut bytes = Vec::new();
    incoming("192.0.2.1:9").encode(&mut bytes);
    assert_eq!(bytes, *b"\x09\x0d\x03\x0b192.0.2.1:9");
    bytes.extend(b"data");
    let consumed = bytes.len() - 4;
    let frame = incoming("192.0.2.1:9");
    assert_eq!(
        Incoming::decode(&bytes),
        Ok(Decoded::Done { frame, consumed })
    );
    let mut bytes = Vec::new();
    incoming("unix").encode(&mut bytes);
    assert_eq!(bytes, *b"\x09\x06\x03\x04unix");
    let mut bytes = Vec::new();
    let number = Some(SERVER_NUMBERS + 5);
    let numbered = Incoming {
        number,
        ..incoming("unix")
    };
    numbered.encode(&mut bytes);
    assert_eq!(bytes, *b"\x09\x10\x03\x04unix\x04\x08\xe0\0\0\0\0\0\0\x05");
}

// PROTOCOL OPTION-2, REVERSE-13: at the lowest number of a server, and one below.
#[test]
fn incoming_has_one_flow_number_of_the_servers_half_at_most() {
    let decoded = |options: &[(u64, &[u8])]| {
        let mut body = vec![3, 4];
        body.extend(b"unix");
        for (option, value) in options {
            crate::open::put_option(*option, value, &mut body);
        }
        let mut bytes = vec![0x09];
        put_bytes(&body, &mut bytes);
        Incoming::decode(&bytes).map(|decoded| match decoded {
            Decoded::Done { frame, .. } => frame.number,
            Decoded::Need => panic!("the frame is whole"),
        })
    };
    let bytes = |number| {
        let mut bytes = Vec::new();
        varint::encode(number, &mut bytes);
        bytes
    };
    for number in [SERVER_NUMBERS, varint::MAX] {
        assert_eq!(
            decoded(&[(0x40, b"?"), (4, &bytes(number))]),
            Ok(Some(number))
        );
    }
    assert_eq!(decoded(&[(0x40, b"?")]), Ok(None));
    assert_eq!(decoded(&[(0x41, b"?")]), Err(FlowCode::Unsupported));
    let first = bytes(SERVER_NUMBERS);
    let longer = [&first[..], &[0]].concat();
    for value in [
        &bytes(SERVER_NUMBERS - 1)[..],
        &[0],
        &[],
        &first[..7],
        &longer,
    ] {
        assert_eq!(
            decoded(&[(4, value)]),
            Err(FlowCode::BadOpen),
            "{value:02x?}"
        );
    }
    let twice = decoded(&[(4, &first), (4, &first)]);
    assert_eq!(twice, Err(FlowCode::BadOpen));
}

// PROTOCOL REVERSE-3.
#[test]
fn addresses_are_numbers_or_plain_paths() {
    for (text, canonical) in [
        ("tcp:127.0.0.1:8000", "tcp:127.0.0.1:8000"),
        ("udp:[::ffff:127.0.0.1]:1", "udp:127.0.0.1:1"),
        ("udp:[::]:0", "udp:[::]:0"),
        ("tcp:[::ffff:127.0.0.1]:1", "tcp:127.0.0.1:1"),
        ("tcp:[::]:0", "tcp:[::]:0"),
        ("tcp:[fe80::1%3]:1", "tcp:[fe80::1]:1"),
        ("unix:/run/x/a", "unix:/run/x/a"),
    ] {
        let address = ListenAddress::parse(text).expect(text);
        assert_eq!(address.to_string(), canonical);
        assert_eq!(ListenAddress::parse(canonical), Ok(address));
    }
    for text in [
        "",
        "tcp:",
        "tcp:localhost:1",
        "udp:localhost:1",
        "udp:127.0.0.1",
        "udp4:127.0.0.1:1",
        "tcp:127.0.0.1",
        "tcp::1:1",
        "tcp:127.0.0.1:65536",
        "127.0.0.1:1",
    ] {
        assert_eq!(
            ListenAddress::parse(text),
            Err(ListenAddressError::Form),
            "{text}"
        );
    }
    for path in [
        "", "a", "@a", "/", "/a/", "/a//b", "/a/../b", "/a/.", "/a\n",
    ] {
        let text = format!("unix:{path}");
        assert_eq!(
            ListenAddress::parse(&text),
            Err(ListenAddressError::Path),
            "{text}"
        );
    }
    let path = |length: usize| format!("unix:/{}", "x".repeat(length - 1));
    assert!(ListenAddress::parse(&path(MAX_UNIX_PATH)).is_ok());
    assert!(ListenAddress::parse(&path(MAX_UNIX_PATH + 1)).is_err());
    assert!(path(MAX_UNIX_PATH).len() <= MAX_ADDRESS);
}

// PROTOCOL REVERSE-5: at the limit, and one above.
#[test]
fn a_malformed_listen_is_refused() {
    let most = body_of(&listen(&"x".repeat(MAX_ADDRESS)));
    assert!(Listen::decode(&most).is_ok());
    let more = body_of(&listen(&"x".repeat(MAX_ADDRESS + 1)));
    assert_eq!(Listen::decode(&more), Err(FlowCode::BadOpen));
    let mut mode = body_of(&listen("tcp:127.0.0.1:1"));
    for cut in 0..mode.len() {
        assert!(Listen::decode(&mode[..cut]).is_err(), "{cut}");
    }
    mode[1] = 2;
    assert_eq!(Listen::decode(&mode), Err(FlowCode::BadOpen));
    mode[1] = 0;
    assert!(!Listen::decode(&mode).expect("mode 0").wait);
    // PROTOCOL OPTION-1.
    for (option, result) in [(0x40, Ok(())), (0x41, Err(FlowCode::Unsupported))] {
        let mut body = mode.clone();
        crate::open::put_option(option, b"?", &mut body);
        assert_eq!(Listen::decode(&body).map(drop), result);
    }
    let mut text = mode;
    *text.last_mut().expect("a byte") = 0xff;
    assert_eq!(Listen::decode(&text), Err(FlowCode::BadOpen));
}

#[test]
fn an_answer_has_an_address_or_a_code() {
    for body in [
        &b"\x03\x00\x00"[..],
        b"\x03\x00\x01x",
        b"\x03\x02\x01x",
        b"\x03",
    ] {
        assert_eq!(ListenAck::decode(body), Err(FlowCode::BadOpen), "{body:?}");
    }
    // PROTOCOL CODE-5.
    let later = ListenAck::decode(&[3, 0x3f, 0]).expect("a code");
    assert_eq!(later.result, Err(ListenCode::Failed));
}

// PROTOCOL REVERSE-9.
#[test]
fn the_peer_of_incoming_is_an_address_or_unix() {
    for peer in ["", "x", "localhost:1", "127.0.0.1", "Unix", "192.0.2.1:1\n"] {
        let mut body = vec![3];
        put_bytes(peer.as_bytes(), &mut body);
        let mut bytes = vec![0x09];
        put_bytes(&body, &mut bytes);
        assert_eq!(Incoming::decode(&bytes), Err(FlowCode::BadOpen), "{peer:?}");
    }
    assert_eq!(Incoming::decode(&[0x01]), Err(FlowCode::BadOpen));
    // The body's length is checked before the body arrives.
    assert_eq!(
        Incoming::decode(&[0x09, 0x41, 0x01]),
        Err(FlowCode::BadOpen)
    );
    assert_eq!(Incoming::decode(&[0x09, 0x41, 0x00]), Ok(Decoded::Need));
}

proptest! {
    #[test]
    fn an_encoded_value_decodes_to_itself(
        id in 0..=varint::MAX,
        wait: bool,
        holder: [u8; HOLDER_LEN],
        address in "\\PC{0,32}",
        code in 0..ListenCode::ALL.len(),
        ip: std::net::IpAddr,
        port: u16,
        number in proptest::option::of(SERVER_NUMBERS..=varint::MAX),
    ) {
        let listen = Listen { id, wait, holder, address };
        prop_assert_eq!(Listen::decode(&body_of(&listen)), Ok(listen));
        let address = ListenAddress::tcp(SocketAddr::new(ip, port));
        for result in [Ok(address), Err(ListenCode::ALL[code])] {
            let ack = ListenAck { id, result };
            let mut body = Vec::new();
            ack.encode(&mut body);
            prop_assert_eq!(ListenAck::decode(&body), Ok(ack));
        }
        let peer = IncomingPeer::Ip(SocketAddr::new(ip, port));
        let frame = Incoming { id, peer, number };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let consumed = bytes.len();
        prop_assert_eq!(Incoming::decode(&bytes), Ok(Decoded::Done { frame, consumed }));
        for cut in 0..consumed {
            prop_assert_eq!(Incoming::decode(&bytes[..cut]), Ok(Decoded::Need));
        }
    }

    #[test]
    fn any_bytes_decode_without_a_panic(body: Vec<u8>) {
        crate::check::incoming_decode(&body);
        let mut bytes = vec![0x09];
        put_bytes(&body, &mut bytes);
        crate::check::incoming_decode(&bytes);
        if let Ok(text) = std::str::from_utf8(&body) {
            crate::check::listen_address(text);
        }
    }
}
