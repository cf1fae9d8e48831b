//! A table of packet filter rules (`nf_tables`) that belongs to this program, written to the kernel in one transaction.
//!
//! A [`Firewall`] collects chains and rules. [`Firewall::install`] replaces the table of that name by them: packets see
//! the old table or the new one, never a mixture. The table stays when the process ends. A rule is a list of
//! [`Statement`]s: conditions, then actions for packets that meet all of them.

mod expression;

use std::io;
use std::net::SocketAddr;

use ipnet::IpNet;
use rustix::net::netlink::NETFILTER;

use crate::netlink::{Netlink, Request};
use crate::network::octets;

/// A table to be installed.
#[derive(Debug)]
pub struct Firewall {
    name: String,
    requests: Vec<Request>,
    sets: u32,
}

/// The point at which a chain sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets that were received, before the kernel routes them.
    Prerouting,
    /// Packets of this host. They are routed again if the chain changed their mark.
    Output,
    /// All packets that are about to leave by a device: those of this host and forwarded ones.
    Postrouting,
}

/// A condition on a packet, or an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// The packet was received by this device.
    From(&'a str),
    /// The packet leaves by this device.
    Through(&'a str),
    /// The packet's destination is in this network.
    To(IpNet),
    /// The packet's destination is an address of this host.
    ToThisHost,
    /// The packet has this protocol: TCP is 6.
    Protocol(u8),
    /// The packet has this TCP or UDP source port.
    SourcePort(u16),
    /// The packet has this TCP or UDP destination port.
    Port(u16),
    /// The packet belongs to neighbour discovery: types 133 to 136 of `ICMPv6`.
    NeighbourDiscovery,
    /// The packet begins a TCP connection: SYN without ACK.
    Begins,
    /// The TCP packet does not begin a connection.
    Continues,
    /// The packet is the first of its connection that this host sees.
    IsNew,
    /// The packet has this mark.
    Marked(u32),
    /// The packet's connection has this mark.
    ConnectionMarked(u32),
    /// The packet's addresses and ports are those of a connection in this set.
    In(ConnectionSet),
    /// Sets the packet's mark.
    Mark(u32),
    /// Sets the mark of the packet's connection.
    MarkConnection(u32),
    /// Accepts the packet, and ends its way through this chain.
    Accept,
    /// Drops the packet. If its sender is a program of this host, it may see `EPERM`.
    Drop,
}

/// A set of connections of one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSet {
    number: u32,
    v6: bool,
}

impl Firewall {
    /// Makes an empty table.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            // The first request makes sure that the table exists: deleting a missing table is an error, making an
            // existing one is not.
            requests: vec![make(name), delete(name), make(name)],
            sets: 0,
        }
    }

    /// Adds a chain that accepts packets which its rules do not decide. Chains with a lower `priority` see packets
    /// earlier.
    pub fn chain(&mut self, name: &str, hook: Hook, priority: i32) {
        let (kind, number) = match hook {
            Hook::Prerouting => ("filter", libc::NF_INET_PRE_ROUTING),
            Hook::Output => ("route", libc::NF_INET_LOCAL_OUT),
            Hook::Postrouting => ("filter", libc::NF_INET_POST_ROUTING),
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
    pub fn rule(&mut self, chain: &str, parts: &[Statement<'_>]) {
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

    /// Adds a set of connections, each from an address of this host (first) to another address. Connections of the
    /// other address family are left out.
    pub fn connections(&mut self, v6: bool, all: &[(SocketAddr, SocketAddr)]) -> ConnectionSet {
        self.sets += 1;
        let set = ConnectionSet {
            number: self.sets,
            v6,
        };
        // Length of address and ports, in registers of four bytes.
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

    /// Installs the table in the calling thread's network. It replaces a table of the same name, if there is one. Fails
    /// with `PermissionDenied` without `CAP_NET_ADMIN` there.
    pub fn install(self) -> io::Result<()> {
        Netlink::open(Some(NETFILTER))?.execute_all(self.requests)
    }

    /// Removes the table of this name. Returns whether it existed.
    pub fn remove(name: &str) -> io::Result<bool> {
        match Netlink::open(Some(NETFILTER))?.execute_all(vec![delete(name)]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl ConnectionSet {
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
    // struct nfgenmsg: family (both), version, no resource id.
    Request::new(kind, flags, &[INET, 0, 0, 0])
}

/// `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
/// The attribute flag `NLA_F_NESTED`.
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

/// Connections in one message, whose list must be shorter than 64 KiB.
const ELEMENTS: usize = 1000;

#[cfg(test)]
mod tests;
