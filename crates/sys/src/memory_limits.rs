//! The memory that this process may use: the limits of its control groups, of both versions, and the RAM.
//!
//! [`MemoryLimits::open`] finds and opens the files. It must run before the process is confined. From then on
//! [`MemoryLimits::least`] reads the open files again, so that it sees limits that change.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

/// Length of what is read from a file. A limit is one number, and the first line of `/proc/meminfo` is the RAM.
const READ_MAX: usize = 128;

/// Limit of the nested groups whose limits are read, for a hierarchy of unusual depth.
const GROUPS_MAX: usize = 64;

const GROUPS: &str = "/proc/self/cgroup";
const MOUNTS: &str = "/proc/self/mountinfo";
const RAM: &str = "/proc/meminfo";

/// The open files that state how much memory this process may use.
#[derive(Debug)]
pub struct MemoryLimits(Vec<(LimitSource, File)>);

/// The origin of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The memory of the machine.
    Ram,
    /// The hard limit of a control group: beyond it, the kernel ends processes.
    GroupMax,
    /// The soft limit of a control group: beyond it, the kernel slows processes down.
    GroupHigh,
}

impl MemoryLimits {
    /// Opens the files of this process. A file that is missing or cannot be read states no limit.
    pub fn open() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let mut files = vec![(LimitSource::Ram, PathBuf::from(RAM))];
        files.extend(limit_files(&read(GROUPS), &read(MOUNTS)));
        let open = |(source, path): (_, PathBuf)| Some((source, File::open(path).ok()?));
        Self(files.into_iter().filter_map(open).collect())
    }

    /// Returns the least limit, in bytes. `None` if no file states one.
    pub fn least(&self) -> Option<(u64, LimitSource)> {
        let limits = self.0.iter();
        let limits = limits.filter_map(|(source, file)| Some((read(*source, file)?, *source)));
        limits.min_by_key(|(bytes, _)| *bytes)
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ram => "memory of the machine",
            Self::GroupMax => "limit of the control group (memory.max)",
            Self::GroupHigh => "limit of the control group (memory.high)",
        })
    }
}

fn read(source: LimitSource, file: &File) -> Option<u64> {
    let mut buffer = [0; READ_MAX];
    let length = file.read_at(&mut buffer, 0).ok()?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let mut words = text.split_ascii_whitespace();
    match source {
        LimitSource::Ram => {
            let kib: u64 = words
                .nth(1)
                .filter(|_| text.starts_with("MemTotal:"))?
                .parse()
                .ok()?;
            kib.checked_mul(1024)
        }
        // Without a limit the word is "max", or in version 1 a number above every RAM.
        LimitSource::GroupMax | LimitSource::GroupHigh => words.next()?.parse().ok(),
    }
}

/// Returns the files of the limits of a process's groups and of all groups above that it can see. `groups` and `mounts`
/// are the contents of `/proc/PID/cgroup` and `/proc/PID/mountinfo` (`cgroups(7)`, `proc_pid_mountinfo(5)`).
fn limit_files(groups: &str, mounts: &str) -> Vec<(LimitSource, PathBuf)> {
    let mut files = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let group = groups.lines().find_map(|line| mount.group(line));
        let Some(group) = group else {
            continue;
        };
        for directory in mount.directories(group) {
            for (source, name) in mount.names() {
                files.push((*source, directory.join(name)));
            }
        }
    }
    files
}

