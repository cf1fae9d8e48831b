//! The processor time of programs, and of the whole machine.
//!
//! A program is identified by its process group. All of its threads are read repeatedly, because threads and processes
//! may end before the run does. The kernel's threads are counted for the whole machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_lab::Process;

use crate::client::SignalWaiter;

pub(crate) struct Observer {
    pub(crate) waiter: SignalWaiter,
    pub(crate) host: Arc<HostThreads>,
}

/// The kernel threads that process deferred network interrupts (`ksoftirqd`). Their files are opened before the process
/// enters a container in which they are invisible.
#[derive(Debug, Default)]
pub(crate) struct HostThreads(Vec<File>);

pub(crate) type ProcessGroups = Vec<(&'static str, u32)>;

#[derive(Debug)]
pub(crate) struct UsageMeter<'a> {
    groups: ProcessGroups,
    host: &'a HostThreads,
    readings: Vec<Reading>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    /// Processor time in nanoseconds, by thread id.
    threads: BTreeMap<u32, ThreadTime>,
    /// Processor time of the kernel's threads in nanoseconds. `None` if they are invisible.
    softirq_ns: Option<u64>,
    machine: ProcessorTicks,
    /// True if the kernel denied access to a thread.
    hidden: bool,
}

#[derive(Clone, Debug)]
struct ThreadTime {
    role: &'static str,
    name: String,
    ns: u64,
}

/// Ticks of all processors since boot, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTicks {
    total: u64,
    idle: u64,
    steal: u64,
}

#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) processes: Vec<Process>,
    /// Processor seconds per second of the kernel's threads. `None` if they are invisible.
    pub(crate) softirq: Option<f64>,
    pub(crate) idle: f64,
    pub(crate) steal: f64,
    pub(crate) hidden: bool,
}

/// The remark for figures with [`Usage::hidden`].
pub(crate) const HIDDEN: &str = "/proc hides some threads of these programs: they have used more processor time than this report shows";

impl HostThreads {
    /// Opens the files of the kernel's threads. Finds none if `/proc` hides them.
    pub(crate) fn open() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let is_one = name.starts_with("ksoftirqd/");
            is_one.then(|| File::open(entry.path().join("schedstat")).ok())?
        });
        Self(files.collect())
    }

    fn ns(&self) -> Option<u64> {
        let read = |file: &File| {
            let mut text = [0; 64];
            let length = file.read_at(&mut text, 0).ok()?;
            first_number(std::str::from_utf8(text.get(..length)?).ok()?)
        };
        (!self.0.is_empty()).then(|| self.0.iter().filter_map(read).sum())
    }
}

impl<'a> UsageMeter<'a> {
    pub(crate) fn new(groups: ProcessGroups, host: &'a HostThreads) -> Self {
        Self {
            groups,
            host,
            readings: Vec::new(),
        }
    }

    pub(crate) fn read(&mut self) {
        let (mut threads, mut hidden) = (BTreeMap::new(), false);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let group = fs::read_to_string(entry.path().join("stat"))
                .ok()
                .and_then(|stat| group(&stat));
            let role = self.groups.iter().find(|(_, known)| Some(*known) == group);
            if let Some((role, _)) = role {
                hidden |= !add_threads(&mut threads, pid, role);
            }
        }
        self.readings.push(Reading {
            at: Instant::now(),
            threads,
            softirq_ns: self.host.ns(),
            machine: ProcessorTicks::read(),
            hidden,
        });
    }

    pub(crate) fn threads(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let last = self.readings.last().into_iter();
        last.flat_map(|reading| reading.threads.iter().map(|(id, used)| (*id, used.role)))
    }

    /// Returns the usage between two moments, as precisely as the readings permit. `None` with fewer than two readings
    /// between them.
    pub(crate) fn usage(&self, from: Instant, until: Instant) -> Option<Usage> {
        let first = self.readings.iter().find(|reading| reading.at >= from)?;
        let within = |reading: &&Reading| reading.at > first.at && reading.at <= until;
        let last = self.readings.iter().rev().find(within)?;
        let seconds = (last.at - first.at).as_secs_f64();
        let mut latest: BTreeMap<u32, &ThreadTime> = BTreeMap::new();
        let mut hidden = false;
        let between = self
            .readings
            .iter()
            .filter(|reading| (first.at..=last.at).contains(&reading.at));
        for reading in between {
            hidden |= reading.hidden;
            latest.extend(reading.threads.iter().map(|(id, used)| (*id, used)));
        }
        let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (id, used) in latest {
            let before = first.threads.get(&id).map_or(0, |used| used.ns);
            *sums.entry((used.role, used.name.as_str())).or_default() +=
                used.ns.saturating_sub(before);
        }
        let process = |((role, thread), ns): ((&str, &str), u64)| Process {
            role: role.to_owned(),
            thread: thread.to_owned(),
            cpu_s: Duration::from_nanos(ns).as_secs_f64(),
            seconds,
        };
        let softirq = last.softirq_ns.zip(first.softirq_ns);
        let softirq = softirq.map(|(last, first)| Duration::from_nanos(last.saturating_sub(first)));
        let (idle, steal) = last.machine.since(first.machine);
        Some(Usage {
            processes: sums.into_iter().map(process).collect(),
            softirq: softirq.map(|time| time.as_secs_f64() / seconds),
            idle,
            steal,
            hidden,
        })
    }
}

