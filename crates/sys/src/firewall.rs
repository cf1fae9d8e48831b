//! A table of packet filter rules of our own (`nf_tables`), written to the kernel in one transaction.
//!
//! A [`Firewall`] collects chains and rules; [`Firewall::install`] replaces the table of that name by them: packets see
//! the old table or the new one, never half of either. The table stays when the process ends. A rule is a list of
//! [`Part`]s: conditions, then what is done where all of them hold.

mod expression;

use std::io;
use std::net::SocketAddr;

use ipnet::IpNet;
use rustix::net::netlink::NETFILTER;

use crate::netlink::{Netlink, Request};
use crate::network::octets;

/// A table that is to be installed.
#[derive(Debug)]
pub struct Firewall {
    name: String,
    requests: Vec<Request>,
    sets: u32,
}

/// Where a chain sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets that came in, before the kernel decides where they go.
    Arriving,
    /// Packets of this host, which are routed again where the chain has changed their mark.
    Leaving,
    /// All packets that are about to leave by a device, those of this host and forwarded ones.
    Passing,
}

/// A condition, or what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// It came in by this device.
    From(&'a str),
    /// It leaves by this device.
    Through(&'a str),
    /// It leaves by another device.
    NotThrough(&'a str),
    /// It goes to this network.
    To(IpNet),
    /// It goes to an address of this host.
    ToThisHost,
    /// It is of this protocol: TCP is 6.
    Protocol(u8),
    /// It has this source port, of TCP or UDP.
    SourcePort(u16),
    /// It has this destination port, of TCP or UDP.
    Port(u16),
    /// It asks for, or answers about, a neighbour: types 133 to 136 of `ICMPv6`.
    NeighbourDiscovery,
    /// It begins a TCP connection: SYN without ACK.
    Begins,
    /// It does not begin a TCP connection.
    Continues,
    /// It is the first packet of its connection that this host sees.
    IsNew,
    /// It has this mark.
    Marked(u32),
    /// Its connection has this mark.
    ConnectionMarked(u32),
    /// It goes from and to an address and port in this set of connections.
    In(Set),
    /// Gives it a mark.
    Mark(u32),
    /// Gives its connection a mark.
    MarkConnection(u32),
    /// Lets it go; this chain has no more to say.
    Accept,
    /// Takes it away. Its sender, if it is a program of this host, may see `EPERM`.
    Drop,
}

/// A set of connections, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    number: u32,
    v6: bool,
}

impl Firewall {
    /// A table without anything in it.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            // Deleting what is not there is an error, making what is there is none.
            requests: vec![make(name), delete(name), make(name)],
            sets: 0,
        }
    }

    /// Adds a chain that lets through what its rules do not decide. Chains of a lower `priority` see packets earlier.
    pub fn chain(&mut self, name: &str, hook: Hook, priority: i32) {
        let (kind, number) = match hook {
            Hook::Arriving => ("filter", libc::NF_INET_PRE_ROUTING),
            Hook::Leaving => ("route", libc::NF_INET_LOCAL_OUT),
            Hook::Passing => ("filter", libc::NF_INET_POST_ROUTING),
        };
        let request = message(libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE)
            .with_text(CHAIN_TABLE, &self.name)
            .with_text(CHAIN_NAME, name)
            .nested(CHAIN_HOOK | NESTED, |hook| {
                hook.with(HOOK_NUMBER, &number.to_be_bytes())
                    .with(HOOK_PRIORITY, &priority.to_be_bytes())
            })
            .with_text(CHAIN_TYPE, kind);
        self.requests.push(request);
    }

    /// Adds a rule at the end of a chain.
    pub fn rule(&mut self, chain: &str, parts: &[Part<'_>]) {
        let request = message(
            libc::NFT_MSG_NEWRULE,
            libc::NLM_F_CREATE | libc::NLM_F_APPEND,
        )
        .with_text(RULE_TABLE, &self.name)
        .with_text(RULE_CHAIN, chain)
        .nested(RULE_EXPRESSIONS | NESTED, |list| {
            parts.iter().fold(list, |list, part| part.write(list))
        });
        self.requests.push(request);
    }

    /// Adds a set of the connections from an address of this host (first) to another one. Those of the other family
    /// are left out.
    pub fn connections(&mut self, v6: bool, all: &[(SocketAddr, SocketAddr)]) -> Set {
        self.sets += 1;
        let set = Set {
            number: self.sets,
            v6,
        };
        // Address and ports, in registers of four bytes.
        let length: u32 = if v6 { 16 + 4 } else { 4 + 4 };
        let request = message(libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE)
            .with_text(SET_TABLE, &self.name)
            .with_text(SET_NAME, &set.name())
            .with(SET_FLAGS, &0_u32.to_be_bytes())
            .with(SET_KEY_TYPE, &0_u32.to_be_bytes())
            .with(SET_KEY_LENGTH, &length.to_be_bytes())
            .with(SET_ID, &set.number.to_be_bytes());
        self.requests.push(request);
        let keys = all.iter().filter(|(_, there)| there.is_ipv6() == v6);
        let keys: Vec<_> = keys.map(|(here, there)| key(*here, *there)).collect();
        for some in keys.chunks(ELEMENTS) {
            let request = message(libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE)
                .with_text(ELEMENTS_TABLE, &self.name)
                .with_text(ELEMENTS_SET, &set.name())
                .with(ELEMENTS_SET_ID, &set.number.to_be_bytes())
                .nested(ELEMENTS_LIST | NESTED, |list| {
                    some.iter().fold(list, |list, key| {
                        list.nested(LIST_ELEMENT | NESTED, |element| {
                            element.nested(ELEMENT_KEY | NESTED, |data| data.with(DATA_VALUE, key))
                        })
                    })
                });
            self.requests.push(request);
        }
        set
    }

    /// Puts the table in place of the one of that name, if there is one, in the calling thread's network. Fails with
    /// `PermissionDenied` without `CAP_NET_ADMIN` there.
    pub fn install(self) -> io::Result<()> {
        Netlink::open(Some(NETFILTER))?.ask_all(self.requests)
    }

    /// Removes a table of this name; whether there was one.
    pub fn remove(name: &str) -> io::Result<bool> {
        match Netlink::open(Some(NETFILTER))?.ask_all(vec![delete(name)]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Set {
    fn name(self) -> String {
        format!("connections{}", self.number)
    }
}

fn key(here: SocketAddr, there: SocketAddr) -> Vec<u8> {
    let mut key = octets(there.ip());
    key.extend(here.port().to_be_bytes());
    key.extend(there.port().to_be_bytes());
    key
}

fn make(name: &str) -> Request {
    message(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE)
        .with_text(TABLE_NAME, name)
        .with(TABLE_FLAGS, &0_u32.to_be_bytes())
}

fn delete(name: &str) -> Request {
    message(libc::NFT_MSG_DELTABLE, 0).with_text(TABLE_NAME, name)
}

fn message(kind: libc::c_int, flags: i32) -> Request {
    let kind = u16::try_from(libc::NFNL_SUBSYS_NFTABLES << 8 | kind).unwrap_or_default();
    // struct nfgenmsg: family (both), version, nothing more.
    Request::new(kind, flags, &[INET, 0, 0, 0])
}

/// `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;

// linux/netfilter/nf_tables.h
const LIST_ELEMENT: u16 = 1;
const DATA_VALUE: u16 = 1;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_ID: u16 = 10;
const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS_LIST: u16 = 3;
const ELEMENTS_SET_ID: u16 = 4;
const ELEMENT_KEY: u16 = 1;

/// Connections in one message, whose list has to be shorter than 64 KiB.
const ELEMENTS: usize = 1000;

#[cfg(test)]
mod tests;
