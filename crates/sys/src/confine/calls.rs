//! Filters for system calls (seccomp): which calls a process keeps.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::error::ConfineError;

/// A choice of system calls that a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallSet {
    /// A short list: read, write, wait, memory, signals to itself. No file, socket, process, program or setting.
    Few,
    /// A longer list: what a client or server of the tunnel does once it listens. The process opens files, connects
    /// sockets and starts threads. It listens on no further sockets and starts no processes.
    Tunnel,
    /// All calls except those that change the system or other processes: devices, mounts, namespaces, programs,
    /// tracing.
    Ordinary,
}

/// Gives up system calls, for all threads of the process and permanently. Fails if the kernel has no filters, or if
/// none can be made for this processor.
pub fn give_up_calls(keep: SyscallSet) -> Result<(), ConfineError> {
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let without = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut rules: BTreeMap<i64, Vec<_>> = without(match keep {
        SyscallSet::Few | SyscallSet::Tunnel => FEW,
        SyscallSet::Ordinary => POWERFUL,
    });
    let (others, those) = match keep {
        SyscallSet::Few | SyscallSet::Tunnel => (refused, SeccompAction::Allow),
        SyscallSet::Ordinary => (SeccompAction::Allow, refused),
    };
    match keep {
        SyscallSet::Few => {
            rules.append(&mut signals_to_itself()?);
        }
        SyscallSet::Tunnel => {
            rules.append(&mut without(TUNNEL));
            rules.append(&mut with_arguments()?);
        }
        SyscallSet::Ordinary => {
            let flags = NAMESPACES.map(|flag| vec![ArgumentCondition::has(0, flag)]);
            rules.insert(libc::SYS_clone, any_of(&flags)?);
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let program: BpfProgram = SeccompFilter::new(rules, others, those, arch)?.try_into()?;
    if keep != SyscallSet::Few {
        // If either of two filters refuses a call, it is refused.
        seccompiler::apply_filter_all_threads(&unlistable())?;
    }
    Ok(seccompiler::apply_filter_all_threads(&program)?)
}

/// A condition on one argument of a call. It compares only the lower 32 bits, because the kernel reads no more.
#[derive(Clone, Copy, Debug)]
struct ArgumentCondition {
    index: u8,
    mask: u32,
    value: u32,
}

impl ArgumentCondition {
    fn is(index: u8, value: libc::c_int) -> Self {
        Self {
            index,
            mask: u32::MAX,
            value: value.cast_unsigned(),
        }
    }

    fn has(index: u8, flag: libc::c_int) -> Self {
        let flag = flag.cast_unsigned();
        Self {
            index,
            mask: flag,
            value: flag,
        }
    }

    fn lacks(index: u8, flag: libc::c_int) -> Self {
        Self {
            index,
            mask: flag.cast_unsigned(),
            value: 0,
        }
    }
}

/// Makes rules of which at least one must hold. Each is a list of conditions which must all hold.
fn any_of<C: AsRef<[ArgumentCondition]>>(rules: &[C]) -> Result<Vec<SeccompRule>, ConfineError> {
    let rule = |conditions: &C| {
        let conditions = conditions.as_ref().iter().map(|argument| {
            let compare = SeccompCmpOp::MaskedEq(argument.mask.into());
            let length = SeccompCmpArgLen::Dword;
            SeccompCondition::new(argument.index, length, compare, argument.value.into())
        });
        Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
    };
    rules.iter().map(rule).collect()
}

/// Signals to threads of the calling process, as the C library sends them in `abort` and `raise`. Other calls that send
/// signals are not on the list of [`SyscallSet::Few`].
fn signals_to_itself() -> Result<BTreeMap<i64, Vec<SeccompRule>>, ConfineError> {
    let own = std::process::id().cast_signed();
    let rules = any_of(&[[ArgumentCondition::is(0, own)]])?;
    Ok(BTreeMap::from([(libc::SYS_tgkill, rules)]))
}

/// Calls of [`SyscallSet::Tunnel`] that are kept only with certain arguments.
fn with_arguments() -> Result<BTreeMap<i64, Vec<SeccompRule>>, ConfineError> {
    let own = std::process::id().cast_signed();
    let socket_type = |kind: libc::c_int| ArgumentCondition {
        index: 1,
        // The higher bits are SOCK_NONBLOCK and SOCK_CLOEXEC.
        mask: 0xf,
        value: kind.cast_unsigned(),
    };
    let mut sockets = Vec::new();
    for domain in [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            sockets.push(vec![ArgumentCondition::is(0, domain), socket_type(kind)]);
        }
    }
    // The C library's resolver asks for this host's addresses, to sort the addresses of the name.
    sockets.push(vec![
        ArgumentCondition::is(0, libc::AF_NETLINK),
        ArgumentCondition::is(2, libc::NETLINK_ROUTE),
    ]);
    let threads = vec![vec![
        ArgumentCondition::has(0, libc::CLONE_THREAD),
        ArgumentCondition::has(0, libc::CLONE_VM),
    ]];
    let numbers = |index, numbers: &[u32]| -> Vec<Vec<ArgumentCondition>> {
        let number = |number: &u32| vec![ArgumentCondition::is(index, number.cast_signed())];
        numbers.iter().map(number).collect()
    };
    let mut descriptor_commands = numbers(1, DESCRIPTOR_COMMANDS);
    // A descriptor with O_ASYNC signals its owner. `fcntl` could choose another process as the owner.
    descriptor_commands.push(vec![
        ArgumentCondition::is(1, libc::F_SETFL),
        ArgumentCondition::lacks(2, libc::O_ASYNC),
    ]);
    let pairs = [
        (libc::SYS_socket, sockets),
        (libc::SYS_fcntl, descriptor_commands),
        (libc::SYS_clone, threads),
        (libc::SYS_ioctl, numbers(1, REQUESTS)),
        (libc::SYS_prctl, numbers(0, &[PR_SET_NAME, PR_SET_VMA])),
        (libc::SYS_tgkill, vec![vec![ArgumentCondition::is(0, own)]]),
        // Zero is the calling process.
        (libc::SYS_prlimit64, vec![vec![ArgumentCondition::is(0, 0)]]),
        (
            libc::SYS_sched_setaffinity,
            vec![vec![ArgumentCondition::is(0, 0)]],
        ),
    ];
    let rules = pairs.map(|(call, rules)| Ok((call, any_of(&rules)?)));
    rules.into_iter().collect()
}

/// Refuses calls that a list of calls cannot, with instructions of the kernel's filters:
///
/// * numbers of another kind (x32), under which a 64-bit processor has all calls a second time;
/// * `clone3`, whose flags are in memory that filters cannot read. C libraries then use `clone`.
///
/// The other filter handles call numbers of other processors: it kills a process that uses them.
fn unlistable() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter {
        // These codes have 16 bits.
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
        // The call number is the first field that a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, X32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, clone3),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        refuse(libc::EPERM),
        refuse(libc::ENOSYS),
    ]
}

