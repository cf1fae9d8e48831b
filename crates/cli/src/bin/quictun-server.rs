//! Drop-in for quic-tun's server.

fn main() -> std::process::ExitCode {
    quictun_cli::compat::server_main()
}
