//! Closes the ways around the tunnel that are files: the host's list of name servers, and sockets of the host's
//! daemons.
//!
//! A network namespace keeps the command's own packets in the tunnel, and abstract Unix sockets out of reach. A Unix
//! socket with a path works in every network: a daemon behind it would look up names, or start programs, in the host's
//! network on the command's behalf. An empty file covers each such socket, so that a connection to it is refused.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quictun_stackd::tun_device;
use quictun_sys::OwnMounts;
use rustix::process::getuid;

/// The list of name servers that programs read.
const NAME_SERVERS: &str = "/etc/resolv.conf";

/// Sockets of daemons that look up names for programs: systemd-resolved, nscd, Avahi.
const RESOLVERS: [&str; 5] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
];

/// Sockets of the host's buses and managers. A request there can look up a name, or start a program, in the host's
/// network.
const SYSTEM_BUSES: [&str; 3] = [
    "/run/dbus/system_bus_socket",
    "/var/run/dbus/system_bus_socket",
    "/run/systemd/private",
];

/// The same of a user, below the directory that `XDG_RUNTIME_DIR` names.
const USER_BUSES: [&str; 2] = ["bus", "systemd/private"];

/// The variable with the address of the user's bus, if it is not in its usual place.
const BUS_ADDRESS: &str = "DBUS_SESSION_BUS_ADDRESS";
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
    match (mounts.cover(Path::new(NAME_SERVERS), &list), dns) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {}
        (covered, _) => covered.with_context(|| {
            format!("cannot replace {NAME_SERVERS} for the command: does the file exist?")
        })?,
    }
    let user = getuid().as_raw();
    for socket in sockets(user, |name| std::env::var_os(name)) {
        // The command cannot reach a socket that this user cannot see.
        if socket.exists() {
            let covered = mounts.cover(&socket, "");
            covered
                .with_context(|| format!("cannot hide {} from the command", socket.display()))?;
        }
    }
    Ok(())
}

/// Returns the sockets that lead around the tunnel, whether they exist or not.
fn sockets(user: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = RESOLVERS
        .iter()
        .chain(&SYSTEM_BUSES)
        .map(PathBuf::from)
        .collect();
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let told = variable(RUNTIME_DIRECTORY).map(PathBuf::from);
    for directory in told.into_iter().chain([usual]) {
        sockets.extend(USER_BUSES.map(|name| directory.join(name)));
    }
    let addresses = variable(BUS_ADDRESS).unwrap_or_default();
    sockets.extend(paths_of(&addresses.to_string_lossy()));
    sockets
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
    fn user_sockets_are_found_through_the_environment() {
        let variable = |name: &str| match name {
            RUNTIME_DIRECTORY => Some("/srv/runtime".into()),
            BUS_ADDRESS => Some("unix:abstract=x;unix:path=/srv/a%20bus,guid=7".into()),
            _ => None,
        };
        let found = sockets(1000, variable);
        for path in [
            "/run/systemd/resolve/io.systemd.Resolve",
            "/run/dbus/system_bus_socket",
            "/run/user/1000/bus",
            "/run/user/1000/systemd/private",
            "/srv/runtime/bus",
            "/srv/runtime/systemd/private",
            "/srv/a bus",
        ] {
            assert!(found.contains(&PathBuf::from(path)), "{path}: {found:?}");
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
