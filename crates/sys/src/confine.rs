//! What a process gives up for good before it looks at what strangers send: rights, files, system calls.
//!
//! In this order, each where the process can do without:
//!
//! 1. [`give_up_rights`]: every capability, and whatever a program that it starts would gain.
//! 2. [`give_up_files`]: opening files (Landlock). Both before there are other threads, which would keep theirs.
//! 3. [`give_up_calls`]: system calls (seccomp), of all threads, once everything is open that the process needs.
//!
//! What was open before stays usable. A call that was given up fails with `EPERM`: whoever tries it can say so.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Why something could not be given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The system's.
    #[error("giving up rights: {0}")]
    Rights(#[from] io::Error),
    /// Landlock's.
    #[error("giving up files: {0}")]
    Files(#[from] landlock::RulesetError),
    /// A directory that would be kept.
    #[error("giving up files but for some: {0}")]
    Kept(#[from] PathFdError),
    /// Seccomp's.
    #[error("giving up system calls: {0}")]
    Calls(#[from] seccompiler::Error),
    /// No filter can be made for this processor.
    #[error("giving up system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
}

/// Files that a process keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// None: nothing can be opened, bound or connected to any more.
    None,
    /// It may read whatever its user may, and write below these directories only.
    WriteBelow(Vec<PathBuf>),
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

/// System calls that a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those on a list: read, write, wait, memory. No file, socket, process, program, or setting.
    Few,
    /// All but those that change what the system or another process is: devices, mounts, namespaces, programs, tracing.
    Ordinary,
}

/// Gives up the calling thread's capabilities, now and in what it may start.
///
/// # Errors
///
/// The system's.
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

/// Gives up opening files, for the calling thread and those that it starts.
///
/// # Errors
///
/// Landlock's; a kernel without it is none.
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
        Files::WriteBelow(directories) => {
            let written = AccessFs::from_write(abi);
            let mut created = rules
                .handle_access(written | AccessFs::Execute)?
                .scope(Scope::Signal)?
                .create()?;
            for directory in directories {
                let open = match PathFd::new(directory) {
                    Ok(open) => open,
                    // One that does not exist cannot be written to anyway.
                    Err(PathFdError::OpenCall { source, .. })
                        if source.kind() == io::ErrorKind::NotFound =>
                    {
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let access = if directory.is_dir() {
                    written
                } else {
                    written & AccessFs::from_file(abi)
                };
                created = created.add_rule(PathBeneath::new(open, access))?;
            }
            created
        }
    };
    Ok(match created.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Kept::Wholly,
        RulesetStatus::PartiallyEnforced => Kept::Partly,
        RulesetStatus::NotEnforced => Kept::NotAtAll,
    })
}

/// Gives up system calls, for all threads of the process and for ever.
///
/// # Errors
///
/// Where the kernel knows no filters, or none for this processor.
pub fn give_up_calls(keep: Calls) -> Result<(), ConfineError> {
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let (listed, others, those) = match keep {
        Calls::Few => (FEW, refused, SeccompAction::Allow),
        Calls::Ordinary => (POWERFUL, SeccompAction::Allow, refused),
    };
    let mut rules: BTreeMap<i64, Vec<_>> = listed.iter().map(|call| (*call, Vec::new())).collect();
    if keep == Calls::Ordinary {
        rules.insert(libc::SYS_clone, namespaces_of_clone()?);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let program: BpfProgram = SeccompFilter::new(rules, others, those, arch)?.try_into()?;
    if keep == Calls::Ordinary {
        // What one of two filters refuses is refused.
        seccompiler::apply_filter_all_threads(&unlistable())?;
    }
    Ok(seccompiler::apply_filter_all_threads(&program)?)
}

/// A clone that is more than a thread or a process like this one: in new namespaces, where it would have every right.
fn namespaces_of_clone() -> Result<Vec<SeccompRule>, ConfineError> {
    let mut rules = Vec::new();
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        let is_set = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )?;
        rules.push(SeccompRule::new(vec![is_set])?);
    }
    Ok(rules)
}

/// Refuses what a list of calls cannot, in instructions of the kernel's filters:
///
/// * numbers of another kind (x32), under which a processor of 64 bits has all calls a second time;
/// * `clone3`, whose flags are in memory where no filter sees them. C libraries then use `clone`.
///
/// Numbers of other processors are the other filter's to refuse, which ends who uses them.
fn unlistable() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter {
        // They have 16 bits.
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let refuse = |error: i32| {
        let action = libc::SECCOMP_RET_ERRNO | error.cast_unsigned();
        step(libc::BPF_RET | libc::BPF_K, 0, 0, action)
    };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        // The number is the first that a filter is shown.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, X32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, clone3),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        refuse(libc::EPERM),
        refuse(libc::ENOSYS),
    ]
}

/// `__X32_SYSCALL_BIT`: calls are numbered from here a second time.
const X32: u32 = 0x4000_0000;

/// Flags of a clone in new namespaces. `CLONE_NEWTIME` is one of `clone3` only.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// What reading, writing and waiting take, and what the standard library, the allocator and the end of a process do.
const FEW: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What no process needs that moves bytes between sockets.
const POWERFUL: &[libc::c_long] = &[
    // Programs and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Namespaces, mounts, roots.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    // Users and rights.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    // The kernel, keys, clocks, devices.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_mknodat,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

#[cfg(test)]
mod tests;
