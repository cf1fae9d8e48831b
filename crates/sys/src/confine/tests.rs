use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::{Signal, getppid, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::*;
use crate::Tun;

const INSIDE: &str = "QUICTUN_SYS_CONFINED";

/// Runs the test of that name once more, in a process that has nothing to lose; whether this is the one.
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

/// Says that half of a test was not run.
fn skip() {
    let said = io::stderr().write_all(b"SKIPPED: this kernel has no Landlock\n");
    said.expect("standard error");
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim()
}

/// What the kernel says of the calling thread, later.
fn status(mut file: &File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).expect("open already");
    text
}

/// The first version of Landlock that does.
const KNOWS_TCP: libc::c_long = 4;

/// The kernel's version of it; negative where it has none.
fn landlock() -> libc::c_long {
    // `LANDLOCK_CREATE_RULESET_VERSION`
    let flags = 1_u32;
    // SAFETY: with this flag the call only tells a number; no bytes are read from the pointer.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, flags) }
}

fn outcome(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// What becomes of a clone with this flag. The kernel itself would refuse this one, as `InvalidInput`: a process cannot
/// share handlers of signals and not its memory.
fn clone(flag: libc::c_int) -> io::Result<()> {
    let flags = libc::c_long::from(flag | libc::CLONE_SIGHAND);
    // SAFETY: it makes no process, as said above, and none of the pointers is followed.
    outcome(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) })
}

/// What a clone3 fails with that the kernel itself would refuse, as `EINVAL`: its arguments have no bytes.
fn clone3() -> Option<i32> {
    // SAFETY: it makes no process, as said above, and a pointer to no bytes is not followed.
    outcome(unsafe { libc::syscall(libc::SYS_clone3, 0_usize, 0_usize) })
        .err()
        .and_then(|error| error.raw_os_error())
}

/// Asks for our process id under the second number of that call.
#[cfg(target_arch = "x86_64")]
fn x32() -> io::Result<()> {
    let number = libc::SYS_getpid | libc::c_long::from(X32);
    // SAFETY: the call takes nothing, and changes nothing.
    outcome(unsafe { libc::syscall(number) })
}

#[test]
fn with_few_calls_only_what_is_open_works() {
    if !is_inside("with_few_calls_only_what_is_open_works") {
        return;
    }
    let (mut here, mut there) = UnixStream::pair().expect("sockets");
    let own = File::open("/proc/thread-self/status").expect("proc");
    let parent = getppid().expect("a parent");
    give_up_rights().expect("fewer rights");
    let kept = give_up_files(&Files::None).expect("no files");
    if kept == Kept::NotAtAll {
        skip();
    } else {
        // Landlock's own refusal, before there is a filter.
        refused("reading", File::open("/proc/self/status"));
        if landlock() >= KNOWS_TCP {
            refused("connecting", TcpStream::connect("127.0.0.1:9"));
        }
    }
    give_up_calls(Calls::Few).expect("few calls");
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
    // SAFETY: only `CLONE_FILES` can take descriptors away from under somebody, and it is not among the flags.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    refused("namespaces", unshared.map_err(Into::into));
    here.write_all(b"still").expect("it is open");
    let mut read = [0; 5];
    there.read_exact(&mut read).expect("it is open");
    assert_eq!(&read, b"still");
    let status = status(&own);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(line(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(line(&status, "NoNewPrivs"), "1");
    assert_eq!(line(&status, "Seccomp"), "2");
}

#[test]
fn a_directory_that_cannot_be_kept_is_told() {
    // Whoever is told has lost nothing yet.
    let keep = Files::WriteBelow(vec!["/dev/null/below".into()]);
    let error = give_up_files(&keep).expect_err("it is below what is no directory");
    assert!(matches!(error, ConfineError::Kept(_)), "{error}");
}

#[test]
fn with_ordinary_calls_sockets_work_and_devices_programs_and_other_files_do_not() {
    if !is_inside("with_ordinary_calls_sockets_work_and_devices_programs_and_other_files_do_not") {
        return;
    }
    let ours = tempfile::tempdir().expect("a directory");
    let others = tempfile::tempdir().expect("a directory");
    give_up_rights().expect("fewer rights");
    let keep = Files::WriteBelow(vec![ours.path().to_owned(), "/nowhere".into()]);
    let kept = give_up_files(&keep).expect("fewer files");
    give_up_calls(Calls::Ordinary).expect("fewer calls");
    File::open("/proc/self/status").expect("reading is allowed");
    UdpSocket::bind("127.0.0.1:0").expect("sockets are allowed");
    fs::write(ours.path().join("log"), "a line").expect("its own directory");
    refused("a program", Command::new("/bin/true").status());
    // SAFETY: only `CLONE_FILES` can take descriptors away from under somebody, and it is not among the flags.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    refused("namespaces", unshared.map_err(Into::into));
    for flag in NAMESPACES {
        refused("namespaces of a clone", clone(flag));
    }
    assert_eq!(clone3(), Some(libc::ENOSYS), "C libraries go on with clone");
    let thread = std::thread::Builder::new().spawn(|| 7).expect("a thread");
    assert_eq!(thread.join().ok(), Some(7));
    #[cfg(target_arch = "x86_64")]
    refused("a call of x32", x32());
    if kept == Kept::NotAtAll {
        skip();
        return;
    }
    refused("another's", fs::write(others.path().join("log"), "a line"));
    let device = OpenOptions::new().read(true).write(true).open("/dev/null");
    refused("devices", device);
}
