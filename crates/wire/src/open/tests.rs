use proptest::prelude::*;

use super::*;

fn encoded(open: &Open) -> Vec<u8> {
    let mut out = Vec::new();
    open.encode(&mut out).expect("encodes");
    out
}

fn open(target: &str, proof: Option<[u8; PROOF_LEN]>) -> Open {
    Open {
        target: target.to_owned(),
        proof,
        ..Open::default()
    }
}

/// Builds a frame of any type and body.
fn frame(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::encode(kind, &mut out);
    put_bytes(body, &mut out);
    out
}

/// Builds the body of an OPEN: target `a`, then these options.
fn body_with_options(options: &[(u64, &[u8])]) -> Vec<u8> {
    let mut body = vec![1, b'a'];
    for (option, value) in options {
        varint::encode(*option, &mut body);
        put_bytes(value, &mut body);
    }
    body
}

fn decode_options(options: &[(u64, &[u8])]) -> Result<Decoded<Open>, FlowCode> {
    Open::decode(&frame(1, &body_with_options(options)))
}

#[test]
fn open_byte_for_byte() {
    let plain = open("tcp:a:22", None);
    assert_eq!(encoded(&plain), b"\x01\x09\x08tcp:a:22");
    assert_eq!(
        Open::decode(b"\x01\x09\x08tcp:a:22SSH-2.0"),
        Ok(Decoded::Done {
            frame: plain,
            consumed: 11
        })
    );

    let proven = open("unix:/s", Some([0x5a; 32]));
    let mut bytes = b"\x01\x2a\x07unix:/s\x02\x20".to_vec();
    bytes.extend([0x5a; 32]);
    assert_eq!(encoded(&proven), bytes);
    assert_eq!(
        Open::decode(&bytes),
        Ok(Decoded::Done {
            consumed: bytes.len(),
            frame: proven
        })
    );
}

#[test]
fn open_ack_byte_for_byte() {
    for (bonded, bytes) in [(false, &b"\x02\x00"[..]), (true, b"\x02\x02\x04\x00")] {
        let frame = OpenAck { bonded };
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(out, bytes);
        out.extend(b"data");
        let consumed = bytes.len();
        assert_eq!(OpenAck::decode(&out), Ok(Decoded::Done { frame, consumed }));
        for cut in 0..consumed {
            assert_eq!(OpenAck::decode(&out[..cut]), Ok(Decoded::Need));
        }
    }
}

// PROTOCOL OPTION-2, REVERSE-13.
#[test]
fn the_confirmation_of_a_flow_number_is_empty_and_comes_once() {
    let decoded = |options: &[u8]| {
        OpenAck::decode(&frame(2, options)).map(|decoded| match decoded {
            Decoded::Done { frame, .. } => frame.bonded,
            Decoded::Need => panic!("the frame is whole"),
        })
    };
    assert_eq!(decoded(b"\x10\x01x"), Ok(false));
    assert_eq!(decoded(b"\x10\x01x\x04\x00"), Ok(true));
    assert_eq!(decoded(b"\x04\x01\x05"), Err(FlowCode::BadOpen));
    assert_eq!(decoded(b"\x04\x00\x04\x00"), Err(FlowCode::BadOpen));
}

// PROTOCOL OPEN-9.
#[test]
fn numbers_may_be_longer_than_needed() {
    let bytes = b"\x40\x01\x80\x00\x00\x03\x40\x01a";
    assert_eq!(
        Open::decode(bytes),
        Ok(Decoded::Done {
            frame: open("a", None),
            consumed: 9
        })
    );
}

// PROTOCOL OPEN-10.
#[test]
fn wrong_type_is_found_in_the_first_byte() {
    let refused = FlowCode::BadOpen;
    assert_eq!(Open::decode(&[0x02]), Err(refused));
    assert_eq!(OpenAck::decode(&[0x01]), Err(refused));
    // A token of quic-tun in place of OPEN.
    assert_eq!(Open::decode(b"tcp:a:22"), Err(refused));
}

