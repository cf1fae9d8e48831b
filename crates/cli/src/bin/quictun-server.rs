//! Drop-in for quic-tun's server.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    quictun_cli::compat::server_main()
}
