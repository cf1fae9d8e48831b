//! Where the interface listens: a TCP address, or a Unix socket with a mode.

use std::fs::{File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;

use anyhow::{Context, Result};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tracing::{info, warn};

use crate::settings::{ControlSettings, HttpListen};
use quictun_io::socket_path::make_room;
use quictun_trust::access::OwnHttp;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A bound listener, before there is a runtime.
#[derive(Debug)]
pub enum Bound {
    /// A TCP listener.
    Tcp(std::net::TcpListener),
    /// A Unix listener.
    Unix(StdUnixListener),
}

/// A listener in the control plane's runtime.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix stream socket.
    Unix(UnixListener),
}

impl Bound {
    /// Where it is, as a target that flows could ask for.
    pub fn as_target(&self) -> Result<OwnHttp> {
        Ok(match self {
            Self::Tcp(listener) => OwnHttp::Tcp(listener.local_addr().context("HTTP listener")?),
            Self::Unix(listener) => {
                let address = listener.local_addr().context("HTTP listener")?;
                let path = address.as_pathname().map(Path::to_owned);
                // It was bound to a path.
                OwnHttp::Unix(path.unwrap_or_default())
            }
        })
    }
}

impl Listener {
    /// Registers it with the current runtime.
    pub fn new(bound: Bound) -> io::Result<Self> {
        Ok(match bound {
            Bound::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }
}

/// Binds the interface, where it is on, and says where it is and who can reach it.
///
/// # Errors
///
/// The address is taken, or the socket cannot be made; with what to do about it.
pub fn bind(control: &ControlSettings) -> Result<Option<Bound>> {
    let Some(listen) = &control.httpd else {
        return Ok(None);
    };
    let bound = match listen {
        HttpListen::Tcp(address) => bind_tcp(*address),
        HttpListen::Unix { path, mode } => bind_unix(path, *mode).map(Bound::Unix),
    };
    match bound {
        Ok(bound) => {
            if control.banner.is_none() {
                say(&bound, listen)?;
            }
            Ok(Some(bound))
        }
        Err(error) if control.httpd_is_default => {
            warn!(target: "quictun", address = %listen, %error, "no HTTP interface: its default address is taken; choose one with --httpd-listen-on (quictun: --http)");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| {
            format!("cannot listen on {listen} for HTTP: choose another with --httpd-listen-on (quictun: --http), or `off`")
        }),
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Bound> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Bound::Tcp(listener))
}

/// Makes the socket with this mode, so that at no time more users may connect.
fn bind_unix(path: &Path, mode: u32) -> io::Result<StdUnixListener> {
    make_room(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Linux makes the file with the mode of the socket, less the umask.
    let socket = File::from(OwnedFd::from(socket));
    socket.set_permissions(Permissions::from_mode(mode))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

fn say(bound: &Bound, listen: &HttpListen) -> Result<()> {
    let Bound::Tcp(listener) = bound else {
        info!(target: "quictun", { "listen address" = %listen }, "HTTP interface");
        return Ok(());
    };
    let address = listener.local_addr().context("HTTP listener")?;
    info!(target: "quictun", { "listen address" = %address }, "HTTP interface");
    if is_exposed(address) {
        warn!(target: "quictun", { "listen address" = %address }, "UNSAFE: the HTTP interface has no password and other machines reach it: whoever reaches it sees clients, targets and addresses; use 127.0.0.1 or unix:/PATH, or put a proxy with authentication in front of it");
    }
    Ok(())
}

fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn control(listen: HttpListen) -> ControlSettings {
        ControlSettings {
            httpd: Some(listen),
            ..ControlSettings::default()
        }
    }

    #[test]
    fn a_unix_socket_has_the_mode_asked_for_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("http.sock");
        for mode in [0o600, 0o660, 0o666] {
            let listen = HttpListen::Unix {
                path: path.clone(),
                mode,
            };
            let bound = bind(&control(listen)).expect("it can be made");
            let found = std::fs::metadata(&path).expect("it is there");
            assert_eq!(found.permissions().mode() & 0o7777, mode);
            UnixStream::connect(&path).expect("it listens");
            // As a process that was killed leaves it.
            drop(bound);
            assert!(path.exists());
        }
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "no socket").expect("written");
        let listen = HttpListen::Unix { path, mode: 0o600 };
        bind(&control(listen)).expect_err("a file in the way stays");
    }

    #[test]
    fn an_ipv4_wildcard_is_for_ipv4_only() {
        let bound = bind(&control(HttpListen::Tcp(([0, 0, 0, 0], 0).into())));
        let Some(Bound::Tcp(listener)) = bound.expect("a free port") else {
            panic!("TCP was asked for");
        };
        let address = listener.local_addr().expect("bound");
        assert!(address.is_ipv4());
        let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()));
        std::net::TcpStream::connect(v6).expect_err("no IPv6");
    }

    #[test]
    fn whatever_is_not_loopback_is_exposed() {
        for (address, exposed) in [
            ("127.0.0.1:1", false),
            ("127.9.9.9:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("192.168.0.1:1", true),
            ("[fd00::1]:1", true),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(is_exposed(address), exposed, "{address}");
        }
    }
}
