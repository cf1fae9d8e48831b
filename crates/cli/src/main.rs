//! Carries TCP and Unix-socket connections over QUIC.

fn main() -> std::process::ExitCode {
    quictun_cli::native::main()
}
