//! The hosts that have work to do, and the wake-up times of the others.

/// Wake-ups of hosts, indexed by host number. Most events are packets at routers; they involve no host and cost nothing
/// here.
#[derive(Debug)]
pub(crate) struct HostWakeups {
    ready: Vec<bool>,
    ready_count: usize,
    /// The wake-up time of each host, in nanoseconds since the start.
    timers: Vec<u64>,
    next: u64,
    /// Set if a timer has changed since `next` was computed.
    stale: bool,
}

impl Default for HostWakeups {
    fn default() -> Self {
        Self {
            ready: Vec::new(),
            ready_count: 0,
            timers: Vec::new(),
            next: u64::MAX,
            stale: false,
        }
    }
}

impl HostWakeups {
    /// Adds the host with the next number and marks it as ready.
    pub(crate) fn add_host(&mut self) {
        self.ready.push(false);
        self.timers.push(u64::MAX);
        self.wake(self.ready.len() - 1);
    }

    pub(crate) fn wake(&mut self, host: usize) {
        if !std::mem::replace(&mut self.ready[host], true) {
            self.ready_count += 1;
        }
    }

    /// Returns the first host that has work to do and marks it as done.
    pub(crate) fn poll(&mut self) -> Option<usize> {
        if self.ready_count == 0 {
            return None;
        }
        let host = self.ready.iter().position(|&ready| ready)?;
        self.ready[host] = false;
        self.ready_count -= 1;
        Some(host)
    }

    /// Sets the wake-up time of a host that has done its work; `u64::MAX` means none.
    pub(crate) fn set(&mut self, host: usize, at: u64) {
        self.timers[host] = at;
        self.stale = true;
    }

    /// Returns the earliest wake-up time of all hosts, or `u64::MAX` if there is none.
    pub(crate) fn next(&mut self) -> u64 {
        if std::mem::take(&mut self.stale) {
            self.next = self.timers.iter().copied().min().unwrap_or(u64::MAX);
        }
        self.next
    }

    /// Marks all hosts whose wake-up time is `now` or earlier as ready.
    pub(crate) fn handle_time(&mut self, now: u64) {
        if self.next() > now {
            return;
        }
        for host in 0..self.timers.len() {
            if self.timers[host] <= now {
                self.wake(host);
            }
        }
    }
}
