use super::*;
use crate::bond::{BOND_ID_LEN, BondRequest, SECRET_LEN, TICKET_LEN};
use crate::code::ListenCode;
use crate::join::{MAX_RULES, SIGNATURE_LEN};
use crate::listening::HOLDER_LEN;
use proptest::prelude::*;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn whole(bytes: &[u8]) -> Frame {
    match Frame::decode(bytes) {
        Ok(Decoded::Done { frame, consumed }) if consumed == bytes.len() => frame,
        other => panic!("{bytes:02x?}: {other:?}"),
    }
}

#[test]
fn frames_are_written_as_the_protocol_says() {
    let seen = Frame::Seen(vec![Seen { flow: 4, next: 101 }]);
    for (frame, bytes) in [
        (hello(None), &[0x07, 0x00][..]),
        (hello_ack(None, None), &[0x08, 0x00]),
        (seen, &[0x10, 0x03, 0x04, 0x40, 0x65]),
        (
            Frame::Gone(vec![FlowEnd { flow: 8, code: 1 }]),
            &[0x11, 0x02, 0x08, 0x01],
        ),
        (Frame::Hold(vec![4, 8]), &[0x13, 0x02, 0x04, 0x08]),
        (Frame::Go(vec![4]), &[0x14, 0x01, 0x04]),
        (
            Frame::Ended(vec![FlowEnd { flow: 1, code: 14 }]),
            &[0x15, 0x02, 0x01, 0x0e],
        ),
        (asks(BondRequest::New), &[0x07, 0x02, 0x06, 0x00]),
    ] {
        assert_eq!(encoded(&frame), bytes);
        assert_eq!(whole(bytes), frame);
    }
    let proof = encoded(&hello(Some([7; PROOF_LEN])));
    assert_eq!(proof[..4], [0x07, 0x22, 0x02, 0x20]);
    // PROTOCOL JOIN-2, JOIN-6.
    let join = encoded(&Frame::Hello {
        proof: None,
        join: Some(join("a")),
        bond: None,
        reverse: false,
    });
    assert_eq!(join[..6], [0x07, 0x40, 0x44, 0x04, 0x40, 0x41]);
    assert_eq!(join[70..], [b'a']);
    let grant = hello_ack(Some(Grant::new("a", ["b:1".to_owned()])), None);
    assert_eq!(encoded(&grant), *b"\x08\x08\x06\x06\x01a\x03b:1");
    // PROTOCOL BOND-1, BOND-3.
    let again = encoded(&asks(again()));
    assert_eq!(again[..4], [0x07, 0x32, 0x06, 0x30]);
    let bond = encoded(&hello_ack(None, Some(bond())));
    assert_eq!(bond[..4], [0x08, 0x35, 0x08, 0x33]);
}

fn hello(proof: Option<[u8; PROOF_LEN]>) -> Frame {
    Frame::Hello {
        proof,
        join: None,
        bond: None,
        reverse: false,
    }
}

fn hello_ack(grant: Option<Grant>, bond: Option<BondGrant>) -> Frame {
    Frame::HelloAck {
        grant,
        bond,
        reverse: false,
    }
}

fn asks(ask: BondRequest) -> Frame {
    Frame::Hello {
        proof: None,
        join: None,
        bond: Some(ask),
        reverse: false,
    }
}

fn again() -> BondRequest {
    BondRequest::Resume {
        id: [8; BOND_ID_LEN],
        ticket: [9; TICKET_LEN],
    }
}

fn bond() -> BondGrant {
    BondGrant {
        id: [8; BOND_ID_LEN],
        secret: [9; SECRET_LEN],
        route: 0,
        ttl_s: 1800,
    }
}

fn join(name: &str) -> Join {
    Join {
        name: name.to_owned(),
        signature: [6; SIGNATURE_LEN],
    }
}

fn reverse(reverse: bool) -> [Frame; 2] {
    [
        Frame::Hello {
            proof: None,
            join: None,
            bond: None,
            reverse,
        },
        Frame::HelloAck {
            grant: None,
            bond: None,
            reverse,
        },
    ]
}

// PROTOCOL CONTROL-8.
#[test]
fn draining_may_have_options_of_later_versions() {
    assert_eq!(encoded(&Frame::Draining), [0x19, 0x00]);
    assert_eq!(whole(&[0x19, 0x03, 0x02, 1, 9]), Frame::Draining);
    for critical_or_cut in [&[0x19, 0x03, 0x03, 1, 9][..], &[0x19, 0x02, 0x02, 1]] {
        assert_eq!(Frame::decode(critical_or_cut), Err(MalformedFrame));
    }
}

fn listen(id: u64) -> Frame {
    Frame::Listen(Listen {
        id,
        wait: false,
        holder: [5; HOLDER_LEN],
        address: "tcp:127.0.0.1:0".to_owned(),
    })
}

