//! What a process under attack holds: memory, descriptors, sockets that wait for an answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use quictun_testbed::program;

/// Between two looks at memory: short against the seconds of an attack.
const PERIOD: Duration = Duration::from_millis(20);

/// Looks at descriptors are dearer, and one in so many looks counts them.
const DESCRIPTORS_EVERY: u64 = 25;

/// State of a TCP socket in `/proc/net/tcp`: SYN-SENT.
const SYN_SENT: &str = "02";

/// The largest resident memory of a process since its last [`forget_peak`], bytes.
///
/// # Errors
///
/// Where it has ended.
pub fn peak_bytes(pid: u32) -> Result<u64> {
    field(pid, "VmHWM:")
}

/// Lets the peak of a process begin anew.
///
/// # Errors
///
/// Where the system refuses: it asks for the right to trace the process.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/clear_refs"));
    std::fs::write(&path, "5").with_context(|| format!("writing {}", path.display()))
}

/// TCP sockets of this network namespace that wait for an answer to their SYN.
///
/// # Errors
///
/// The system's answer.
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
        .with_context(|| format!("process {pid} has no memory: has it ended?"))?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Looks at a process until it is dropped.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    ended: AtomicBool,
    resident: AtomicU64,
    peak: AtomicU64,
    descriptors: AtomicU64,
    /// Seconds since the start, resident bytes: one a second.
    history: Mutex<Vec<u64>>,
}

impl Watch {
    /// Begins to look.
    pub fn new(pid: u32) -> Self {
        let shared = Arc::<Shared>::default();
        let looking = shared.clone();
        let thread = std::thread::spawn(move || looking.look(pid));
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// The most resident memory seen, bytes.
    pub fn peak(&self) -> u64 {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// Resident memory a moment ago, bytes.
    pub fn resident(&self) -> u64 {
        self.shared.resident.load(Ordering::Relaxed)
    }

    /// The most descriptors seen.
    pub fn descriptors(&self) -> u64 {
        self.shared.descriptors.load(Ordering::Relaxed)
    }

    /// Whether the process is gone.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Resident memory, bytes, one a second.
    pub fn history(&self) -> Vec<u64> {
        let history = self.shared.history.lock();
        history.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

impl Shared {
    fn look(&self, pid: u32) {
        let started = Instant::now();
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let (Ok(resident), Ok(peak)) = (program::resident_bytes(pid), peak_bytes(pid)) else {
                // A zombie has no memory, and what nobody has waited for is one.
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
