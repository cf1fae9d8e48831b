//! Works under a service manager: readiness (`sd_notify(3)`) and socket activation (`sd_listen_fds(3)`).
//!
//! Call [`listen_fds`] before binding anything, and [`notify_ready`] once everything listens. Call [`notify_reloading`]
//! and [`notify_ready`] around each reload, and [`notify_stopping`] when draining begins. Without a service manager
//! these functions do nothing.

use std::ffi::OsStr;
use std::io;
use std::net::{self, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use quictun_sys::{InheritError, InheritedFd, inherited_fds, uninterrupted};
use rustix::net::{AddressFamily, SocketType, sockopt};

/// Longest wait until the manager has room for a message. After a lost `READY=1` the manager would kill the process,
/// and without a limit the process might hang.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The field with an address on which the process listens. It occurs once for each address.
///
/// A service manager ignores fields that begin with `X_`. A program that starts a server and a client reads them.
pub const LISTEN: &str = "X_QUICTUN_LISTEN";

/// The field with the pin of a server's key.
pub const PIN: &str = "X_QUICTUN_PIN";

/// The field with the address of the server that a client has reached.
pub const CONNECTED: &str = "X_QUICTUN_CONNECTED";

/// Notifies the manager that everything listens.
pub fn notify_ready() {
    notify("READY=1");
}

/// Notifies the manager that a reload has begun. [`notify_ready`] ends it.
pub fn notify_reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    // systemd requires both fields in one message (Type=notify-reload).
    let message = format!("RELOADING=1\nMONOTONIC_USEC={microseconds}");
    notify(&message);
}

/// Notifies the manager that the process is draining.
pub fn notify_stopping() {
    notify("STOPPING=1");
}

/// Reports that a client has reached its server. It never waits, because a loop that carries data calls it.
pub fn notify_connected(server: net::SocketAddr) {
    notify_within(&format!("{CONNECTED}={server}"), Duration::ZERO);
}

/// Sends fields of the form `KEY=value`, one on each line. A failure is logged only, because the process works without
/// it.
pub fn notify(message: &str) {
    notify_within(message, SEND_TIMEOUT);
}

fn notify_within(message: &str, wait: Duration) {
    let manager = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
    if let Some(name) = manager
        && let Err(error) = send(&name, message, wait)
    {
        tracing::warn!(%error, "Cannot notify the service manager");
    }
}

/// Sends a message to a manager that listens at a path, or at an abstract name after `@`.
fn send(manager: &OsStr, message: &str, wait: Duration) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    let address = address(manager)?;
    uninterrupted(Instant::now() + wait, |left| {
        // A limit of zero would be none.
        socket.set_nonblocking(left.is_zero())?;
        socket.set_write_timeout(Some(left).filter(|left| !left.is_zero()))?;
        socket.send_to_addr(message.as_bytes(), &address)
    })?;
    Ok(())
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "NOTIFY_SOCKET={} is neither a path nor an abstract name",
                name.display()
            ),
        )),
    }
}

/// A socket that the service manager has opened for this process, by its kind. It is non-blocking.
#[derive(Debug)]
pub enum ActivatedSocket {
    /// From `ListenDatagram=` with an IP address: the server's socket.
    Udp(UdpSocket),
    /// From `ListenStream=` with an IP address: the listener of a client's forward, or of a server for flows in TLS.
    Tcp(TcpListener),
    /// From `ListenStream=` with a path: the listener of a client's forward.
    Unix(UnixListener),
}

/// The reason why the manager's sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// The descriptors cannot be inherited.
    #[error("socket activation: {0}")]
    Inherit(#[from] InheritError),
    /// A descriptor is not a socket, or cannot be prepared.
    #[error("socket activation: {0}: {1}")]
    Socket(String, #[source] io::Error),
    /// The program has no use for a socket of this kind.
    #[error(
        "socket activation: {name} is of domain {domain} and type {kind}: \
         use ListenDatagram= and ListenStream= for the server, ListenStream= for a client's forwards, and Accept=no"
    )]
    WrongKind {
        /// The socket's name, from `FileDescriptorName=`.
        name: String,
        /// The socket's address family, from `SO_DOMAIN`.
        domain: u16,
        /// The socket's type, from `SO_TYPE`.
        kind: u32,
    },
}

/// Takes the sockets that the service manager has opened, with their names, in the manager's order.
///
/// The list is empty without socket activation, and from the second call on.
///
/// # Errors
///
/// [`ActivationError`] names the socket and what is wrong with it.
pub fn listen_fds() -> Result<Vec<(String, ActivatedSocket)>, ActivationError> {
    inherited_fds()?
        .into_iter()
        .map(|InheritedFd { name, fd }| Ok((name.clone(), classify(name, fd)?)))
        .collect()
}

