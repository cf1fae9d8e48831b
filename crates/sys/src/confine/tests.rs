use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getppid, kill_process};
use rustix::thread::UnshareFlags;

use super::*;
use crate::Tun;
use crate::contain::own_namespaces;
use quictun_skip::{knows_localhost, skipped};

const INSIDE: &str = "QUICTUN_SYS_CONFINED";

/// Runs the test of that name again, in a process that may be confined. Returns whether this is that process.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let test = format!("confine::tests::{test}");
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    let ran = command.env(INSIDE, "1").stdin(Stdio::null()).output();
    let ran = ran.expect("this program");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
    false
}

fn refused<T>(what: &str, outcome: io::Result<T>) {
    let kind = outcome.map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::PermissionDenied), "{what}");
}

/// Prints that half of a test was skipped.
fn skip() {
    skipped("half of confine::tests", "this kernel has no Landlock");
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim()
}

/// Reads the status file of the calling thread, which was opened earlier.
fn status(mut file: &File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).expect("open already");
    text
}

/// The first version of Landlock that restricts TCP.
const KNOWS_TCP: u32 = 4;

fn outcome(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Calls clone with this flag. The kernel itself would refuse the call with `InvalidInput`: a process cannot share
/// signal handlers without sharing memory.
fn clone(flag: libc::c_int) -> io::Result<()> {
    let flags = libc::c_long::from(flag | libc::CLONE_SIGHAND);
    // SAFETY: the call makes no process, as said above, and follows none of the pointers.
    outcome(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) })
}

/// Returns the error of a clone3 call that the kernel itself would refuse with `EINVAL`, because its arguments have no
/// bytes.
fn clone3() -> Option<i32> {
    // SAFETY: the call makes no process, as said above, and does not follow a pointer to no bytes.
    outcome(unsafe { libc::syscall(libc::SYS_clone3, 0_usize, 0_usize) })
        .err()
        .and_then(|error| error.raw_os_error())
}

/// Asks whether a signal could be sent to a thread of a process. Sends none.
fn signal_thread(process: i32, thread: i32) -> io::Result<()> {
    let (process, thread) = (libc::c_long::from(process), libc::c_long::from(thread));
    // SAFETY: signal 0 sends nothing, and the call takes no pointers.
    outcome(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0_usize) })
}

/// Calls that can make the kernel send a signal to another process.
const SIGNALLING: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_prctl,
    libc::SYS_timer_create,
];

/// Asks for this process's id under the second number of that call (x32).
#[cfg(target_arch = "x86_64")]
fn x32() -> io::Result<()> {
    let number = libc::SYS_getpid | libc::c_long::from(calls::X32);
    // SAFETY: the call takes no arguments and changes nothing.
    outcome(unsafe { libc::syscall(number) })
}

