//! Decodes the fields of a block.

use super::huffman;
use super::table::{DynamicTable, FIELD_OVERHEAD};

/// Maximum size of the dynamic table, bytes: the protocol's default, which a peer uses before it knows another one.
const TABLE_MAX: usize = 4096;

/// Maximum size of the fields of one block as they decode, bytes. A short block can name a long field of the table again
/// and again. Chosen for eight times the longest list that is answered.
const DECODED_MAX: usize = 64 * 1024;

/// The state that the blocks of a peer have in common.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: DynamicTable,
    /// Memory for a name and a value, which blocks use in turn.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The reason why a block cannot be decoded. Later blocks cannot be decoded either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockError {
    /// The block is malformed.
    Malformed,
    /// The fields are too large.
    TooLarge,
}

type BlockResult<T> = Result<T, BlockError>;

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(TABLE_MAX),
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// Returns the memory of the table, bytes.
    pub(crate) fn held(&self) -> usize {
        self.table.size()
    }

    /// Decodes a whole block, and gives each field to `sink`.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        mut sink: impl FnMut(&[u8], &[u8]),
    ) -> BlockResult<()> {
        let (mut input, mut room, mut is_first) = (block, DECODED_MAX, true);
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                // A change of the table's size precedes all fields (section 4.2).
                let max = integer(&mut input, 5)?;
                if !is_first || max > TABLE_MAX {
                    return Err(BlockError::Malformed);
                }
                self.table.set_max(max);
                continue;
            }
            is_first = false;
            self.field(first, &mut input, &mut room, &mut sink)?;
        }
        // A long field leaves no memory behind.
        self.name.shrink_to(TABLE_MAX);
        self.value.shrink_to(TABLE_MAX);
        Ok(())
    }

    fn field(
        &mut self,
        first: u8,
        input: &mut &[u8],
        room: &mut usize,
        sink: &mut impl FnMut(&[u8], &[u8]),
    ) -> BlockResult<()> {
        let indexed = first & 0x80 != 0;
        let kept = first & 0xc0 == 0x40;
        let bits = match (indexed, kept) {
            (true, _) => 7,
            (false, true) => 6,
            (false, false) => 4,
        };
        let index = integer(input, bits)?;
        self.name.clear();
        self.value.clear();
        if index > 0 {
            let (name, value) = self.table.get(index).ok_or(BlockError::Malformed)?;
            self.name.extend_from_slice(name);
            if indexed {
                self.value.extend_from_slice(value);
            }
        } else if indexed {
            return Err(BlockError::Malformed);
        } else {
            string(input, *room, &mut self.name)?;
        }
        if !indexed {
            string(input, *room, &mut self.value)?;
        }
        let size = self.name.len() + self.value.len() + FIELD_OVERHEAD;
        *room = room.checked_sub(size).ok_or(BlockError::TooLarge)?;
        if kept {
            self.table.insert(&self.name, &self.value);
        }
        sink(&self.name, &self.value);
        Ok(())
    }
}

/// Takes a string literal (section 5.2), and appends at most `max` bytes to `out`.
fn string(input: &mut &[u8], max: usize, out: &mut Vec<u8>) -> BlockResult<()> {
    let coded = input.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(input, 7)?;
    let bytes = input.split_off(..length).ok_or(BlockError::Malformed)?;
    if coded {
        if !huffman::decode(bytes, max, out) {
            return Err(BlockError::Malformed);
        }
    } else if length > max {
        return Err(BlockError::TooLarge);
    } else {
        out.extend_from_slice(bytes);
    }
    Ok(())
}

