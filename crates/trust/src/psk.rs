//! Pre-shared secrets: a client proves that it knows a secret without sending it (PROTOCOL, native OPEN).
//!
//! Both sides export 32 bytes from the TLS connection under [`EXPORTER_LABEL`] with an empty context (RFC 8446 section
//! 7.5). The client sends [`proof`] of these bytes with each OPEN, and the server checks it with [`verify`]. A proof is
//! worthless on another connection. It is also worthless to a man in the middle, because his two connections export
//! different bytes.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::keeper::{self, ReadError};

pub use quictun_wire::open::EXPORTER_LABEL;

/// Shortest secret accepted, bytes. An attacker can test guesses against a proof off-line, so passwords are too weak.
const MIN_SECRET: usize = 16;

/// Longest secret accepted, bytes. A larger file is the wrong one.
const MAX_SECRET: usize = 4096;

/// A secret that a client and a server share. Dropping it erases it from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// The reason why a file holds no usable secret.
#[derive(Debug, Error)]
pub enum PskError {
    /// The file cannot be read.
    #[error("cannot read the secret {}", .0.display())]
    Read(PathBuf, #[source] ReadError),
    /// The secret, without the newline at the end, has too few bytes to be safe.
    #[error("the secret in {} is {len} bytes long, at least {MIN_SECRET} are needed: make one with 'openssl rand -base64 32'", .0.display(), len = .1)]
    TooShort(PathBuf, usize),
    /// The secret has more bytes than the longest secret may have.
    #[error("the secret in {} is {len} bytes long, at most {MAX_SECRET} are accepted: is it the right file?", .0.display(), len = .1)]
    TooLong(PathBuf, usize),
}

/// Reads a secret: the whole content of the file, without one newline at its end.
pub fn load_secret(path: &Path) -> Result<Secret, PskError> {
    let path = path.to_owned();
    // Two more bytes leave room for CR LF.
    let content = match keeper::read(&path, MAX_SECRET as u64 + 2) {
        Ok(content) => content,
        Err(cause) => return Err(PskError::Read(path, cause)),
    };
    let secret = content.strip_suffix(b"\n").unwrap_or(&content);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    match secret.len() {
        len if len < MIN_SECRET => Err(PskError::TooShort(path, len)),
        len if len > MAX_SECRET => Err(PskError::TooLong(path, len)),
        _ => Ok(Secret(Zeroizing::new(secret.to_vec()))),
    }
}

impl Secret {
    /// Returns the proof of this secret for the exported bytes of one connection.
    pub fn prove(&self, exporter: &[u8; 32]) -> [u8; 32] {
        proof(&self.0, exporter)
    }

    /// Returns the secret itself, for [`proof`] and [`verify`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns HMAC-SHA256 of the exported bytes under the secret.
pub fn proof(secret: &[u8], exporter: &[u8; 32]) -> [u8; 32] {
    let tag = hmac::sign(&key(secret), exporter);
    let mut proof = [0; 32];
    proof.copy_from_slice(tag.as_ref());
    proof
}

/// Returns true if `proof` was made from this secret and these bytes. Takes the same time whichever bytes differ.
pub fn verify(secret: &[u8], exporter: &[u8; 32], proof: &[u8; 32]) -> bool {
    hmac::verify(&key(secret), exporter, proof).is_ok()
}

fn key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(content: &[u8]) -> Result<Secret, PskError> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("psk");
        std::fs::write(&path, content).expect("written");
        load_secret(&path)
    }

    #[test]
    fn proof_is_hmac_sha256_of_the_exporter() {
        // printf '%064d' 0 | xxd -r -p | openssl dgst -sha256 -hmac 0123456789abcdef
        let expected = [
            0xa0, 0xd8, 0x10, 0xaa, 0x82, 0xc1, 0xdc, 0xe1, 0x7e, 0x62, 0x3b, 0xfb, 0x25, 0x61,
            0x4e, 0x0d, 0xbc, 0xe8, 0xa8, 0xac, 0x13, 0x0d, 0x3e, 0x81, 0xb5, 0x02, 0xac, 0xd2,
            0x1b, 0xec, 0x05, 0x4f,
        ];
        assert_eq!(proof(b"0123456789abcdef", &[0; 32]), expected);
    }

    #[test]
    fn proof_holds_for_its_secret_and_connection_only() {
        let good = proof(b"0123456789abcdef", &[7; 32]);
        assert_eq!(
            load(b"0123456789abcdef\n")
                .expect("a secret")
                .prove(&[7; 32]),
            good
        );
        assert!(verify(b"0123456789abcdef", &[7; 32], &good));
        assert!(!verify(b"0123456789abcdeF", &[7; 32], &good));
        assert!(!verify(b"0123456789abcdef", &[8; 32], &good));
        for bit in 0..256 {
            let mut flipped = good;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !verify(b"0123456789abcdef", &[7; 32], &flipped),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn one_newline_at_the_end_is_not_part_of_the_secret() {
        for content in [
            &b"0123456789abcdef"[..],
            b"0123456789abcdef\n",
            b"0123456789abcdef\r\n",
        ] {
            assert_eq!(
                load(content).expect("a secret").as_bytes(),
                b"0123456789abcdef"
            );
        }
        assert_eq!(
            load(b"0123456789abcdef\n\n").expect("a secret").as_bytes(),
            b"0123456789abcdef\n"
        );
        assert_eq!(load(&[0xff; 16]).expect("a secret").as_bytes(), [0xff; 16]);
    }

    #[test]
    fn length_is_checked_at_both_limits() {
        assert!(load(&[b'x'; MIN_SECRET]).is_ok());
        assert!(load(&[b'x'; MAX_SECRET]).is_ok());
        let mut long = vec![b'x'; MAX_SECRET];
        long.extend(b"\r\n");
        assert!(load(&long).is_ok());

        let mut short = vec![b'x'; MIN_SECRET - 1];
        short.push(b'\n');
        assert!(matches!(load(&short), Err(PskError::TooShort(_, 15))));
        assert!(matches!(load(b""), Err(PskError::TooShort(_, 0))));
        assert!(matches!(
            load(&[b'x'; MAX_SECRET + 1]),
            Err(PskError::TooLong(_, 4097))
        ));
        let read = load(&[b'x'; MAX_SECRET + 3]);
        assert!(matches!(
            read,
            Err(PskError::Read(_, ReadError::TooLarge { .. }))
        ));
    }

    #[test]
    fn messages_name_the_file_and_the_remedy() {
        let missing = load_secret(Path::new("/nonexistent/psk")).expect_err("no file");
        assert_eq!(
            missing.to_string(),
            "cannot read the secret /nonexistent/psk"
        );
        let short = load(b"hunter2\n").expect_err("too short").to_string();
        assert!(
            short.contains("psk is 7 bytes long, at least 16 are needed: make one with"),
            "{short}"
        );
        assert!(!short.contains("hunter2"));
    }

    // PROTOCOL PROOF-4.
    #[test]
    fn debug_output_hides_the_secret() {
        let secret = load(b"0123456789abcdef\n").expect("a secret");
        assert_eq!(format!("{secret:?}"), "Secret(16 bytes)");
    }
}
