//! Encodes the parts of a rule as kernel expressions, which load registers, compare them and act.

use libc::{
    NFT_CMP_EQ, NFT_CMP_GTE, NFT_CMP_LTE, NFT_CMP_NEQ, NFT_CT_MARK, NFT_CT_STATE, NFT_META_IIFNAME,
    NFT_META_L4PROTO, NFT_META_MARK, NFT_META_NFPROTO, NFT_META_OIFNAME,
    NFT_PAYLOAD_NETWORK_HEADER, NFT_PAYLOAD_TRANSPORT_HEADER, NFT_REG_1, NFT_REG_VERDICT,
    NFT_REG32_00, c_int,
};

use self::Value::{Data, Number, Text, Verdict};
use super::{DATA_VALUE, LIST_ELEMENT, NESTED, Statement};
use crate::netlink::Request;
use crate::network::octets;

impl Statement<'_> {
    pub(super) fn write(self, list: Request) -> Request {
        match self {
            Self::From(device) => meta(list, NFT_META_IIFNAME, NFT_CMP_EQ, &name(device)),
            Self::Through(device) => meta(list, NFT_META_OIFNAME, NFT_CMP_EQ, &name(device)),
            Self::To(network) => {
                let v6 = network.addr().is_ipv6();
                let list = family(list, v6);
                if network.prefix_len() == 0 {
                    return list;
                }
                let address = octets(network.network());
                let place = (NFT_PAYLOAD_NETWORK_HEADER, destination(v6));
                let list = load(list, NFT_REG_1, place, address.len());
                let mask = octets(network.netmask());
                compare(masked(list, &mask), NFT_CMP_EQ, &address)
            }
            Self::ToThisHost => {
                let result = [
                    (1, Number(NFT_REG_1)),
                    (2, Number(FIB_TYPE)),
                    (3, Number(FIB_TO)),
                ];
                let local = u32::from(libc::RTN_LOCAL).to_ne_bytes();
                compare(expression(list, "fib", &result), NFT_CMP_EQ, &local)
            }
            Self::Protocol(protocol) => meta(list, NFT_META_L4PROTO, NFT_CMP_EQ, &[protocol]),
            Self::SourcePort(port) => transport(list, 0, NFT_CMP_EQ, &port.to_be_bytes()),
            Self::Port(port) => transport(list, 2, NFT_CMP_EQ, &port.to_be_bytes()),
            Self::NeighbourDiscovery => {
                let list = meta(list, NFT_META_L4PROTO, NFT_CMP_EQ, &[ICMP_V6]);
                let list = transport(list, 0, NFT_CMP_GTE, &[SOLICITS_ROUTER]);
                transport(list, 0, NFT_CMP_LTE, &[ADVERTISES_NEIGHBOUR])
            }
            Self::Begins => compare(flags(list), NFT_CMP_EQ, &[SYN]),
            Self::Continues => compare(flags(list), NFT_CMP_NEQ, &[SYN]),
            Self::IsNew => {
                let state = masked(connection(list, NFT_CT_STATE), &CT_NEW.to_ne_bytes());
                compare(state, NFT_CMP_NEQ, &[0; 4])
            }
            Self::Marked(mark) => meta(list, NFT_META_MARK, NFT_CMP_EQ, &mark.to_ne_bytes()),
            Self::ConnectionMarked(mark) => {
                let list = connection(list, NFT_CT_MARK);
                compare(list, NFT_CMP_EQ, &mark.to_ne_bytes())
            }
            Self::In(set) => {
                let length = if set.v6 { 16 } else { 4 };
                // A 32-bit register holds four bytes.
                let after = NFT_REG32_00 + number(length / 4);
                let place = (NFT_PAYLOAD_NETWORK_HEADER, destination(set.v6));
                let list = load(family(list, set.v6), NFT_REG32_00, place, length);
                let list = load(list, after, (NFT_PAYLOAD_TRANSPORT_HEADER, 0), 4);
                let (name, set) = (set.name(), set.number.cast_signed());
                let lookup = [
                    (1, Text(&name)),
                    (2, Number(NFT_REG32_00)),
                    (4, Number(set)),
                ];
                expression(list, "lookup", &lookup)
            }
            Self::Mark(mark) => {
                let set = [(2, Number(NFT_META_MARK)), (3, Number(NFT_REG_1))];
                expression(value(list, mark), "meta", &set)
            }
            Self::MarkConnection(mark) => {
                let set = [(2, Number(NFT_CT_MARK)), (4, Number(NFT_REG_1))];
                expression(value(list, mark), "ct", &set)
            }
            Self::Accept => verdict(list, libc::NF_ACCEPT),
            Self::Drop => verdict(list, libc::NF_DROP),
        }
    }
}

