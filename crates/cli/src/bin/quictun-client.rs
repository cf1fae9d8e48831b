//! A drop-in replacement for quic-tun's client.
#![forbid(unsafe_code)]

#[path = "../launcher.rs"]
mod launcher;

fn main() -> std::process::ExitCode {
    launcher::launch("quictun-client")
}
