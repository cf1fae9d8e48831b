//! What an ELF program says of itself.

/// The prefix of the versions of glibc's symbols.
const PREFIX: &[u8] = b"GLIBC_";

/// The newest version of glibc that a program asks for, such as `2.34`; none where it is linked statically.
///
/// The versions stand as strings in the program's table of dynamic strings, and nowhere else.
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
