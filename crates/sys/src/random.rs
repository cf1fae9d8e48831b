//! Random bytes from the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns 32 random bytes from the system's generator, suitable for keys and seeds.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(length) => filled += length,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
