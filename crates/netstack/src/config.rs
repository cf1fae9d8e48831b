//! What a stack is like, and what it may use.

use std::time::Duration;

/// Properties and limits of a [`crate::Stack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest IP packet that the device carries unless it is cut on the way, in bytes.
    pub mtu: usize,
    /// The device cuts long segments and fills in checksums: packets of up to 64 KiB go out whole.
    pub offload: bool,
    /// Bytes a busy flow may have under way in each direction: a power of two.
    pub window: usize,
    /// Bytes of buffers of all flows together.
    pub memory: usize,
    /// Flows at a time, whatever they do.
    pub max_flows: usize,
    /// Flows among them whose hand-shake is not complete.
    pub max_opening: usize,
    /// UDP datagrams to this port are handed out, whatever address they are for; others are refused.
    pub datagram_port: Option<u16>,
    /// How long whoever is offered a flow may take to accept it.
    pub offer_timeout: Duration,
    /// How long an application may take to complete a hand-shake.
    pub open_timeout: Duration,
    /// How long data may stay unacknowledged by an application that sends nothing either.
    pub stall_timeout: Duration,
    /// After how long without traffic a flow gives its buffers back; after a quarter of it, where nothing was read from it
    /// since it has them: of thousands that connect at once, most have nothing to say yet.
    pub idle_after: Duration,
    /// How long a finished flow still answers repeated segments.
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
            datagram_port: None,
            offer_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_mins(5),
            idle_after: Duration::from_secs(1),
            linger: Duration::from_secs(1),
        }
    }
}

/// Why a [`Config`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// IPv6 needs 1280 bytes (RFC 8200), and an IP packet has at most 65535.
    #[error("an MTU of {0} bytes: choose one from 1280 to 65535")]
    Mtu(usize),
    /// The window is announced as a 16-bit number, shifted.
    #[error("a window of {0} bytes: choose a power of two from 64 KiB to 16 MiB")]
    Window(usize),
    /// One flow at full window does not fit.
    #[error("{0} bytes of memory for windows of {1} bytes: allow at least two windows")]
    Memory(usize, usize),
    /// No flow could ever open.
    #[error("room for {0} flows, {1} of them opening: allow from 1 to 1048576")]
    Flows(usize, usize),
}

impl Config {
    /// Whether a stack can be like that.
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

/// Longest IP packet that a 16-bit length describes. Longer ones (jumbograms, BIG TCP) are refused.
pub const MAX_PACKET: usize = 65_535;
/// RFC 8200 section 5.
const MTU_MIN: usize = 1280;
/// A smaller window would not hold one super-packet.
const WINDOW_MIN: usize = 64 * 1024;
/// Chosen arbitrarily, to keep one flow from a budget meant for many.
const WINDOW_MAX: usize = 16 * 1024 * 1024;
/// Flows are numbered in 32 bits, and 64 Ki addresses and ports make no more sense of it.
const FLOWS_MAX: usize = 1 << 20;
