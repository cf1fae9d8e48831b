//! Bytes that the peer may change at any moment, in and out.
//!
//! Reading such memory through plain references or with plain copies would be a data race, which the compiler may take
//! for impossible. So short copies are done word by word with atomics, and long ones by an instruction of the processor
//! that the compiler knows nothing of: it sees the memory as it sees that of a device.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// From this on the processor's copy is faster than ours by words; measured, but not critical.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 256;

/// Shared bytes: never a slice, since the peer writes to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    base: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// # Safety
    ///
    /// `base..base + len` is mapped for reading and writing for as long as this and its copies are used, and nobody in
    /// this process has plain references into it.
    // SAFETY: it is the caller's promise; the methods rely on it.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// The bytes `at..at + len`; panics where these are not all in it.
    pub(crate) fn part(self, at: usize, len: usize) -> Self {
        assert!(
            at <= self.len && len <= self.len - at,
            "bounds are checked before"
        );
        Self {
            // SAFETY: not beyond the end, by the assertion.
            base: unsafe { self.base.add(at) },
            len,
        }
    }

    /// Copies it out; both have the same length.
    #[inline]
    pub(crate) fn read(self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len, "as long as what is read");
        #[cfg(target_arch = "x86_64")]
        if self.len >= LONG {
            // SAFETY: the bytes are mapped (`new`), `into` is ours and as long, and not part of them.
            unsafe { move_bytes(self.base.as_ptr(), into.as_mut_ptr(), self.len) };
            return;
        }
        let (head, words) = self.split();
        let (first, rest) = into.split_at_mut(head.min(self.len));
        for (at, byte) in first.iter_mut().enumerate() {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
        let (chunks, tail) = rest.as_chunks_mut::<8>();
        for (at, chunk) in chunks.iter_mut().enumerate() {
            *chunk = self
                .word(head + 8 * at)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
        }
        for (at, byte) in tail.iter_mut().enumerate() {
            *byte = self.byte(head + 8 * words + at).load(Ordering::Relaxed);
        }
    }

    /// Copies `from` into it; both have the same length.
    #[inline]
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "as long as what is written");
        #[cfg(target_arch = "x86_64")]
        if self.len >= LONG {
            // SAFETY: the bytes are mapped for writing (`new`), `from` is ours and as long, and not part of them.
            unsafe { move_bytes(from.as_ptr(), self.base.as_ptr(), self.len) };
            return;
        }
        let (head, words) = self.split();
        let (first, rest) = from.split_at(head.min(self.len));
        for (at, byte) in first.iter().enumerate() {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
        let (chunks, tail) = rest.as_chunks::<8>();
        for (at, chunk) in chunks.iter().enumerate() {
            self.word(head + 8 * at)
                .store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        for (at, byte) in tail.iter().enumerate() {
            self.byte(head + 8 * words + at)
                .store(*byte, Ordering::Relaxed);
        }
    }

    /// Folds over it in words, without a copy; the last word is filled up with zeros. It begins at a word.
    #[inline]
    pub(crate) fn fold<T>(self, start: T, mut each: impl FnMut(T, u64) -> T) -> T {
        assert!(
            self.base.as_ptr().addr().is_multiple_of(8),
            "payloads begin at words"
        );
        let whole = self.len / 8;
        let mut value = start;
        for at in 0..whole {
            value = each(value, self.word(8 * at).load(Ordering::Relaxed));
        }
        if !self.len.is_multiple_of(8) {
            let mut last = [0; 8];
            for (byte, at) in last.iter_mut().zip(8 * whole..self.len) {
                *byte = self.byte(at).load(Ordering::Relaxed);
            }
            value = each(value, u64::from_ne_bytes(last));
        }
        value
    }

    /// Writes whole words in place, `make(i)` the `i`th; it begins at a word and has a whole number of them.
    #[inline]
    pub(crate) fn fill(self, mut make: impl FnMut(usize) -> u64) {
        assert!(
            self.base.as_ptr().addr().is_multiple_of(8),
            "payloads begin at words"
        );
        for at in 0..self.len / 8 {
            self.word(8 * at).store(make(at), Ordering::Relaxed);
        }
    }

    /// Bytes before the first aligned word, and words after them.
    fn split(self) -> (usize, usize) {
        let head = self.base.as_ptr().addr().wrapping_neg() % 8;
        (head, self.len.saturating_sub(head) / 8)
    }

    #[inline]
    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len, "callers count");
        // SAFETY: callers stay below `len`, and those bytes are mapped (`new`).
        let at = unsafe { self.base.add(at) };
        // SAFETY: mapped, and every access to these bytes in this process is atomic or opaque to the compiler.
        unsafe { AtomicU8::from_ptr(at.as_ptr()) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.len, "callers count");
        // SAFETY: callers stay at least a word below `len`, and those bytes are mapped (`new`).
        let at = unsafe { self.base.add(at) };
        debug_assert!(at.cast::<u64>().is_aligned(), "callers align");
        // SAFETY: mapped and aligned, and accessed as in `byte`.
        unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) }
    }
}

/// # Safety
///
/// `from..from + len` can be read, `to..to + len` written, and they do not overlap. Another process may write to either
/// meanwhile: which bytes are moved is then its matter.
// SAFETY: it is the caller's promise.
#[cfg(target_arch = "x86_64")]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the ranges are as the caller promises; the direction flag is clear, as it always is between functions; the
    // compiler takes the instruction for one that reads and writes any memory, and assumes nothing of what it read.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn every_length_at_every_place_comes_back() {
        #[repr(align(8))]
        struct Bytes([UnsafeCell<u8>; 640]);
        let memory = Bytes(std::array::from_fn(|_| UnsafeCell::new(0)));
        let base = NonNull::from(&memory.0).cast();
        // SAFETY: it lives until the end of the test, and nobody has references to what is in the cells.
        let whole = unsafe { Shared::new(base, memory.0.len()) };
        let pattern: Vec<u8> = (0..600_u16)
            .map(|i| u8::try_from(i % 251).expect("small") + 1)
            .collect();
        for at in 0..16 {
            for len in (0..40).chain([255, 256, 257, 511]) {
                whole.write(&[0; 640]);
                whole.part(at, len).write(&pattern[..len]);
                let mut all = [0xff; 640];
                whole.read(&mut all);
                assert_eq!(all[at..at + len], pattern[..len], "{len} bytes at {at}");
                assert!(
                    all[..at]
                        .iter()
                        .chain(&all[at + len..])
                        .all(|byte| *byte == 0)
                );
                let mut back = vec![0xff; len];
                whole.part(at, len).read(&mut back);
                assert_eq!(back, pattern[..len], "{len} bytes at {at}");
            }
        }
        whole.write(&[0; 640]);
        whole
            .part(8, 16)
            .fill(|at| 0x0101_0101_0101_0101 * (at as u64 + 1));
        whole.part(24, 1).write(&[9]);
        let sum = whole.part(8, 17).fold(0_u64, u64::wrapping_add);
        assert_eq!(sum, 0x0303_0303_0303_0303 + 9);
    }

    #[test]
    #[should_panic(expected = "bounds are checked before")]
    fn no_part_is_outside() {
        let mut byte = 0;
        // SAFETY: it lives until the end of the test and is used through this only.
        let shared = unsafe { Shared::new(NonNull::from(&mut byte), 1) };
        shared.part(1, 1);
    }
}
