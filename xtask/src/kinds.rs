//! The kind of each crate, which determines the crates that it may depend on.

/// The kind of a crate. A crate depends only on crates of the same kind or of an earlier kind in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Pure functions of the input.
    Pure,
    /// Pure functions of the input that also take TLS keys and the time as arguments.
    SansIo,
    /// Wrappers around the system's interfaces; only these crates contain `unsafe` code.
    Unsafe,
    /// The parts of the product that do input and output.
    Shell,
    /// Command-line flags, configuration files and environment variables.
    Arguments,
    /// Measurements and test beds; the product does not depend on them.
    Measuring,
    /// Programs; no crate depends on them.
    Binary,
}

/// The kind of every crate.
const KINDS: &[(&str, Kind)] = &[
    (
        "wire flow congestion link lab netstack mux http2",
        Kind::Pure,
    ),
    ("tls engine sim", Kind::SansIo),
    ("sys shmq skip", Kind::Unsafe),
    ("ipc io trust control stackd tunnel", Kind::Shell),
    ("args", Kind::Arguments),
    ("perf emu lab-run bench testbed", Kind::Measuring),
    ("cli e2e xtask", Kind::Binary),
];

pub(crate) fn kind(package: &str) -> Option<Kind> {
    KINDS
        .iter()
        .find(|(names, _)| names.split(' ').any(|name| name == package))
        .map(|(_, kind)| *kind)
}
