//! The names of the three programs.

/// The program with all commands.
pub const QUICTUN: &str = "quictun";
/// The replacement for quic-tun's client.
pub const QUICTUN_CLIENT: &str = "quictun-client";
/// The replacement for quic-tun's server.
pub const QUICTUN_SERVER: &str = "quictun-server";