fn listens(id: u64) -> Frame {
    let result = Err(ListenCode::Taken);
    Frame::ListenAck(ListenAck { id, result })
}

// PROTOCOL REVERSE-1, REVERSE-5.
#[test]
fn reverse_forwards_are_agreed_on_by_an_empty_option() {
    let [hello, ack] = reverse(true);
    assert_eq!(encoded(&hello), [0x07, 0x02, 0x0a, 0x00]);
    assert_eq!(encoded(&ack), [0x08, 0x02, 0x0a, 0x00]);
    for kind in [0x07, 0x08] {
        assert_eq!(Frame::decode(&[kind, 3, 0x0a, 1, 0]), Err(MalformedFrame));
    }
    assert_eq!(encoded(&listens(4)), [0x17, 0x03, 4, 5, 0]);
    assert_eq!(encoded(&listen(4))[..4], [0x16, 34, 4, 0]);
    assert_eq!(whole(&[0x18, 0x02, 4, 5]), Frame::Unlisten(vec![4, 5]));
    assert_eq!(Frame::decode(&[0x18, 0x00]), Err(MalformedFrame));
    let ids = |count: u64| encoded(&Frame::Unlisten((0..count).collect()));
    assert!(Frame::decode(&ids(MAX_FLOWS as u64)).is_ok());
    assert_eq!(
        Frame::decode(&ids(MAX_FLOWS as u64 + 1)),
        Err(MalformedFrame)
    );
    assert_eq!(Frame::decode(&[0x16, 0x01, 4]), Err(MalformedFrame));
}

// PROTOCOL OPTION-2.
#[test]
fn known_options_do_not_occur_twice() {
    for frame in [
        hello(Some([7; PROOF_LEN])),
        Frame::Hello {
            proof: None,
            join: Some(join("a")),
            bond: None,
            reverse: false,
        },
        asks(BondRequest::New),
        asks(again()),
        hello_ack(Some(Grant::new("a", [])), None),
        hello_ack(None, Some(bond())),
        reverse(true)[0].clone(),
        reverse(true)[1].clone(),
    ] {
        let once = encoded(&frame);
        let (kind, rest) = varint::decode(&once).expect("a type");
        let (_, option) = varint::decode(rest).expect("a length");
        let mut twice = Vec::new();
        varint::encode(kind, &mut twice);
        put_bytes(&[option, option].concat(), &mut twice);
        assert_eq!(Frame::decode(&twice), Err(MalformedFrame), "{frame:?}");
    }
}

#[test]
fn a_control_stream_is_known_by_its_first_frame() {
    assert_eq!(begins(&[]), None);
    assert_eq!(begins(&[0x07]), Some(true));
    assert_eq!(begins(&[0x01]), Some(false));
    // A longer form of the same number.
    assert_eq!(begins(&[0x40]), None);
    assert_eq!(begins(&[0x40, 0x07]), Some(true));
}

// PROTOCOL CONTROL-3.
#[test]
fn frames_of_unknown_types_are_skipped_whole() {
    assert_eq!(whole(&[0x3f, 0x02, 9, 9]), Frame::Unknown { kind: 0x3f });
    assert_eq!(whole(&[0x12, 0x00]), Frame::Unknown { kind: 0x12 });
}

// PROTOCOL CONTROL-4: at the limit, and one above.
#[test]
fn limits_are_kept() {
    let most: Vec<u64> = (0..MAX_FLOWS as u64).collect();
    assert_eq!(
        whole(&encoded(&Frame::Hold(most.clone()))),
        Frame::Hold(most.clone())
    );
    let mut more = most;
    more.push(0);
    assert_eq!(
        Frame::decode(&encoded(&Frame::Hold(more))),
        Err(MalformedFrame)
    );
    assert_eq!(Frame::decode(&[0x10, 0x00]), Err(MalformedFrame));
    let ended = |count| {
        let gone = |flow| FlowEnd { flow, code: 14 };
        Frame::Ended((0..count).map(gone).collect())
    };
    let most = ended(MAX_FLOWS as u64);
    assert_eq!(whole(&encoded(&most)), most);
    let more = encoded(&ended(MAX_FLOWS as u64 + 1));
    assert_eq!(Frame::decode(&more), Err(MalformedFrame));
    assert_eq!(Frame::decode(&[0x15, 0x00]), Err(MalformedFrame));
    let mut longest = vec![0x3f];
    put_bytes(&[0; MAX_BODY], &mut longest);
    assert_eq!(whole(&longest), Frame::Unknown { kind: 0x3f });
    assert!(longest.len() <= MAX_FRAME);
    // The length is refused before the body arrives.
    let mut too_long = vec![0x3f];
    varint::encode(MAX_BODY as u64 + 1, &mut too_long);
    assert_eq!(Frame::decode(&too_long), Err(MalformedFrame));
}

