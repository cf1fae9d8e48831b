//! Keys, parsed from the bytes that a terminal sends.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// Selects the next table.
    Next,
    /// Selects the previous table.
    Previous,
    Sort,
    Redraw,
}

/// Longest incomplete sequence that is kept, in bytes. No known key needs as many, even with modifiers.
const SEQUENCE_MAX: usize = 16;

/// Removes all complete keys from `bytes` and returns them. An incomplete sequence stays.
pub(super) fn take(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((&first, after)) = rest.split_first() {
        if first != 0x1b {
            keys.extend(simple(first));
            rest = after;
            continue;
        }
        let Some((&kind, sequence)) = after.split_first() else {
            break;
        };
        if !matches!(kind, b'[' | b'O') {
            // Escape, followed by another key.
            rest = after;
            continue;
        }
        let end = sequence
            .iter()
            .position(|byte| (0x40..=0x7e).contains(byte));
        match end {
            Some(end) => {
                keys.extend(named(&sequence[..=end]));
                rest = &sequence[end + 1..];
            }
            None if sequence.len() < SEQUENCE_MAX => break,
            None => rest = &[],
        }
    }
    *bytes = rest.to_vec();
    keys
}

fn simple(byte: u8) -> Option<Key> {
    Some(match byte {
        b'q' | b'Q' | 0x03 => Key::Quit,
        b'k' => Key::Up,
        b'j' => Key::Down,
        b'b' => Key::PageUp,
        b' ' => Key::PageDown,
        b'g' => Key::First,
        b'G' => Key::Last,
        b'\t' => Key::Next,
        b's' => Key::Sort,
        0x0c => Key::Redraw,
        _ => return None,
    })
}

/// Returns the key of a sequence after `ESC [` or `ESC O`.
fn named(sequence: &[u8]) -> Option<Key> {
    Some(match sequence {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        b"H" | b"1~" | b"7~" => Key::First,
        b"F" | b"4~" | b"8~" => Key::Last,
        b"Z" => Key::Previous,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> (Vec<Key>, usize) {
        let mut bytes = text.as_bytes().to_vec();
        let keys = take(&mut bytes);
        (keys, bytes.len())
    }

    #[test]
    fn keys_are_recognised_in_every_encoding() {
        for (text, key) in [
            ("q", Key::Quit),
            ("\u{3}", Key::Quit),
            ("j", Key::Down),
            ("\u{1b}[B", Key::Down),
            ("\u{1b}OB", Key::Down),
            ("k", Key::Up),
            ("\u{1b}[A", Key::Up),
            ("\u{1b}[5~", Key::PageUp),
            (" ", Key::PageDown),
            ("g", Key::First),
            ("\u{1b}OH", Key::First),
            ("\u{1b}[4~", Key::Last),
            ("\t", Key::Next),
            ("\u{1b}[Z", Key::Previous),
            ("s", Key::Sort),
            ("\u{c}", Key::Redraw),
        ] {
            assert_eq!(keys(text), (vec![key], 0), "{text:?}");
        }
    }

    #[test]
    fn a_key_may_arrive_in_pieces_and_other_bytes_are_dropped() {
        let mut bytes = Vec::new();
        let mut found = Vec::new();
        for byte in b"j\x1b[6~\x1b[1;5Axj" {
            bytes.push(*byte);
            found.extend(take(&mut bytes));
        }
        assert_eq!(found, [Key::Down, Key::PageDown, Key::Down]);
        assert!(bytes.is_empty());
        assert_eq!(keys("\u{1b}"), (vec![], 1), "a sequence may follow");
        assert_eq!(keys("\u{1b}q"), (vec![Key::Quit], 0));
        assert_eq!(keys(&format!("\u{1b}[{}", "1".repeat(100))), (vec![], 0));
        assert_eq!(keys("\u{fc}\u{0}Z"), (vec![], 0));
    }
}
