//! The listener of the interface: a TCP address, or a Unix socket with a mode.

use std::fs::{File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, sockopt};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tracing::{info, warn};

use crate::settings::{ControlSettings, HttpListen, Phrases};
use quictun_io::socket_path::{PathOccupied, make_room};
use quictun_trust::access::OwnHttp;

/// Maximum number of connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A listener that is bound before the runtime exists.
#[derive(Debug)]
pub enum BoundListener {
    /// A listener on a TCP socket.
    Tcp(std::net::TcpListener),
    /// A listener on a Unix stream socket.
    Unix(StdUnixListener),
}

/// A listener in the control plane's runtime.
#[derive(Debug)]
pub enum Listener {
    /// A listener on a TCP socket.
    Tcp(TcpListener),
    /// A Unix stream listener.
    Unix(UnixListener),
}

impl BoundListener {
    /// Returns a descriptor of the listener that another process can take over. `None` if the system has none left.
    pub fn to_pass_on(&self) -> Option<Arc<OwnedFd>> {
        let fd = match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        };
        fd.ok().map(Arc::new)
    }

    /// Takes the listener of another process, if it listens at this address.
    fn take_over(listen: &HttpListen, fd: OwnedFd) -> Option<Self> {
        if !sockopt::socket_acceptconn(&fd).ok()? {
            return None;
        }
        let family = sockopt::socket_domain(&fd).ok()?;
        match listen {
            HttpListen::Tcp(address) if family != AddressFamily::UNIX => {
                let listener = std::net::TcpListener::from(fd);
                let own = listener.local_addr().ok()?;
                (own == *address || address.port() == 0).then_some(Self::Tcp(listener))
            }
            HttpListen::Unix { path, mode } if family == AddressFamily::UNIX => {
                let listener = StdUnixListener::from(fd);
                let own = listener.local_addr().ok()?;
                let own = own.as_pathname().filter(|own| own == path)?;
                std::fs::set_permissions(own, Permissions::from_mode(*mode)).ok()?;
                Some(Self::Unix(listener))
            }
            HttpListen::Tcp(_) | HttpListen::Unix { .. } => None,
        }
    }

    /// Returns the listener's address as a target that a flow could name.
    pub fn as_target(&self) -> Result<OwnHttp> {
        Ok(match self {
            Self::Tcp(listener) => OwnHttp::Tcp(
                listener
                    .local_addr()
                    .context("cannot read the address of the HTTP listener")?,
            ),
            Self::Unix(listener) => {
                let address = listener
                    .local_addr()
                    .context("cannot read the address of the HTTP listener")?;
                let path = address.as_pathname().map(Path::to_owned);
                // The listener was bound to a path, so it has one.
                OwnHttp::Unix(path.unwrap_or_default())
            }
        })
    }
}