impl ProcessorTicks {
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        // Leave out the columns of guests, after the eighth: the kernel has already included their time in the others.
        Self {
            total: ticks.iter().take(8).sum(),
            idle: tick(3) + tick(4),
            steal: tick(7),
        }
    }

    /// Returns the shares of all processors' time that were idle and stolen.
    #[expect(clippy::cast_precision_loss, reason = "ticks of hours")]
    pub(crate) fn since(self, before: Self) -> (f64, f64) {
        let total = self.total.saturating_sub(before.total).max(1) as f64;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / total;
        (
            share(self.idle, before.idle),
            share(self.steal, before.steal),
        )
    }
}

/// Adds the processor time of a process's threads. Returns false if access to one of them was denied. A thread that has
/// ended meanwhile keeps its earlier reading.
fn add_threads(threads: &mut BTreeMap<u32, ThreadTime>, pid: u32, role: &'static str) -> bool {
    let read = |path: &Path| -> io::Result<Option<(u32, ThreadTime)>> {
        let id = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let ns = first_number(&fs::read_to_string(path.join("schedstat"))?);
        let name = fs::read_to_string(path.join("comm"))?.trim_end().to_owned();
        Ok(id
            .zip(ns)
            .map(|(id, ns)| (id, ThreadTime { role, name, ns })))
    };
    let is_refused = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
    let tasks = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(tasks) => tasks,
        Err(error) => return !is_refused(error),
    };
    let mut seen = true;
    for task in tasks.flatten() {
        match read(&task.path()) {
            Ok(used) => threads.extend(used),
            Err(error) => seen &= !is_refused(error),
        }
    }
    seen
}

/// Returns the process group in `/proc/PID/stat`. It is the third word after the name, which is in parentheses and may
/// contain any character.
fn group(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(2)?.parse().ok()
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_group_is_parsed_after_any_program_name() {
        assert_eq!(group("12 (a) b) c) S 1 77 12 0"), Some(77));
        assert_eq!(group("nonsense"), None);
    }

    #[test]
    fn an_ended_process_does_not_count_as_hidden() {
        let mut threads = BTreeMap::new();
        assert!(add_threads(&mut threads, std::process::id(), "client"));
        assert!(threads.values().all(|used| used.role == "client") && !threads.is_empty());
        assert!(
            add_threads(&mut threads, u32::MAX, "client"),
            "no such process"
        );
    }

    #[test]
    fn the_time_of_a_thread_is_a_difference_and_includes_ended_threads() {
        let host = HostThreads::default();
        let begin = Instant::now();
        let reading = |at: u64, threads: &[(u32, u64)]| Reading {
            at: begin + Duration::from_secs(at),
            threads: threads
                .iter()
                .map(|(id, ns)| {
                    let used = ThreadTime {
                        role: "client",
                        name: "w".to_owned(),
                        ns: ns * 1_000_000,
                    };
                    (*id, used)
                })
                .collect(),
            softirq_ns: Some(at * 1_000_000),
            machine: ProcessorTicks {
                total: at * 100,
                idle: at * 25,
                steal: 0,
            },
            hidden: at == 3,
        };
        let watch = UsageMeter {
            groups: Vec::new(),
            host: &host,
            readings: vec![
                reading(0, &[(1, 0)]),
                reading(1, &[(1, 100)]),
                reading(2, &[(1, 200), (2, 50)]),
                reading(3, &[(1, 400)]),
                reading(4, &[(1, 1000)]),
            ],
        };
        let at = |second: u64| begin + Duration::from_millis(second * 1000 + 500);
        let usage = watch.usage(at(0), at(3)).expect("readings");
        let [process] = &usage.processes[..] else {
            panic!("{usage:?}");
        };
        assert!((process.cpu_s - 0.35).abs() < 1e-9, "{process:?}");
        assert!((process.seconds - 2.0).abs() < 1e-9 && (usage.idle - 0.25).abs() < 1e-9);
        assert_eq!((usage.softirq.is_some(), usage.hidden), (true, true));
        let earlier = watch.usage(at(0), at(2)).expect("readings");
        assert!(!earlier.hidden, "no thread was hidden then");
        assert!(
            watch.usage(at(3), at(3)).is_none(),
            "a difference takes two readings"
        );
    }
}
