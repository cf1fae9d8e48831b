//! The kernel kills a process for want of memory: in a group of its own, with a neighbour that takes all there is.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::site::wait_gone;
use quictun_testbed::deadline;
use quictun_testbed::program::{self, Program};

/// What the group may have: little, so that it is soon used up.
const MEMORY: &str = "67108864";

/// Using it up takes no longer, on a busy machine too.
const SOON: Duration = Duration::from_secs(20);

/// How the versions of control groups name things.
struct Version {
    root: &'static str,
    limit: &'static str,
    kills: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        kills: "memory.events",
    },
    Version {
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        kills: "memory.oom_control",
    },
];

/// A control group with little memory, removed when it is dropped.
struct Group {
    path: PathBuf,
    version: &'static Version,
}

/// Whether a process can be killed that way here.
pub fn is_possible() -> bool {
    Group::new().is_ok()
}

/// Has the kernel kill a process.
///
/// # Errors
///
/// Where it does not.
pub(crate) fn kill(pid: Pid) -> Result<()> {
    let group = Group::new()?;
    let number = pid.as_raw_nonzero().to_string();
    fs::write(format!("/proc/{number}/oom_score_adj"), "1000")?;
    group.write("cgroup.procs", &number)?;
    // It collects an endless line, and is killed as well, but later: who has 1000 points more than anybody is first.
    let mut hog = program::command("sh");
    hog.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec tail /dev/zero"]);
    let mut hog = Program::start("hog", hog.arg(&group.path))?;
    hog.hush();
    wait_gone(pid, SOON)?;
    let killed = deadline::wait("the kernel to count it", SOON, || {
        let text = fs::read_to_string(group.path.join(group.version.kills))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.filter(|count| *count != "0").map(str::to_owned))
    });
    killed.context("it died of something else").map(drop)
}

impl Group {
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
        // Where there are no control groups it is no file yet.
        let file = fs::OpenOptions::new().write(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| path.display().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have just ended may still be in it.
        let removed = || fs::remove_dir(&self.path).is_ok();
        // A group without processes does no harm where it stays.
        if deadline::until("an empty group", SOON, removed).is_err() {}
    }
}
