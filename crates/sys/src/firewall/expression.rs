//! The parts of a rule as the kernel reads them: expressions that load into registers, compare and act.

use super::{DATA_VALUE, LIST_ELEMENT, NESTED, Part};
use crate::netlink::Request;
use crate::network::octets;

impl Part<'_> {
    /// Adds the expressions of this part to the list of a rule.
    pub(super) fn write(self, list: Request) -> Request {
        match self {
            Self::From(device) => compare(meta(list, META_IN_DEVICE), EQUAL, &name(device)),
            Self::Through(device) => compare(meta(list, META_OUT_DEVICE), EQUAL, &name(device)),
            Self::NotThrough(device) => {
                compare(meta(list, META_OUT_DEVICE), NOT_EQUAL, &name(device))
            }
            Self::To(network) => {
                let v6 = network.addr().is_ipv6();
                let list = family(list, v6);
                if network.prefix_len() == 0 {
                    return list;
                }
                let address = octets(network.network());
                let list = load(list, NETWORK, destination(v6), address.len());
                let mask = octets(network.netmask());
                compare(masked(list, &mask), EQUAL, &address)
            }
            Self::ToThisHost => {
                let list = expression(list, "fib", |fib| {
                    number(number(number(fib, 1, REGISTER), 2, FIB_TYPE), 3, FIB_TO)
                });
                compare(list, EQUAL, &u32::from(libc::RTN_LOCAL).to_ne_bytes())
            }
            Self::Protocol(protocol) => compare(meta(list, META_PROTOCOL), EQUAL, &[protocol]),
            Self::SourcePort(port) => {
                compare(load(list, TRANSPORT, 0, 2), EQUAL, &port.to_be_bytes())
            }
            Self::Port(port) => compare(load(list, TRANSPORT, 2, 2), EQUAL, &port.to_be_bytes()),
            Self::NeighbourDiscovery => {
                let list = compare(meta(list, META_PROTOCOL), EQUAL, &[ICMP_V6]);
                let list = compare(load(list, TRANSPORT, 0, 1), AT_LEAST, &[SOLICITS_ROUTER]);
                compare(
                    load(list, TRANSPORT, 0, 1),
                    AT_MOST,
                    &[ADVERTISES_NEIGHBOUR],
                )
            }
            Self::Begins => compare(flags(list), EQUAL, &[SYN]),
            Self::Continues => compare(flags(list), NOT_EQUAL, &[SYN]),
            Self::IsNew => {
                let state = masked(connection(list, CT_STATE), &CT_NEW.to_ne_bytes());
                compare(state, NOT_EQUAL, &[0; 4])
            }
            Self::Marked(mark) => compare(meta(list, META_MARK), EQUAL, &mark.to_ne_bytes()),
            Self::ConnectionMarked(mark) => {
                compare(connection(list, CT_MARK), EQUAL, &mark.to_ne_bytes())
            }
            Self::In(set) => {
                let list = family(list, set.v6);
                let length = if set.v6 { 16 } else { 4 };
                let list = load_to(list, FIRST, NETWORK, destination(set.v6), length);
                let after = FIRST + u32::try_from(length / 4).unwrap_or_default();
                let list = load_to(list, after, TRANSPORT, 0, 4);
                expression(list, "lookup", |lookup| {
                    let lookup = lookup.with_text(1, &set.name());
                    number(number(lookup, 2, FIRST), 4, set.number)
                })
            }
            Self::Mark(mark) => expression(value(list, mark), "meta", |meta| {
                number(number(meta, 2, META_MARK), 3, REGISTER)
            }),
            Self::MarkConnection(mark) => expression(value(list, mark), "ct", |ct| {
                number(number(ct, 2, CT_MARK), 4, REGISTER)
            }),
            Self::Accept => verdict(list, NF_ACCEPT),
            Self::Drop => verdict(list, NF_DROP),
        }
    }
}

/// One expression; `fill` adds its attributes.
fn expression(list: Request, name: &str, fill: impl FnOnce(Request) -> Request) -> Request {
    list.nested(LIST_ELEMENT | NESTED, |element| {
        element
            .with_text(EXPRESSION_NAME, name)
            .nested(EXPRESSION_DATA | NESTED, fill)
    })
}

