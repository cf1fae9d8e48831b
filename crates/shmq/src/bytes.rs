//! Bytes that the peer may change at any moment, in and out.
//!
//! Reading such memory through plain references or with plain copies would be a data race, which the compiler may take
//! for impossible. So short copies are done word by word with atomics, and long ones by an instruction of the processor
//! that the compiler knows nothing of: it sees the memory as it sees that of a device.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::atomic::{soon_read, soon_write};

/// From this on the processor's copy is faster than ours by words; measured, but not critical.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 256;

/// What is moved at a time where both sides work on the same bytes: what goes from core to core.
const LINE: usize = 64;

/// Lines between one that is worked on and one that is asked for. Lines that another core has are 130 cycles away and more,
/// and are worked on in three or four: with ten ahead, writing 64 KiB took 4900 cycles, with 24 3600, with 32 3450, and with
/// more no less.
const AHEAD: usize = 32;

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
    #[inline]
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

    #[inline]
    pub(crate) fn read(self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len, "as long as what is read");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
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

    /// Copies it out, behind what is there already: memory that is new need not be written twice.
    pub(crate) fn append_to(self, onto: &mut Vec<u8>) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            onto.reserve(self.len);
            let end = onto.spare_capacity_mut().as_mut_ptr().cast();
            // SAFETY: the bytes are mapped (`new`), and as many are reserved behind those of `onto`, which is ours and not
            // part of them.
            unsafe { move_bytes(self.base.as_ptr(), end, self.len) };
            // SAFETY: reserved and written, both just now.
            unsafe { onto.set_len(onto.len() + self.len) };
            return;
        }
        let before = onto.len();
        onto.resize(before + self.len, 0);
        self.read(&mut onto[before..]);
    }

    #[inline]
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "as long as what is written");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
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

    /// Folds over it in lines of eight words, without a copy to memory that anybody else sees; the last one is filled up
    /// with zeros.
    #[inline]
    pub(crate) fn fold_lines<T>(self, start: T, mut each: impl FnMut(T, &[u64; 8]) -> T) -> T {
        let whole = self.len / LINE;
        let mut value = start;
        // In two parts, so that neither has to ask whether there is a line ahead.
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

    /// Writes whole lines of eight words in place, `make(i)` the `i`th; what is left of it stays.
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
        debug_assert!(LINE * (at + 1) <= self.len, "callers count");
        // SAFETY: callers stay below the number of whole lines.
        unsafe { self.base.add(LINE * at) }
    }

    #[inline(always)]
    fn load_line(self, at: usize) -> [u64; 8] {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: as many bytes are mapped (`new`).
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
            // SAFETY: as many bytes are mapped for writing (`new`).
            unsafe { store_line(self.line(at).as_ptr(), line) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        for (word, value) in line.iter().enumerate() {
            self.part(LINE * at + 8 * word, 8)
                .write(&value.to_ne_bytes());
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
#[cfg(all(target_arch = "x86_64", not(miri)))]
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

/// # Safety
///
/// `from..from + 64` can be read. Another process may write to it meanwhile: which bytes are read is then its matter.
// SAFETY: it is the caller's promise.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn load_line(from: *const u8) -> [u64; 8] {
    let (a, b, c, d);
    // SAFETY: the range is as the caller promises; as with `move_bytes`, the compiler knows only that memory is read.
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
    // SAFETY: as many bytes, and any of them are words.
    unsafe { std::mem::transmute(halves) }
}

/// # Safety
///
/// `to..to + 64` can be written.
// SAFETY: it is the caller's promise.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn store_line(to: *mut u8, line: [u64; 8]) {
    // Out of registers: through memory, a load of 16 bytes would wait for the stores before it (see `line`).
    // SAFETY: the range is as the caller promises, and the compiler knows only that memory is written.
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
        // Under Miri each byte takes long.
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
    #[should_panic(expected = "bounds are checked before")]
    fn no_part_is_outside() {
        let mut byte = 0;
        // SAFETY: it lives until the end of the test and is used through this only.
        let shared = unsafe { Shared::new(NonNull::from(&mut byte), 1) };
        shared.part(1, 1);
    }
}