#[test]
fn bodies_that_end_inside_a_number_are_refused() {
    for bytes in [
        &[0x10, 0x01, 0x04][..],
        &[0x13, 0x01, 0x40],
        &[0x15, 0x01, 0x04],
    ] {
        assert_eq!(Frame::decode(bytes), Err(MalformedFrame));
    }
    // A body of four bytes holds two numbers; a body of three bytes ends inside the second.
    assert!(Frame::decode(&[0x10, 0x03, 0x04, 0x40, 0x40]).is_ok());
    // An unknown critical option.
    assert_eq!(
        Frame::decode(&[0x07, 0x02, 0x03, 0x00]),
        Err(MalformedFrame)
    );
    assert_eq!(whole(&[0x08, 0x02, 0x04, 0x00]), hello_ack(None, None));
}

// PROTOCOL BOND-1, BOND-3.
#[test]
fn a_bond_of_another_form_makes_its_frame_malformed() {
    for (kind, option, len) in [(0x07, 0x06, 1), (0x07, 0x06, 49), (0x08, 0x08, 0)] {
        let mut body = Vec::new();
        put_option(option, &vec![0; len], &mut body);
        let mut bytes = Vec::new();
        varint::encode(kind, &mut bytes);
        put_bytes(&body, &mut bytes);
        assert_eq!(Frame::decode(&bytes), Err(MalformedFrame), "{bytes:02x?}");
    }
    // Each option belongs to its frame. In the other frame it is unknown and not critical.
    assert_eq!(whole(&[0x07, 0x02, 0x08, 0x00]), hello(None));
    assert_eq!(whole(&[0x08, 0x02, 0x02, 0x00]), hello_ack(None, None));
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let number = 0..=varint::MAX;
    let seen = (number.clone(), number.clone()).prop_map(|(flow, next)| Seen { flow, next });
    let gone = (number.clone(), number.clone()).prop_map(|(flow, code)| FlowEnd { flow, code });
    let name = "[a-z0-9][a-zA-Z0-9._-]{0,62}";
    let join = (name, any::<[u8; 32]>()).prop_map(|(name, half)| Join {
        name,
        signature: [half, half].concat().try_into().expect("64 bytes"),
    });
    let proof = proptest::option::of(any::<[u8; PROOF_LEN]>());
    let rules = proptest::collection::vec("[a-z*]{1,20}:[0-9*]{1,5}", 0..=MAX_RULES);
    let grant = (name, rules).prop_map(|(name, allow)| Grant::new(&name, allow));
    let ids = any::<([u8; 16], [u8; 32])>();
    let again = ids.prop_map(|(id, ticket)| BondRequest::Resume { id, ticket });
    let ask = prop_oneof![Just(BondRequest::New), again];
    let hello = (
        proof,
        proptest::option::of(join),
        proptest::option::of(ask),
        any::<bool>(),
    );
    let bond = (any::<([u8; 16], [u8; 32], u8)>(), 0..=bond::MAX_TTL_S);
    let bond = bond.prop_map(|((id, secret, route), ttl_s)| BondGrant {
        id,
        secret,
        route,
        ttl_s,
    });
    let answer = (
        proptest::option::of(grant),
        proptest::option::of(bond),
        any::<bool>(),
    );
    prop_oneof![
        hello.prop_map(|(proof, join, bond, reverse)| Frame::Hello {
            proof,
            join,
            bond,
            reverse
        }),
        answer.prop_map(|(grant, bond, reverse)| Frame::HelloAck {
            grant,
            bond,
            reverse
        }),
        proptest::collection::vec(number.clone(), 1..=MAX_FLOWS).prop_map(Frame::Unlisten),
        Just(Frame::Draining),
        number.clone().prop_map(listen),
        number.clone().prop_map(listens),
        proptest::collection::vec(seen, 1..=MAX_FLOWS).prop_map(Frame::Seen),
        proptest::collection::vec(gone.clone(), 1..=MAX_FLOWS).prop_map(Frame::Gone),
        proptest::collection::vec(gone, 1..=MAX_FLOWS).prop_map(Frame::Ended),
        proptest::collection::vec(number.clone(), 1..=MAX_FLOWS).prop_map(Frame::Hold),
        proptest::collection::vec(number, 1..=MAX_FLOWS).prop_map(Frame::Go),
    ]
}

proptest! {
    #[test]
    fn an_encoded_frame_decodes_and_a_part_of_it_is_too_little(frame in any_frame()) {
        let bytes = encoded(&frame);
        prop_assert!(bytes.len() <= MAX_FRAME);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Frame::decode(&bytes[..cut]), Ok(Decoded::Need));
        }
        prop_assert_eq!(whole(&bytes), frame);
    }

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::check::control(&bytes);
    }
}
