//! Carries TCP and Unix-socket connections over QUIC.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    quictun_cli::names::main()
}
