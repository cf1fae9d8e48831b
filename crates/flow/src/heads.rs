//! The first bytes of a flow, for a protocol classifier.

/// Bytes of each direction kept for a protocol classifier, where it asked for them.
pub const HEAD_LEN: usize = 1024;

/// The first bytes of a flow in each direction.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    /// What the local application sent first.
    pub from_app: Vec<u8>,
    /// What the local application was sent first.
    pub to_app: Vec<u8>,
}

pub(crate) fn extend_head(head: &mut Vec<u8>, bytes: &[u8]) {
    let room = HEAD_LEN.saturating_sub(head.len());
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
