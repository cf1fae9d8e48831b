//! Resources that a process under attack holds: memory, descriptors, and sockets that wait for an answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use quictun_testbed::program;

/// The interval between two samples of memory: short relative to the seconds that an attack takes.
const PERIOD: Duration = Duration::from_millis(20);

/// Counting descriptors is more expensive, so only one in this many samples does it.
const DESCRIPTORS_EVERY: u64 = 25;

/// The state SYN-SENT of a TCP socket in `/proc/net/tcp`.
const SYN_SENT: &str = "02";

/// Returns the peak resident memory of a process since the last [`forget_peak`], in bytes.
///
/// # Errors
///
/// Fails if the process has ended.
pub fn peak_bytes(pid: u32) -> Result<u64> {
    field(pid, "VmHWM:")
}

/// Resets the peak resident memory of a process.
///
/// # Errors
///
/// Fails if the system refuses: it requires the right to trace the process.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/clear_refs"));
    std::fs::write(&path, "5").with_context(|| format!("writing {}", path.display()))
}

/// Returns the number of TCP sockets in this network namespace that wait for an answer to their SYN.
///
/// # Errors
///
/// Never fails at present: an unreadable table counts as empty.
pub fn syn_sent() -> Result<usize> {
    let mut found = 0;
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(table) else {
            continue;
        };
        let state = |line: &str| line.split_whitespace().nth(3) == Some(SYN_SENT);
        found += text.lines().filter(|line| state(line)).count();
    }
    Ok(found)
}

fn field(pid: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .with_context(|| format!("no {name} for process {pid}: has it ended?"))?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Samples a process on a thread until dropped.
#[derive(Debug)]
pub struct ProcessSampler {
    shared: Arc<SamplerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct SamplerState {
    over: AtomicBool,
    ended: AtomicBool,
    resident: AtomicU64,
    peak: AtomicU64,
    descriptors: AtomicU64,
    /// Resident bytes, one sample per second since the start.
    history: Mutex<Vec<u64>>,
}

impl ProcessSampler {
    /// Starts sampling a process.
    pub fn new(pid: u32) -> Self {
        let shared = Arc::<SamplerState>::default();
        let looking = shared.clone();
        let thread = std::thread::spawn(move || looking.look(pid));
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Returns the peak resident memory seen, in bytes.
    pub fn peak(&self) -> u64 {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// Returns the resident memory of the last sample, in bytes.
    pub fn resident(&self) -> u64 {
        self.shared.resident.load(Ordering::Relaxed)
    }

    /// Returns the largest number of descriptors seen.
    pub fn descriptors(&self) -> u64 {
        self.shared.descriptors.load(Ordering::Relaxed)
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Returns the resident memory in bytes, one sample per second.
    pub fn history(&self) -> Vec<u64> {
        let history = self.shared.history.lock();
        history.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ProcessSampler {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

impl SamplerState {
    fn look(&self, pid: u32) {
        let started = Instant::now();
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let (Ok(resident), Ok(peak)) = (program::resident_bytes(pid), peak_bytes(pid)) else {
                // A zombie has no memory, and a process that ended is a zombie until its parent waits for it.
                self.ended.store(true, Ordering::Relaxed);
                return;
            };
            self.resident.store(resident, Ordering::Relaxed);
            self.peak.fetch_max(peak.max(resident), Ordering::Relaxed);
            if number % DESCRIPTORS_EVERY == 0
                && let Ok(open) = program::descriptors(pid)
            {
                self.descriptors.fetch_max(open as u64, Ordering::Relaxed);
            }
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            if started.elapsed().as_secs() >= history.len() as u64 {
                history.push(resident);
            }
            drop(history);
            std::thread::park_timeout(PERIOD);
        }
    }
}
