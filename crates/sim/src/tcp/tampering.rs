//! Middleboxes that tamper with TCP: they split segments anew, and end connections in the middle of them.

use crate::network::{HostId, Network};

/// The end that a middlebox gives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpCut {
    /// Both ends see a reset.
    Reset,
    /// The host sees an end of the stream, as if the peer had sent a FIN. What the peer sends later is lost.
    Fin,
}

/// The tampering with the TCP connections of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tampering {
    /// Longest content of the segments that the host sends; `None` for that of the path.
    pub(crate) content_max: Option<usize>,
    /// The end of the next connection, and the number of bytes that arrive at the host before.
    pub(crate) cut: Option<(usize, TcpCut)>,
}

impl Network {
    /// Splits the bytes of all further TCP connections of a host into segments of at most `bytes` bytes.
    pub fn split_tcp(&mut self, id: HostId, bytes: usize) {
        self.host(id).tcp().tampering.content_max = Some(bytes.max(1));
    }

    /// Ends the next TCP connection of a host once `bytes` bytes have arrived there.
    pub fn cut_next_tcp(&mut self, id: HostId, bytes: usize, cut: TcpCut) {
        self.host(id).tcp().tampering.cut = Some((bytes, cut));
        self.note(
            id.0,
            format!("loses its next TCP connection after {bytes} B: {cut:?}"),
        );
    }

    /// Leads further TCP segments from one host to another to a middlebox, whose answers seem to come from that other
    /// host.
    pub fn divert_tcp(&mut self, from: HostId, to: HostId, middlebox: HostId) {
        self.filters.divert(from.0, to.0, middlebox.0);
    }
}
