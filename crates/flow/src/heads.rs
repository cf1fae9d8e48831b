//! The first bytes of a flow, for a protocol classifier.

/// Maximum number of bytes that are kept of each direction for a protocol classifier.
pub const HEAD_LEN: usize = 1024;

/// The first bytes of a flow in each direction, at most [`HEAD_LEN`] each.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    /// The first bytes that the local application sent.
    pub from_app: Vec<u8>,
    /// The first bytes that the local application received.
    pub to_app: Vec<u8>,
}

pub(crate) fn extend_head(head: &mut Vec<u8>, bytes: &[u8]) {
    let room = HEAD_LEN.saturating_sub(head.len());
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
