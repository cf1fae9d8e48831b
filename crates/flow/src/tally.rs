//! How much moves one way in a flow, and whether that is a message or part of a transfer.
//!
//! Time is cut into spans of equal length, numbered by the caller. [`Tally::add`] counts, and tells of a message once the
//! span after it has begun: an answer to a key, a request. A transfer fills each span with far more.

/// Bytes of a span up to which it held messages: 160 kbit/s, where a span takes 100 ms.
const MESSAGES_MOST: u32 = 2048;

/// Bytes that moved one way in the latest span in which any did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    span: u32,
    bytes: u32,
}

impl Tally {
    /// Counts `bytes` that move in this span. Returns whether the span before it, in which any moved, held but messages.
    pub fn add(&mut self, span: u32, bytes: usize) -> bool {
        let over = self.span != span;
        let messages = over && (1..=MESSAGES_MOST).contains(&self.bytes);
        if over {
            *self = Self { span, bytes: 0 };
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes = self.bytes.saturating_add(bytes);
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_of_in_the_span_after_them() {
        let mut tally = Tally::default();
        assert!(!tally.add(7, 1), "nothing moved before");
        assert!(!tally.add(7, 100));
        assert!(tally.add(9, 1), "101 bytes in a span");
        assert!(!tally.add(9, 1), "told once");
    }

    #[test]
    fn a_transfer_holds_no_messages() {
        let mut tally = Tally::default();
        for span in 1..100 {
            for _ in 0..3 {
                assert!(!tally.add(span, MESSAGES_MOST as usize));
            }
        }
        assert!(!tally.add(200, usize::MAX));
        assert!(!tally.add(200, usize::MAX), "no overflow");
    }
}
