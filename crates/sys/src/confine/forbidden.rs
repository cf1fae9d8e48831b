//! Attempts at actions that a confined process must not be able to do.
//!
//! The arguments of each attempt make the kernel do nothing, or something that is undone at once. So the attempts are
//! also safe without confinement; most of them then fail for another reason than a
//! missing permission.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process;
use std::ptr::{null, null_mut};

use rustix::process::{Pid, getppid, getuid};

use crate::syscall_result::check;

/// One attempt and its result.
#[derive(Debug)]
pub struct ForbiddenAction {
    /// Name of the action that was tried.
    pub name: &'static str,
    /// The result of the attempt.
    pub outcome: io::Result<()>,
}

impl ForbiddenAction {
    /// Returns whether the attempt failed because of a missing permission.
    pub fn is_refused(&self) -> bool {
        let error = self.outcome.as_ref().err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Makes all attempts. `outside` is a directory that the process does not use, but that its user may write to.
pub fn attempts(outside: &Path) -> Vec<ForbiddenAction> {
    let tried = |(name, attempt): (&'static str, fn() -> io::Result<()>)| ForbiddenAction {
        name,
        outcome: attempt(),
    };
    let mut attempts = vec![ForbiddenAction {
        name: "write outside its directories",
        outcome: write_below(outside),
    }];
    attempts.extend(PROCESSES.iter().copied().map(tried));
    attempts.extend(SIGNALS.iter().copied().map(tried));
    attempts.extend(SYSTEM.iter().copied().map(tried));
    attempts
}

type NamedAction = (&'static str, fn() -> io::Result<()>);

const PROCESSES: &[NamedAction] = &[
    ("open /etc/shadow", || File::open("/etc/shadow").map(drop)),
    ("open a device", || {
        let mut options = File::options();
        options.read(true).write(true).open("/dev/zero").map(drop)
    }),
    ("run a program", || {
        let program = c"/nonexistent/program";
        // SAFETY: the path is a string, and there is no program at it that could replace this one.
        check(unsafe { libc::syscall(libc::SYS_execve, program.as_ptr(), 0_usize, 0_usize) })
    }),
    ("start a process", || {
        // Signal handlers cannot be shared without memory: the kernel itself would refuse this call as invalid.
        let flags = libc::CLONE_SIGHAND | libc::SIGCHLD;
        // SAFETY: the call makes no process, as said above, and follows none of the pointers.
        check(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) })
    }),
    ("kill another process", || {
        let other = getppid().map_or(1, Pid::as_raw_pid);
        // SAFETY: a call without pointers. Signal 0 only checks permission.
        check(unsafe { libc::syscall(libc::SYS_kill, other, 0) })
    }),
    ("trace a process", || {
        // SAFETY: the call follows no pointer, and no process has that number.
        check(unsafe { libc::ptrace(libc::PTRACE_ATTACH, i32::MAX, 0_usize, 0_usize) })
    }),
    ("read another process's memory", || {
        let (pid, none) = (libc::c_long::from(process::id()), 0_usize);
        // SAFETY: the call is asked to copy no bytes.
        check(unsafe {
            libc::syscall(
                libc::SYS_process_vm_readv,
                pid,
                none,
                none,
                none,
                none,
                none,
            )
        })
    }),
    ("take another process's descriptor", || {
        // SAFETY: a call without pointers, and no such descriptor is open.
        check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, -1, 0, 0) })
    }),
    ("open a packet socket", || socket(libc::AF_PACKET)),
    ("open a raw socket", || socket(libc::AF_INET)),
    ("listen", || {
        // SAFETY: a call without pointers, and no such descriptor is open.
        check(unsafe { libc::listen(-1, 1) })
    }),
    ("type into the terminal (TIOCSTI)", || {
        let letter = b'x';
        // SAFETY: the call reads one byte, which is on this stack, and only if -1 were a terminal.
        check(unsafe { libc::ioctl(-1, libc::TIOCSTI, &raw const letter) })
    }),
];

/// Ways to make the kernel send signals to another process on account of a descriptor.
const SIGNALS: &[NamedAction] = &[
    ("choose a receiver of signals (F_SETOWN)", || {
        control(libc::F_SETOWN, 1)
    }),
    ("choose a receiver of signals (F_SETOWN_EX)", || {
        control(F_SETOWN_EX, 0)
    }),
    ("choose the signal to send (F_SETSIG)", || {
        control(F_SETSIG, 0)
    }),
    ("have signals sent (O_ASYNC)", || {
        control(libc::F_SETFL, libc::O_ASYNC)
    }),
    ("have signals sent (F_SETLEASE)", || {
        control(libc::F_SETLEASE, libc::F_RDLCK)
    }),
    ("have signals sent (F_NOTIFY)", || {
        control(libc::F_NOTIFY, 0)
    }),
    ("choose a receiver of signals (FIOSETOWN)", || {
        request(0x8901)
    }),
    ("choose a receiver of signals (SIOCSPGRP)", || {
        request(0x8902)
    }),
    ("have signals sent (FIOASYNC)", || request(0x5452)),
];

