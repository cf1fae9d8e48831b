//! What kind of crate each is.

/// What a crate is; arrows point from later to earlier, or stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A function of its input.
    Pure,
    /// The same, with TLS keys and time as arguments.
    SansIo,
    /// Wrappers over the system.
    Unsafe,
    /// The running product: input and output.
    Shell,
    /// Flags, files and environment.
    Arguments,
    /// Measurements and test beds; the product depends on none of them.
    Measuring,
    /// Programs; no crate depends on them.
    Binary,
}

/// Every crate there is, or is going to be.
const KINDS: &[(&str, Kind)] = &[
    ("wire flow congestion link lab netstack", Kind::Pure),
    ("engine sim", Kind::SansIo),
    ("sys shmq", Kind::Unsafe),
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