/// A mounted hierarchy of control groups that limits memory.
struct Mount {
    is_v2: bool,
    /// The group that is mounted. It is not the root in a container without a namespace of groups.
    root: PathBuf,
    at: PathBuf,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (fields, kind) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, at) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let is_v2 = kind == "cgroup2";
        let is_v1 = kind == "cgroup" && options.split(',').any(|option| option == "memory");
        (is_v2 || is_v1).then_some(Self { is_v2, root, at })
    }

    /// Returns the path of the group in a line of `/proc/PID/cgroup`, if the line is about this hierarchy.
    fn group<'a>(&self, line: &'a str) -> Option<&'a Path> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_own = if self.is_v2 {
            controllers.is_empty()
        } else {
            controllers
                .split(',')
                .any(|controller| controller == "memory")
        };
        is_own.then(|| Path::new(path))
    }

    /// Returns the directories of the group and of all groups above, as far as they are mounted.
    fn directories(&self, group: &Path) -> Vec<PathBuf> {
        let inside = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        // The path leads out of the process's namespace of groups: only the mounted group is visible.
        let is_outside = inside.components().any(|part| part == Component::ParentDir);
        let inside = if is_outside { Path::new("") } else { inside };
        let ancestors = inside.ancestors().take(GROUPS_MAX);
        ancestors.map(|ancestor| self.at.join(ancestor)).collect()
    }

    fn names(&self) -> &'static [(LimitSource, &'static str)] {
        if self.is_v2 {
            &[
                (LimitSource::GroupMax, "memory.max"),
                (LimitSource::GroupHigh, "memory.high"),
            ]
        } else {
            &[(LimitSource::GroupMax, "memory.limit_in_bytes")]
        }
    }
}

/// Decodes a path of mountinfo, in which space, tab, newline and backslash are octal.
fn unescape(field: &str) -> PathBuf {
    let mut path = field.to_owned();
    for (code, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(code, character);
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(groups: &str, mounts: &str) -> Vec<String> {
        let files = limit_files(groups, mounts).into_iter();
        files.map(|(_, path)| path.display().to_string()).collect()
    }

    #[test]
    fn version_2_has_two_limits_in_each_group_up_to_the_mounted_one() {
        let mounts =
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            paths("0::/system.slice/quictun.service\n", mounts),
            [
                "/sys/fs/cgroup/system.slice/quictun.service/memory.max",
                "/sys/fs/cgroup/system.slice/quictun.service/memory.high",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/system.slice/memory.high",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory.high",
            ]
        );
    }

    #[test]
    fn version_1_is_found_by_its_controller_and_a_container_sees_its_own_group() {
        let groups = "5:devices:/docker/abc\n4:cpu,memory:/docker/abc/inner\n0::/\n";
        let mounts = "31 24 0:27 /docker/abc /sys/fs/cgroup/my\\040memory ro - cgroup cgroup rw,memory\n\
                      32 24 0:28 /docker/abc /sys/fs/cgroup/devices ro - cgroup cgroup rw,devices\n\
                      33 24 0:29 / /proc rw - proc proc rw\nnonsense\n";
        assert_eq!(
            paths(groups, mounts),
            [
                "/sys/fs/cgroup/my memory/inner/memory.limit_in_bytes",
                "/sys/fs/cgroup/my memory/memory.limit_in_bytes",
            ]
        );
    }

    #[test]
    fn a_group_outside_of_the_mounted_one_or_of_the_namespace_counts_as_the_mounted_one() {
        let mounts = "30 24 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for group in ["0::/b/c", "0::/a/../b", "0::/../.."] {
            assert_eq!(
                paths(group, mounts),
                ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high"],
                "{group}"
            );
        }
        assert_eq!(paths("", mounts), [""; 0]);
    }

    #[test]
    fn the_least_limit_counts_and_a_changed_file_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            File::open(path).expect("there")
        };
        let limits = MemoryLimits(vec![
            (
                LimitSource::Ram,
                file("ram", "MemTotal:        2048 kB\nMemFree: 1 kB\n"),
            ),
            (LimitSource::GroupMax, file("max", "max\n")),
            (
                LimitSource::GroupHigh,
                file("high", "9223372036854771712\n"),
            ),
            (LimitSource::GroupMax, file("broken", "")),
        ]);
        assert_eq!(limits.least(), Some((2 << 20, LimitSource::Ram)));
        file("max", "1048576\n");
        assert_eq!(limits.least(), Some((1 << 20, LimitSource::GroupMax)));
        file("high", "4096\n");
        assert_eq!(limits.least(), Some((4096, LimitSource::GroupHigh)));
    }

    #[test]
    fn this_machine_has_a_limit() {
        let (bytes, _) = MemoryLimits::open().least().expect("at least the RAM");
        assert!(bytes > 1 << 20, "{bytes}");
    }
}
