//! rustls, with its own record layer, as the peer.

use std::io::{self, Read as _, Write as _};

use quictun_tls::TlsError;
use quictun_tls::check::End;
use rustls::Connection;

/// A connection of rustls, and the plaintext that has arrived at it.
pub(crate) struct ForeignPeer {
    pub(crate) tls: Connection,
    pub(crate) plaintext: Vec<u8>,
}

impl ForeignPeer {
    pub(crate) fn new(tls: impl Into<Connection>) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(None);
        let plaintext = Vec::new();
        Self { tls, plaintext }
    }

    pub(crate) fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("writing to memory");
        }
        out
    }

    pub(crate) fn handle(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).expect("reading from memory");
            self.tls.process_new_packets()?;
            match self.tls.reader().read_to_end(&mut self.plaintext) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, data: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(data).expect("no limit");
        self.output()
    }
}

/// The error of one end.
#[derive(Debug)]
pub(crate) enum PairError {
    Own(TlsError),
    Foreign(rustls::Error),
}

/// Carries what each end sends to the other end, until neither sends or one fails.
pub(crate) fn pump(own: &mut End, foreign: &mut ForeignPeer) -> Result<(), PairError> {
    loop {
        let (up, down) = (own.output(), foreign.output());
        if up.is_empty() && down.is_empty() {
            return Ok(());
        }
        foreign.handle(&up).map_err(PairError::Foreign)?;
        own.handle(&down).map_err(PairError::Own)?;
    }
}
