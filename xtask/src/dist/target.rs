//! The target systems of the programs.

use anyhow::{Context as _, Result};

/// A compiler target, which determines the architecture and the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    triple: &'static str,
    /// The architecture's name in the kernel and in rpm.
    pub(crate) machine: &'static str,
    /// The architecture's name in Debian and in container images.
    pub(crate) debian: &'static str,
}

impl Target {
    /// All supported targets. Those with glibc are for packages of distributions; those with musl are linked statically
    /// and run on any Linux.
    pub(crate) const ALL: [Self; 4] = [
        Self::new("x86_64-unknown-linux-gnu", "x86_64", "amd64"),
        Self::new("aarch64-unknown-linux-gnu", "aarch64", "arm64"),
        Self::new("x86_64-unknown-linux-musl", "x86_64", "amd64"),
        Self::new("aarch64-unknown-linux-musl", "aarch64", "arm64"),
    ];

    const fn new(triple: &'static str, machine: &'static str, debian: &'static str) -> Self {
        Self {
            triple,
            machine,
            debian,
        }
    }

    /// Returns the target's name in the compiler.
    pub(crate) fn triple(self) -> &'static str {
        self.triple
    }

    pub(crate) fn named(triple: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        let known = || Self::ALL.map(Self::triple).join(", ");
        let found = all.find(|target| target.triple() == triple);
        found.with_context(|| format!("unknown target {triple}: the targets are {}", known()))
    }

    /// Returns the targets of a release: every static target, and this machine's architecture with glibc.
    pub(crate) fn of_release() -> Vec<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|target| target.is_static() || target.runs_here())
            .collect()
    }

    /// Returns whether the C library is linked statically.
    pub(crate) fn is_static(self) -> bool {
        self.triple.ends_with("-musl")
    }

    /// Returns whether this machine can run the target's programs without emulation.
    pub(crate) fn runs_here(self) -> bool {
        self.machine == std::env::consts::ARCH
    }
}