// PROTOCOL OPEN-7.
#[test]
fn body_lengths_at_and_after_the_limit() {
    // A non-critical option fills the body up.
    let filled = |len: usize| {
        let filler = vec![0; len - 2 - 1 - 2];
        let body = body_with_options(&[(0x10, &filler)]);
        assert_eq!(body.len(), len);
        frame(1, &body)
    };
    let bytes = filled(MAX_OPEN);
    assert_eq!(
        Open::decode(&bytes),
        Ok(Decoded::Done {
            frame: open("a", None),
            consumed: bytes.len()
        })
    );
    let too_long = Err(FlowCode::BadOpen);
    assert_eq!(Open::decode(&filled(MAX_OPEN + 1)), too_long);
    // A frame that is too long is refused as soon as its length has arrived.
    assert_eq!(Open::decode(&filled(MAX_OPEN + 1)[..3]), too_long);

    let ack = |len: usize| {
        let filler = vec![0; len - 1 - 2];
        let mut body = Vec::new();
        varint::encode(0x10, &mut body);
        put_bytes(&filler, &mut body);
        frame(2, &body)
    };
    let bytes = ack(MAX_OPEN_ACK);
    assert_eq!(
        OpenAck::decode(&bytes),
        Ok(Decoded::Done {
            frame: OpenAck::default(),
            consumed: bytes.len()
        })
    );
    let longer = OpenAck::decode(&ack(MAX_OPEN_ACK + 1));
    assert_eq!(longer, Err(FlowCode::BadOpen));
    assert_eq!(
        Open::decode(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff"),
        too_long
    );
}

// PROTOCOL OPEN-11.
#[test]
fn target_lengths_at_and_after_the_limit() {
    let full = open(&"x".repeat(MAX_TARGET), Some([1; 32]));
    let bytes = encoded(&full);
    assert_eq!(
        Open::decode(&bytes),
        Ok(Decoded::Done {
            consumed: bytes.len(),
            frame: full
        })
    );

    let longer = MAX_TARGET + 1;
    let mut out = vec![7];
    let refused = FlowCode::BadOpen;
    let long = open(&"x".repeat(longer), None);
    assert_eq!(long.encode(&mut out), Err(refused));
    assert_eq!(open("", None).encode(&mut out), Err(refused));
    assert_eq!(out, [7]);

    let mut body = Vec::new();
    put_bytes(&vec![b'x'; longer], &mut body);
    assert_eq!(Open::decode(&frame(1, &body)), Err(refused));
    assert_eq!(Open::decode(&frame(1, &[0])), Err(refused));
}

// PROTOCOL OPEN-11.
#[test]
fn a_target_must_be_text_but_need_not_be_a_target() {
    assert_eq!(
        Open::decode(&frame(1, b"\x02\xff\xfe")),
        Err(FlowCode::BadOpen)
    );
    let odd = open("\u{1f980} not a target\n", None);
    let bytes = encoded(&odd);
    assert_eq!(
        Open::decode(&bytes),
        Ok(Decoded::Done {
            consumed: bytes.len(),
            frame: odd
        })
    );
}

// PROTOCOL OPEN-8.
#[test]
fn a_body_that_ends_early_is_refused() {
    // Cut in the target's length, the target, and an option's type, length and value.
    let bodies: [&[u8]; 6] = [
        b"",
        b"\x40",
        b"\x05tcp",
        b"\x01a\x80",
        b"\x01a\x10",
        b"\x01a\x10\x02x",
    ];
    let refused = FlowCode::BadOpen;
    for body in bodies {
        assert_eq!(Open::decode(&frame(1, body)), Err(refused), "{body:02x?}");
    }
    assert_eq!(OpenAck::decode(&frame(2, &[0x10, 1])), Err(refused));
}

// PROTOCOL OPTION-1.
#[test]
fn unknown_options_are_skipped_unless_critical() {
    let done = |options| matches!(decode_options(options), Ok(Decoded::Done { .. }));
    assert!(done(&[(0x10, b"future"), (0x10, b"again"), (0x4000, b"")]));
    for option in [0x01, 0x03, 0x11, 0x4001, varint::MAX] {
        let refused = FlowCode::Unsupported;
        assert_eq!(decode_options(&[(option, b"x")]), Err(refused));
        let mut ack = Vec::new();
        varint::encode(option, &mut ack);
        put_bytes(b"", &mut ack);
        assert_eq!(OpenAck::decode(&frame(2, &ack)), Err(refused));
    }
}

// PROTOCOL OPTION-2, OPTION-3, PROOF-3.
#[test]
fn a_proof_has_32_bytes_and_comes_once() {
    let proof = [3; 32];
    let decoded = decode_options(&[(0x10, b"x"), (2, &proof)]);
    assert!(
        matches!(decoded, Ok(Decoded::Done { frame: Open { proof: Some(got), .. }, .. }) if got == proof)
    );
    for len in [0, 31, 33] {
        let decoded = decode_options(&[(2, &vec![3; len])]);
        assert_eq!(decoded, Err(FlowCode::BadOpen), "{len}");
    }
    let twice = decode_options(&[(2, &proof), (2, &proof)]);
    assert_eq!(twice, Err(FlowCode::BadOpen));
}

// PROTOCOL OPTION-2, BOND-5.
#[test]
fn a_flow_number_is_one_number_and_comes_once() {
    let numbered = Open {
        number: Some(300),
        ..open("a", None)
    };
    assert_eq!(encoded(&numbered), b"\x01\x06\x01a\x04\x02\x41\x2c");
    for value in [&[0x41, 0x2c][..], &[0x80, 0, 0x01, 0x2c]] {
        let decoded = decode_options(&[(0x10, b"x"), (4, value)]);
        assert!(
            matches!(decoded, Ok(Decoded::Done { frame, .. }) if frame == numbered),
            "{value:02x?}"
        );
    }
    for value in [&[][..], &[0x40], &[0x01, 0x02]] {
        let decoded = decode_options(&[(4, value)]);
        assert_eq!(decoded, Err(FlowCode::BadOpen), "{value:02x?}");
    }
    let twice = decode_options(&[(4, &[1]), (4, &[1])]);
    assert_eq!(twice, Err(FlowCode::BadOpen));
    // At the highest number of a client, and one above.
    for (number, fine) in [(SERVER_NUMBERS - 1, true), (SERVER_NUMBERS, false)] {
        let mut value = Vec::new();
        varint::encode(number, &mut value);
        let decoded = decode_options(&[(4, &value)]);
        assert_eq!(decoded.is_ok(), fine, "{number}: {decoded:?}");
    }
}

// PROTOCOL OPTION-2, SOURCE-1.
#[test]
fn a_source_is_an_address_and_a_port_and_comes_once() {
    let sourced = |source: &str| Open {
        source: Some(source.parse().expect("an address")),
        ..open("a", None)
    };
    let v4 = sourced("192.0.2.1:258");
    assert_eq!(
        encoded(&v4),
        b"\x01\x0a\x01a\x06\x06\xc0\x00\x02\x01\x01\x02"
    );
    let v6 = sourced("[2001:db8::1]:258");
    let address = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x02";
    let v6_bytes = [&b"\x01\x16\x01a\x06\x12"[..], address].concat();
    assert_eq!(encoded(&v6), v6_bytes);
    // An IPv4-mapped address becomes IPv4, whichever side writes it.
    assert_eq!(encoded(&sourced("[::ffff:192.0.2.1]:258")), encoded(&v4));
    let mapped = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x01\x02";
    for (value, read) in [(&encoded(&v4)[6..], &v4), (address, &v6), (mapped, &v4)] {
        let decoded = decode_options(&[(0x10, b"x"), (6, value)]);
        assert!(
            matches!(&decoded, Ok(Decoded::Done { frame, .. }) if frame == read),
            "{value:02x?}"
        );
    }
    for len in [0, 1, 2, 5, 7, 17, 19] {
        let decoded = decode_options(&[(6, &vec![3; len])]);
        assert_eq!(decoded, Err(FlowCode::BadOpen), "{len}");
    }
    let twice = decode_options(&[(6, &[1; 6]), (6, &[1; 6])]);
    assert_eq!(twice, Err(FlowCode::BadOpen));
}

proptest! {
    #[test]
    fn round_trip(
        target in ".{1,200}",
        proof: Option<[u8; PROOF_LEN]>,
        number in proptest::option::of(0..SERVER_NUMBERS),
        source: Option<(IpAddr, u16)>,
        rest: Vec<u8>,
    ) {
        let source = source.map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
        let sent = Open { target, proof, number, source, login: None };
        let mut bytes = encoded(&sent);
        let consumed = bytes.len();
        bytes.extend(rest);
        crate::check::open_decode(&bytes);
        prop_assert_eq!(Open::decode(&bytes), Ok(Decoded::Done { frame: sent, consumed }));
    }

    #[test]
    fn no_input_panics(bytes: Vec<u8>) {
        crate::check::open_decode(&bytes);
        crate::check::open_ack_decode(&bytes);
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::check::open_decode(&frame(1, &body));
        crate::check::open_ack_decode(&frame(2, &body));
    }

    #[test]
    fn no_options_panic(options: Vec<u8>) {
        let mut body = vec![1, b'a'];
        body.extend(&options);
        crate::check::open_decode(&frame(1, &body));
        crate::check::open_ack_decode(&frame(2, &options));
    }
}
