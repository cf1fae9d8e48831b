//! The unit files in `packaging/systemd`: quictun accepts their commands, and systemd finds little to object to.

use std::path::{Path, PathBuf};
use std::process::Command;

use quictun_skip::skipped;

use super::test_inputs::{PIN, TestInputs};

/// Each unit with the highest exposure that `systemd-analyze security` may report, in tenths: 0 is safe, 100 is unsafe.
const UNITS: [(&str, u32); 3] = [
    ("quictun-server.service", 25),
    ("quictun-client.service", 25),
    ("quictun-client-tun.service", 40),
];

const PROGRAM: &str = "/usr/local/bin/quictun ";
/// The user of the services. `sysusers.conf` makes it, and `tmpfiles.conf` gives it a directory.
const USER: &str = "quictun";

fn path(unit: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("packaging/systemd").join(unit)
}

/// Returns the values of a key, in their order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path(unit)).expect("a unit file");
    let lines = text.lines();
    let of_key = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    of_key.map(str::to_owned).collect()
}

#[test]
fn commands_and_variables_of_unit_files_are_understood() {
    let server = "[[client]]\nname = \"a\"\npsk_file = \"/secret\"\nallow = [\"db:5432\"]\n";
    let client = format!(
        "server = \"192.0.2.1:7500\"\npin = [\"{PIN}\"]\npsk_file = \"/etc/quictun/client.psk\"\n[[forward]]\nlisten = \"127.0.0.1:2222\"\ntarget = \"127.0.0.1:22\"\n"
    );
    for (unit, _) in UNITS {
        let inputs = TestInputs::default()
            .file("/etc/quictun/server.toml", server)
            .file("/etc/quictun/client.toml", &client)
            .file("/secret", "0123456789abcdef")
            .file("/etc/quictun/client.psk", "0123456789abcdef");
        assert_eq!(values(unit, "User"), [USER], "{unit}");
        assert_eq!(values(unit, "Group"), [USER], "{unit}");
        let [command] = &values(unit, "ExecStart")[..] else {
            panic!("{unit} must have exactly one command")
        };
        let arguments = command
            .strip_prefix(PROGRAM)
            .expect("the installed program");
        let reload = match unit {
            "quictun-client-tun.service" => "/bin/kill -HUP $MAINPID".to_owned(),
            _ => format!("{command} --reload"),
        };
        assert_eq!(values(unit, "ExecReload"), [reload], "{unit}");
        if unit == "quictun-server.service" {
            inputs.native_server(arguments).expect(unit);
            continue;
        }
        let client = inputs.native_client(arguments).expect(unit);
        let psk = client.identity.psk_file.expect("a secret");
        assert_eq!(psk, Path::new("/etc/quictun/client.psk"));
        assert_eq!(client.tun.is_some(), unit.contains("-tun"));
    }
}

#[test]
fn the_user_of_unit_files_is_created_and_owns_the_state_directory() {
    let read = |name: &str| std::fs::read_to_string(path("..").join(name)).expect("a file");
    let users = read("sysusers.conf");
    let user = format!("u {USER} ");
    assert!(users.lines().any(|line| line.starts_with(&user)), "{users}");
    let directories = read("tmpfiles.conf");
    let state = format!("d /var/lib/quictun 0700 {USER} {USER} -");
    assert!(
        directories.lines().any(|line| line == state),
        "{directories}"
    );
    assert_eq!(
        values("quictun-server.service", "StateDirectory"),
        ["quictun"]
    );
}

#[test]
fn systemd_finds_little_exposure() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        let why = "systemd-analyze is missing: apt-get install -y systemd";
        return skipped("unit_files::systemd_finds_little_exposure", why);
    }
    for (unit, most) in UNITS {
        let ran = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(format!("--threshold={most}"))
            .arg(path(unit))
            .output()
            .expect("systemd-analyze starts");
        let said = String::from_utf8_lossy(&ran.stdout);
        let exposure = said
            .lines()
            .find(|line| line.contains("Overall exposure level"));
        assert!(
            ran.status.success() && exposure.is_some(),
            "{unit}: {said}{ran:?}"
        );
    }
}
