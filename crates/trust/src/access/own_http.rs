//! The server's own HTTP interface, as a target that flows could ask for.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::address::{is_this_host, readings};

/// The address at which the HTTP interface of this process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnHttp {
    /// A TCP address, as bound.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl OwnHttp {
    /// Returns whether a TCP connection to this address and port would reach the interface, in any spelling of the
    /// address.
    ///
    /// Loopback and unspecified addresses with its port count as its own, whatever address it is bound to.
    pub(super) fn is_at(&self, addr: IpAddr, port: u16) -> bool {
        let Self::Tcp(bound) = self else {
            return false;
        };
        let reaches = |addr| {
            addr == bound.ip().to_canonical() || (bound.ip().is_unspecified() && is_local(addr, 0))
        };
        port == bound.port() && (is_this_host(addr) || readings(addr).any(reaches))
    }

    /// Returns whether a path leads to the interface's Unix socket, including through links, mounts and dots.
    pub(super) fn is_path(&self, path: &Path) -> bool {
        let Self::Unix(own) = self else {
            return false;
        };
        let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
        path == own || matches!((file(path), file(own)), (Ok(path), Ok(own)) if path == own)
    }
}

/// Returns whether the kernel's routes lead to this host at an address. `zone` is the device of a link-local address; 0
/// means any. If the kernel cannot be asked, the address may be of this host, so the result is `true`.
pub(super) fn is_local(addr: IpAddr, zone: u32) -> bool {
    quictun_sys::is_local(addr, zone).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(own: &str, addr: &str, port: u16) -> bool {
        let own = OwnHttp::Tcp(own.parse().expect("an address"));
        own.is_at(addr.parse().expect("an address"), port)
    }

    #[test]
    fn loopback_and_unspecified_addresses_reach_it_in_every_spelling() {
        for own in ["127.0.0.1:8086", "0.0.0.0:8086", "[::]:8086", "[::1]:8086"] {
            for addr in [
                "127.0.0.1",
                "127.8.9.10",
                "0.0.0.0",
                "0.0.0.1",
                "::",
                "::1",
                "::ffff:127.0.0.1",
                "::ffff:0.0.0.0",
                "::127.0.0.1",
                "::ffff:0:127.0.0.1",
                "64:ff9b::127.0.0.1",
                "64:ff9b::",
                "64:ff9b:1::127.0.0.1",
                "2002:7f00:1::1",
                "fe80::5efe:127.0.0.1",
            ] {
                assert!(at(own, addr, 8086), "{own} at {addr}");
                assert!(!at(own, addr, 8087), "{own} at {addr}");
            }
            assert!(!at(own, "192.0.2.1", 8086), "{own}");
        }
    }

    #[test]
    fn an_address_that_it_is_bound_to_reaches_it_in_every_spelling() {
        for addr in [
            "192.0.2.7",
            "::ffff:192.0.2.7",
            "64:ff9b::192.0.2.7",
            "2002:c000:207::",
        ] {
            assert!(at("192.0.2.7:80", addr, 80), "{addr}");
            assert!(!at("192.0.2.8:80", addr, 80), "{addr}");
        }
    }

    #[test]
    fn the_kernel_knows_the_addresses_of_this_host() {
        assert!(is_local(addr("127.0.0.1"), 0) && is_local(addr("127.3.2.1"), 0));
        assert!(!is_local(addr("192.0.2.1"), 0) && !is_local(addr("2001:db8::1"), 0));
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_unix_socket_is_recognised_by_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let own = OwnHttp::Unix(path("http.sock"));
        assert!(own.is_path(&path("http.sock")) && !own.is_path(&path("other.sock")));
        let _listener = std::os::unix::net::UnixListener::bind(path("http.sock")).expect("bound");
        let _other = std::os::unix::net::UnixListener::bind(path("other.sock")).expect("bound");
        std::os::unix::fs::symlink(path("http.sock"), path("link.sock")).expect("a link");
        fs::hard_link(path("http.sock"), path("second.sock")).expect("a second name");
        for name in ["link.sock", "second.sock", "./http.sock", "x/../http.sock"] {
            fs::create_dir_all(path("x")).expect("made");
            assert!(own.is_path(&path(name)), "{name}");
        }
        assert!(!own.is_path(&path("other.sock")) && !own.is_at(addr("127.0.0.1"), 80));
    }
}
