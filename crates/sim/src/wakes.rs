//! Which hosts have work to do, and when the others will.

/// Hosts by their numbers. Most events are packets at routers, which concern no host: they cost nothing here.
#[derive(Debug)]
pub(crate) struct Wakes {
    ready: Vec<bool>,
    ready_count: usize,
    /// When each host wants to be woken; nanoseconds since the start.
    timers: Vec<u64>,
    next: u64,
    /// A timer has changed since `next` was found.
    stale: bool,
}

impl Default for Wakes {
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

impl Wakes {
    /// Adds the host with the next number, which has work to do.
    pub(crate) fn add_host(&mut self) {
        self.ready.push(false);
        self.timers.push(u64::MAX);
        self.now(self.ready.len() - 1);
    }

    pub(crate) fn now(&mut self, host: usize) {
        if !std::mem::replace(&mut self.ready[host], true) {
            self.ready_count += 1;
        }
    }

    /// The first host with work to do, which is then done.
    pub(crate) fn poll(&mut self) -> Option<usize> {
        if self.ready_count == 0 {
            return None;
        }
        let host = self.ready.iter().position(|&ready| ready)?;
        self.ready[host] = false;
        self.ready_count -= 1;
        Some(host)
    }

    /// When a host that has done its work wants to be woken; `u64::MAX`: not at all.
    pub(crate) fn set(&mut self, host: usize, at: u64) {
        self.timers[host] = at;
        self.stale = true;
    }

    /// When the first host wants to be woken; `u64::MAX`: none does.
    pub(crate) fn next(&mut self) -> u64 {
        if std::mem::take(&mut self.stale) {
            self.next = self.timers.iter().copied().min().unwrap_or(u64::MAX);
        }
        self.next
    }

    /// Hosts that wanted to be woken by now have work to do.
    pub(crate) fn handle_time(&mut self, now: u64) {
        if self.next() > now {
            return;
        }
        for host in 0..self.timers.len() {
            if self.timers[host] <= now {
                self.now(host);
            }
        }
    }
}