/// An attribute that is a number: these are in the network's order, what is in registers is not.
fn number(request: Request, kind: u16, value: u32) -> Request {
    request.with(kind, &value.to_be_bytes())
}

fn data(request: Request, kind: u16, bytes: &[u8]) -> Request {
    request.nested(kind | NESTED, |data| data.with(DATA_VALUE, bytes))
}

fn meta(list: Request, key: u32) -> Request {
    expression(list, "meta", |meta| {
        number(number(meta, 1, REGISTER), 2, key)
    })
}

fn connection(list: Request, key: u32) -> Request {
    expression(list, "ct", |ct| number(number(ct, 1, REGISTER), 2, key))
}

fn load(list: Request, base: u32, offset: u32, length: usize) -> Request {
    load_to(list, REGISTER, base, offset, length)
}

fn load_to(list: Request, register: u32, base: u32, offset: u32, length: usize) -> Request {
    expression(list, "payload", |payload| {
        let payload = number(number(number(payload, 1, register), 2, base), 3, offset);
        number(payload, 4, u32::try_from(length).unwrap_or_default())
    })
}

fn masked(list: Request, mask: &[u8]) -> Request {
    expression(list, "bitwise", |bits| {
        let bits = number(number(bits, 1, REGISTER), 2, REGISTER);
        let bits = number(bits, 3, u32::try_from(mask.len()).unwrap_or_default());
        data(data(bits, 4, mask), 5, &vec![0; mask.len()])
    })
}

fn compare(list: Request, how: u32, with: &[u8]) -> Request {
    expression(list, "cmp", |cmp| {
        data(number(number(cmp, 1, REGISTER), 2, how), 3, with)
    })
}

fn value(list: Request, value: u32) -> Request {
    expression(list, "immediate", |immediate| {
        data(number(immediate, 1, REGISTER), 2, &value.to_ne_bytes())
    })
}

fn verdict(list: Request, code: u32) -> Request {
    expression(list, "immediate", |immediate| {
        number(immediate, 1, VERDICT_REGISTER).nested(2 | NESTED, |data| {
            data.nested(DATA_VERDICT | NESTED, |verdict| number(verdict, 1, code))
        })
    })
}

fn family(list: Request, v6: bool) -> Request {
    let family = if v6 { FAMILY_V6 } else { FAMILY_V4 };
    compare(meta(list, META_FAMILY), EQUAL, &[family])
}

fn flags(list: Request) -> Request {
    let tcp = u8::try_from(libc::IPPROTO_TCP).unwrap_or_default();
    let list = compare(meta(list, META_PROTOCOL), EQUAL, &[tcp]);
    masked(load(list, TRANSPORT, TCP_FLAGS, 1), &[SYN | ACK])
}

/// Where the destination is in an IP header.
fn destination(v6: bool) -> u32 {
    if v6 { 24 } else { 16 }
}

/// A device's name as the kernel keeps it, filled up with zeros.
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

/// `NFT_REG_1`: sixteen bytes.
const REGISTER: u32 = 1;
/// `NFT_REG_VERDICT`
const VERDICT_REGISTER: u32 = 0;
/// `NFT_REG32_00`: the first of sixteen that have four bytes each.
const FIRST: u32 = 8;

// enum nft_meta_keys
const META_MARK: u32 = 3;
const META_IN_DEVICE: u32 = 6;
const META_OUT_DEVICE: u32 = 7;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;

// enum nft_ct_keys
const CT_STATE: u32 = 0;
const CT_MARK: u32 = 3;
/// `NF_CT_STATE_BIT(IP_CT_NEW)`
const CT_NEW: u32 = 1 << 3;

// enum nft_cmp_ops
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;

// enum nft_payload_bases
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// `NFT_FIB_RESULT_ADDRTYPE`, of the destination: `NFTA_FIB_F_DADDR`.
const FIB_TYPE: u32 = 3;
const FIB_TO: u32 = 1 << 1;

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

/// Where the flags are in a TCP header.
const TCP_FLAGS: u32 = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

const ICMP_V6: u8 = 58;
const SOLICITS_ROUTER: u8 = 133;
const ADVERTISES_NEIGHBOUR: u8 = 136;
