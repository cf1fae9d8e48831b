//! What a process gives up for good before it looks at what strangers send: rights, files, system calls.
//!
//! In this order, each where the process can do without:
//!
//! 1. [`give_up_rights`]: every capability, and whatever a program that it starts would gain.
//! 2. [`give_up_files`]: opening files (Landlock). Both before there are other threads, which would keep theirs.
//! 3. [`give_up_calls`]: system calls (seccomp), of all threads, once everything is open that the process needs.
//!
//! What was open before stays usable. A call that was given up fails with `EPERM`: whoever tries it can say so.

mod calls;
mod error;
mod forbidden;

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
    Scope,
};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use calls::{Calls, give_up_calls};
pub use error::ConfineError;
pub use forbidden::{Attempt, attempts};

/// Files that a process keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// None: nothing can be opened, bound or connected to any more.
    None,
    /// These only. No TCP port can be bound. Connecting stays possible, to Unix sockets with a path too.
    Only(Paths),
}

/// Files that a process may open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// It reads these, and what is below them.
    pub read: Vec<PathBuf>,
    /// It makes and writes files below these directories.
    pub write: Vec<PathBuf>,
    /// It sends to Unix sockets with an abstract name.
    pub abstract_sockets: bool,
}

/// Whether the kernel keeps a process to what it gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Wholly,
    /// An older kernel: what it knows of.
    Partly,
    /// It has no Landlock.
    NotAtAll,
}

/// Gives up the calling thread's capabilities, now and in what it may start.
pub fn give_up_rights() -> Result<(), ConfineError> {
    set_no_new_privs(true).map_err(io::Error::from)?;
    clear_ambient_capability_set().map_err(io::Error::from)?;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel has no more; or we may not, and then have none that a program could inherit.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none).map_err(io::Error::from)?)
}

/// Gives up opening files, for the calling thread and those that it starts. A kernel without Landlock is no error.
pub fn give_up_files(keep: &Files) -> Result<Kept, ConfineError> {
    // The newest that is known here; older kernels do as much as they know.
    let abi = ABI::V6;
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let created = match keep {
        Files::None => rules
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?,
        Files::Only(paths) => only(rules, paths, abi)?,
    };
    Ok(match created.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Kept::Wholly,
        RulesetStatus::PartiallyEnforced => Kept::Partly,
        RulesetStatus::NotEnforced => Kept::NotAtAll,
    })
}

fn only(rules: Ruleset, paths: &Paths, abi: ABI) -> Result<RulesetCreated, ConfineError> {
    let mut scopes = Scope::from_all(abi);
    if paths.abstract_sockets {
        scopes.remove(Scope::AbstractUnixSocket);
    }
    let mut created = rules
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::BindTcp)?
        .scope(scopes)?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
    let all = [(&paths.read, read), (&paths.write, write)];
    let each = all.map(|(paths, access)| paths.iter().map(move |path| (path, access)));
    for (path, access) in each.into_iter().flatten() {
        let open = match PathFd::new(path) {
            Ok(open) => open,
            // A path that does not exist cannot be opened anyway.
            Err(PathFdError::OpenCall { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(abi)
        };
        created = created.add_rule(PathBeneath::new(open, access))?;
    }
    Ok(created)
}

/// Keeps other processes of the same user from reading this process's memory, and the kernel from writing it to a core
/// file. Files of this process in `/proc` belong to root from then on.
pub fn hide_memory() -> Result<(), ConfineError> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?)
}

/// What this kernel can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Version of Landlock's interface; `None`: it is missing or switched off.
    pub landlock: Option<u32>,
    /// Filters of system calls.
    pub seccomp: bool,
}

/// The version of Landlock's interface that covers all that is used here: it knows signals and abstract sockets.
pub const LANDLOCK_WHOLE: u32 = 6;

/// Asks the kernel what it can enforce. Nothing is changed.
pub fn offered() -> Offered {
    // `LANDLOCK_CREATE_RULESET_VERSION`
    let flags = 1_u32;
    // SAFETY: with this flag the call only tells a number; no bytes are read from the pointer.
    let landlock =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, flags) };
    let action = libc::SECCOMP_RET_ERRNO;
    let operation = libc::SECCOMP_GET_ACTION_AVAIL;
    // SAFETY: the operation reads one `u32`, which lives on this stack.
    let seccomp = unsafe { libc::syscall(libc::SYS_seccomp, operation, 0, &raw const action) };
    Offered {
        landlock: u32::try_from(landlock).ok().filter(|version| *version > 0),
        seccomp: seccomp == 0,
    }
}

#[cfg(test)]
mod tests;
