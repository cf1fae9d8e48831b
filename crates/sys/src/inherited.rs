//! Descriptors handed over by a service manager: the `LISTEN_FDS` protocol of `sd_listen_fds(3)`.
//!
//! The manager places sockets at descriptor 3 and up, and announces them in three variables: `LISTEN_PID` (the
//! receiving process), `LISTEN_FDS` (their number), `LISTEN_FDNAMES` (their names, separated by colons). They can be
//! taken once.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors 0 to 2 are stdin, stdout and stderr (`SD_LISTEN_FDS_START`).
const FIRST_FD: RawFd = 3;

/// Limit on the number of descriptors: more than any unit file of this program needs. It keeps a wrong variable from
/// costing time.
const MAX_FDS: usize = 256;

/// Set once the descriptors were taken, because they have one owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A descriptor that the service manager opened for this process.
#[derive(Debug)]
pub struct InheritedFd {
    /// `FileDescriptorName=` of the socket unit; `unknown` if none was given.
    pub name: String,
    /// The descriptor, which is close-on-exec.
    pub fd: OwnedFd,
}

/// The reason why handed-over descriptors could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InheritError {
    /// `LISTEN_FDS` is not a number in the allowed range.
    #[error("LISTEN_FDS={0:?} is not a number from 0 to {MAX_FDS}")]
    BadCount(String),
    /// A promised descriptor was not handed over. The error says why.
    #[error("LISTEN_FDS promises descriptor {0}, which this process did not inherit: {1}")]
    NotInherited(RawFd, #[source] io::Error),
    /// The descriptor could not be made close-on-exec.
    #[error("descriptor {0}: cannot set close-on-exec: {1}")]
    CloseOnExec(RawFd, #[source] io::Error),
}

/// Takes the sockets that a service manager opened for this process, in the manager's order.
///
/// Returns an empty list if there is no manager, if the variables are meant for another process, and from the second
/// call on. If the variables are meant for this process but wrong, descriptors taken so far are closed.
pub fn inherited_fds() -> Result<Vec<InheritedFd>, InheritError> {
    let variable = |name| std::env::var(name).ok();
    let names = parse(
        std::process::id(),
        variable("LISTEN_PID").as_deref(),
        variable("LISTEN_FDS").as_deref(),
        variable("LISTEN_FDNAMES").as_deref(),
    )?;
    // One atomic operation decides which caller takes them: the second caller must only see that there was a first one.
    if names.is_empty() || TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    (FIRST_FD..)
        .zip(names)
        .map(|(fd, name)| take(fd, name))
        .collect()
}

/// Closes every descriptor that this process has inherited and not taken, except the standard streams.
///
/// A program that starts another one may have left files open that are none of its business.
pub fn close_inherited_fds() -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?;
    // The list is complete before the first one is closed.
    let numbers = open.map(|entry| Ok(entry?.file_name().to_str().and_then(|it| it.parse().ok())));
    let numbers = numbers.collect::<io::Result<Vec<Option<RawFd>>>>()?;
    for fd in numbers.into_iter().flatten().filter(|fd| *fd >= FIRST_FD) {
        if check_inherited(fd).is_ok() {
            // SAFETY: the descriptor came through exec and was not taken, as for `take`. So it has no owner.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Ok(())
}

/// Returns the names of the descriptors meant for `pid`, one for each.
fn parse(
    pid: u32,
    listen_pid: Option<&str>,
    listen_fds: Option<&str>,
    listen_fdnames: Option<&str>,
) -> Result<Vec<String>, InheritError> {
    if listen_pid.and_then(|text| text.parse().ok()) != Some(pid) {
        return Ok(Vec::new());
    }
    let text = listen_fds.unwrap_or("0");
    let count = text
        .parse()
        .ok()
        .filter(|count| *count <= MAX_FDS)
        .ok_or_else(|| InheritError::BadCount(text.to_owned()))?;
    let given = listen_fdnames
        .unwrap_or("")
        .split(':')
        .filter(|name| !name.is_empty());
    let names = given.chain(std::iter::repeat("unknown")).take(count);
    Ok(names.map(str::to_owned).collect())
}

/// Takes ownership of `fd`, after checking that nothing in this process can own it already.
fn take(fd: RawFd, name: String) -> Result<InheritedFd, InheritError> {
    check_inherited(fd).map_err(|source| InheritError::NotInherited(fd, source))?;
    // SAFETY: `fd` is open and came through exec (`check_inherited`), so no object of this process was made by opening
    // it. `TAKEN` lets one call in the process's life get here, and each number once in that call. So the `OwnedFd` is
    // its only owner.
    let fd_owned = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd_owned, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| InheritError::CloseOnExec(fd, error.into()))?;
    Ok(InheritedFd { name, fd: fd_owned })
}

/// Checks that `fd` is open and was inherited.
///
/// A descriptor that survived exec cannot have close-on-exec set, and the standard library, rustix and tokio set it on
/// every descriptor that they open. The check reads `/proc`, since asking the descriptor itself would need the
/// ownership that is in question.
fn check_inherited(fd: RawFd) -> io::Result<()> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let flags = info
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|text| i32::from_str_radix(text.trim(), 8).ok())
        .ok_or_else(|| invalid("no flags in /proc/self/fdinfo"))?;
    if flags & libc::O_CLOEXEC != 0 {
        return Err(invalid("this process opened it itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    fn names(listen_pid: Option<&str>, fds: Option<&str>, fdnames: Option<&str>) -> Vec<String> {
        parse(42, listen_pid, fds, fdnames).expect("well-formed variables")
    }

    #[test]
    fn variables_for_another_process_are_ignored() {
        assert!(names(None, Some("2"), None).is_empty());
        assert!(names(Some("41"), Some("2"), None).is_empty());
        assert!(names(Some("forty-two"), Some("2"), None).is_empty());
        assert!(names(Some("42"), None, None).is_empty());
    }

    #[test]
    fn names_follow_the_descriptors_and_missing_ones_are_unknown() {
        assert_eq!(names(Some("42"), Some("2"), Some("a:b:c")), ["a", "b"]);
        assert_eq!(
            names(Some("42"), Some("3"), Some("a")),
            ["a", "unknown", "unknown"]
        );
    }

    #[test]
    fn an_invalid_count_is_quoted_in_the_error() {
        for bad in ["-1", "x", "", "257", "99999999999999999999"] {
            let error = parse(42, Some("42"), Some(bad), None).expect_err(bad);
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
        assert_eq!(names(Some("42"), Some("256"), None).len(), 256);
    }

    #[test]
    fn a_descriptor_that_we_opened_is_never_taken() {
        let ours = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        let error = check_inherited(ours.as_raw_fd()).expect_err("opened here");
        assert!(error.to_string().contains("itself"), "{error}");
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_not_taken() {
        let error = check_inherited(RawFd::MAX).expect_err("not open");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// The child half of the next test. Does nothing in an ordinary run.
    #[test]
    fn child_closes_the_rest() {
        if std::env::var_os("QUICTUN_TEST_CHILD").is_none() {
            return;
        }
        let own = fs::File::open("/etc/passwd").expect("a file");
        let taken = inherited_fds().expect("one socket was handed over");
        let is_open = |fd: RawFd| fs::metadata(format!("/proc/self/fd/{fd}")).is_ok();
        assert!(is_open(9) && is_open(77));
        close_inherited_fds().expect("a list of descriptors");
        assert!(!is_open(9) && !is_open(77));
        let kept = [0, 1, 2, taken[0].fd.as_raw_fd(), own.as_raw_fd()];
        assert!(kept.into_iter().all(is_open));
    }

    #[test]
    fn only_the_streams_and_what_is_taken_or_opened_here_stays_open() {
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --exact \
                      inherited::tests::child_closes_the_rest 3<&0 9</etc/passwd 77</etc";
        let output = Command::new("bash")
            .args(["-c", script])
            .arg(std::env::current_exe().expect("this test"))
            .env("QUICTUN_TEST_CHILD", "1")
            .output()
            .expect("bash runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    /// The child half of the next test. Does nothing in an ordinary run.
    #[test]
    fn child_takes_its_socket() {
        if std::env::var_os("QUICTUN_TEST_CHILD").is_none() {
            return;
        }
        let taken = inherited_fds().expect("one socket was handed over");
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].name, "tunnel");
        assert_eq!(taken[0].fd.as_raw_fd(), FIRST_FD);
        let flags = rustix::io::fcntl_getfd(&taken[0].fd).expect("open");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let socket = UdpSocket::from(taken.into_iter().next().expect("one").fd);
        socket
            .send_to(b"taken", socket.local_addr().expect("bound"))
            .expect("loopback");
        assert!(inherited_fds().expect("second call").is_empty());
    }

    #[test]
    fn a_handed_over_socket_is_taken_once_and_works() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        let handed = socket.try_clone().expect("duplicate");
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=tunnel exec \"$0\" --exact \
                      inherited::tests::child_takes_its_socket 3<&0";
        let output = Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().expect("this test"))
            .env("QUICTUN_TEST_CHILD", "1")
            .stdin(Stdio::from(OwnedFd::from(handed)))
            .output()
            .expect("sh runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let mut buffer = [0; 16];
        let length = socket
            .recv(&mut buffer)
            .expect("the child has sent a datagram");
        assert_eq!(&buffer[..length], b"taken");
    }
}