#[derive(Clone, Copy)]
enum Value<'a> {
    /// A number that is sent in network byte order. Register contents are in host byte order.
    Number(c_int),
    Text(&'a str),
    Data(&'a [u8]),
    Verdict(c_int),
}

fn expression(list: Request, name: &str, attributes: &[(u16, Value<'_>)]) -> Request {
    let write = |data: Request, (kind, value): &(u16, Value<'_>)| match *value {
        Number(value) => data.with(*kind, &value.to_be_bytes()),
        Text(text) => data.with_text(*kind, text),
        Data(bytes) => data.nested(kind | NESTED, |data| data.with(DATA_VALUE, bytes)),
        Verdict(code) => data.nested(kind | NESTED, |data| {
            data.nested(DATA_VERDICT | NESTED, |verdict| {
                verdict.with(1, &code.to_be_bytes())
            })
        }),
    };
    list.nested(LIST_ELEMENT | NESTED, |element| {
        element
            .with_text(EXPRESSION_NAME, name)
            .nested(EXPRESSION_DATA | NESTED, |data| {
                attributes.iter().fold(data, write)
            })
    })
}

fn meta(list: Request, key: c_int, how: c_int, with: &[u8]) -> Request {
    let load = [(1, Number(NFT_REG_1)), (2, Number(key))];
    compare(expression(list, "meta", &load), how, with)
}

fn connection(list: Request, key: c_int) -> Request {
    expression(list, "ct", &[(1, Number(NFT_REG_1)), (2, Number(key))])
}

fn transport(list: Request, offset: c_int, how: c_int, with: &[u8]) -> Request {
    let place = (NFT_PAYLOAD_TRANSPORT_HEADER, offset);
    compare(load(list, NFT_REG_1, place, with.len()), how, with)
}

fn load(list: Request, register: c_int, (base, offset): (c_int, c_int), length: usize) -> Request {
    let attributes = [
        (1, Number(register)),
        (2, Number(base)),
        (3, Number(offset)),
        (4, Number(number(length))),
    ];
    expression(list, "payload", &attributes)
}

fn masked(list: Request, mask: &[u8]) -> Request {
    let zeros = vec![0; mask.len()];
    let attributes = [
        (1, Number(NFT_REG_1)),
        (2, Number(NFT_REG_1)),
        (3, Number(number(mask.len()))),
        (4, Data(mask)),
        (5, Data(&zeros)),
    ];
    expression(list, "bitwise", &attributes)
}

fn compare(list: Request, how: c_int, with: &[u8]) -> Request {
    let attributes = [(1, Number(NFT_REG_1)), (2, Number(how)), (3, Data(with))];
    expression(list, "cmp", &attributes)
}

fn value(list: Request, value: u32) -> Request {
    let value = value.to_ne_bytes();
    let attributes = [(1, Number(NFT_REG_1)), (2, Data(&value))];
    expression(list, "immediate", &attributes)
}

fn verdict(list: Request, code: c_int) -> Request {
    let attributes = [(1, Number(NFT_REG_VERDICT)), (2, Verdict(code))];
    expression(list, "immediate", &attributes)
}

fn family(list: Request, v6: bool) -> Request {
    // NFPROTO_IPV6 and NFPROTO_IPV4.
    let family = if v6 { 10 } else { 2 };
    meta(list, NFT_META_NFPROTO, NFT_CMP_EQ, &[family])
}

fn flags(list: Request) -> Request {
    let list = meta(list, NFT_META_L4PROTO, NFT_CMP_EQ, &[TCP]);
    let place = (NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS);
    masked(load(list, NFT_REG_1, place, 1), &[SYN | ACK])
}

/// Returns the offset of the destination address in an IP header.
fn destination(v6: bool) -> c_int {
    if v6 { 24 } else { 16 }
}

fn number(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or_default()
}

/// Returns a device's name as the kernel stores it, padded with zeros.
fn name(device: &str) -> [u8; libc::IFNAMSIZ] {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    name
}

const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VERDICT: u16 = 2;
/// The state of a new connection: `NF_CT_STATE_BIT(IP_CT_NEW)`.
const CT_NEW: u32 = 1 << 3;
/// `NFT_FIB_RESULT_ADDRTYPE`, of the destination: `NFTA_FIB_F_DADDR`.
const FIB_TYPE: c_int = 3;
const FIB_TO: c_int = 1 << 1;
const TCP: u8 = 6;
/// Offset of the flags in a TCP header.
const TCP_FLAGS: c_int = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ICMP_V6: u8 = 58;
const SOLICITS_ROUTER: u8 = 133;
const ADVERTISES_NEIGHBOUR: u8 = 136;
