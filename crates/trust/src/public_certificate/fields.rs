//! The fields of a certificate that the TLS library reads and does not tell (RFC 5280 section 4.1).

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;

use super::Dates;

/// The kinds of values in DER.
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The identifier of the extension with the key of the authority, 2.5.29.35, and its first field.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const KEY_IDENTIFIER: u8 = 0x80;

/// Fields of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) serial: &'a [u8],
    pub(super) dates: Dates,
    pub(super) authority_key: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Reads the fields. Returns `None` if the bytes are not a certificate.
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut outer = Reader(certificate);
        let mut signed = Reader(Reader(outer.take(SEQUENCE)?).take(SEQUENCE)?);
        if signed.next_kind() == Some(VERSION) {
            signed.take(VERSION)?;
        }
        let serial = signed.take(INTEGER)?;
        let (_algorithm, _issuer) = (signed.take(SEQUENCE)?, signed.take(SEQUENCE)?);
        let mut validity = Reader(signed.take(SEQUENCE)?);
        let dates = Dates {
            not_before: validity.time()?,
            not_after: validity.time()?,
        };
        let mut authority_key = None;
        while let Some((kind, content)) = signed.any() {
            if kind == EXTENSIONS {
                authority_key = authority_key_of(content);
            }
        }
        Some(Self {
            serial,
            dates,
            authority_key,
        })
    }
}

fn authority_key_of(extensions: &[u8]) -> Option<&[u8]> {
    let mut list = Reader(Reader(extensions).take(SEQUENCE)?);
    while let Some(extension) = list.take(SEQUENCE) {
        let mut extension = Reader(extension);
        if extension.take(OBJECT)? != AUTHORITY_KEY {
            continue;
        }
        while let Some((kind, content)) = extension.any() {
            if kind == OCTETS {
                return Reader(Reader(content).take(SEQUENCE)?).take(KEY_IDENTIFIER);
            }
        }
    }
    None
}

/// The rest of a sequence of values.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next_kind(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Takes the next value, which must be of this kind.
    fn take(&mut self, kind: u8) -> Option<&'a [u8]> {
        let (found, content) = self.any()?;
        (found == kind).then_some(content)
    }

    /// Takes the next value. Lengths have at most four bytes.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&kind, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.len() > 4 {
                return None;
            }
            length = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((kind, content))
    }

    /// Takes a time, which ends with seconds and `Z` (RFC 5280 section 4.1.2.5).
    fn time(&mut self) -> Option<SystemTime> {
        let (kind, text) = self.any()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let text = match kind {
            UTC_TIME if text.len() == 12 && is_digits => {
                let century = if text < "50" { "20" } else { "19" };
                format!("{century}{text}")
            }
            GENERALIZED_TIME if text.len() == 14 && is_digits => text.to_owned(),
            _ => return None,
        };
        let part = |at: usize| text.get(at..at + 2)?.parse::<i8>().ok();
        let year: i16 = text.get(..4)?.parse().ok()?;
        let (month, day) = (part(4)?, part(6)?);
        let time = civil::DateTime::new(year, month, day, part(8)?, part(10)?, part(12)?, 0);
        // 99991231235959Z, which means that there is no expiry, is beyond the last time that can be computed with.
        let time = time.ok()?.to_zoned(TimeZone::UTC);
        Some(time.map_or(Timestamp::MAX, |time| time.timestamp()).into())
    }
}
