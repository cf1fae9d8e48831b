//! Properties and limits of a stack.

use std::time::Duration;

/// Properties and limits of a [`crate::Stack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest IP packet of the device in bytes, not counting packets that the device splits.
    pub mtu: usize,
    /// True if the device splits long segments and fills in checksums. Then packets of up to 64 KiB leave whole.
    pub offload: bool,
    /// Largest number of bytes that a busy flow may have in flight in each direction; a power of two.
    pub window: usize,
    /// Largest number of bytes in the buffers of all flows together.
    pub memory: usize,
    /// Largest number of flows, in whatever state.
    pub max_flows: usize,
    /// Largest number of flows whose handshake is not complete.
    pub max_opening: usize,
    /// Time for the user to accept or refuse an offered flow.
    pub offer_timeout: Duration,
    /// Time for an application to complete a handshake.
    pub open_timeout: Duration,
    /// Time for which data may stay unacknowledged while the application sends nothing.
    pub stall_timeout: Duration,
    /// Time without traffic after which a flow returns its buffers. The flow returns them after a quarter of this time
    /// if nothing was read from it since it got them: of thousands of programs that connect at once, most have nothing
    /// to send yet.
    pub idle_after: Duration,
    /// Time for which a finished flow still answers retransmitted segments.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            offload: true,
            window: 512 * 1024,
            memory: 256 * 1024 * 1024,
            max_flows: 65_536,
            max_opening: 4096,
            offer_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_mins(5),
            idle_after: Duration::from_secs(1),
            linger: Duration::from_secs(1),
        }
    }
}

/// The reason why a [`Config`] is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The MTU is out of range: IPv6 needs 1280 bytes (RFC 8200), and an IP packet has at most 65535.
    #[error("an MTU of {0} bytes: choose one from 1280 to 65535")]
    Mtu(usize),
    /// The window is out of range: TCP announces it as a shifted 16-bit number.
    #[error("a window of {0} bytes: choose a power of two from 64 KiB to 16 MiB")]
    Window(usize),
    /// The memory does not suffice for one flow with full windows.
    #[error("{0} bytes of memory for windows of {1} bytes: allow at least two windows")]
    Memory(usize, usize),
    /// A limit of flows is out of range; with 0, no flow could open.
    #[error("room for {0} flows, {1} of them opening: allow from 1 to 1048576")]
    Flows(usize, usize),
}

impl Config {
    /// Checks the configuration for values that no stack can have.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(MTU_MIN..=MAX_PACKET).contains(&self.mtu) {
            return Err(ConfigError::Mtu(self.mtu));
        }
        if !self.window.is_power_of_two() || !(WINDOW_MIN..=WINDOW_MAX).contains(&self.window) {
            return Err(ConfigError::Window(self.window));
        }
        if self.memory < 2 * self.window {
            return Err(ConfigError::Memory(self.memory, self.window));
        }
        let flows = 1..=FLOWS_MAX;
        if !flows.contains(&self.max_flows) || !flows.contains(&self.max_opening) {
            return Err(ConfigError::Flows(self.max_flows, self.max_opening));
        }
        Ok(())
    }
}

/// Longest IP packet that a 16-bit length can describe, in bytes. Longer ones (jumbograms, BIG TCP) are refused.
pub const MAX_PACKET: usize = 65_535;
/// Smallest MTU of IPv6 (RFC 8200 section 5), in bytes.
const MTU_MIN: usize = 1280;
/// Smallest window in bytes: a smaller one would not hold a super-packet.
const WINDOW_MIN: usize = 64 * 1024;
/// Largest window in bytes; chosen arbitrarily, to keep one flow from using a budget meant for many.
const WINDOW_MAX: usize = 16 * 1024 * 1024;
/// Largest number of flows. Flows are numbered in 32 bits, and more flows per address are of no use with 64 Ki ports.
const FLOWS_MAX: usize = 1 << 20;