/// Commands of `fcntl` that libc does not define for every C library.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

fn control(command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: no such descriptor is open, and the kernel looks for it before it follows a pointer.
    check(unsafe { libc::fcntl(-1, command, argument) })
}

fn request(number: libc::c_ulong) -> io::Result<()> {
    // SAFETY: no such descriptor is open, and the kernel looks for it before it follows a pointer.
    check(unsafe { libc::syscall(libc::SYS_ioctl, -1, number, 0_usize) })
}

const SYSTEM: &[NamedAction] = &[
    ("mount", || {
        let (nothing, nowhere) = (c"none", c"/nonexistent/directory");
        // SAFETY: all three are strings, and the last pointer may be null.
        check(unsafe {
            libc::mount(
                nothing.as_ptr(),
                nowhere.as_ptr(),
                nothing.as_ptr(),
                0,
                null(),
            )
        })
    }),
    ("unmount", || {
        // SAFETY: the path is a string.
        check(unsafe { libc::umount2(c"/nonexistent/directory".as_ptr(), 0) })
    }),
    ("change the root", || {
        // SAFETY: the path is a string.
        check(unsafe { libc::chroot(c"/nonexistent/directory".as_ptr()) })
    }),
    ("enter a namespace", || {
        // SAFETY: a call without pointers, and no such descriptor is open.
        check(unsafe { libc::setns(-1, 0) })
    }),
    ("make a namespace", || {
        // SAFETY: a call without pointers. Without a flag it changes nothing.
        check(unsafe { libc::unshare(0) })
    }),
    ("change the user", || {
        let user = getuid().as_raw();
        // SAFETY: a call without pointers. The user stays the same.
        check(unsafe { libc::syscall(libc::SYS_setuid, user) })
    }),
    ("load a BPF program", || {
        // SAFETY: the call reads no bytes of the attributes.
        check(unsafe { libc::syscall(libc::SYS_bpf, 0, 0_usize, 0) })
    }),
    ("count events", || {
        // SAFETY: the call does not follow a null pointer.
        check(unsafe { libc::syscall(libc::SYS_perf_event_open, 0_usize, 0, -1, -1, 0) })
    }),
    ("look at keys", || {
        const KEYCTL_GET_KEYRING_ID: libc::c_long = 0;
        const KEY_SPEC_THREAD_KEYRING: libc::c_long = -1;
        // SAFETY: a call without pointers, which makes nothing.
        check(unsafe {
            libc::syscall(
                libc::SYS_keyctl,
                KEYCTL_GET_KEYRING_ID,
                KEY_SPEC_THREAD_KEYRING,
                0,
            )
        })
    }),
    ("add a key", || {
        // SAFETY: the call does not follow null pointers.
        check(unsafe { libc::syscall(libc::SYS_add_key, 0_usize, 0_usize, 0_usize, 0, 0) })
    }),
    ("load another kernel", || {
        // SAFETY: the call reads no segments, and refuses these flags, which do not exist.
        check(unsafe { libc::syscall(libc::SYS_kexec_load, 0, 0, 0_usize, libc::c_ulong::MAX) })
    }),
    ("load a module", || {
        // SAFETY: the parameters are a string, and no such descriptor is open.
        check(unsafe { libc::syscall(libc::SYS_finit_module, -1, c"".as_ptr(), 0) })
    }),
    ("set the clock", || {
        // SAFETY: the call does not follow a null pointer.
        check(unsafe { libc::syscall(libc::SYS_clock_settime, libc::CLOCK_REALTIME, null::<u8>()) })
    }),
    ("open a file by handle", || {
        // SAFETY: the call does not follow a null pointer, and no such descriptor is open.
        check(unsafe { libc::syscall(libc::SYS_open_by_handle_at, -1, null_mut::<u8>(), 0) })
    }),
    ("use io_uring", || {
        // SAFETY: the call does not follow a null pointer.
        check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, null_mut::<u8>()) })
    }),
    ("handle page faults (userfaultfd)", || {
        // SAFETY: a call without pointers. It refuses these flags, which do not exist.
        check(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::c_long::from(i32::MAX)) })
    }),
];

fn socket(domain: libc::c_int) -> io::Result<()> {
    // SAFETY: a call without pointers.
    let number = unsafe {
        libc::socket(
            domain,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::IPPROTO_ICMP,
        )
    };
    check(number)?;
    // SAFETY: the call above has just made this descriptor, so it has no other user.
    check(unsafe { libc::close(number) })
}

fn write_below(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".quictun-forbidden-{}", process::id()));
    File::options().write(true).create_new(true).open(&path)?;
    fs::remove_file(path)
}
