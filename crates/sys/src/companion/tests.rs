use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, test_kill_process};

use super::*;

/// Runs `body` in a process with one thread, because test processes have several. Returns how the process ended.
fn in_one_thread(body: impl FnOnce()) -> ExitStatus {
    // SAFETY: the child runs `body` and ends. Other threads of the tests hold no lock that it takes: the C library
    // prepares its allocator for this call.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // SAFETY: the call ends this process at once.
            unsafe { libc::_exit(i32::from(!done)) }
        }
        pid => {
            let child = Pid::from_raw(pid).expect("a process");
            let ended = waitpid(Some(child), WaitOptions::empty()).expect("our child");
            ExitStatus::from_raw(ended.expect("the child has ended").1.as_raw())
        }
    }
}

/// Answers one byte with the number of descriptors that the companion has.
fn tell([mut socket, _other]: [UnixStream; 2]) -> io::Result<()> {
    let mut letter = [0];
    socket.read_exact(&mut letter)?;
    let open = fs::read_dir("/proc/self/fd")?.count() - 1;
    socket.write_all(&[u8::try_from(open).unwrap_or(u8::MAX)])?;
    // Blocks until the other end is closed.
    socket.read(&mut letter).map(drop)
}

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_companion_has_its_sockets_and_no_other_descriptor_and_ends_with_them() {
    let ended = in_one_thread(|| {
        let _open = File::open("/proc/self/status").expect("proc");
        let (companion, [mut socket, other]) =
            start_companion(c"companion", tell).expect("a companion");
        socket.write_all(b"?").expect("sent");
        let mut open = [0];
        socket.read_exact(&mut open).expect("an answer");
        assert_eq!(open, [5], "standard input, output, error and the sockets");
        let process = companion.pid;
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            kill_process(process, signal).expect("sent");
        }
        let name =
            fs::read_to_string(format!("/proc/{}/comm", process.as_raw_pid())).expect("alive");
        assert_eq!(name, "companion\n");
        assert!(!companion.has_ended());
        drop((socket, other));
        wait_for("the companion has not ended", || companion.has_ended());
    });
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_companion_ends_with_the_process_that_started_it() {
    let (mut told, mut tells) = UnixStream::pair().expect("sockets");
    let ended = in_one_thread(|| {
        let (companion, socket) = start_companion(c"companion", tell).expect("a companion");
        // The companion's socket stays open, so that the companion does not end because of it.
        let _open = socket;
        let pid = companion.pid.as_raw_pid();
        tells.write_all(&pid.to_ne_bytes()).expect("sent");
        kill_process(getpid(), Signal::KILL).expect("sent");
    });
    assert_eq!(ended.signal(), Some(libc::SIGKILL));
    let mut pid = [0; 4];
    told.read_exact(&mut pid).expect("the companion's pid");
    let pid = Pid::from_raw(i32::from_ne_bytes(pid)).expect("a process id");
    wait_for("the companion lives", || test_kill_process(pid).is_err());
}

#[test]
fn a_process_with_threads_is_not_forked() {
    let refused = start_companion(c"companion", tell)
        .map(drop)
        .map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::Unsupported));
}
