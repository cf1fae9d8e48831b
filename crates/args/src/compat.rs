//! `quictun-client` and `quictun-server`: drop-in replacements for quic-tun v0.0.1 to v0.0.5.
//!
//! [`flags`] defines the flags and parses the command line, and `files` parses the configuration files. [`settings`]
//! turns both into the settings that the programs run with. The help of each program lists its differences from the
//! original.

mod files;
pub mod flags;
pub mod settings;
