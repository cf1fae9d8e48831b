//! Digests in the spelling of the tools that check them.

use std::fmt::Write as _;

use md5::Md5;
use sha2::{Digest, Sha256};

/// SHA-256, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// MD5, in hexadecimal digits: `dpkg --verify` knows no other.
pub(crate) fn md5(bytes: &[u8]) -> String {
    hexadecimal(&Md5::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("invariant: a String takes whatever is written to it");
    }
    text
}
