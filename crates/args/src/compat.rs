//! `quictun-client` and `quictun-server`: drop-ins for quic-tun v0.0.1 to v0.0.5.
//!
//! [`flags`] holds the flags and reads the command line, [`files`] the configuration files, [`settings`] makes
//! of both what the programs run with. What differs from the original is listed in each program's help.

mod files;
pub mod flags;
pub mod settings;
