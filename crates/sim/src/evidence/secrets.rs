//! The TLS secrets of a network's clients, for decrypting its packets.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes kept: enough for some thousand connections.
const MAX: usize = 4 << 20;

/// Secrets in the format that Wireshark reads (NSS key log). They belong to throw-away keys.
#[derive(Default)]
pub(crate) struct Secrets {
    text: Mutex<String>,
}

impl Secrets {
    pub(crate) fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
    }
}

impl rustls::KeyLog for Secrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() >= MAX {
            return;
        }
        text.push_str(label);
        for bytes in [client_random, secret] {
            text.push(' ');
            for byte in bytes {
                write!(text, "{byte:02x}").expect("writing to a string");
            }
        }
        text.push('\n');
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}
