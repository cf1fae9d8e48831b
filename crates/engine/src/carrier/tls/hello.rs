//! The first message of a client, which names the worker that has its bond.
//!
//! The kernel gives a TCP connection to any worker. A client that continues a bond therefore offers, beside its protocol,
//! one whose name is the number of the worker (PROTOCOL TLS-4). A server never selects it.

use rustls::server::Acceptor;

/// Length of the longest `ClientHello` that is read. One with ML-KEM has 1.8 kB.
const HELLO_MAX: usize = 16 * 1024;

/// Name of the protocol that names a worker, without the number.
const WORKER: &str = "quictun-worker/";

/// Bytes of a record before its content, two of which are the length.
const HEADER: usize = 5;

/// Returns the name of the protocol that names a worker.
pub(super) fn protocol_of_worker(worker: u8) -> Vec<u8> {
    format!("{WORKER}{worker}").into_bytes()
}

/// The content of the first bytes of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// More bytes have to arrive.
    Incomplete,
    /// The whole message, with the worker that it names.
    Complete(Option<u8>),
    /// The bytes are no `ClientHello`, or too long. The TLS library finds out how to answer.
    Invalid,
}

impl Hello {
    /// Reads the first bytes of a client.
    pub(super) fn read(bytes: &[u8]) -> Self {
        if bytes.len() > HELLO_MAX {
            return Self::Invalid;
        }
        let mut acceptor = Acceptor::default();
        let mut left = bytes;
        // Parses whole records only, because the bytes may arrive one by one.
        while let Some(record) = first_record(left) {
            left = &left[record.len()..];
            let mut record = record;
            while !record.is_empty() {
                if acceptor.read_tls(&mut record).is_err() {
                    return Self::Invalid;
                }
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let mut names = accepted.client_hello().alpn().into_iter().flatten();
                    return Self::Complete(names.find_map(worker_of));
                }
                Ok(None) => {}
                Err(_) => return Self::Invalid,
            }
        }
        // The header alone shows that a peer speaks another protocol.
        match left {
            [kind, ..] if *kind != HANDSHAKE => Self::Invalid,
            _ => Self::Incomplete,
        }
    }
}

/// The content type of a handshake record (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

fn first_record(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.get(3..HEADER)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    bytes.get(..HEADER + length)
}

fn worker_of(name: &[u8]) -> Option<u8> {
    let number = name.strip_prefix(WORKER.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}
