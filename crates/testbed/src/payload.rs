//! A long sequence of bytes that follows from a seed, so that the receiver can verify what the sender wrote.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

/// The block size of reads and writes, in bytes.
const BLOCK: usize = 64 * 1024;

/// A sequence of bytes that is determined by its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The seed of the sequence.
    pub seed: u64,
    /// The length in bytes.
    pub bytes: u64,
}

impl Payload {
    /// Returns the sequence of `seed` with a length of `bytes`.
    pub fn new(seed: u64, bytes: u64) -> Self {
        Self { seed, bytes }
    }

    /// Writes the whole sequence.
    ///
    /// # Errors
    ///
    /// Fails if writing fails; the error contains the offset.
    pub fn write_to(self, to: &mut impl Write) -> Result<()> {
        let never = AtomicBool::new(false);
        self.write_until(to, &never)?;
        Ok(())
    }

    /// Writes the sequence from its start until `stop` is set; returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// Fails as [`Payload::write_to`] does.
    pub fn write_until(self, to: &mut impl Write, stop: &AtomicBool) -> Result<u64> {
        let mut block = vec![0; BLOCK];
        let mut offset = 0;
        while offset < self.bytes && !stop.load(Ordering::Relaxed) {
            let length = block.len().min(usize::try_from(self.bytes - offset)?);
            self.fill(offset, &mut block[..length]);
            to.write_all(&block[..length])
                .with_context(|| format!("writing at {offset}"))?;
            offset += length as u64;
        }
        Ok(offset)
    }

    /// Reads and verifies until the writer ends; returns the number of bytes and updates `progress` meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if a byte is wrong or reading fails; the error contains the offset.
    pub fn read_to_any_end(self, from: &mut impl Read, progress: &AtomicU64) -> Result<u64> {
        let mut block = vec![0; BLOCK];
        let mut offset = 0;
        loop {
            let read = self.read_block(from, offset, &mut block)?;
            if read == 0 {
                return Ok(offset);
            }
            offset += read as u64;
            progress.store(offset, Ordering::Relaxed);
        }
    }

    /// Reads and verifies the whole sequence, and reads no byte after it.
    ///
    /// # Errors
    ///
    /// Fails if reading fails or ends early, or if a byte is wrong; the error contains the offset.
    pub fn read_from(self, from: &mut impl Read) -> Result<()> {
        let mut block = vec![0; BLOCK];
        let mut offset = 0;
        while offset < self.bytes {
            let wanted = block.len().min(usize::try_from(self.bytes - offset)?);
            let read = self.read_block(from, offset, &mut block[..wanted])?;
            ensure!(read > 0, "it ends at {offset} of {}", self.bytes);
            offset += read as u64;
        }
        Ok(())
    }

    /// Reads and verifies the whole sequence, and then expects the end.
    ///
    /// # Errors
    ///
    /// Fails as [`Payload::read_from`] does. Also fails if more bytes follow, or if the end is not a clean one.
    pub fn read_to_end_of(self, from: &mut impl Read) -> Result<()> {
        self.read_from(from)?;
        let more = from.read(&mut [0; 1]).context("reading the end")?;
        ensure!(more == 0, "more than {} bytes arrive", self.bytes);
        Ok(())
    }

    /// Reads and verifies the available bytes; returns 0 at the end.
    pub fn read_block(self, from: &mut impl Read, offset: u64, block: &mut [u8]) -> Result<usize> {
        let read = loop {
            match from.read(block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    break result
                        .with_context(|| format!("reading at {offset} of {}", self.bytes))?;
                }
            }
        };
        let mut expected = vec![0; read];
        self.fill(offset, &mut expected);
        if let Some(at) = block[..read]
            .iter()
            .zip(&expected)
            .position(|(got, want)| got != want)
        {
            bail!("byte {} of {} is wrong", offset + at as u64, self.bytes);
        }
        Ok(read)
    }

    /// Fills `block` with the bytes of the sequence at `offset`.
    pub fn fill(self, offset: u64, block: &mut [u8]) {
        let mut at = 0;
        while at < block.len() {
            let position = offset + at as u64;
            let word = mix(self.seed, position / 8).to_le_bytes();
            let skip = usize::try_from(position % 8).expect("invariant: less than 8");
            let length = (8 - skip).min(block.len() - at);
            block[at..at + length].copy_from_slice(&word[skip..skip + length]);
            at += length;
        }
    }
}

/// `SplitMix64`, computed per word, so that reading may begin at any offset.
fn mix(seed: u64, index: u64) -> u64 {
    let mut word = seed ^ index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: Payload) -> Vec<u8> {
        let mut bytes = Vec::new();
        payload
            .write_to(&mut bytes)
            .expect("writing to a vector succeeds");
        bytes
    }

    #[test]
    fn every_difference_is_detected() {
        let payload = Payload::new(7, 200_001);
        let right = written(payload);
        assert_eq!(right.len(), 200_001);
        assert!(payload.read_to_end_of(&mut &right[..]).is_ok());
        for at in [0, 1, 65_535, 65_536, 200_000] {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let error = payload
                .read_from(&mut &wrong[..])
                .expect_err("a wrong byte is detected");
            assert_eq!(error.to_string(), format!("byte {at} of 200001 is wrong"));
        }
        let error = payload
            .read_from(&mut &right[..200_000])
            .expect_err("an early end is detected");
        assert_eq!(error.to_string(), "it ends at 200000 of 200001");
        let more = [&right[..], b"x"].concat();
        assert!(payload.read_from(&mut &more[..]).is_ok());
        assert!(payload.read_to_end_of(&mut &more[..]).is_err());
        assert!(Payload::new(8, 200_001).read_from(&mut &right[..]).is_err());
    }
}
