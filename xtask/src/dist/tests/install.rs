//! Tests of `install.sh`, which installs below a temporary directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{archive, root, sources, unpacked};

/// Unpacks an archive that contains `program`, and returns its top directory.
fn unpack(dir: &Path, program: &str) -> PathBuf {
    let root = root();
    let (name, bytes) = archive(&sources(&root), program.as_bytes());
    let mut archive = tar::Archive::new(std::io::Cursor::new(unpacked(&bytes)));
    archive.unpack(dir).expect("an archive");
    dir.join(name.strip_suffix(".tar.gz").expect("a name"))
}

fn install(from: &Path, to: &Path, arguments: &[&str]) {
    let mut command = Command::new(from.join("install.sh"));
    command
        .args(arguments)
        .env("PREFIX", "/opt/q")
        .env("DESTDIR", to);
    let output = command.output().expect("the script starts");
    assert!(output.status.success(), "{output:?}");
}

/// Returns all entries below a directory, except directories.
fn below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut next = vec![dir.to_path_buf()];
    while let Some(dir) = next.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("its kind").is_dir() {
                next.push(entry.path());
            } else {
                found.insert(entry.path());
            }
        }
    }
    found
}

#[test]
fn an_upgrade_keeps_what_is_the_users_and_removal_leaves_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("root");
    let prefix = to.join("opt/q");
    let settings = to.join("etc/quictun/server.toml");
    fs::create_dir_all(settings.parent().expect("a parent")).expect("a directory");
    fs::write(&settings, "mine").expect("a file");
    fs::create_dir_all(prefix.join("bin")).expect("a directory");
    fs::write(prefix.join("bin/other"), "").expect("a file");

    let first = unpack(dir.path(), "first");
    // The next version does not have this file.
    fs::write(first.join("share/doc/quictun/OLD.md"), "").expect("a file");
    install(&first, &to, &[]);
    assert_eq!(
        fs::read(prefix.join("bin/quictun-server")).expect("a link"),
        b"first"
    );
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/quictun-client.service"));
    assert!(
        unit.expect("a unit")
            .contains("\nExecStart=/opt/q/bin/quictun client ")
    );
    assert!(prefix.join("share/doc/quictun/OLD.md").exists());

    fs::remove_dir_all(&first).expect("the first version");
    let second = unpack(dir.path(), "second");
    install(&second, &to, &[]);
    assert_eq!(
        fs::read(prefix.join("bin/quictun")).expect("a program"),
        b"second"
    );
    assert!(!prefix.join("share/doc/quictun/OLD.md").exists());
    assert_eq!(fs::read(&settings).expect("a file"), b"mine");

    install(&second, &to, &["--uninstall"]);
    let left = [settings.clone(), prefix.join("bin/other")];
    assert_eq!(below(&to), left.into());
    assert!(!prefix.join("share").exists() && !prefix.join("lib").exists());
    install(&second, &to, &[]);
    let units = to.join("etc/systemd/system");
    for file in [
        "multi-user.target.wants/quictun-client.service",
        "quictun-server.service.d/override.conf",
    ] {
        let file = units.join(file);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        fs::write(file, "").expect("a file");
    }
    install(&second, &to, &["--purge"]);
    assert_eq!(below(&to), [prefix.join("bin/other")].into());
}

/// Installs twice on a system whose `systemctl` and other programs of systemd print their arguments. The client cannot
/// reload.
const INSTALL_TWICE: &str = "set -e
mount -t tmpfs none /usr/local
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/bin
printf '#!/bin/sh\necho \"${0##*/} $*\"\n[ \"$*\" != \"reload quictun-client.service\" ]\n' >/run/bin/systemctl
chmod 755 /run/bin/systemctl
ln -s systemctl /run/bin/systemd-sysusers
ln -s systemctl /run/bin/systemd-tmpfiles
export PATH=/run/bin:$PATH
./install.sh
echo upgrade
exec ./install.sh";

#[test]
fn an_upgrade_reloads_the_services_that_run_or_restarts_them() {
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command.args(arguments);
        command
    };
    let possible = unshare(&["true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        let test =
            "dist::tests::install::an_upgrade_reloads_the_services_that_run_or_restarts_them";
        return quictun_skip::skipped(test, "no user namespaces here");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let from = unpack(dir.path(), "#!/bin/sh\n");
    let mut command = unshare(&["sh", "-c", INSTALL_TWICE]);
    command
        .current_dir(from)
        .env_remove("PREFIX")
        .env_remove("DESTDIR");
    let output = command.output().expect("the script starts");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, upgrade) = said.split_once("upgrade\n").expect("two installations");
    let end = "systemctl daemon-reload\n\
               systemctl --quiet is-active quictun-server.service\n\
               systemctl reload quictun-server.service\n\
               systemctl --quiet is-active quictun-client.service\n\
               systemctl reload quictun-client.service\n\
               systemctl restart quictun-client.service\n\
               systemctl --quiet is-active quictun-client-tun.service\n\
               systemctl restart quictun-client-tun.service\n";
    assert!(upgrade.ends_with(end), "{upgrade}");
}
