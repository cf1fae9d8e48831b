//! Computes digests and writes them as the tools that verify them expect.

use std::fmt::Write as _;

use md5::Md5;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns the MD5 digest in hexadecimal digits. `dpkg --verify` supports no other algorithm.
pub(crate) fn md5(bytes: &[u8]) -> String {
    hexadecimal(&Md5::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("invariant: writing to a String does not fail");
    }
    text
}
