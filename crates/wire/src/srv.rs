//! Servers by SRV records (RFC 2782): the name of a service, the query for its records, and the meaning of an
//! answer. The service over UDP names the servers. The same service over TCP names the TCP ports of these servers, if
//! they differ from the UDP ports.
//!
//! A library decodes answers, and none is trusted: an answer must repeat the question, its names must be ones that a
//! resolver can be asked for, and at most [`RECORDS_MAX`] records are examined.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr as _;

use domain::base::iana::{Class, Rcode};
use domain::base::message_builder::QuestionBuilder;
use domain::base::name::{Name, ParsedName};
use domain::base::{Message, MessageBuilder, Rtype};
use domain::rdata::Srv;

/// The service that is asked for if only a domain was written.
const SERVICE: &str = "_quictun._udp.";

/// Longest name in text form, without a final dot (RFC 1035 section 2.3.4: 255 bytes on the wire).
const MAX_NAME: usize = 253;

/// Largest answer that is requested in a datagram: a size that arrives unfragmented (RFC 9715).
pub const DATAGRAM_MAX: u16 = 1232;

/// Limit of records of one answer that are examined. A client has at most 16 servers. The number is arbitrary; it
/// bounds the work for an answer that may have 64 KiB.
pub const RECORDS_MAX: usize = 256;

/// A service, as a person wrote it after `srv:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    written: String,
    owner: String,
    domain: String,
}

/// The reasons why a text does not name a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceNameError {
    /// The text has more than 253 characters, a part with none or more than 63, or characters that host names do not
    /// have.
    #[error("it is not a domain name: write srv:DOMAIN or srv:_quictun._udp.DOMAIN")]
    NoName,
    /// The text has a port.
    #[error("a service has no port, its records name those of its servers: write srv:DOMAIN")]
    Port,
    /// The full name is not that of a service over UDP.
    #[error(
        "its name does not begin as that of a service over UDP: write srv:_quictun._udp.DOMAIN"
    )]
    NotUdp,
}

/// One record: a server with its priority and weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvRecord {
    /// The record's priority. Clients must use the servers with the lowest number first.
    pub priority: u16,
    /// The server's share of the clients, relative to the weights of the same priority.
    pub weight: u16,
    /// The UDP port of the server.
    pub port: u16,
    /// Host name in lower case, without a final dot.
    pub target: String,
    /// TCP port of the server, if it is another one. The records of [`ServiceName::over_tcp`] name it.
    pub tls_port: Option<u16>,
}

/// Adds the TCP ports that the records of [`ServiceName::over_tcp`] name for the same hosts. Of several records for one
/// host, the one with the lowest priority number counts.
pub fn add_tls_ports(records: &mut [SrvRecord], over_tcp: &[SrvRecord]) {
    for record in records {
        let of_host = over_tcp.iter().filter(|it| it.target == record.target);
        let port = of_host.min_by_key(|it| (it.priority, it.port));
        let port = port.map(|it| it.port);
        record.tls_port = port.filter(|port| *port != record.port);
    }
}

/// The meaning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SrvAnswer {
    /// The service has records: at least one, in no particular order.
    Records {
        /// The records that name a server.
        records: Vec<SrvRecord>,
        /// Time to live of the records, seconds.
        ttl_s: u32,
    },
    /// The answer did not fit into a datagram: ask over TCP.
    Truncated,
    /// The name does not exist.
    NoName,
    /// The name has no usable SRV record.
    NoRecord,
    /// A record says that there is no such service (RFC 2782, the target ".").
    NotAvailable,
    /// The name server gives no answer, only this code (RFC 1035 section 4.1.1).
    Failed(u8),
}

/// The error for a message that does not answer the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not an answer to this query")]
pub struct NotAnAnswer;

impl ServiceName {
    /// Parses the text after `srv:`: a domain, or the full name of a service.
    ///
    /// # Errors
    ///
    /// Returns a [`ServiceNameError`] if the text does not name a service.
    pub fn parse(text: &str) -> Result<Self, ServiceNameError> {
        if text.contains(':') {
            return Err(ServiceNameError::Port);
        }
        let written = text.strip_suffix('.').unwrap_or(text);
        let (owner, domain) = if written.starts_with('_') {
            let rest = written.split_once('.').map(|(_, rest)| rest);
            let domain = rest.and_then(|rest| rest.strip_prefix("_udp."));
            (written.to_owned(), domain.ok_or(ServiceNameError::NotUdp)?)
        } else {
            (format!("{SERVICE}{written}"), written)
        };
        let is_address = domain.parse::<Ipv4Addr>().is_ok();
        if is_address || domain.starts_with('_') || !is_host_name(&owner) {
            return Err(ServiceNameError::NoName);
        }
        Ok(Self {
            owner: owner.to_ascii_lowercase(),
            domain: domain.to_ascii_lowercase(),
            written: written.to_owned(),
        })
    }

