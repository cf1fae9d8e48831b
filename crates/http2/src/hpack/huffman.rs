//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and shorter codes
//! precede longer ones. So the lengths of the codes determine them.

/// Length of the longest code, bits.
const LONGEST: usize = 30;

/// The end of a string, of which only a prefix may occur, as padding.
const EOS: usize = 256;

/// Appends the decoded string to `out`. Returns false if the code is malformed, or decodes to more than `max` bytes.
pub(super) fn decode(coded: &[u8], max: usize, out: &mut Vec<u8>) -> bool {
    let end = out.len() + max;
    let (mut code, mut len) = (0_usize, 0_usize);
    let bits = coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1)));
    for bit in bits {
        code = code << 1 | bit;
        len += 1;
        let Some(group) = GROUPS.get(len) else {
            return false;
        };
        if let Some(place) = code.checked_sub(group.first)
            && place < group.count
        {
            let symbol = usize::from(SYMBOLS[group.start + place]);
            let Ok(byte) = u8::try_from(symbol) else {
                return false;
            };
            if out.len() == end {
                return false;
            }
            out.push(byte);
            (code, len) = (0, 0);
        }
    }
    // The padding is shorter than a byte, and all ones.
    len < 8 && code == (1 << len) - 1
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct CodeGroup {
    first: usize,
    count: usize,
    /// Index of the first code's symbol in [`SYMBOLS`].
    start: usize,
}

const GROUPS: [CodeGroup; LONGEST + 1] = group();

/// The symbols in the order of their codes.
const SYMBOLS: [u16; EOS + 1] = order();

const fn group() -> [CodeGroup; LONGEST + 1] {
    let none = CodeGroup {
        first: 0,
        count: 0,
        start: 0,
    };
    let (mut groups, mut len) = ([none; LONGEST + 1], 1);
    while len <= LONGEST {
        let mut symbol = 0;
        while symbol <= EOS {
            groups[len].count += (length(symbol) == len) as usize;
            symbol += 1;
        }
        let before = groups[len - 1];
        groups[len].first = (before.first + before.count) << 1;
        groups[len].start = before.start + before.count;
        len += 1;
    }
    groups
}

const fn order() -> [u16; EOS + 1] {
    let (mut symbols, mut at, mut len) = ([0; EOS + 1], 0, 1);
    while len <= LONGEST {
        let mut symbol = 0_u16;
        while symbol as usize <= EOS {
            if length(symbol as usize) == len {
                symbols[at] = symbol;
                at += 1;
            }
            symbol += 1;
        }
        len += 1;
    }
    symbols
}

const fn length(symbol: usize) -> usize {
    if symbol == EOS {
        LONGEST
    } else {
        LENGTHS[symbol] as usize
    }
}

/// Length of the code of each byte, bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, 100, &mut out).then_some(out)
    }

    // RFC 7541 appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_decode() {
        let host = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(decoded(host).as_deref(), Some(&b"www.example.com"[..]));
        let date = b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff";
        let expected = b"Mon, 21 Oct 2013 20:13:21 GMT";
        assert_eq!(decoded(date).as_deref(), Some(&expected[..]));
        assert_eq!(decoded(b"").as_deref(), Some(&b""[..]));
    }

    #[test]
    fn the_code_is_complete() {
        let codes: usize = GROUPS.iter().map(|group| group.count).sum();
        assert_eq!(codes, 257);
        // Kraft's equality: no string of bits is without a meaning, and the longest code is all ones.
        let last = GROUPS[LONGEST];
        assert_eq!(last.first + last.count, 1 << LONGEST);
    }

    #[test]
    fn padding_and_lengths_are_checked() {
        // "0" is 00000.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
        assert_eq!(decoded(&[0b0000_0110]), None, "padding that is not ones");
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None, "a byte of padding");
        assert_eq!(decoded(&[0xff; 4]), None, "the end of the string");
        let mut out = Vec::new();
        assert!(!decode(&[0, 0, 0, 0, 0], 7, &mut out), "eight bytes");
        assert_eq!(out.len(), 7);
    }
}
