//! Drop-in for quic-tun's client.

fn main() -> std::process::ExitCode {
    quictun_cli::compat::client_main()
}
