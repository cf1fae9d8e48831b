//! Encodes the fields of answers: by the static table, or literally and never for the dynamic one.

use super::table::{static_field, static_name};

/// The beginning of a block that reduces the dynamic table to nothing (RFC 7541 section 6.3).
pub(crate) const EMPTY_TABLE: &[u8] = &[0x20];

/// Appends a field, as short as the static table permits.
pub(crate) fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if let Some(index) = static_field(name, value) {
        return put_integer(out, 0x80, 7, index);
    }
    // RFC 7541 section 6.2.2.
    if let Some(index) = static_name(name) {
        put_integer(out, 0, 4, index);
    } else {
        out.push(0);
        put_string(out, name);
    }
    put_string(out, value);
}

/// Appends the status of an answer.
pub(crate) fn put_status(out: &mut Vec<u8>, status: u16) {
    put_field(out, b":status", status.to_string().as_bytes());
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_integer(out, 0, 7, string.len());
    out.extend_from_slice(string);
}

/// Appends an integer whose prefix has `bits` bits, in a byte with these `flags` (section 5.1).
fn put_integer(out: &mut Vec<u8>, flags: u8, bits: u32, value: usize) {
    let most = (1_usize << bits) - 1;
    let byte = |value: usize| u8::try_from(value & 0xff).unwrap_or_default();
    let Some(mut rest) = value.checked_sub(most) else {
        return out.push(flags | byte(value));
    };
    out.push(flags | byte(most));
    while rest >= 0x80 {
        out.push(0x80 | byte(rest & 0x7f));
        rest >>= 7;
    }
    out.push(byte(rest));
}
