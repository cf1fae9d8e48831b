//! A buffer of records that are to be sent.

/// Records that are to be sent to the TCP connection, in order.
///
/// The memory stays initialised after its bytes are sent, so that a slot for the next record costs nothing. A `Vec`
/// would have to clear 16 KiB for each record.
#[derive(Debug, Default)]
pub struct SendBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl SendBuffer {
    /// Makes an empty buffer without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes that are to be sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the number of bytes that are to be sent.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether no byte is to be sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes `count` bytes, which were sent, from the front.
    ///
    /// # Panics
    ///
    /// If the buffer has fewer bytes.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "more bytes were sent than there are");
        self.start += count;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Returns `len` bytes of memory after the last byte, with arbitrary content.
    pub(crate) fn slot(&mut self, len: usize) -> &mut [u8] {
        // Moving at most as many bytes as were sent costs a constant time for each byte.
        if self.bytes.len() < self.end + len && self.start >= self.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        if self.bytes.len() < self.end + len {
            self.bytes.resize(self.end + len, 0);
        }
        &mut self.bytes[self.end..][..len]
    }

    /// Adds the first `len` bytes of the last slot.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }

    /// Takes all bytes of `other`, and its memory.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.extend_from_slice(other.as_slice());
        *other = Self::new();
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.slot(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_and_memory_is_bounded() {
        let mut buffer = SendBuffer::new();
        let (mut next, mut expected) = (0_u8, 0_u8);
        for turn in 0..10_000_usize {
            for _byte in 0..turn % 7 {
                buffer.extend_from_slice(&[next]);
                next = next.wrapping_add(1);
            }
            // A byte always stays, so the buffer never starts anew by itself.
            let sent = buffer.len().saturating_sub(1 + turn % 100);
            for byte in &buffer.as_slice()[..sent] {
                assert_eq!(*byte, expected);
                expected = expected.wrapping_add(1);
            }
            buffer.advance(sent);
            assert!(buffer.bytes.len() <= 400, "{}", buffer.bytes.len());
        }
    }

    #[test]
    fn a_slot_without_commit_adds_nothing() {
        let mut buffer = SendBuffer::new();
        buffer.slot(10).fill(1);
        assert!(buffer.is_empty());
        buffer.extend_from_slice(b"ab");
        buffer.slot(10).fill(1);
        assert_eq!(buffer.as_slice(), b"ab");
        buffer.advance(1);
        assert_eq!(buffer.as_slice(), b"b");
    }

    #[test]
    #[should_panic(expected = "more bytes were sent")]
    fn a_caller_that_sends_more_than_there_is_is_stopped() {
        let mut buffer = SendBuffer::new();
        buffer.extend_from_slice(b"ab");
        buffer.advance(3);
    }
}
