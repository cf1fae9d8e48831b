//! Makes the kernel kill a process because memory has run out: in a control group with a neighbour that uses all its
//! memory.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::tunnel::wait_gone;
use quictun_testbed::deadline;
use quictun_testbed::program::{self, Program};

/// The memory limit of the group in bytes: low, so that it is used up soon.
const MEMORY: &str = "67108864";

/// The time limit for using it up, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The file names in one version of control groups.
struct CgroupVersion {
    root: &'static str,
    limit: &'static str,
    kills: &'static str,
}

const VERSIONS: [CgroupVersion; 2] = [
    CgroupVersion {
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        kills: "memory.events",
    },
    CgroupVersion {
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        kills: "memory.oom_control",
    },
];

/// A control group with little memory, removed on drop.
struct Cgroup {
    path: PathBuf,
    version: &'static CgroupVersion,
}

/// Returns true if a process can be killed in this way here.
pub fn is_possible() -> bool {
    Cgroup::new().is_ok()
}

/// Makes the kernel kill a process for lack of memory.
///
/// # Errors
///
/// Fails if no control group can be made, or if the kernel does not kill the process in time.
pub(crate) fn kill(pid: Pid) -> Result<()> {
    let group = Cgroup::new()?;
    let number = pid.as_raw_nonzero().to_string();
    fs::write(format!("/proc/{number}/oom_score_adj"), "1000")?;
    group.write("cgroup.procs", &number)?;
    // The hog reads an endless line. The kernel kills it as well, but later, because the victim has an `oom_score_adj`
    // that is higher by 1000.
    let mut hog = program::command("sh");
    hog.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec tail /dev/zero"]);
    let mut hog = Program::start("hog", hog.arg(&group.path))?;
    hog.silence();
    wait_gone(pid, SOON)?;
    let killed = deadline::wait("the kernel to count the kill", SOON, || {
        let text = fs::read_to_string(group.path.join(group.version.kills))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.filter(|count| *count != "0").map(str::to_owned))
    });
    killed.context("it died for another reason").map(drop)
}

impl Cgroup {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quictun-faults-{}-{count}", std::process::id());
        for version in &VERSIONS {
            let path = Path::new(version.root).join(&name);
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { path, version };
            if group.write(version.limit, MEMORY).is_ok() {
                return Ok(group);
            }
        }
        anyhow::bail!("no control group for memory can be made here")
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        // Without control groups the file does not exist.
        let file = fs::OpenOptions::new().write(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| path.display().to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that have just ended may still be in the group.
        let removed = || fs::remove_dir(&self.path).is_ok();
        // An empty group does no harm if it remains.
        if deadline::until("the control group to become empty", SOON, removed).is_err() {}
    }
}
