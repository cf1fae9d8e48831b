//! Closes the ways around the tunnel that are files: the host's list of name servers, and sockets of the host's
//! daemons.
//!
//! A network namespace keeps the command's own packets in the tunnel, and abstract Unix sockets out of reach. A Unix
//! socket with a path works in every network: a daemon behind it would look up names, or start programs, in the host's
//! network on the command's behalf. An empty directory covers each directory of such daemons, and an empty file each
//! single socket.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quictun_stackd::tun_device;
use quictun_sys::OwnMounts;
use rustix::process::getuid;

/// The list of name servers that programs read.
const NAME_SERVERS: &str = "/etc/resolv.conf";

/// The directories of runtime files of the system's daemons.
const RUNTIME: [&str; 2] = ["/run", "/var/run"];

/// Directories below [`RUNTIME`] with sockets of daemons that look up names, or start programs, for other programs in the
/// host's network: systemd and its varlink services, the registry of such services, D-Bus, nscd, Avahi. The whole
/// directory is hidden, because versions differ in the names of the sockets, and a daemon that restarts makes its socket
/// anew.
const DAEMONS: [&str; 5] = ["systemd", "varlink", "dbus", "nscd", "avahi-daemon"];

/// The directory within that of systemd whose sockets only take lines for the system's log.
const LOG: &str = "journal";

/// The same of a user, below the directory that `XDG_RUNTIME_DIR` names.
const USER_DAEMONS: [&str; 3] = ["systemd", "varlink", "dbus-1"];

/// The socket of a user's bus, in the directory that `XDG_RUNTIME_DIR` names.
const USER_BUS: &str = "bus";

/// The beginning of the names of varlink sockets.
const VARLINK: &str = "io.systemd.";

/// Variables with the addresses of buses that are not in their usual place.
const BUS_ADDRESSES: [&str; 3] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DBUS_STARTER_ADDRESS",
];
const RUNTIME_DIRECTORY: &str = "XDG_RUNTIME_DIR";

/// Closes these ways for this process and for the processes that it starts from now on.
///
/// With `dns`, the list of name servers names the device's gateway, which stands for that server. Without it, the list
/// names no server.
pub(super) fn close(dns: Option<IpAddr>) -> anyhow::Result<()> {
    let mounts = OwnMounts::new().context("cannot make mounts for the command alone")?;
    let list = match dns {
        Some(address) => {
            let stand_in = tun_device::ADDRESSES[0].gateway;
            format!("# quictun run --dns: this is {address}\nnameserver {stand_in}\n")
        }
        // A resolver that finds no server in the list asks the loopback device of this network, which refuses at once.
        None => "# quictun run without --dns: names are not looked up\n".to_owned(),
    };
    // The list is often a link into a directory that is hidden.
    let place = fs::canonicalize(NAME_SERVERS);
    let ways = WaysAround::find(getuid().as_raw(), |name| std::env::var_os(name));
    let hidden = |path: &Path| format!("cannot hide {} from the command", path.display());
    for directory in &ways.directories {
        let keep = directory.ends_with(DAEMONS[0]).then_some(LOG);
        let covered = mounts.hide(directory, keep);
        covered.with_context(|| hidden(directory))?;
    }
    let replaced = place.and_then(|place| {
        if place.try_exists()? {
            return mounts.cover(&place, &list);
        }
        fs::create_dir_all(place.parent().unwrap_or(&place))?;
        fs::write(&place, &list)
    });
    match (replaced, dns) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {}
        (replaced, _) => replaced.with_context(|| {
            format!("cannot replace {NAME_SERVERS} for the command: does the file exist?")
        })?,
    }
    // The command cannot reach a socket that this user cannot see. A place with several names is covered once.
    let sockets = ways
        .sockets
        .iter()
        .filter_map(|socket| fs::canonicalize(socket).ok());
    for socket in sockets.collect::<BTreeSet<_>>() {
        mounts.cover(&socket, "").with_context(|| hidden(&socket))?;
    }
    Ok(())
}

/// The places of sockets that lead around the tunnel.
#[derive(Debug, Default)]
struct WaysAround {
    /// Directories that exist, each once.
    directories: BTreeSet<PathBuf>,
    /// Single sockets, whether they exist or not.
    sockets: Vec<PathBuf>,
}

