//! Reads the state of a server or a client, and checks it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::write::{
    ANSWERED, ASKED, BY_CERTIFICATE, BY_NAME, BY_SERVER, BY_SOURCE, DATAGRAMS, END_REPORTED, FLAGS,
    HALF_CLOSED, HAS_CLIENT, HAS_SOURCE, HAS_VISITOR, NO_ADDRESS, RECEIVED_FINISHED, RESET,
    SENT_FINISHED, TCP, UNIX, V4, V6, WHOLE,
};
use super::{
    DIGEST_LEN, HandedBond, HandedFlow, HandedHolder, HandedReceived, HandedSent, HandedSocket,
    HandedVisitor, Handover, HandoverError, HandoverKind, MAX_STATE_TEXT, MAX_WORKERS,
};
use crate::bond::{MAX_TTL_S, SERVER_NUMBERS};
use crate::listening::{IncomingPeer, ListenAddress};
use crate::varint;

type Result<T> = std::result::Result<T, HandoverError>;

/// The bytes that were not read yet.
#[derive(Clone, Copy)]
pub(super) struct StateReader<'a>(pub(super) &'a [u8]);

impl<'a> StateReader<'a> {
    pub(super) fn number(&mut self) -> Result<u64> {
        let (number, rest) = varint::decode(self.0).ok_or(HandoverError::Length)?;
        self.0 = rest;
        Ok(number)
    }

    fn number_below<T: TryFrom<u64>>(&mut self, name: &'static str) -> Result<T> {
        T::try_from(self.number()?).map_err(|_| HandoverError::Value(name))
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let (array, rest) = self.0.split_first_chunk().ok_or(HandoverError::Length)?;
        self.0 = rest;
        Ok(*array)
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| HandoverError::Length)?;
        let split = self.0.split_at_checked(length);
        let (bytes, rest) = split.ok_or(HandoverError::Length)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?).ok();
        let text = text.filter(|text| text.len() <= MAX_STATE_TEXT);
        text.map(str::to_owned).ok_or(HandoverError::Value(name))
    }

    /// Reads as many items as the number in front says. Each item takes at least a byte, so a wrong number costs nothing.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// Reads a record, which has its length in front, to its end.
    fn record<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut record = Self(self.bytes()?);
        let value = read(&mut record)?;
        record.end()?;
        Ok(value)
    }

    pub(super) fn end(self) -> Result<()> {
        self.0.is_empty().then_some(()).ok_or(HandoverError::Length)
    }

    fn ip_of(&mut self, family: u64) -> Result<IpAddr> {
        match family {
            V4 => Ok(self.array::<4>()?.into()),
            V6 => Ok(self.array::<16>()?.into()),
            _ => Err(HandoverError::Value("the family of an address")),
        }
    }

    pub(super) fn address(&mut self) -> Result<SocketAddr> {
        let family = self.number()?;
        self.address_of(family)
    }

    fn address_of(&mut self, family: u64) -> Result<SocketAddr> {
        let ip = self.ip_of(family)?;
        let port = self.number_below("a port")?;
        Ok(match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(v6) => {
                let scope = self.number_below("the zone of an address")?;
                SocketAddrV6::new(v6, port, 0, scope).into()
            }
        })
    }
}

pub(super) fn body(mut reader: StateReader<'_>, kind: HandoverKind) -> Result<Handover> {
    let month = reader.text("the month")?;
    let usage = reader.list(|reader| Ok((reader.text("a client's name")?, reader.number()?)))?;
    let workers =
        reader.list(|reader| reader.list(|reader| reader.record(|reader| bond(reader, kind))))?;
    reader.end()?;
    let has_usage = !(month.is_empty() && usage.is_empty());
    check(kind == HandoverKind::Server || !has_usage, "the usage")?;
    check(
        (1..=MAX_WORKERS).contains(&workers.len()),
        "the number of workers",
    )?;
    let mut ids = BTreeSet::new();
    let mut bonds = workers.iter().flatten();
    check(
        bonds.all(|bond| ids.insert(bond.id)),
        "a bond that occurs twice",
    )?;
    Ok(Handover {
        kind,
        month,
        usage,
        workers,
    })
}

fn check(holds: bool, name: &'static str) -> Result<()> {
    holds.then_some(()).ok_or(HandoverError::Value(name))
}

