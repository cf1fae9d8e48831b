//! Reads the required glibc version from an ELF program.

/// The prefix of glibc's symbol versions.
const PREFIX: &[u8] = b"GLIBC_";

/// Returns the newest glibc version that a program requires, such as `2.34`, or `None` if it is linked statically.
///
/// The versions are strings in the program's table of dynamic strings, and occur nowhere else.
pub(crate) fn libc(program: &[u8]) -> Option<String> {
    let found = program
        .windows(PREFIX.len())
        .enumerate()
        .filter(|(_, window)| *window == PREFIX);
    let versions = found.filter_map(|(at, _)| {
        let rest = &program[at + PREFIX.len()..];
        let length = rest.iter().position(|&byte| byte == 0)?;
        let version = std::str::from_utf8(rest.get(..length)?).ok()?;
        let numbers = version.split('.').map(|number| number.parse().ok());
        let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
        Some((numbers, version))
    });
    versions.max().map(|(_, version)| version.to_owned())
}