fn classify(name: String, fd: OwnedFd) -> Result<ActivatedSocket, ActivationError> {
    let kind = (|| -> io::Result<_> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok((
            sockopt::socket_domain(&fd)?,
            sockopt::socket_type(&fd)?,
            sockopt::socket_acceptconn(&fd)?,
        ))
    })();
    match kind.map_err(|cause| ActivationError::Socket(name.clone(), cause))? {
        (AddressFamily::INET | AddressFamily::INET6, SocketType::DGRAM, _) => {
            Ok(ActivatedSocket::Udp(fd.into()))
        }
        (AddressFamily::INET | AddressFamily::INET6, SocketType::STREAM, true) => {
            Ok(ActivatedSocket::Tcp(fd.into()))
        }
        (AddressFamily::UNIX, SocketType::STREAM, true) => Ok(ActivatedSocket::Unix(fd.into())),
        (domain, kind, _) => Err(ActivationError::WrongKind {
            name,
            domain: domain.as_raw(),
            kind: kind.as_raw(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::process::{Command, Stdio};

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).expect("a message was sent");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    #[test]
    fn messages_arrive_at_a_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), "READY=1", SEND_TIMEOUT).expect("sent");
        assert_eq!(receive(&manager), "READY=1");
    }

    #[test]
    fn messages_arrive_at_an_abstract_name() {
        let name = format!("quictun-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("a socket");
        send(OsStr::new(&format!("@{name}")), "STOPPING=1", SEND_TIMEOUT).expect("sent");
        assert_eq!(receive(&manager), "STOPPING=1");
    }

    #[test]
    fn a_full_manager_does_not_hold_up_a_loop() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let _manager = UnixDatagram::bind(&path).expect("a socket");
        let mut sent = std::iter::repeat_with(|| send(path.as_os_str(), "X=1", Duration::ZERO));
        let full = sent.find_map(Result::err).expect("a queue has an end");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn an_unreachable_manager_is_an_error_that_stops_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(
            send(
                directory.path().join("missing").as_os_str(),
                "READY=1",
                SEND_TIMEOUT
            )
            .is_err()
        );
        let error = send(OsStr::new("vsock:2:1"), "READY=1", SEND_TIMEOUT).expect_err("no vsock");
        assert!(error.to_string().contains("vsock:2:1"), "{error}");
    }

    #[test]
    fn sockets_are_told_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = || "n".to_owned();
        let udp = UdpSocket::bind("[::1]:0")
            .or_else(|_| UdpSocket::bind("127.0.0.1:0"))
            .expect("a socket");
        assert!(matches!(
            classify(name(), udp.into()),
            Ok(ActivatedSocket::Udp(_))
        ));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let stream = TcpStream::connect(tcp.local_addr().expect("bound")).expect("connected");
        let Ok(ActivatedSocket::Tcp(tcp)) = classify(name(), tcp.into()) else {
            panic!("a TCP listener")
        };
        tcp.accept().expect("the connection made above");
        assert_eq!(
            tcp.accept().expect_err("non-blocking").kind(),
            io::ErrorKind::WouldBlock
        );
        let unix = UnixListener::bind(directory.path().join("s")).expect("a socket");
        assert!(matches!(
            classify(name(), unix.into()),
            Ok(ActivatedSocket::Unix(_))
        ));

        let connected = classify("web".to_owned(), stream.into()).expect_err("not a listener");
        assert!(
            connected
                .to_string()
                .contains("web is of domain 2 and type 1"),
            "{connected}"
        );
        let datagram = UnixDatagram::unbound().expect("a socket");
        assert!(matches!(
            classify(name(), datagram.into()),
            Err(ActivationError::WrongKind { .. })
        ));
        let file = std::fs::File::open("/dev/null").expect("there");
        assert!(matches!(
            classify(name(), file.into()),
            Err(ActivationError::Socket { .. })
        ));
    }

    /// The child half of the next test. It does nothing in an ordinary run.
    #[test]
    fn child_lists_its_sockets() {
        if std::env::var_os("QUICTUN_TEST_CHILD").is_none() {
            return;
        }
        let taken = listen_fds().expect("three sockets");
        let names: Vec<_> = taken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["quic", "web", "unknown"]);
        let kinds: Vec<_> = taken.iter().map(|(_, socket)| socket).collect();
        assert!(
            matches!(
                kinds[..],
                [
                    ActivatedSocket::Udp(_),
                    ActivatedSocket::Tcp(_),
                    ActivatedSocket::Unix(_)
                ]
            ),
            "{kinds:?}"
        );
        notify_ready();
        assert!(listen_fds().expect("second call").is_empty());
    }

    #[test]
    fn a_process_started_by_a_manager_finds_its_sockets_and_says_ready() {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let unix = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let script = "LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=quic:web exec \"$0\" --exact \
                      systemd::tests::child_lists_its_sockets 3<&0 4>&1 5>&2 </dev/null >/dev/null 2>&1";
        let status = Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().expect("this test"))
            .env("QUICTUN_TEST_CHILD", "1")
            .env("NOTIFY_SOCKET", directory.path().join("notify"))
            .stdin(Stdio::from(OwnedFd::from(udp)))
            .stdout(Stdio::from(OwnedFd::from(tcp)))
            .stderr(Stdio::from(OwnedFd::from(unix)))
            .status()
            .expect("sh runs");
        assert!(status.success());
        assert_eq!(receive(&manager), "READY=1");
    }
}
