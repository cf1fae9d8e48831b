//! Base32 (RFC 4648 section 6) in lower case, without padding. No two characters of it look alike, and QR codes pack it
//! densely.

use super::CodeError;

const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Number of bits per digit.
const BITS: u32 = 5;

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut held, mut count) = (0u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        count += 8;
        while count >= BITS {
            count -= BITS;
            text.push(digit(held >> count));
        }
    }
    if count > 0 {
        text.push(digit(held << (BITS - count)));
    }
    text
}

/// Decodes the output of [`encode`] and refuses everything else.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, CodeError> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut held, mut count) = (0u32, 0);
    for c in text.chars() {
        let value = DIGITS.iter().position(|digit| char::from(*digit) == c);
        let value = value.ok_or(CodeError::Character(c))?;
        // Only the low bits count: the shift pushes consumed bits out.
        held = (held << BITS) | u32::try_from(value).unwrap_or(0);
        count += BITS;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count).to_le_bytes()[0]);
        }
    }
    // The remaining bits belong to no byte: there must be fewer than in a digit, all zero.
    let left = held & ((1 << count) - 1);
    if count >= BITS || left != 0 {
        return Err(CodeError::Length);
    }
    Ok(bytes)
}

fn digit(bits: u32) -> char {
    char::from(DIGITS[(bits & 31) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4648 section 10.
    #[test]
    fn the_vectors_of_the_standard_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text), Ok(bytes.as_bytes().to_vec()));
        }
    }

    #[test]
    fn text_that_encodes_no_bytes_is_refused() {
        // One digit too many, or non-zero bits after the last byte.
        for text in ["m", "mzx", "mzxw6y", "mz"] {
            assert_eq!(decode(text), Err(CodeError::Length), "{text}");
        }
        for c in ['0', '1', '8', '9', 'A', '=', 'ä'] {
            assert_eq!(decode(&format!("my{c}")), Err(CodeError::Character(c)));
        }
    }
}