/// `__X32_SYSCALL_BIT`: from this number on, calls are numbered a second time.
pub(super) const X32: u32 = 0x4000_0000;

/// Flags of a clone in new namespaces. `CLONE_NEWTIME` exists only for `clone3`.
pub(super) const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Calls for reading, writing and waiting, and those of the standard library, the allocator and the end of a process.
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
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further calls of a client or server of the tunnel, with any arguments.
const TUNNEL: &[libc::c_long] = &[
    // Sockets. Not `listen`: all listeners exist already.
    libc::SYS_accept4,
    libc::SYS_connect,
    // The C library's resolver binds netlink sockets; Landlock refuses TCP ports.
    libc::SYS_bind,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_socketpair,
    libc::SYS_pipe2,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_dup,
    libc::SYS_dup3,
    // Files. Landlock leaves access to few.
    libc::SYS_openat,
    // The path of a target below a directory.
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // Memory shared with `quictun-netstackd`.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_pwrite64,
    // The other filter refuses it with the error that makes C libraries use `clone`.
    libc::SYS_clone3,
    // Queries of libraries.
    libc::SYS_uname,
    libc::SYS_getcwd,
    libc::SYS_sysinfo,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_mincore,
    libc::SYS_wait4,
    libc::SYS_waitid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// `prctl` operations: names of threads and of memory.
const PR_SET_NAME: u32 = libc::PR_SET_NAME.cast_unsigned();
const PR_SET_VMA: u32 = 0x5356_4d41;

/// `ioctl` requests: non-blocking sockets, the number of bytes in their queues, and the index of a network device. The
/// last one is for name servers that `/etc/resolv.conf` names with their device (`fe80::1%eth0`).
const REQUESTS: &[u32] = &[0x5421, 0x541b, 0x5411, 0x894b, 0x8933];

/// `fcntl` commands: duplicates, flags and seals of descriptors. Not those that make the kernel send signals, whose
/// receiver may be another process: `F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`, `F_SETLEASE`, `F_NOTIFY`.
const DESCRIPTOR_COMMANDS: &[u32] = &[
    libc::F_DUPFD.cast_unsigned(),
    libc::F_DUPFD_CLOEXEC.cast_unsigned(),
    libc::F_GETFD.cast_unsigned(),
    libc::F_SETFD.cast_unsigned(),
    libc::F_GETFL.cast_unsigned(),
    libc::F_ADD_SEALS.cast_unsigned(),
    libc::F_GET_SEALS.cast_unsigned(),
];

/// `kexec_file_load`, which libc does not define for every processor and C library.
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: libc::c_long = 320;
#[cfg(not(target_arch = "x86_64"))]
const KEXEC_FILE_LOAD: libc::c_long = 294;

/// Calls that a process which moves bytes between sockets never needs.
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
    KEXEC_FILE_LOAD,
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
