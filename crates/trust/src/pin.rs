//! The text form of a [`Pin`]: `sha256:` and 43 characters of unpadded base64url.
//!
//! The server prints it, and users paste it into `--pin` and configuration files. The parser accepts exactly what the
//! server prints, so that two texts stand for the same pin only if they are equal.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::settings::Pin;

/// Names the hash, so that another hash can be added without guessing it from the length.
const PREFIX: &str = "sha256:";

/// Length of 32 bytes in unpadded base64: ceil(32 * 4 / 3).
const DIGITS: usize = 43;

/// The reason why a text is not a pin. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinError {
    /// The text does not begin with `sha256:`.
    #[error("a pin starts with {PREFIX}: copy it whole from the server's start-up lines")]
    Prefix,
    /// The text is the placeholder of an example.
    #[error("{PREFIX}... is a placeholder: copy the server's pin from the server's start-up lines")]
    Placeholder,
    /// Characters are missing or too many.
    #[error(
        "a pin has {DIGITS} characters after {PREFIX}, not {0}: copy it whole from the server's start-up lines"
    )]
    Length(usize),
    /// A character does not belong to base64url: the text may be standard base64, hexadecimal, or mistyped.
    #[error(
        "{0:?} is not allowed in a pin: after {PREFIX} it has only letters, digits, '-' and '_' (base64url)"
    )]
    Character(char),
    /// The last character sets bits beyond the 32nd byte.
    #[error(
        "the last character of the pin is wrong: copy it whole from the server's start-up lines"
    )]
    Ending,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        let digits = text.strip_prefix(PREFIX).ok_or(PinError::Prefix)?;
        if matches!(digits, "..." | "…" | "PIN") {
            return Err(PinError::Placeholder);
        }
        let stranger = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if let Some(found) = digits.chars().find(stranger) {
            return Err(PinError::Character(found));
        }
        if digits.len() != DIGITS {
            return Err(PinError::Length(digits.len()));
        }
        let mut hash = [0; 32];
        match URL_SAFE_NO_PAD.decode_slice(digits, &mut hash) {
            Ok(32) => Ok(Self(hash)),
            _ => Err(PinError::Ending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of the empty text, computed by an independent tool.
    const EMPTY: &str = "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

    #[test]
    fn a_pin_is_read_as_it_is_printed() {
        let pin: Pin = EMPTY.parse().expect("a pin");
        assert_eq!(pin.0[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(pin.to_string(), EMPTY);
        assert_eq!(format!("{pin:?}"), EMPTY);
        for hash in [[0; 32], [0xff; 32]] {
            assert_eq!(Pin(hash).to_string().parse(), Ok(Pin(hash)));
        }
    }

    #[test]
    fn a_malformed_pin_is_refused_with_the_reason() {
        let body = EMPTY.strip_prefix(PREFIX).expect("invariant: the prefix");
        for (text, why) in [
            (body.to_owned(), PinError::Prefix),
            (String::new(), PinError::Prefix),
            (EMPTY.replace("sha256", "SHA256"), PinError::Prefix),
            ("sha256:...".to_owned(), PinError::Placeholder),
            (EMPTY[..49].to_owned(), PinError::Length(42)),
            (format!("{EMPTY}A"), PinError::Length(44)),
            (format!("{EMPTY}="), PinError::Character('=')),
            (EMPTY.replace('-', "+"), PinError::Character('+')),
            (format!("{EMPTY}\n"), PinError::Character('\n')),
            // U and V differ only in bits that do not belong to any byte.
            (format!("{}V", &EMPTY[..49]), PinError::Ending),
        ] {
            assert_eq!(text.parse::<Pin>(), Err(why), "{text:?}");
        }
    }
}
