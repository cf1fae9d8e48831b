//! A query to name servers for the SRV records of a service: in a datagram, and over TCP if the answer does not fit
//! into one.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quictun_io::udp_port::any_address;
use quictun_wire::srv::{DATAGRAM_MAX, ServiceName, SrvAnswer, SrvRecord};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Time that one name server has for its answer, over each of UDP and TCP.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of rounds in which all name servers are asked, since datagrams may be lost.
const ROUNDS: usize = 2;

/// Response codes of a name server that does not know EDNS (RFC 6891 section 7).
const FORMERR: u8 = 1;
const NOTIMP: u8 = 4;

/// The reasons why no records of a service are known.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordsError {
    #[error(
        "{0} does not exist in the DNS: give it SRV records, or name a server with --server HOST"
    )]
    NoName(String),
    #[error(
        "{0} has no SRV record that names a server: give it one, or name a server with --server HOST"
    )]
    NoRecord(String),
    #[error(
        "the SRV record of {0} says that there is no such service (its target is \".\"): ask the administrator of that domain, or name a server with --server HOST"
    )]
    NotAvailable(String),
    #[error(
        "no name server can give the SRV records of {name}: {server} answers {answer}", answer = rcode(*.code)
    )]
    Failed {
        name: String,
        server: SocketAddr,
        code: u8,
    },
    #[error(
        "no name server has answered a query for the SRV records of {name} ({asked}): is the DNS server reachable?"
    )]
    Silent { name: String, asked: String },
}

impl RecordsError {
    /// Returns whether a name server has said that there are no records.
    pub(super) fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoName(_) | Self::NoRecord(_) | Self::NotAvailable(_)
        )
    }
}

/// The records that were found, and their time to live, seconds.
pub(super) type FoundRecords = (Vec<SrvRecord>, u32);

/// Asks these name servers, one after the other, until one gives a definite answer. `number` returns an unpredictable
/// number for each query.
pub(super) async fn query(
    service: &ServiceName,
    servers: &[SocketAddr],
    number: impl Fn() -> u16,
) -> Result<FoundRecords, RecordsError> {
    let name = || service.owner().to_owned();
    let mut failed = None;
    let mut asked: Vec<QueriedServer> = servers.iter().copied().map(QueriedServer::new).collect();
    for turn in 0..asked.len() * ROUNDS {
        let index = turn % servers.len();
        let server = &servers[index];
        match asked[index].query(service, &number).await {
            Ok(SrvAnswer::Records { records, ttl_s }) => return Ok((records, ttl_s)),
            Ok(SrvAnswer::NoName) => return Err(RecordsError::NoName(name())),
            Ok(SrvAnswer::NoRecord) => return Err(RecordsError::NoRecord(name())),
            Ok(SrvAnswer::NotAvailable) => return Err(RecordsError::NotAvailable(name())),
            Ok(SrvAnswer::Failed(code)) => failed = Some((*server, code)),
            // An answer that is truncated over TCP, too, counts as none.
            Ok(SrvAnswer::Truncated) | Err(_) => {}
        }
    }
    let name = name();
    if let Some((server, code)) = failed {
        return Err(RecordsError::Failed { name, server, code });
    }
    let asked: Vec<String> = servers.iter().map(|it| it.ip().to_string()).collect();
    let asked = asked.join(", ");
    Err(RecordsError::Silent { name, asked })
}

/// A name server, and whether it is asked without EDNS.
struct QueriedServer {
    server: SocketAddr,
    is_plain: bool,
}

impl QueriedServer {
    fn new(server: SocketAddr) -> Self {
        let is_plain = false;
        Self { server, is_plain }
    }

    /// Asks with EDNS. If the name server answers with a code for unknown extensions, it is asked again at once without
    /// EDNS. If it does not answer, the next query to it is without EDNS: some devices drop queries with EDNS (RFC 6891
    /// section 6.2.2).
    async fn query(
        &mut self,
        service: &ServiceName,
        number: &impl Fn() -> u16,
    ) -> io::Result<SrvAnswer> {
        if !self.is_plain {
            let id = number();
            let question = service.question(id);
            let answer = self.exchange(service, id, &question).await;
            let refuses = matches!(answer, Ok(SrvAnswer::Failed(FORMERR | NOTIMP)));
            self.is_plain = refuses || answer.is_err();
            if !refuses {
                return answer;
            }
        }
        let id = number();
        self.exchange(service, id, &service.plain_question(id))
            .await
    }

    async fn exchange(
        &self,
        service: &ServiceName,
        id: u16,
        question: &[u8],
    ) -> io::Result<SrvAnswer> {
        let server = self.server;
        // Other messages are ignored: they are late, forged or malformed. A time-out ends the wait for the answer.
        let is_it = |message: &[u8]| service.answer(id, message).ok();
        let answer = timeout(ANSWER_TIMEOUT, by_datagram(server, question, is_it)).await??;
        if answer != SrvAnswer::Truncated {
            return Ok(answer);
        }
        timeout(ANSWER_TIMEOUT, by_stream(server, question, is_it)).await?
    }
}

/// Asks in a datagram. `is_it` returns the answer if a message is one.
async fn by_datagram(
    server: SocketAddr,
    question: &[u8],
    is_it: impl Fn(&[u8]) -> Option<SrvAnswer>,
) -> io::Result<SrvAnswer> {
    let socket = UdpSocket::bind(any_address(server.is_ipv6())).await?;
    // A connected socket receives datagrams from this name server only, and reports an error if nothing listens there.
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; DATAGRAM_MAX as usize];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Other datagrams may be forged or late, and the right one may follow.
        if let Some(answer) = is_it(&buffer[..length]) {
            return Ok(answer);
        }
    }
}

/// Asks over TCP (RFC 7766): a length of two bytes comes first, and bounds the answer.
async fn by_stream(
    server: SocketAddr,
    question: &[u8],
    is_it: impl Fn(&[u8]) -> Option<SrvAnswer>,
) -> io::Result<SrvAnswer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    is_it(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the name of a response code (RFC 6895 section 2.3).
fn rcode(code: u8) -> String {
    match code {
        FORMERR => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        NOTIMP => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        other => format!("with the code {other}"),
    }
}

#[cfg(test)]
mod tests;