impl WaysAround {
    fn find(user: u32, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut found = Self::default();
        for runtime in RUNTIME {
            found.add(Path::new(runtime), &DAEMONS);
        }
        let usual = PathBuf::from(format!("/run/user/{user}"));
        let told = variable(RUNTIME_DIRECTORY).map(PathBuf::from);
        for runtime in told.into_iter().chain([usual]) {
            found.add(&runtime, &USER_DAEMONS);
            found.sockets.push(runtime.join(USER_BUS));
        }
        for name in BUS_ADDRESSES {
            let addresses = variable(name).unwrap_or_default();
            found.sockets.extend(paths_of(&addresses.to_string_lossy()));
        }
        found
    }

    /// Adds the directories of daemons below a runtime directory, and the varlink sockets in it.
    fn add(&mut self, runtime: &Path, daemons: &[&str]) {
        // `/var/run` is mostly a link to `/run`.
        let directories = daemons
            .iter()
            .filter_map(|name| fs::canonicalize(runtime.join(name)).ok());
        self.directories
            .extend(directories.filter(|it| it.is_dir()));
        let entries = fs::read_dir(runtime)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let varlink = entries.filter(|it| it.file_name().to_string_lossy().starts_with(VARLINK));
        self.sockets.extend(varlink.map(|it| it.path()));
    }
}

/// Returns the paths in a list of D-Bus addresses, such as `unix:path=/run/user/1000/bus,guid=...;unix:abstract=...`.
fn paths_of(addresses: &str) -> impl Iterator<Item = PathBuf> {
    let unix = addresses
        .split(';')
        .filter_map(|it| it.strip_prefix("unix:"));
    let pairs = unix.flat_map(|it| it.split(','));
    pairs
        .filter_map(|pair| pair.strip_prefix("path="))
        .map(|path| unescape(path).into())
}

/// Decodes a D-Bus value: bytes other than letters, digits and `-_/.\*` are written as `%` and two hexadecimal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2);
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        } else {
            bytes.push(b'%');
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_found_through_the_environment() {
        let runtime = tempfile::tempdir().expect("a directory");
        let runtime = fs::canonicalize(runtime.path()).expect("a directory");
        for name in ["systemd", "varlink", "wayland", "io.systemd.Ask"] {
            fs::create_dir(runtime.join(name)).expect("a directory");
        }
        let variable = |name: &str| match name {
            RUNTIME_DIRECTORY => Some(runtime.clone().into()),
            "DBUS_SESSION_BUS_ADDRESS" => {
                Some("unix:abstract=x;unix:path=/srv/a%20bus,guid=7".into())
            }
            "DBUS_SYSTEM_BUS_ADDRESS" => Some("unix:path=/srv/system".into()),
            _ => None,
        };
        let found = WaysAround::find(1000, variable);
        let below = |path: &&PathBuf| path.starts_with(&runtime);
        let directories: Vec<_> = found.directories.iter().filter(below).collect();
        assert_eq!(
            directories,
            [&runtime.join("systemd"), &runtime.join("varlink")]
        );
        for path in [
            runtime.join("bus"),
            runtime.join("io.systemd.Ask"),
            "/run/user/1000/bus".into(),
            "/srv/a bus".into(),
            "/srv/system".into(),
        ] {
            assert!(found.sockets.contains(&path), "{path:?}: {found:?}");
        }
    }

    #[test]
    fn addresses_of_a_bus_that_name_no_file_are_left_out() {
        for (addresses, paths) in [
            ("", &[][..]),
            ("unix:abstract=/srv/x", &[][..]),
            ("tcp:host=localhost,port=1", &[][..]),
            ("unix:path=/a;unix:path=/b,guid=1", &["/a", "/b"][..]),
            ("unix:path=/100%", &["/100%"][..]),
            ("unix:path=/%zz%2", &["/%zz%2"][..]),
            ("unix:path=/%C3%A4", &["/ä"][..]),
        ] {
            let found: Vec<PathBuf> = paths_of(addresses).collect();
            let expected: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{addresses}");
        }
    }
}