fn bond(reader: &mut StateReader<'_>, kind: HandoverKind) -> Result<HandedBond> {
    let (id, secret) = (reader.array()?, reader.array()?);
    let of_server = kind == HandoverKind::Server;
    let holder = holder(reader)?;
    let is_server = matches!(holder, HandedHolder::Server { .. });
    check(of_server != is_server, "the holder of a bond")?;
    let proofs = reader.list(StateReader::array::<DIGEST_LEN>)?;
    check(of_server || proofs.is_empty(), "the proofs of a bond")?;
    let (ttl_s, next_number) = (reader.number()?, reader.number()?);
    check(ttl_s <= MAX_TTL_S, "the time of a bond")?;
    let of_servers = next_number >= SERVER_NUMBERS;
    check(of_server == of_servers, "the next number of a bond")?;
    let ended = reader.list(|reader| Ok((reader.number()?, reader.number()?)))?;
    let flows = reader.list(|reader| reader.record(flow))?;
    let mut numbers: BTreeSet<u64> = ended.iter().map(|(number, _)| *number).collect();
    check(numbers.len() == ended.len(), "a flow that has ended twice")?;
    for flow in &flows {
        check(numbers.insert(flow.number), "a flow that occurs twice")?;
        let by_server = flow.number >= SERVER_NUMBERS;
        let has_visitor = flow.visitor.is_some();
        check(
            has_visitor == (by_server && of_server),
            "the visitor of a flow",
        )?;
        let is_peers = by_server != of_server;
        check(
            is_peers || flow.number < next_number,
            "the number of a flow",
        )?;
    }
    Ok(HandedBond {
        id,
        secret,
        holder,
        proofs,
        ttl_s,
        next_number,
        ended,
        flows,
    })
}

fn holder(reader: &mut StateReader<'_>) -> Result<HandedHolder> {
    Ok(match reader.number()? {
        BY_SOURCE => {
            let family = reader.number()?;
            HandedHolder::Source(reader.ip_of(family)?)
        }
        BY_NAME => HandedHolder::Named(reader.text("a client's name")?),
        BY_CERTIFICATE => HandedHolder::Certificate(reader.array()?),
        BY_SERVER => HandedHolder::Server {
            address: reader.text("the address of a server")?,
            route: reader.number_below("the worker of a server")?,
        },
        _ => return Err(HandoverError::Value("the holder of a bond")),
    })
}

fn flow(reader: &mut StateReader<'_>) -> Result<HandedFlow> {
    let (number, leg, flags) = (reader.number()?, reader.number()?, reader.number()?);
    check(flags & !FLAGS == 0, "a flag of a flow")?;
    let has = |bit: u64| flags & bit != 0;
    let token = reader.text("the target of a flow")?;
    let client_app = reader.text("the application of a flow")?;
    let server_app = reader.text("the application of a flow")?;
    let client = has(HAS_CLIENT).then(|| reader.text("a client's name"));
    let client = client.transpose()?;
    let remote = reader.address()?;
    let source = has(HAS_SOURCE).then(|| reader.address()).transpose()?;
    let (age_ms, wait_ms, stalled_ms) = (reader.number()?, reader.number()?, reader.number()?);
    check(wait_ms <= MAX_TTL_S * 1000, "the time that a flow waits")?;
    let sent = HandedSent {
        bytes: reader.number()?,
        seen: reader.number()?,
        kept_from: reader.number()?,
        kept: reader.bytes()?.to_vec(),
        finished: has(SENT_FINISHED),
    };
    let received = HandedReceived {
        delivered: reader.number()?,
        waiting: reader.bytes()?.to_vec(),
        whole: has(WHOLE),
        finished: has(RECEIVED_FINISHED),
        end_reported: has(END_REPORTED),
    };
    check_counts(&sent, &received)?;
    let socket = match reader.number()? {
        TCP => {
            let marks = reader.number()?;
            check(marks <= RESET + HALF_CLOSED, "the state of a socket")?;
            HandedSocket::Tcp {
                reset: marks & RESET != 0,
                half_closed: marks & HALF_CLOSED != 0,
            }
        }
        UNIX => HandedSocket::Unix,
        DATAGRAMS => HandedSocket::Datagrams(reader.address()?),
        _ => return Err(HandoverError::Value("the kind of a socket")),
    };
    let visitor = has(HAS_VISITOR).then(|| visitor(reader)).transpose()?;
    Ok(HandedFlow {
        number,
        leg,
        token,
        client_app,
        server_app,
        client,
        remote,
        source,
        age_ms,
        wait_ms,
        stalled_ms,
        sent,
        received,
        answered: has(ANSWERED),
        asked: has(ASKED),
        socket,
        visitor,
    })
}

/// Checks that the counts of both directions fit together: a wrong one would lose bytes, or repeat them.
fn check_counts(sent: &HandedSent, received: &HandedReceived) -> Result<()> {
    let kept_end = sent.kept_from + sent.kept.len() as u64;
    check(sent.bytes <= kept_end, "the number of sent bytes")?;
    check(
        !sent.finished || sent.bytes == kept_end,
        "a FIN before the last byte",
    )?;
    check(sent.seen <= sent.end(), "the number of confirmed bytes")?;
    let all = received.whole && received.waiting.is_empty();
    check(
        !received.finished || all,
        "a FIN before the last byte of the peer",
    )?;
    check(
        received.whole || !received.end_reported,
        "the report of a FIN",
    )
}

fn visitor(reader: &mut StateReader<'_>) -> Result<HandedVisitor> {
    let peer = match reader.number()? {
        NO_ADDRESS => IncomingPeer::Unix,
        family => IncomingPeer::Ip(reader.address_of(family)?),
    };
    let asked = ListenAddress::parse(&reader.text("the address of a listener")?);
    let asked = asked.map_err(|_| HandoverError::Value("the address of a listener"))?;
    Ok(HandedVisitor { peer, asked })
}
