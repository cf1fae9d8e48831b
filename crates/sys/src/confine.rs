//! Drops rights, file access and system calls permanently, before a process handles untrusted input.
//!
//! A process calls those of these functions whose rights it does not need:
//!
//! * [`give_up_rights`] drops every capability, and the rights that a started program would gain.
//!   [`give_up_rights_but`] keeps some capabilities.
//! * [`give_up_files`] stops the process from opening files (Landlock). Call these two, in either order, before other
//!   threads exist: those would keep their rights.
//! * [`give_up_calls`] drops system calls (seccomp), for all threads. Call it last, once everything is open that the
//!   process needs.
//!
//! Open descriptors stay usable. A call that was given up fails with `EPERM`, so that the caller can report it.

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
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

pub use calls::{SyscallSet, give_up_calls};
pub use error::ConfineError;
pub use forbidden::{ForbiddenAction, attempts};
pub use rustix::thread::CapabilitySet;

/// Files to which a process keeps access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// None: nothing can be opened, bound or connected to any more.
    None,
    /// Only these. No TCP port can be bound. Connecting stays possible, also to Unix sockets with a path.
    Only(AllowedPaths),
}

/// Files that a process may open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedPaths {
    /// The process may read these, and everything below them.
    pub read: Vec<PathBuf>,
    /// The process may make and write files below these directories.
    pub write: Vec<PathBuf>,
    /// The process may send to Unix sockets with an abstract name.
    pub abstract_sockets: bool,
}

/// The degree to which the kernel enforces what a process gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// The kernel enforces everything.
    Full,
    /// The kernel is older and enforces what it knows of.
    Partial,
    /// The kernel has no Landlock.
    None,
}

/// Gives up the calling thread's capabilities, now and in programs that it starts.
pub fn give_up_rights() -> Result<(), ConfineError> {
    give_up_rights_but(CapabilitySet::empty())
}

/// Gives up the calling thread's capabilities except these, and all of them in programs that it starts. The thread gains
/// no capability that it does not have.
pub fn give_up_rights_but(keep: CapabilitySet) -> Result<(), ConfineError> {
    give_up_rights_of_programs()?;
    let had = capabilities(None).map_err(io::Error::from)?;
    let kept = CapabilitySets {
        effective: had.effective & keep,
        permitted: had.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept).map_err(io::Error::from)?)
}

/// Gives up the rights that a program would gain which the calling thread starts.
fn give_up_rights_of_programs() -> Result<(), ConfineError> {
    set_no_new_privs(true).map_err(io::Error::from)?;
    clear_ambient_capability_set().map_err(io::Error::from)?;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel has no more capabilities; or the process may not do this, and then has none that a program
            // could inherit.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// Makes the calling thread, and the threads that it starts, run as the user that owns no file. Its capabilities are
/// gone then. Other threads of the process stay as they are.
pub fn become_nobody() -> Result<(), ConfineError> {
    // The kernel's overflow ids. Distributions reserve them for a user and a group without files.
    let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
    // Another user may not do this any more.
    give_up_rights_of_programs()?;
    set_thread_groups(&[]).map_err(io::Error::from)?;
    set_thread_res_gid(group, group, group).map_err(io::Error::from)?;
    Ok(set_thread_res_uid(user, user, user).map_err(io::Error::from)?)
}

/// Gives up opening files, for the calling thread and the threads that it starts. A kernel without Landlock is not an
/// error.
pub fn give_up_files(keep: &FileAccess) -> Result<Enforcement, ConfineError> {
    // The newest version that is known here. Older kernels enforce as much as they know.
    let abi = ABI::V6;
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let created = match keep {
        FileAccess::None => rules
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?,
        FileAccess::Only(paths) => only(rules, paths, abi)?,
    };
    Ok(match created.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforcement::Full,
        RulesetStatus::PartiallyEnforced => Enforcement::Partial,
        RulesetStatus::NotEnforced => Enforcement::None,
    })
}

fn only(rules: Ruleset, paths: &AllowedPaths, abi: ABI) -> Result<RulesetCreated, ConfineError> {
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
/// file. From then on, root owns the files of this process in `/proc`.
pub fn hide_memory() -> Result<(), ConfineError> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?)
}

/// The restrictions that this kernel can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// Version of Landlock's interface; `None` if Landlock is missing or disabled.
    pub landlock: Option<u32>,
    /// True if the kernel can filter system calls.
    pub seccomp: bool,
}

/// The version of Landlock's interface that covers everything used here, including signals and abstract sockets.
pub const LANDLOCK_WHOLE: u32 = 6;

/// Asks the kernel what it can enforce. Changes nothing.
pub fn kernel_support() -> KernelSupport {
    // `LANDLOCK_CREATE_RULESET_VERSION`
    let flags = 1_u32;
    // SAFETY: with this flag the call only returns a number and reads no bytes from the pointer.
    let landlock =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, flags) };
    let action = libc::SECCOMP_RET_ERRNO;
    let operation = libc::SECCOMP_GET_ACTION_AVAIL;
    // SAFETY: the operation reads one `u32`, which is on this stack.
    let seccomp = unsafe { libc::syscall(libc::SYS_seccomp, operation, 0, &raw const action) };
    KernelSupport {
        landlock: u32::try_from(landlock).ok().filter(|version| *version > 0),
        seccomp: seccomp == 0,
    }
}

#[cfg(test)]
mod tests;
