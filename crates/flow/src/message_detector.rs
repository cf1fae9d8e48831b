//! Counts the bytes that move one way in a flow, and distinguishes messages from transfers.
//!
//! The caller numbers time spans of equal length. [`MessageDetector::add`] reports a message in the first later span in
//! which bytes move. A message is the answer to a keystroke or a request; a transfer fills each span with far more
//! bytes. The beginning of a flow, such as greetings and parameters before a transfer, is not counted.

/// Maximum number of bytes of a span that held messages only: 160 kbit/s if a span takes 100 ms.
const MESSAGES_MOST: u32 = 2048;

/// Number of spans that count as a flow's beginning.
const BEGINNING: u32 = 5;

/// Bytes that moved one way in the latest span in which any did.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageDetector {
    /// The first span in which bytes moved; 0 if none has.
    first: u32,
    span: u32,
    bytes: u32,
}

impl MessageDetector {
    /// Adds `bytes` to `span`; spans are numbered from 1. Returns whether the previous span with bytes held messages
    /// only.
    pub fn add(&mut self, span: u32, bytes: usize) -> bool {
        if self.first == 0 {
            self.first = span;
        }
        let over = self.span != span;
        let began = self.span.saturating_sub(self.first) >= BEGINNING;
        let messages = over && began && (1..=MESSAGES_MOST).contains(&self.bytes);
        if over {
            (self.span, self.bytes) = (span, 0);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes = self.bytes.saturating_add(bytes);
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a detector past the beginning of its flow.
    fn begun() -> MessageDetector {
        let mut detector = MessageDetector::default();
        assert!(!detector.add(1, 1_000_000));
        detector
    }

    #[test]
    fn messages_are_reported_in_the_span_after_them() {
        let mut detector = begun();
        assert!(!detector.add(17, 1), "the span before held a transfer");
        assert!(!detector.add(17, 100));
        assert!(detector.add(19, 1), "101 bytes in a span");
        assert!(!detector.add(19, 1), "a message is reported once");
    }

    #[test]
    fn greetings_at_the_beginning_are_not_messages() {
        let mut detector = MessageDetector::default();
        for span in 5..10 {
            assert!(!detector.add(span, 37), "{span}");
        }
        assert!(
            !detector.add(10, 37),
            "the span before it was the last of the beginning"
        );
        assert!(detector.add(11, 37));
    }

    #[test]
    fn a_transfer_holds_no_messages() {
        let mut detector = begun();
        for span in 2..100 {
            for _ in 0..3 {
                assert!(!detector.add(span, MESSAGES_MOST as usize));
            }
        }
        assert!(!detector.add(200, usize::MAX));
        assert!(!detector.add(200, usize::MAX), "no overflow");
    }
}
