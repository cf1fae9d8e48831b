//! Copies of bytes that the peer may change at any moment, in both directions.
//!
//! Accessing such memory through plain references or plain copies would be a data race, and the compiler may assume
//! that data races do not happen. Short copies therefore proceed word by word with atomics. Long copies use a processor
//! instruction that is opaque to the compiler, which treats the memory like device memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::atomic::{soon_read, soon_write};

/// From this length on, the processor's copy instruction is faster than the copy by words. Measured, but not critical.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 256;

/// Unit of access when both sides work on the same bytes: the unit that moves from core to core.
const LINE: usize = 64;

/// Distance in lines between the line in use and the line that is prefetched. A line that another core holds takes 130
/// cycles or more to arrive, and processing it takes three or four. Writing 64 KiB took 4900 cycles with a distance of
/// ten, 3600 with 24, 3450 with 32, and no less with more.
const AHEAD: usize = 32;

/// A range of shared bytes. It is never a slice, because the peer writes to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBytes {
    base: NonNull<u8>,
    len: usize,
}

impl SharedBytes {
    /// Creates a range of `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// `base..base + len` must be mapped for reading and writing as long as this value and its copies are used. This
    /// process must hold no plain references into it.
    // SAFETY: the caller upholds the contract; the methods rely on it.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// Returns the bytes `at..at + len`.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are not all inside the range.
    #[inline]
    pub(crate) fn part(self, at: usize, len: usize) -> Self {
        assert!(
            at <= self.len && len <= self.len - at,
            "the caller checks the bounds first"
        );
        Self {
            // SAFETY: not beyond the end, as asserted above.
            base: unsafe { self.base.add(at) },
            len,
        }
    }

    #[inline]
    pub(crate) fn read(self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len, "lengths differ");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            // SAFETY: the bytes are mapped (`new`). `into` is private memory of the same length, so the two do not
            // overlap.
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

    /// Appends the bytes to `onto`. A long copy avoids writing the new memory twice.
    pub(crate) fn append_to(self, onto: &mut Vec<u8>) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            onto.reserve(self.len);
            let end = onto.spare_capacity_mut().as_mut_ptr().cast();
            // SAFETY: the bytes are mapped (`new`), and as many are reserved at the end of `onto`, which is private
            // memory and does not overlap them.
            unsafe { move_bytes(self.base.as_ptr(), end, self.len) };
            // SAFETY: these bytes were just reserved and written.
            unsafe { onto.set_len(onto.len() + self.len) };
            return;
        }
        let before = onto.len();
        onto.resize(before + self.len, 0);
        self.read(&mut onto[before..]);
    }

    #[inline]
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "lengths differ");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            // SAFETY: the bytes are mapped for writing (`new`). `from` is private memory of the same length, so the two
            // do not overlap.
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

    /// Folds over the bytes in lines of eight words, without a copy to memory that is visible elsewhere. The last line
    /// is padded with zeros.
    #[inline]
    pub(crate) fn fold_lines<T>(self, start: T, mut each: impl FnMut(T, &[u64; 8]) -> T) -> T {
        let whole = self.len / LINE;
        let mut value = start;
        // Two loops, so that neither needs to check whether there is a line to prefetch.
        let most = whole.saturating_sub(AHEAD);
        for at in 0..most {
            soon_read(self.line(at + AHEAD).as_ptr());
            value = each(value, &self.load_line(at));
        }
        for at in most..whole {
            value = each(value, &self.load_line(at));
        }
        if !self.len.is_multiple_of(LINE) {
            let mut bytes = [0; LINE];
            let rest = self.len - LINE * whole;
            self.part(LINE * whole, rest).read(&mut bytes[..rest]);
            let line = bytes.as_chunks::<8>().0;
            value = each(
                value,
                &std::array::from_fn(|at| u64::from_ne_bytes(line[at])),
            );
        }
        value
    }

    /// Writes whole lines of eight words in place; line `i` is `make(i)`. Bytes after the last whole line stay
    /// unchanged.
    #[inline]
    pub(crate) fn fill_lines(self, mut make: impl FnMut(usize) -> [u64; 8]) {
        let whole = self.len / LINE;
        let most = whole.saturating_sub(AHEAD);
        for at in 0..most {
            soon_write(self.line(at + AHEAD).as_ptr());
            self.store_line(at, make(at));
        }
        for at in most..whole {
            self.store_line(at, make(at));
        }
    }

    #[inline(always)]
    fn line(self, at: usize) -> NonNull<u8> {
        debug_assert!(LINE * (at + 1) <= self.len, "line out of range");
        // SAFETY: the caller stays below the number of whole lines.
        unsafe { self.base.add(LINE * at) }
    }

    #[inline(always)]
    fn load_line(self, at: usize) -> [u64; 8] {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: the bytes of the line are mapped (`new`).
            unsafe { load_line(self.line(at).as_ptr()) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let mut bytes = [0; LINE];
            self.part(LINE * at, LINE).read(&mut bytes);
            let line = bytes.as_chunks::<8>().0;
            std::array::from_fn(|at| u64::from_ne_bytes(line[at]))
        }
    }

    #[inline(always)]
    fn store_line(self, at: usize, line: [u64; 8]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: the bytes of the line are mapped for writing (`new`).
            unsafe { store_line(self.line(at).as_ptr(), line) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        for (word, value) in line.iter().enumerate() {
            self.part(LINE * at + 8 * word, 8)
                .write(&value.to_ne_bytes());
        }
    }

    /// Returns the number of bytes before the first aligned word, and the number of whole words from there on.
    fn split(self) -> (usize, usize) {
        let head = self.base.as_ptr().addr().wrapping_neg() % 8;
        (head, self.len.saturating_sub(head) / 8)
    }

    #[inline]
    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len, "byte out of range");
        // SAFETY: the caller stays below `len`, and those bytes are mapped (`new`).
        let at = unsafe { self.base.add(at) };
        // SAFETY: the byte is mapped, and every access to it in this process is atomic or opaque to the compiler.
        unsafe { AtomicU8::from_ptr(at.as_ptr()) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.len, "byte out of range");
        // SAFETY: the caller stays at least one word below `len`, and those bytes are mapped (`new`).
        let at = unsafe { self.base.add(at) };
        debug_assert!(at.cast::<u64>().is_aligned(), "misaligned word");
        // SAFETY: the word is mapped and aligned, and is accessed as described in `byte`.
        unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) }
    }
}