/// Takes an integer whose prefix has `bits` bits (section 5.1). Larger ones than fit 28 bits beyond the prefix are refused.
fn integer(input: &mut &[u8], bits: u32) -> BlockResult<usize> {
    let mut next = || {
        input
            .split_off_first()
            .copied()
            .ok_or(BlockError::Malformed)
    };
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(next()?) & most;
    if value < most {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BlockError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::{put_field, put_status};
    use super::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> BlockResult<Vec<String>> {
        let mut fields = Vec::new();
        decoder.decode(block, |name, value| {
            let text = String::from_utf8_lossy;
            fields.push(format!("{}: {}", text(name), text(value)));
        })?;
        Ok(fields)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = digits.chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
        pairs.map(|pair| byte(pair).expect("hex")).collect()
    }

    // RFC 7541 appendix C.4: three requests of one connection.
    #[test]
    fn the_dynamic_table_is_kept_from_block_to_block() {
        let mut decoder = Decoder::default();
        let first = "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff";
        let pseudo = [":method: GET", ":scheme: http", ":path: /"];
        let host = ":authority: www.example.com";
        assert_eq!(
            decode(&mut decoder, &bytes(first)),
            Ok([&pseudo[..], &[host]]
                .concat()
                .iter()
                .map(|it| (*it).to_owned())
                .collect())
        );
        let second =
            decode(&mut decoder, &bytes("8286 84be 5886 a8eb 1064 9cbf")).expect("a block");
        assert_eq!(second[3..], [host, "cache-control: no-cache"]);
        let third = "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
        let third = decode(&mut decoder, &bytes(third)).expect("a block");
        assert_eq!(third[3..], [host, "custom-key: custom-value"]);
        assert_eq!(decoder.held(), 164);
    }

    #[test]
    fn the_table_has_a_limit_and_a_peer_may_lower_it() {
        let mut decoder = Decoder::default();
        let long = [b"\x40\x01a\x7f\x81\x0f".as_slice(), &[b'v'; 2048]].concat();
        for _ in 0..3 {
            decode(&mut decoder, &long).expect("a block");
        }
        assert_eq!(
            decoder.held(),
            2048 + 1 + FIELD_OVERHEAD,
            "a second one has no room"
        );
        let (to_zero, to_4097) = (b"\x20", b"\x3f\xe2\x1f");
        assert_eq!(decode(&mut decoder, to_zero), Ok(Vec::new()));
        assert_eq!(decoder.held(), 0);
        assert_eq!(decode(&mut decoder, to_4097), Err(BlockError::Malformed));
        assert_eq!(
            decode(&mut decoder, b"\x82\x20"),
            Err(BlockError::Malformed)
        );
    }

    #[test]
    fn a_field_that_is_named_again_and_again_has_a_limit() {
        let mut decoder = Decoder::default();
        let field = [b"\x40\x01a\x7f\x81\x17".as_slice(), &[b'v'; 3072]].concat();
        decode(&mut decoder, &field).expect("a block");
        let times = DECODED_MAX / (3072 + 1 + FIELD_OVERHEAD);
        let again = |times: usize| vec![0xbe; times];
        assert_eq!(
            decode(&mut decoder, &again(times)).map(|it| it.len()),
            Ok(times)
        );
        assert_eq!(
            decode(&mut decoder, &again(times + 1)),
            Err(BlockError::TooLarge)
        );
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for block in [
            "80",
            "be",
            "ff80 8080 8001",
            "41",
            "4181",
            "4185 0000",
            "0003 6161",
        ] {
            let result = decode(&mut Decoder::default(), &bytes(block));
            assert_eq!(result, Err(BlockError::Malformed), "{block}");
        }
    }

    #[test]
    fn what_is_encoded_decodes() {
        let mut block = Vec::new();
        put_status(&mut block, 200);
        assert_eq!(block, [0x88]);
        put_status(&mut block, 407);
        let long = "x".repeat(300);
        put_field(&mut block, b"proxy-authenticate", long.as_bytes());
        put_field(&mut block, b"unknown", b"");
        let mut decoder = Decoder::default();
        let fields = decode(&mut decoder, &block).expect("a block");
        let expected = [
            ":status: 200",
            ":status: 407",
            &format!("proxy-authenticate: {long}"),
            "unknown: ",
        ];
        assert_eq!(fields, expected);
        assert_eq!(decoder.held(), 0);
    }
}
