//! The first message of a client, which names the worker that has its bond.
//!
//! The kernel gives a TCP connection to any worker. A client that continues a bond therefore offers, beside its protocol,
//! one whose name is the number of the worker (PROTOCOL TCP-4). A server never selects it.

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

/// Reads the first bytes of a client, each of them once: they may arrive one by one.
#[derive(Default)]
pub(super) struct HelloReader {
    acceptor: Acceptor,
    /// Number of bytes of whole records that were parsed.
    parsed: usize,
}

impl HelloReader {
    /// Reads the bytes that have arrived so far.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Hello {
        if bytes.len() > HELLO_MAX {
            return Hello::Invalid;
        }
        while let Some(mut record) = first_record(&bytes[self.parsed..]) {
            self.parsed += record.len();
            while !record.is_empty() {
                if self.acceptor.read_tls(&mut record).is_err() {
                    return Hello::Invalid;
                }
            }
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    let mut names = accepted.client_hello().alpn().into_iter().flatten();
                    return Hello::Complete(names.find_map(worker_of));
                }
                Ok(None) => {}
                Err(_) => return Hello::Invalid,
            }
        }
        // The header alone shows that a peer speaks another protocol.
        match &bytes[self.parsed..] {
            [kind, ..] if *kind != HANDSHAKE => Hello::Invalid,
            _ => Hello::Incomplete,
        }
    }
}

impl std::fmt::Debug for HelloReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HelloReader")
            .field("parsed", &self.parsed)
            .finish_non_exhaustive()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// Returns the first message of a client that offers these protocols.
    fn first_message(protocols: &[&[u8]]) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider supports TLS 1.3");
        let roots = RootCertStore::empty();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = "server.example".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut message = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut message).expect("memory takes all");
        }
        message
    }

    /// Gives a reader one byte more at a time. Returns the first answer that is final, and the number of bytes before.
    fn read_by_bytes(bytes: &[u8]) -> Option<(Hello, usize)> {
        let mut reader = HelloReader::default();
        let answers = (1..=bytes.len()).map(|count| (reader.read(&bytes[..count]), count));
        answers
            .into_iter()
            .find(|(answer, _)| *answer != Hello::Incomplete)
    }

    #[test]
    fn a_message_is_complete_with_its_last_byte_and_names_its_worker() {
        for worker in [None, Some(0), Some(255)] {
            let named = worker.map(protocol_of_worker);
            let names = [b"quictun/1-qmux02".to_vec()].into_iter().chain(named);
            let names: Vec<Vec<u8>> = names.collect();
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let message = first_message(&names);
            let found = (Hello::Complete(worker), message.len());
            assert_eq!(read_by_bytes(&message), Some(found));
        }
    }

    #[test]
    fn a_worker_that_cannot_exist_is_none() {
        for name in [
            "quictun-worker/",
            "quictun-worker/256",
            "quictun-worker/x",
            "worker/1",
        ] {
            let message = first_message(&[name.as_bytes()]);
            assert_eq!(
                HelloReader::default().read(&message),
                Hello::Complete(None),
                "{name}"
            );
        }
    }

    #[test]
    fn other_protocols_and_long_messages_are_invalid_at_once() {
        assert_eq!(read_by_bytes(b"GET / HTTP/1.1"), Some((Hello::Invalid, 1)));
        // A record whose message is not a `ClientHello`.
        let finished = [22, 3, 1, 0, 4, 20, 0, 0, 0];
        assert_eq!(read_by_bytes(&finished), Some((Hello::Invalid, 9)));
        // Records of one byte each, of a message that announces 64 KiB.
        let mut tiny = [
            [22, 3, 1, 0, 1, 1],
            [22, 3, 1, 0, 1, 0],
            [22, 3, 1, 0, 1, 0xff],
        ]
        .concat();
        while tiny.len() <= HELLO_MAX {
            tiny.extend([22, 3, 1, 0, 1, 0]);
        }
        let found = read_by_bytes(&tiny).expect("an end");
        assert_eq!(found.0, Hello::Invalid);
        assert!(found.1 <= HELLO_MAX + 1, "{}", found.1);
    }
}
