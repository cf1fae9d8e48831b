//! Resolves addresses to function names: the kernel's from `/proc/kallsyms`, a program's from its own symbol table.

use std::fs;
use std::path::Path;

use rustc_demangle::demangle;

/// Maximum size of a program whose symbols are read, in bytes: a few times the size of this program with debug
/// information.
const PROGRAM_MAX: u64 = 512 << 20;

#[derive(Debug, Default)]
pub(crate) struct Symbols(Vec<(u64, String)>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    from: u64,
    until: u64,
    offset: u64,
    pub(crate) path: String,
}

impl Symbols {
    /// Reads the kernel's symbols. Returns none if the kernel hides them.
    pub(crate) fn kernel() -> Self {
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let all = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = words.next()?.eq_ignore_ascii_case("t");
            (is_code && address > 0).then_some((address, words.next()?.to_owned()))
        });
        Self::sorted(all.collect())
    }

    /// Reads the symbols of a program, by offset in its file. Returns none if the file has no symbol table.
    pub(crate) fn program(path: &Path) -> Self {
        let is_sensible = fs::metadata(path).is_ok_and(|meta| meta.len() <= PROGRAM_MAX);
        let bytes = is_sensible.then(|| fs::read(path).ok()).flatten();
        Self::sorted(functions(&bytes.unwrap_or_default()).unwrap_or_default())
    }

    pub(crate) fn sorted(mut all: Vec<(u64, String)>) -> Self {
        all.sort_by_key(|(address, _)| *address);
        Self(all)
    }

    /// Returns the function that contains an address: the last one that begins at or before it.
    pub(crate) fn find(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(begin, _)| *begin <= address);
        let (_, name) = self.0.get(after.checked_sub(1)?)?;
        Some(name)
    }
}

impl Mapping {
    pub(crate) fn all(process: u32) -> Vec<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        text.lines().filter_map(Self::read).collect()
    }

    /// Parses a line of `/proc/PID/maps`, such as `55d0-55f0 r-xp 00010000 fe:00 123   /path`. Returns `None` unless
    /// the mapping holds code.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (from, until) = words.next()?.split_once('-')?;
        let is_code = words.next()?.contains('x');
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let mapping = Self {
            from: hex(from)?,
            until: hex(until)?,
            offset: hex(words.next()?)?,
            path: words.nth(2).unwrap_or("[anonymous]").to_owned(),
        };
        is_code.then_some(mapping)
    }

    /// Returns the offset of an address in the mapped file, if the mapping contains the address.
    pub(crate) fn in_file(&self, address: u64) -> Option<u64> {
        (self.from..self.until)
            .contains(&address)
            .then(|| address - self.from + self.offset)
    }
}

/// Returns the functions of an ELF file by their offset in it. Returns `None` unless the file is 64-bit little-endian
/// ELF with a symbol table.
fn functions(elf: &[u8]) -> Option<Vec<(u64, String)>> {
    const CLASS_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";
    if !elf.starts_with(CLASS_64_LITTLE) {
        return None;
    }
    let segments: Vec<[u64; 3]> = table(elf, [32, 54, 56])?
        .filter_map(|header| {
            let is_loaded = number(header, 0, 4)? == 1;
            let [offset, address, length] = [8, 16, 32].map(|at| number(header, at, 8));
            is_loaded.then_some([offset?, address?, length?])
        })
        .collect();
    let in_file = |address: u64| {
        let within = |[_, begin, length]: &&[u64; 3]| address.wrapping_sub(*begin) < *length;
        segments
            .iter()
            .find(within)
            .map(|[offset, begin, _]| address - begin + offset)
    };
    let sections: Vec<&[u8]> = table(elf, [40, 58, 60])?.collect();
    let content = |header: &[u8]| {
        let [offset, length] = [24, 32].map(|at| usize::try_from(number(header, at, 8)?).ok());
        elf.get(offset?..offset?.checked_add(length?)?)
    };
    // The type SHT_SYMTAB.
    let symbols = sections
        .iter()
        .find(|header| number(header, 4, 4) == Some(2))?;
    let names = sections.get(usize::try_from(number(symbols, 40, 4)?).ok()?)?;
    let names = content(names)?;
    let (entries, _) = content(symbols)?.as_chunks::<24>();
    let function = |entry: &[u8; 24]| {
        // The type STT_FUNC.
        if entry[4] & 15 != 2 {
            return None;
        }
        let name = names.get(usize::try_from(number(entry, 0, 4)?).ok()?..)?;
        let name = std::str::from_utf8(name.split(|byte| *byte == 0).next()?).ok()?;
        Some((
            in_file(number(entry, 8, 8)?)?,
            format!("{:#}", demangle(name)),
        ))
    };
    Some(entries.iter().filter_map(function).collect())
}

/// Returns the entries of an ELF table. The arguments are the positions of three fields in the ELF header: the table's
/// offset, the length of an entry, and the number of entries.
fn table(elf: &[u8], [begin, length, count]: [usize; 3]) -> Option<impl Iterator<Item = &[u8]>> {
    let begin = usize::try_from(number(elf, begin, 8)?).ok()?;
    let length = usize::try_from(number(elf, length, 2)?).ok()?;
    let count = usize::try_from(number(elf, count, 2)?).ok()?;
    let all = elf.get(begin..begin.checked_add(length.checked_mul(count)?)?)?;
    (length > 0).then(|| all.chunks_exact(length))
}

/// Reads a little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere() -> u64 {
        std::hint::black_box(somewhere as fn() -> u64) as usize as u64
    }

    #[test]
    fn a_function_of_this_program_has_its_name() {
        let path = std::env::current_exe().expect("a path");
        let symbols = Symbols::program(&path);
        let mappings = Mapping::all(std::process::id());
        let address = somewhere();
        let place = mappings.iter().find_map(|mapping| mapping.in_file(address));
        let name = symbols.find(place.expect("mapped")).expect("a name");
        assert!(name.ends_with("symbols::tests::somewhere"), "{name}");
    }

    #[test]
    fn a_file_that_is_not_a_program_has_no_functions() {
        let path = std::env::current_exe().expect("a path");
        let whole = fs::read(path).expect("a program");
        for cut in [0, 1, 6, 40, 63, 64, 1000, whole.len() / 2] {
            assert!(
                functions(&whole[..cut]).unwrap_or_default().is_empty(),
                "{cut}"
            );
        }
        assert_eq!(functions(b"#!/bin/sh\n"), None);
        assert_eq!(Symbols::default().find(7), None);
    }

    #[test]
    fn mappings_without_code_are_left_out() {
        let line = "55d000-55f000 r-xp 00010000 fe:00 123   /a/program";
        let mapping = Mapping::read(line).expect("a mapping");
        assert_eq!(
            (mapping.in_file(0x55_d010), &*mapping.path),
            (Some(0x1_0010), "/a/program")
        );
        assert_eq!(mapping.in_file(0x55_f000), None);
        assert_eq!(Mapping::read(&line.replace("r-xp", "r--p")), None);
        assert_eq!(Mapping::read("nonsense"), None);
    }
}