/// Copies `len` bytes with one instruction that is opaque to the compiler.
///
/// # Safety
///
/// `from..from + len` must be readable, `to..to + len` must be writable, and they must not overlap. If another process
/// writes to either range concurrently, the copy may mix old and new bytes.
// SAFETY: the caller upholds the contract.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the ranges. The direction flag is clear, as it always is between functions. The
    // compiler assumes that the instruction reads and writes arbitrary memory, and assumes nothing about the values
    // read.
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

/// Loads a line of eight words with instructions that are opaque to the compiler.
///
/// # Safety
///
/// `from..from + 64` must be readable. If another process writes to it concurrently, the result may mix old and new
/// bytes.
// SAFETY: the caller upholds the contract.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn load_line(from: *const u8) -> [u64; 8] {
    let (a, b, c, d);
    // SAFETY: the caller guarantees the range. As with `move_bytes`, the compiler knows only that memory is read.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            from = in(reg) from,
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, preserves_flags, readonly),
        );
    }
    let halves: [std::arch::x86_64::__m128i; 4] = [a, b, c, d];
    // SAFETY: both types have the same size, and every bit pattern is a valid word.
    unsafe { std::mem::transmute(halves) }
}

/// Stores a line of eight words with instructions that are opaque to the compiler.
///
/// # Safety
///
/// `to..to + 64` must be writable.
// SAFETY: the caller upholds the contract.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn store_line(to: *mut u8, line: [u64; 8]) {
    // The line is stored from registers: if it went through memory, a 16-byte load would wait for the stores before it
    // (see `message`).
    // SAFETY: the caller guarantees the range, and the compiler knows only that memory is written.
    unsafe {
        std::arch::asm!(
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            to = in(reg) to,
            a = in(xmm_reg) both(line[0], line[1]),
            b = in(xmm_reg) both(line[2], line[3]),
            c = in(xmm_reg) both(line[4], line[5]),
            d = in(xmm_reg) both(line[6], line[7]),
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn both(low: u64, high: u64) -> std::arch::x86_64::__m128i {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { std::arch::x86_64::_mm_set_epi64x(high.cast_signed(), low.cast_signed()) }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn bytes_of_every_length_at_every_offset_are_read_back() {
        #[repr(align(8))]
        struct Bytes([UnsafeCell<u8>; 640]);
        let memory = Bytes(std::array::from_fn(|_| UnsafeCell::new(0)));
        let base = NonNull::from(&memory.0).cast();
        // SAFETY: the memory lives until the end of the test, and there are no references to the content of the cells.
        let whole = unsafe { SharedBytes::new(base, memory.0.len()) };
        let pattern: Vec<u8> = (0..600_u16)
            .map(|i| u8::try_from(i % 251).expect("in range") + 1)
            .collect();
        // Under Miri, every byte takes long.
        let step = if cfg!(miri) { 7 } else { 1 };
        for at in (0..16).step_by(step) {
            for len in (0..40).step_by(step).chain([255, 256, 257, 511]) {
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
                let mut behind = vec![9, 8, 7];
                whole.part(at, len).append_to(&mut behind);
                assert_eq!(behind[..3], [9, 8, 7], "before {len} bytes at {at}");
                assert_eq!(behind[3..], pattern[..len], "{len} bytes at {at}, appended");
            }
        }
        for len in [0, 1, 63, 64, 65, 200] {
            whole.write(&[0; 640]);
            let part = whole.part(8, len);
            part.fill_lines(|at| [at as u64 + 1; 8]);
            let lines = part.fold_lines(Vec::new(), |mut lines, line| {
                lines.push(*line);
                lines
            });
            assert_eq!(lines.len(), len.div_ceil(64));
            for (at, line) in lines.iter().enumerate() {
                let filled = if at < len / 64 { at as u64 + 1 } else { 0 };
                assert_eq!(*line, [filled; 8], "line {at} of {len} bytes");
            }
            let mut after = [0xff; 8];
            whole.part(8 + len, 8).read(&mut after);
            assert_eq!(after, [0; 8], "behind {len} bytes");
        }
        let odd = whole.part(3, 5);
        odd.write(&[1, 2, 3, 4, 5]);
        let words = odd.fold_lines([0; 8], |_, line| *line);
        assert_eq!(words, [0x05_0403_0201, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "the caller checks the bounds first")]
    fn every_allocation_lies_inside_the_arena() {
        let mut byte = 0;
        // SAFETY: the byte lives until the end of the test and is used only through this range.
        let shared = unsafe { SharedBytes::new(NonNull::from(&mut byte), 1) };
        shared.part(1, 1);
    }
}