    /// Returns the name whose records are queried: `_quictun._udp.example.com`.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the domain that the person trusts, which certificates must contain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the same service over TCP, whose records name the TCP ports of its servers: `_quictun._tcp.example.com`.
    #[must_use]
    pub fn over_tcp(&self) -> Self {
        let service = self.owner.split('.').next().unwrap_or_default();
        Self {
            owner: format!("{service}._tcp.{}", self.domain),
            ..self.clone()
        }
    }

    /// Encodes the query for the service's records, with this number. It announces [`DATAGRAM_MAX`] by EDNS (RFC
    /// 6891).
    pub fn question(&self, id: u16) -> Vec<u8> {
        let mut additional = self.builder(id).additional();
        additional
            .opt(|options| {
                options.set_udp_payload_size(DATAGRAM_MAX);
                Ok(())
            })
            .expect("invariant: a question and a size fit into 64 KiB");
        additional.finish()
    }

    /// Encodes the same query without EDNS, for name servers that do not know it. Their datagrams have at most 512
    /// bytes.
    pub fn plain_question(&self, id: u16) -> Vec<u8> {
        self.builder(id).finish()
    }

    fn builder(&self, id: u16) -> QuestionBuilder<Vec<u8>> {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(id);
        message.header_mut().set_rd(true);
        let mut question = message.question();
        question
            .push((&self.name(), Rtype::SRV, Class::IN))
            .expect("invariant: a question fits into 64 KiB");
        question
    }

    /// Decodes the answer to the query with this number.
    ///
    /// # Errors
    ///
    /// Returns [`NotAnAnswer`] if the message is something else, or malformed.
    pub fn answer(&self, id: u16, message: &[u8]) -> Result<SrvAnswer, NotAnAnswer> {
        let message = Message::from_slice(message).map_err(|_| NotAnAnswer)?;
        let header = message.header();
        if !header.qr() || header.id() != id {
            return Err(NotAnAnswer);
        }
        if header.rcode() == Rcode::FORMERR && message.header_counts().qdcount() == 0 {
            // A name server that cannot parse the question cannot repeat it.
            return Ok(SrvAnswer::Failed(Rcode::FORMERR.to_int()));
        }
        let asked = message.sole_question().map_err(|_| NotAnAnswer)?;
        let is_it = asked.qtype() == Rtype::SRV && asked.qclass() == Class::IN;
        if !is_it || *asked.qname() != self.name() {
            return Err(NotAnAnswer);
        }
        if header.tc() {
            return Ok(SrvAnswer::Truncated);
        }
        match header.rcode() {
            Rcode::NOERROR => read_records(message),
            Rcode::NXDOMAIN => Ok(SrvAnswer::NoName),
            other => Ok(SrvAnswer::Failed(other.to_int())),
        }
    }

    fn name(&self) -> Name<Vec<u8>> {
        Name::from_str(&self.owner).expect("invariant: parse() has looked at its parts")
    }
}

/// Formats the service as a person writes it: `srv:example.com`.
impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srv:{}", self.written)
    }
}

fn read_records(message: &Message<[u8]>) -> Result<SrvAnswer, NotAnAnswer> {
    // The records may belong to another name, to which an alias leads.
    let owner = message.canonical_name().ok_or(NotAnAnswer)?;
    let (mut records, mut ttl_s, mut not_available) = (Vec::new(), u32::MAX, false);
    let section = message.answer().map_err(|_| NotAnAnswer)?;
    for record in section.take(RECORDS_MAX) {
        let record = record.map_err(|_| NotAnAnswer)?;
        ttl_s = ttl_s.min(record.ttl().as_secs());
        if record.owner() != owner || record.class() != Class::IN {
            continue;
        }
        let Ok(Some(record)) = record.into_record::<Srv<ParsedName<_>>>() else {
            continue;
        };
        let srv = record.data();
        if srv.target().is_root() {
            not_available = true;
            continue;
        }
        let target = srv.target().to_string().to_ascii_lowercase();
        if srv.port() != 0 && is_host_name(&target) {
            records.push(SrvRecord {
                priority: srv.priority(),
                weight: srv.weight(),
                port: srv.port(),
                target,
                tls_port: None,
            });
        }
    }
    Ok(match (records.is_empty(), not_available) {
        (false, _) => SrvAnswer::Records { records, ttl_s },
        (true, true) => SrvAnswer::NotAvailable,
        (true, false) => SrvAnswer::NoRecord,
    })
}

/// Returns whether a resolver may be asked for a name: its parts have 1 to 63 letters, digits, hyphens and underscores.
fn is_host_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        (1..=63).contains(&part.len())
            && !part.starts_with('-')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= MAX_NAME && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests;
