use proptest::prelude::*;

use super::*;

fn grant(ttl_s: u64) -> BondGrant {
    BondGrant {
        id: [1; BOND_ID_LEN],
        secret: [2; SECRET_LEN],
        route: 3,
        ttl_s,
    }
}

// PROTOCOL BOND-1.
#[test]
fn a_client_asks_for_a_new_bond_or_for_its_old_one() {
    assert_eq!(BondRequest::New.encode(), [0; 0]);
    assert_eq!(BondRequest::decode(&[]), Ok(BondRequest::New));
    let again = BondRequest::Resume {
        id: [1; BOND_ID_LEN],
        ticket: [2; TICKET_LEN],
    };
    let value = again.encode();
    assert_eq!(value, [[1; 16], [2; 16], [2; 16]].concat());
    assert_eq!(BondRequest::decode(&value), Ok(again));
    for len in [1, BOND_ID_LEN, TICKET_LEN, 47, 49] {
        let refused = Err(FlowCode::BadOpen);
        assert_eq!(BondRequest::decode(&vec![1; len]), refused, "{len} bytes");
    }
}

// PROTOCOL BOND-3.
#[test]
fn a_bond_is_granted_whole() {
    let value = grant(1800).encode();
    assert_eq!(value[..16], [1; 16]);
    assert_eq!(value[16..48], [2; 32]);
    assert_eq!(value[48..], [3, 0x47, 0x08]);
    assert_eq!(BondGrant::decode(&value), Ok(grant(1800)));
    for cut in 0..value.len() {
        let refused = Err(FlowCode::BadOpen);
        assert_eq!(BondGrant::decode(&value[..cut]), refused, "{cut} bytes");
    }
    let longer = [&value[..], &[0]].concat();
    assert_eq!(BondGrant::decode(&longer), Err(FlowCode::BadOpen));
}

// PROTOCOL BOND-3: at the limit, and one above.
#[test]
fn a_server_keeps_flows_for_a_day_at_most() {
    for ttl_s in [0, MAX_TTL_S] {
        let decoded = BondGrant::decode(&grant(ttl_s).encode());
        assert_eq!(decoded, Ok(grant(ttl_s)));
    }
    for ttl_s in [MAX_TTL_S + 1, varint::MAX] {
        let decoded = BondGrant::decode(&grant(ttl_s).encode());
        assert_eq!(decoded, Err(FlowCode::BadOpen));
    }
}

// PROTOCOL PROOF-4.
#[test]
fn the_secret_is_not_printed() {
    let secret = BondGrant {
        secret: [222; SECRET_LEN],
        ..grant(1)
    };
    let text = format!("{secret:?}");
    assert!(text.contains("route: 3") && !text.contains("222"), "{text}");
}

proptest! {
    #[test]
    fn an_encoded_value_decodes_to_itself(
        id: [u8; 16],
        secret: [u8; 32],
        route: u8,
        ttl_s in 0..=MAX_TTL_S,
        fresh: bool,
    ) {
        let bond = BondGrant { id, secret, route, ttl_s };
        prop_assert_eq!(BondGrant::decode(&bond.encode()), Ok(bond));
        let ask = if fresh { BondRequest::New } else { BondRequest::Resume { id, ticket: secret } };
        prop_assert_eq!(BondRequest::decode(&ask.encode()), Ok(ask));
    }

    #[test]
    fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
        crate::check::bond(&bytes);
    }
}
