//! Who used the processors, and how much.
//!
//! Programs are known by their process group; every thread of it is read again and again, because threads and
//! processes end before the run does. The kernel's own threads belong to the whole machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use quictun_lab::Process;

/// Threads of the kernel that do what is left over of network interrupts, open since before we could not see them.
#[derive(Debug, Default)]
pub(super) struct HostThreads(Vec<File>);

/// Whom to look at: a name and a process group each.
pub(super) type Groups = Vec<(&'static str, u32)>;

/// Readings of one run.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    groups: Groups,
    host: &'a HostThreads,
    readings: Vec<Reading>,
}

/// One look.
#[derive(Debug)]
struct Reading {
    at: Instant,
    /// Nanoseconds by thread id.
    threads: BTreeMap<u32, Used>,
    softirq_ns: u64,
    machine: Machine,
}

#[derive(Clone, Debug)]
struct Used {
    role: &'static str,
    name: String,
    ns: u64,
}

/// Ticks of all processors since the start, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Machine {
    total: u64,
    idle: u64,
    steal: u64,
}

/// What was used between two times.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) processes: Vec<Process>,
    /// The kernel's threads, seconds in a second.
    pub(super) softirq: f64,
    pub(super) idle: f64,
    pub(super) steal: f64,
}

impl HostThreads {
    /// Finds them. Where `/proc` hides them there are none.
    pub(super) fn open() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let is_one = name.starts_with("ksoftirqd/");
            is_one.then(|| File::open(entry.path().join("schedstat")).ok())?
        });
        Self(files.collect())
    }

    fn ns(&self) -> u64 {
        let read = |file: &File| {
            let mut text = [0; 64];
            let length = file.read_at(&mut text, 0).ok()?;
            first_number(std::str::from_utf8(text.get(..length)?).ok()?)
        };
        self.0.iter().filter_map(read).sum()
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(groups: Groups, host: &'a HostThreads) -> Self {
        Self {
            groups,
            host,
            readings: Vec::new(),
        }
    }

    /// Looks.
    pub(super) fn read(&mut self) {
        let mut threads = BTreeMap::new();
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
                add_threads(&mut threads, pid, role);
            }
        }
        self.readings.push(Reading {
            at: Instant::now(),
            threads,
            softirq_ns: self.host.ns(),
            machine: Machine::read(),
        });
    }

    /// Whose threads there were at the last look.
    pub(super) fn threads(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let last = self.readings.last().into_iter();
        last.flat_map(|reading| reading.threads.iter().map(|(id, used)| (*id, used.role)))
    }

    /// What was used from one time to another, as near as there are readings.
    pub(super) fn usage(&self, from: Instant, until: Instant) -> Option<Usage> {
        let first = self.readings.iter().find(|reading| reading.at >= from)?;
        let within = |reading: &&Reading| reading.at > first.at && reading.at <= until;
        let last = self.readings.iter().rev().find(within)?;
        let seconds = (last.at - first.at).as_secs_f64();
        let mut latest: BTreeMap<u32, &Used> = BTreeMap::new();
        let between = self
            .readings
            .iter()
            .filter(|reading| (first.at..=last.at).contains(&reading.at));
        for reading in between {
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
        let softirq = Duration::from_nanos(last.softirq_ns.saturating_sub(first.softirq_ns));
        let (idle, steal) = last.machine.since(first.machine);
        Some(Usage {
            processes: sums.into_iter().map(process).collect(),
            softirq: softirq.as_secs_f64() / seconds,
            idle,
            steal,
        })
    }
}

impl Machine {
    pub(super) fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        // Of the columns behind the eighth, guests, the kernel has counted everything already.
        Self {
            total: ticks.iter().take(8).sum(),
            idle: tick(3) + tick(4),
            steal: tick(7),
        }
    }

    /// Shares of all processors that were idle, and that were stolen.
    #[expect(clippy::cast_precision_loss, reason = "ticks of hours")]
    pub(super) fn since(self, before: Self) -> (f64, f64) {
        let total = self.total.saturating_sub(before.total).max(1) as f64;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / total;
        (
            share(self.idle, before.idle),
            share(self.steal, before.steal),
        )
    }
}

fn add_threads(threads: &mut BTreeMap<u32, Used>, pid: u32, role: &'static str) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        // A thread that has ended meanwhile was read before.
        let read = |name: &str| fs::read_to_string(task.path().join(name)).ok();
        let used = || {
            let id = task.file_name().to_str()?.parse().ok()?;
            let ns = first_number(&read("schedstat")?)?;
            let name = read("comm")?.trim_end().to_owned();
            Some((id, Used { role, name, ns }))
        };
        threads.extend(used());
    }
}

/// The process group in `/proc/PID/stat`: the third word after the name, which stands in parentheses and may hold
/// anything.
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
    fn the_group_is_found_behind_any_name() {
        assert_eq!(group("12 (a) b) c) S 1 77 12 0"), Some(77));
        assert_eq!(group("nonsense"), None);
    }

    #[test]
    fn what_a_thread_used_is_the_difference_and_one_that_ended_counts() {
        let host = HostThreads::default();
        let begin = Instant::now();
        let reading = |at: u64, threads: &[(u32, u64)]| Reading {
            at: begin + Duration::from_secs(at),
            threads: threads
                .iter()
                .map(|(id, ns)| {
                    let used = Used {
                        role: "client",
                        name: "w".to_owned(),
                        ns: ns * 1_000_000,
                    };
                    (*id, used)
                })
                .collect(),
            softirq_ns: at * 1_000_000,
            machine: Machine {
                total: at * 100,
                idle: at * 25,
                steal: 0,
            },
        };
        let watch = Watch {
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
        assert!(
            watch.usage(at(3), at(3)).is_none(),
            "one reading is no difference"
        );
    }
}
