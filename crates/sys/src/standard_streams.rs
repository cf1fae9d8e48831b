//! The descriptors that a program inherits, and its standard streams.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// The first descriptor that is not a standard stream.
const FIRST: libc::c_int = 3;

/// Makes a program inherit only its standard streams, whatever descriptors this process has.
pub fn with_standard_streams_only(command: &mut Command) -> &mut Command {
    let mark = || {
        // SAFETY: the call marks descriptors close-on-exec and closes none: each owner keeps its descriptor until the
        // exec.
        let marked = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST,
                libc::c_int::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if marked == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Kernels before 5.9 do not have this call, and those before 5.11 cannot mark.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                mark_each(limit())
            }
            error => Err(error),
        }
    };
    // SAFETY: between fork and exec, `mark` makes system calls, touches no lock and allocates nothing.
    unsafe { command.pre_exec(mark) }
}

/// Returns the number after the highest possible descriptor, unless the limit was lowered after the descriptor was
/// opened.
fn limit() -> libc::c_int {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.unwrap_or(u64::from(u32::MAX));
    libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX)
}

fn mark_each(limit: libc::c_int) -> io::Result<()> {
    for number in FIRST..limit {
        // SAFETY: the call marks a descriptor close-on-exec, if it is open, and closes none.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBADF) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// An open `/dev/null`, for [`NullStreams::replace`]. Open it while the process may still open files.
#[derive(Debug)]
pub struct NullStreams(File);

impl NullStreams {
    /// Opens `/dev/null`, which is used later.
    pub fn open() -> io::Result<Self> {
        File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map(Self)
    }

    /// Replaces standard input, output and error by `/dev/null` permanently.
    pub fn replace(self) -> io::Result<()> {
        dup2_stdin(&self.0)?;
        dup2_stdout(&self.0)?;
        dup2_stderr(&self.0)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// Environment variable with the action for the child half of the test.
    const MODE_VARIABLE: &str = "QUICTUN_SYS_MARKS";

    /// Returns the descriptors that a program finds open if it is started in this way.
    fn inherited(how: &str) -> Vec<String> {
        // The shell opens descriptor 9 without close-on-exec, as a careless caller would.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "exec 9</etc/passwd; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "standard_streams::tests::child_lists",
                "--nocapture",
            ])
            .env(MODE_VARIABLE, how)
            .stdin(Stdio::null());
        let output = shell.output().expect("sh runs");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        let listed = said.lines().find_map(|line| line.split_once("open: "));
        let (_, listed) = listed.expect("the child's line");
        listed.split(' ').map(str::to_owned).collect()
    }

    /// The child half of the next test. Does nothing in an ordinary run.
    #[test]
    fn child_lists() {
        let Ok(how) = std::env::var(MODE_VARIABLE) else {
            return;
        };
        let mut command = Command::new("sh");
        command.args(["-c", "cd /proc/$$/fd; echo open: *"]);
        match how.as_str() {
            "at once" => drop(with_standard_streams_only(&mut command)),
            "one by one" => mark_each(100).expect("marks"),
            _ => {}
        }
        assert!(command.status().expect("sh runs").success());
    }

    #[test]
    fn a_program_inherits_no_descriptor_but_the_standard_streams() {
        for (how, inherits) in [("not", true), ("at once", false), ("one by one", false)] {
            let listed = inherited(how);
            assert_eq!(
                listed.contains(&"9".to_owned()),
                inherits,
                "{how}: {listed:?}"
            );
            for stream in ["0", "1", "2"] {
                assert!(listed.contains(&stream.to_owned()), "{how}: {listed:?}");
            }
        }
    }
}
