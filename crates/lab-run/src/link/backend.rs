//! Who emulates a link.

use std::fmt;

use anyhow::Context as _;
use quictun_emu::{Audit, KernelAudit, KernelError, KernelLink, Offload, Plan, Running, World};

/// Who emulates a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// This program.
    Emulator,
    /// The kernel.
    Kernel,
}

/// A link that is being emulated. It ends when told to, or with the process.
#[derive(Debug)]
pub(super) enum Emulated {
    Emulator(Running),
    Kernel(KernelLink),
}

#[derive(Debug)]
pub(super) enum Account {
    Emulator(Box<Audit>),
    Kernel(KernelAudit),
}

impl Backend {
    /// Who cuts streams into packets where nobody says it. The kernel loses super-packets as one, so that it must not
    /// get any.
    #[must_use]
    pub fn offload(self) -> Offload {
        match self {
            Self::Emulator => Offload::Full,
            Self::Kernel => Offload::None,
        }
    }

    pub(super) fn start(self, world: &World, plan: Plan) -> anyhow::Result<Emulated> {
        match self {
            Self::Emulator => Running::start(world, plan)
                .map(Emulated::Emulator)
                .context("starting the emulator"),
            Self::Kernel => KernelLink::start(world, [&plan.up, &plan.down], plan.seed)
                .map(Emulated::Kernel)
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

impl Emulated {
    pub(super) fn stop(self, world: &World) -> anyhow::Result<Account> {
        Ok(match self {
            Self::Emulator(running) => {
                Account::Emulator(Box::new(running.stop().context("the emulator")?))
            }
            Self::Kernel(link) => Account::Kernel(
                link.audit(world)
                    .context("asking the kernel what its link did")?,
            ),
        })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulator(audit) => audit.fmt(f),
            Self::Kernel(audit) => audit.fmt(f),
        }
    }
}
