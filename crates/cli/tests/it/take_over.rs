//! `--take-over` of a process that is not the one that it replaces.

use std::process::Command;

use crate::golden::live::EchoTunnel;
use crate::programs::{QUICTUN, stderr};
use crate::test_inputs::PIN;

#[test]
fn a_client_with_other_servers_takes_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let mut tunnel = EchoTunnel::start(home.path());
    let other = [
        "client",
        "--server",
        "192.0.2.1",
        "--pin",
        PIN,
        "-L",
        "127.0.0.1:0=a:1",
    ];
    let refused = Command::new(QUICTUN)
        .args(other)
        .args(["--psk-file", "state/client.psk", "--http", "off"])
        .args(["--state-dir", "run", "--take-over"])
        .current_dir(home.path())
        .output()
        .expect("quictun");
    let why = stderr(&refused);
    assert_eq!(refused.status.code(), Some(3), "{why}");
    assert!(why.contains("it seems to be another client"), "{why}");
    tunnel.exchange(*b"still");
    drop(tunnel.stream);
    let said = tunnel.client.end();
    assert!(!said.contains("another process takes over"), "{said}");
    tunnel.server.end();
}
