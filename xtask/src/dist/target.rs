//! The systems that programs are built for.

use anyhow::{Context as _, Result};

/// A target of the compiler: the architecture, and the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    triple: &'static str,
    /// The architecture as the kernel and rpm call it.
    pub(crate) machine: &'static str,
    /// The architecture as Debian and container images call it.
    pub(crate) debian: &'static str,
}

impl Target {
    /// Those with glibc are for packages of distributions; those with musl are linked statically, for any Linux.
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

    /// The name that the compiler has for it.
    pub(crate) fn triple(self) -> &'static str {
        self.triple
    }

    pub(crate) fn named(triple: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        let known = || Self::ALL.map(Self::triple).join(", ");
        let found = all.find(|target| target.triple() == triple);
        found.with_context(|| format!("there is no target {triple}: there are {}", known()))
    }

    /// What a release has: packages for this machine's architecture, and static programs for all.
    pub(crate) fn of_release() -> Vec<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|target| target.is_static() || target.runs_here())
            .collect()
    }

    /// Whether the C library is linked statically.
    pub(crate) fn is_static(self) -> bool {
        self.triple.ends_with("-musl")
    }

    /// Whether this machine runs its programs by itself.
    pub(crate) fn runs_here(self) -> bool {
        self.machine == std::env::consts::ARCH
    }
}
