//! Writes TLS secrets in the NSS key log format, for Wireshark.
//!
//! The file's content decrypts the traffic. Only this user can read it, and the programs log at start that they write
//! it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::KeyLog;

use crate::keeper;

#[derive(Debug)]
pub(super) struct FileKeyLog {
    file: File,
    failed: AtomicBool,
}

impl FileKeyLog {
    /// Opens `path` for appending, and creates it with mode 0600.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: keeper::append_here(path, 0o600)?,
            failed: AtomicBool::new(false),
        })
    }
}

impl KeyLog for FileKeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        push_hex(&mut line, client_random);
        line.push(' ');
        push_hex(&mut line, secret);
        line.push('\n');
        // The file is open for appending and each line is one write, so lines of several threads and processes stay
        // whole.
        let written = (&self.file).write_all(line.as_bytes());
        if let Err(error) = written
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "cannot write TLS secrets to the key log");
        }
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "{byte:02x}").expect("invariant: writing to a String never fails");
    }
}
