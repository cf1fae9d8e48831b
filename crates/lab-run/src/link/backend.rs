//! The emulators of a link: this program or the kernel.

use std::fmt;

use anyhow::Context as _;
use quictun_emu::{
    Audit, EmulatorConfig, KernelAudit, KernelError, KernelLink, Offload, RunningEmulator, World,
};

/// The emulator of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The emulator of this program.
    Emulator,
    /// The kernel's traffic control.
    Kernel,
}

/// A running emulation. It ends with [`Emulation::stop`] or with the process.
#[derive(Debug)]
pub(super) enum Emulation {
    Emulator(RunningEmulator),
    Kernel(KernelLink),
}

#[derive(Debug)]
pub(super) enum EmulatorAccount {
    Emulator(Box<Audit>),
    Kernel(KernelAudit),
}

impl Backend {
    /// Returns the default segmentation offload. The kernel drops a super-packet as a whole, so it must not receive
    /// any.
    #[must_use]
    pub fn offload(self) -> Offload {
        match self {
            Self::Emulator => Offload::Full,
            Self::Kernel => Offload::None,
        }
    }

    pub(super) fn start(self, world: &World, plan: EmulatorConfig) -> anyhow::Result<Emulation> {
        match self {
            Self::Emulator => RunningEmulator::start(world, plan)
                .map(Emulation::Emulator)
                .context("cannot start the emulator"),
            Self::Kernel => KernelLink::start(world, [&plan.up, &plan.down], plan.seed)
                .map(Emulation::Kernel)
                .map_err(|error| advise(&error)),
        }
    }
}

fn advise(error: &KernelError) -> anyhow::Error {
    let advice = match error {
        KernelError::Missing { .. } => "; without --backend kernel this program emulates the link",
        _ => "",
    };
    anyhow::anyhow!("{error}{advice}")
}

impl Emulation {
    pub(super) fn stop(self, world: &World) -> anyhow::Result<EmulatorAccount> {
        Ok(match self {
            Self::Emulator(running) => {
                EmulatorAccount::Emulator(Box::new(running.stop().context("the emulator failed")?))
            }
            Self::Kernel(link) => EmulatorAccount::Kernel(
                link.audit(world)
                    .context("cannot read the kernel's counters")?,
            ),
        })
    }
}

impl fmt::Display for EmulatorAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulator(audit) => audit.fmt(f),
            Self::Kernel(audit) => audit.fmt(f),
        }
    }
}