impl Listener {
    /// Registers a bound listener with the current runtime.
    pub fn new(bound: BoundListener) -> io::Result<Self> {
        Ok(match bound {
            BoundListener::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            BoundListener::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }
}

/// The reason why the interface does not listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {listen} for HTTP")]
pub struct ListenError {
    listen: HttpListen,
    /// The flag of this program that sets the address.
    flag: &'static str,
    source: io::Error,
}

impl ListenError {
    /// Returns the command that shows the cause, if one is known, and the flag that avoids it.
    pub fn remedy(&self) -> String {
        let flag = self.flag;
        if let Some(what) = PathOccupied::of(&self.source) {
            return format!("{} with `{flag}`", what.remedy());
        }
        let first = match (self.source.kind(), &self.listen) {
            (io::ErrorKind::AddrInUse, HttpListen::Tcp(address)) => format!(
                "`ss -lntp sport = :{}` shows which program has the port; ",
                address.port()
            ),
            (io::ErrorKind::AddrNotAvailable, _) => {
                "`ip address` lists this machine's addresses; ".to_owned()
            }
            (io::ErrorKind::PermissionDenied, HttpListen::Tcp(_)) => {
                "ports below 1024 need CAP_NET_BIND_SERVICE; ".to_owned()
            }
            (io::ErrorKind::PermissionDenied, HttpListen::Unix { .. }) => {
                "this user may not create files in that directory; ".to_owned()
            }
            _ => String::new(),
        };
        format!(
            "{first}choose another address with `{flag} ADDRESS:PORT`, or none with `{flag} off`"
        )
    }
}

/// Returns the flag of this program that sets the interface's address.
fn flag(control: &ControlSettings) -> &'static str {
    match control.log.phrases {
        Phrases::Own => "--http",
        Phrases::Original => "--httpd-listen-on",
    }
}

/// Binds the interface if it is on, or takes the listener of another process. Without a banner, also logs its address, and warns if other machines can reach it.
///
/// # Errors
///
/// Returns [`ListenError`] if the address is in use, or the socket cannot be created. If the default address cannot be
/// bound, that is only a warning.
pub fn bind(control: &ControlSettings, taken: Option<OwnedFd>) -> Result<Option<BoundListener>> {
    let Some(listen) = &control.httpd else {
        return Ok(None);
    };
    let taken = taken.and_then(|fd| BoundListener::take_over(listen, fd));
    let bound = match (taken, listen) {
        (Some(taken), _) => Ok(taken),
        (None, HttpListen::Tcp(address)) => bind_tcp(*address),
        (None, HttpListen::Unix { path, mode }) => bind_unix(path, *mode).map(BoundListener::Unix),
    };
    match bound {
        Ok(bound) => {
            if control.banner.is_none() {
                log_address(&bound, listen)?;
            }
            Ok(Some(bound))
        }
        Err(error) if control.httpd_is_default => {
            let flag = flag(control);
            warn!(target: "quictun", address = %listen, %error, flag, "no HTTP interface: its default address cannot be bound; choose another with this flag");
            Ok(None)
        }
        Err(source) => Err(ListenError {
            listen: listen.clone(),
            flag: flag(control),
            source,
        }
        .into()),
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<BoundListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(BoundListener::Tcp(listener))
}

/// Creates the socket with this mode. Only the intended users can connect, from the first moment on.
fn bind_unix(path: &Path, mode: u32) -> io::Result<StdUnixListener> {
    make_room(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Linux creates the file with the mode of the socket, without the bits of the umask.
    let socket = File::from(OwnedFd::from(socket));
    socket.set_permissions(Permissions::from_mode(mode))?;
    let socket = Socket::from(OwnedFd::from(socket));
    let address = SockAddr::unix(path)?;
    // The mode cannot be set afterwards: by then another user may have put another file at the path. The process has no
    // other threads yet that create files.
    let umask = rustix::process::umask(Mode::empty());
    let bound = socket.bind(&address);
    rustix::process::umask(umask);
    bound?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

fn log_address(bound: &BoundListener, listen: &HttpListen) -> Result<()> {
    let BoundListener::Tcp(listener) = bound else {
        info!(target: "quictun", { "listen address" = %listen }, "HTTP interface");
        return Ok(());
    };
    let address = listener
        .local_addr()
        .context("cannot read the address of the HTTP listener")?;
    info!(target: "quictun", { "listen address" = %address }, "HTTP interface");
    if is_exposed(address) {
        warn!(target: "quictun", { "listen address" = %address }, "UNSAFE: the HTTP interface has no password and other machines can reach it: all of them can see clients, targets and addresses; use 127.0.0.1 or unix:/PATH, or put a proxy with authentication in front of it");
    }
    Ok(())
}

fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::net::UnixStream;

    use rustix::fs::inotify;

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
            let bound = bind(&control(listen), None).expect("bound");
            let found = std::fs::metadata(&path).expect("it is there");
            assert_eq!(found.permissions().mode() & 0o7777, mode);
            UnixStream::connect(&path).expect("the socket accepts connections");
            // A process that was killed leaves its socket file behind in the same way.
            drop(bound);
            assert!(path.exists());
        }
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "no socket").expect("written");
        let listen = HttpListen::Unix {
            path: path.clone(),
            mode: 0o600,
        };
        let told = refused(&control(listen));
        assert_eq!(
            told.replace(&*path.to_string_lossy(), "PATH"),
            "cannot listen on unix:PATH for HTTP: `ls -ld PATH` shows it; `rm PATH` removes it if it is not needed, or \
             choose another path with `--http`"
        );
        assert!(path.exists(), "a file in the way was removed");
    }

    // SECURITY-MODEL, local user: a mode that is set by path could reach a file that has taken the socket's place.
    #[test]
    fn the_mode_of_a_unix_socket_is_never_set_by_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a watch");
        let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
        inotify::add_watch(&watch, dir.path(), events).expect("a watch");
        let listen = HttpListen::Unix {
            path: dir.path().join("http.sock"),
            mode: 0o666,
        };
        bind(&control(listen), None).expect("bound");
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut space);
        let seen: Vec<_> = std::iter::from_fn(|| Some(events.next().ok()?.events())).collect();
        assert_eq!(seen, [inotify::ReadFlags::CREATE]);
    }

    /// Returns the error and its remedy.
    fn refused(control: &ControlSettings) -> String {
        let error = bind(control, None).expect_err("something is in the way");
        let error = error.downcast::<ListenError>().expect("a ListenError");
        format!("{error}: {}", error.remedy())
    }

    #[test]
    fn a_port_that_is_taken_is_refused_with_the_flag_of_the_program() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = taken.local_addr().expect("bound");
        let mut control = control(HttpListen::Tcp(taken));
        for (phrases, flag) in [
            (Phrases::Own, "--http"),
            (Phrases::Original, "--httpd-listen-on"),
        ] {
            control.log.phrases = phrases;
            let port = taken.port();
            assert_eq!(
                refused(&control),
                format!(
                    "cannot listen on {taken} for HTTP: `ss -lntp sport = :{port}` shows which program has the port; \
                     choose another address with `{flag} ADDRESS:PORT`, or none with `{flag} off`"
                )
            );
        }
    }

    #[test]
    fn an_ipv4_wildcard_is_for_ipv4_only() {
        let bound = bind(&control(HttpListen::Tcp(([0, 0, 0, 0], 0).into())), None);
        let Some(BoundListener::Tcp(listener)) = bound.expect("a free port") else {
            panic!("TCP was asked for");
        };
        let address = listener.local_addr().expect("bound");
        assert!(address.is_ipv4());
        let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()));
        std::net::TcpStream::connect(v6).expect_err("no IPv6");
    }

    #[test]
    fn every_address_but_loopback_is_exposed() {
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
