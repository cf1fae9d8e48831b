//! Drop-in for quic-tun's client.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    quictun_cli::compat::client_main()
}