#[test]
fn with_few_calls_only_open_descriptors_work() {
    if !is_inside("with_few_calls_only_open_descriptors_work") {
        return;
    }
    let (mut here, mut there) = UnixStream::pair().expect("sockets");
    let own = File::open("/proc/thread-self/status").expect("proc");
    let parent = getppid().expect("a parent");
    let own_thread = rustix::thread::gettid().as_raw_pid();
    give_up_rights().expect("fewer rights");
    let kept = give_up_files(&FileAccess::None).expect("no files");
    if kept == Enforcement::None {
        skip();
    } else {
        // Landlock refuses this by itself: there is no filter yet.
        refused("reading", File::open("/proc/self/status"));
        if kernel_support().landlock >= Some(KNOWS_TCP) {
            refused("connecting", TcpStream::connect("127.0.0.1:9"));
        }
    }
    give_up_calls(SyscallSet::Few).expect("few calls");
    refused("reading", File::open("/proc/self/status"));
    refused("listing", fs::read_dir("/"));
    refused("writing", File::create("never"));
    refused("UDP", UdpSocket::bind("127.0.0.1:0"));
    refused("TCP", TcpStream::connect("127.0.0.1:9"));
    refused("Unix", UnixStream::pair());
    refused("a device", Tun::create("tun9", true));
    refused("a program", Command::new("/bin/true").status());
    refused("a thread", std::thread::Builder::new().spawn(|| {}));
    refused(
        "a signal",
        kill_process(parent, Signal::CONT).map_err(Into::into),
    );
    let parent = parent.as_raw_pid();
    refused(
        "a signal to another's thread",
        signal_thread(parent, parent),
    );
    signal_thread(std::process::id().cast_signed(), own_thread).expect("its own threads");
    for call in SIGNALLING {
        // SAFETY: the filter refuses the call by its number. Zeros as arguments would send nothing and point to no
        // memory.
        let returned = unsafe { libc::syscall(*call, 0_usize, 0_usize, 0_usize, 0_usize) };
        refused(&format!("call {call}"), outcome(returned));
    }
    refused("namespaces", own_namespaces(UnshareFlags::NEWUSER));
    here.write_all(b"still").expect("an open socket");
    let mut read = [0; 5];
    there.read_exact(&mut read).expect("an open socket");
    assert_eq!(&read, b"still");
    let status = status(&own);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(line(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(line(&status, "NoNewPrivs"), "1");
    assert_eq!(line(&status, "Seccomp"), "2");
}

#[test]
fn a_directory_that_cannot_stay_accessible_is_an_error() {
    // The call fails before any access is given up.
    let keep = FileAccess::Only(AllowedPaths {
        write: vec!["/dev/null/below".into()],
        ..AllowedPaths::default()
    });
    let error = give_up_files(&keep).expect_err("a path below a file");
    assert!(matches!(error, ConfineError::Path(_)), "{error}");
}

#[test]
fn with_ordinary_calls_files_work_and_programs_and_namespaces_do_not() {
    if !is_inside("with_ordinary_calls_files_work_and_programs_and_namespaces_do_not") {
        return;
    }
    give_up_rights().expect("fewer rights");
    give_up_calls(SyscallSet::Ordinary).expect("fewer calls");
    File::open("/proc/self/status").expect("files are allowed");
    UdpSocket::bind("127.0.0.1:0").expect("sockets are allowed");
    refused("a program", Command::new("/bin/true").status());
    for flag in calls::NAMESPACES {
        refused("namespaces of a clone", clone(flag));
    }
    no_other_way_to_namespaces();
}

#[test]
fn a_tunnel_keeps_its_files_and_sockets_and_nothing_else() {
    let test = "a_tunnel_keeps_its_files_and_sockets_and_nothing_else";
    let knows_localhost = knows_localhost(test);
    if !is_inside(test) {
        return;
    }
    let [read, write, outside] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    fs::write(read.path().join("key"), "a key").expect("written");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("bound");
    let unix = UnixListener::bind(outside.path().join("socket")).expect("a socket");
    give_up_rights().expect("fewer rights");
    let keep = FileAccess::Only(AllowedPaths {
        read: vec![
            read.path().to_owned(),
            "/nowhere".into(),
            "/etc/hosts".into(),
        ],
        write: vec![write.path().to_owned()],
        abstract_sockets: false,
    });
    let kept = give_up_files(&keep).expect("fewer files");
    hide_memory().expect("hidden");
    give_up_calls(SyscallSet::Tunnel).expect("fewer calls");
    let unrefused: Vec<_> = attempts(outside.path())
        .into_iter()
        .filter(|attempt| !attempt.is_refused())
        .collect();
    assert!(
        unrefused.is_empty() || kept == Enforcement::None,
        "{unrefused:?}"
    );
    no_other_way_to_namespaces();
    fs::read(read.path().join("key")).expect("its own file");
    fs::write(write.path().join("records"), "a line").expect("its own directory");
    let stream = TcpStream::connect(address).expect("sockets are allowed");
    stream.set_nonblocking(true).expect("settings are allowed");
    listener.accept().expect("accepting is allowed");
    UnixStream::connect(outside.path().join("socket")).expect("a target");
    drop(unix);
    UdpSocket::bind("127.0.0.1:0").expect("the resolver binds UDP sockets");
    if knows_localhost {
        ("localhost", 80)
            .to_socket_addrs()
            .expect("the resolver works");
    }
    crate::device_index("lo").expect("name servers may be on a device");
    if kept == Enforcement::None {
        skip();
        return;
    }
    refused(
        "writing what may be read",
        fs::write(read.path().join("key"), "another"),
    );
    refused(
        "reading what may be written",
        fs::read(write.path().join("records")),
    );
    refused("a TCP port", TcpListener::bind("127.0.0.1:0"));
}

#[test]
fn unconfined_root_may_do_almost_everything() {
    // SAFETY: a call without pointers that cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        let test = "confine::tests::unconfined_root_may_do_almost_everything";
        return skipped(test, "not root");
    }
    let outside = tempfile::tempdir().expect("a directory");
    let attempts = attempts(outside.path());
    assert!(attempts.len() >= 20, "{}", attempts.len());
    let refused = attempts.iter().filter(|attempt| attempt.is_refused());
    // A container, or a locked kernel, refuses some attempts by itself.
    assert!(refused.count() < attempts.len() / 2, "{attempts:?}");
}

/// Checks two ways around the refused `clone`: `clone3`, whose flags no filter sees, and another set of call numbers.
fn no_other_way_to_namespaces() {
    refused("namespaces", own_namespaces(UnshareFlags::NEWUSER));
    assert_eq!(clone3(), Some(libc::ENOSYS), "C libraries then use clone");
    let thread = std::thread::Builder::new().spawn(|| 7).expect("a thread");
    assert_eq!(thread.join().ok(), Some(7));
    #[cfg(target_arch = "x86_64")]
    refused("a call of x32", x32());
}
