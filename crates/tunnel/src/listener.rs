//! Local listeners on which applications connect to the client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quictun_engine::Socket as _;
use quictun_sys::{report_destinations, send_addressed};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tracing::{debug, warn};

use crate::app_addr::AppAddr;
use crate::app_socket::{AppSocket, prepare};
use crate::datagram_socket::make_room_for_many;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::settings::{Forward, ListenOn};
use crate::transparent::{self, DivertMethod};
use quictun_io::socket_path::make_room;

/// Length of a listener's queue of unaccepted connections.
pub(crate) const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// Accepts connections that the packet filter diverted from another destination.
    Transparent(TcpListener, DivertMethod),
    /// Takes datagrams. The flag says whether a worker watches it: one worker has all sources.
    Udp(UdpSocket, AtomicBool),
}

#[derive(Debug)]
pub(crate) enum AcceptOutcome {
    Connection(AppSocket, AppAddr),
    /// A diverted connection and its original destination.
    Diverted(AppSocket, AppAddr, SocketAddr),
    /// A connection to a transparent listener itself. It was reset.
    Direct(AppAddr),
    Empty,
    /// Descriptors or memory have run out. Accepting continues when some are free.
    Exhausted(io::Error),
    /// This connection failed before it was accepted. The next one may succeed.
    Failed,
}

/// Returns the forwards that this machine can serve, each with the address of one listener. A port alone becomes a forward
/// for each loopback address; the system chooses a port for IPv4 only. Redirected connections come in both families, and
/// a kernel may lack one.
pub(crate) fn with_one_listener(forwards: Vec<Forward>) -> Vec<Forward> {
    let mut all = Vec::new();
    for forward in forwards {
        match forward.listen {
            ListenOn::Loopback(port) => {
                let at = |address: SocketAddr| Forward {
                    listen: ListenOn::Tcp(address),
                    to: forward.to.clone(),
                };
                all.push(at((Ipv4Addr::LOCALHOST, port).into()));
                if port != 0 && has_ipv6_loopback() {
                    all.push(at((Ipv6Addr::LOCALHOST, port).into()));
                }
            }
            ListenOn::Transparent(_, at) | ListenOn::TransparentUdp(at)
                if Socket::new(Domain::for_address(at), Type::STREAM, None).is_err() => {}
            ListenOn::Tcp(_)
            | ListenOn::Transparent(..)
            | ListenOn::Udp(_)
            | ListenOn::TransparentUdp(_)
            | ListenOn::Unix(_) => all.push(forward),
        }
    }
    all
}

/// Returns whether programs can listen on `::1`. The first call decides, because a confined process may not listen.
fn has_ipv6_loopback() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(find_ipv6_loopback)
}

fn find_ipv6_loopback() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Binds a listener. Replaces a Unix socket on which no process listens.
pub(crate) fn bind(address: &ListenOn) -> io::Result<Listener> {
    bind_with(address, BACKLOG)
}

/// Binds a listener for another process, with a queue of this length.
pub(crate) fn bind_fd(address: &ListenOn, backlog: i32) -> io::Result<OwnedFd> {
    let listener = bind_with(address, backlog).map_err(|error| match error.kind() {
        // Only the error's number is passed to the other process.
        io::ErrorKind::AddrInUse => Errno::ADDRINUSE.into(),
        _ => error,
    })?;
    Ok(match listener {
        Listener::Tcp(listener) | Listener::Transparent(listener, _) => listener.into(),
        Listener::Unix(listener) => listener.into(),
        Listener::Udp(socket, _) => socket.into(),
    })
}

fn bind_with(address: &ListenOn, backlog: i32) -> io::Result<Listener> {
    match address {
        ListenOn::Tcp(address) => {
            let domain = Domain::for_address(*address);
            let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
            if address.is_ipv6() {
                // [::] means the IPv4 addresses, too, whatever net.ipv6.bindv6only says.
                socket.set_only_v6(false)?;
            }
            socket.set_reuse_address(true)?;
            prepare(&socket)?;
            socket.bind(&(*address).into())?;
            socket.listen(backlog)?;
            Ok(Listener::Tcp(socket.into()))
        }
        ListenOn::Loopback(port) => {
            bind_with(&ListenOn::Tcp((Ipv4Addr::LOCALHOST, *port).into()), backlog)
        }
        ListenOn::Transparent(method, address) => {
            let domain = Domain::for_address(*address);
            let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            prepare(&socket)?;
            transparent::prepare(&socket, *method, *address)?;
            socket.bind(&(*address).into())?;
            socket.listen(backlog)?;
            Ok(Listener::Transparent(socket.into(), *method))
        }
        ListenOn::Udp(address) => {
            let domain = Domain::for_address(*address);
            let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            if address.ip().is_unspecified() {
                report_destinations(&socket, address.is_ipv6())?;
            }
            make_room_for_many(&socket)?;
            socket.bind(&(*address).into())?;
            Ok(Listener::udp(socket.into()))
        }
        ListenOn::TransparentUdp(address) => {
            transparent::bind_for_datagrams(*address).map(Listener::udp)
        }
        ListenOn::Unix(path) => {
            make_room(path)?;
            let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
            socket.bind(&SockAddr::unix(path)?)?;
            socket.listen(backlog)?;
            Ok(Listener::Unix(OwnedFd::from(socket).into()))
        }
    }
}

impl Listener {
    /// Takes a UDP socket that is bound.
    pub(crate) fn udp(socket: UdpSocket) -> Self {
        Self::Udp(socket, AtomicBool::new(false))
    }

    /// Takes a socket that another process has bound to this address.
    pub(crate) fn of_socket(address: &ListenOn, socket: OwnedFd) -> Self {
        match address {
            ListenOn::Tcp(_) | ListenOn::Loopback(_) => Self::Tcp(socket.into()),
            ListenOn::Transparent(method, _) => Self::Transparent(socket.into(), *method),
            ListenOn::Udp(_) | ListenOn::TransparentUdp(_) => Self::udp(socket.into()),
            ListenOn::Unix(_) => Self::Unix(socket.into()),
        }
    }

    /// Returns whether the calling worker may watch the listener: all may, but for datagrams only the first that asks.
    pub(crate) fn claim(&self) -> bool {
        match self {
            Self::Udp(_, claimed) => !claimed.swap(true, Ordering::Relaxed),
            Self::Tcp(_) | Self::Unix(_) | Self::Transparent(..) => true,
        }
    }

    /// Sends a datagram to a source, from the address at which its datagrams arrive.
    pub(crate) fn send_datagram(
        &self,
        payload: &[u8],
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<usize> {
        match self {
            Self::Udp(socket, _) => send_addressed(socket, payload, to, from),
            Self::Tcp(_) | Self::Unix(_) | Self::Transparent(..) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
            Self::Udp(socket, _) => Self::udp(socket.try_clone()?),
            Self::Transparent(listener, method) => {
                Self::Transparent(listener.try_clone()?, *method)
            }
        })
    }

    pub(crate) fn address(&self) -> String {
        let address = match self {
            Self::Tcp(listener) | Self::Transparent(listener, _) => {
                listener.local_addr().ok().map(|it| it.to_string())
            }
            Self::Udp(socket, _) => socket.local_addr().ok().map(|it| format!("udp:{it}")),
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                address.and_then(|it| it.as_pathname().map(|path| path.display().to_string()))
            }
        };
        address.unwrap_or_else(|| "unknown".to_owned())
    }

    /// Refuses new connections from now on, even if other parts of this process still have a Unix listener.
    pub(crate) fn stop(&self) {
        if let Self::Unix(listener) = self
            && let Err(cause) = rustix::net::shutdown(listener, rustix::net::Shutdown::Read)
        {
            debug!(target: "quictun", %cause, "a listener cannot be stopped");
        }
    }

    /// Returns whether only this machine can reach the listener.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .is_ok_and(|it| it.ip().to_canonical().is_loopback()),
            Self::Udp(socket, _) => socket
                .local_addr()
                .is_ok_and(|it| it.ip().to_canonical().is_loopback()),
            Self::Unix(_) => true,
            Self::Transparent(..) => false,
        }
    }

    pub(crate) fn accept(&self) -> AcceptOutcome {
        let accepted = match self {
            Self::Tcp(listener) => accept_tcp(listener)
                .and_then(|(stream, peer)| Ok((AppSocket::accepted(stream)?, AppAddr::Ip(peer)))),
            // A UDP socket has no connections. `DatagramSources` reads it.
            Self::Udp(..) => Err(io::ErrorKind::WouldBlock.into()),
            Self::Unix(listener) => listener
                .accept()
                .and_then(|(stream, _)| Ok((AppSocket::unix(stream)?, AppAddr::Unix))),
            Self::Transparent(listener, method) => {
                let accepted = accept_tcp(listener);
                match accepted.and_then(|accepted| Self::diverted(listener, *method, accepted)) {
                    Ok(accepted) => return accepted,
                    Err(error) => Err(error),
                }
            }
        };
        match accepted {
            Ok((socket, address)) => AcceptOutcome::Connection(socket, address),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => AcceptOutcome::Empty,
            Err(error) if is_exhaustion(&error) => AcceptOutcome::Exhausted(error),
            Err(_) => AcceptOutcome::Failed,
        }
    }
}

/// Returns whether an error means that descriptors or memory have run out.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

/// Accepts a connection as a non-blocking socket, which inherits the options of its listener.
pub(crate) fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = retry_on_intr(|| acceptfrom_with(listener, flags))?;
    let peer = peer.ok_or(io::ErrorKind::NotConnected)?;
    Ok((socket.into(), peer.try_into()?))
}

/// Warns that accepting pauses, because descriptors or memory have run out.
pub(crate) fn warn_of_exhaustion(
    warning: &mut RateLimitedWarning,
    now: Instant,
    cause: &io::Error,
) {
    if let Some(pauses) = warning.count(now) {
        warn!(target: "quictun", %cause, pauses, "no descriptors or memory for new connections: accepting pauses; raise the limit (ulimit -n, LimitNOFILE=)");
    }
}

impl Listener {
    /// Finds the original destination of a diverted connection.
    fn diverted(
        listener: &TcpListener,
        method: DivertMethod,
        (stream, peer): (TcpStream, SocketAddr),
    ) -> io::Result<AcceptOutcome> {
        let listens = listener.local_addr()?;
        let peer = AppAddr::Ip(peer);
        // An error means that the kernel knows no other destination.
        let destination = transparent::destination(&stream, method, listens);
        let mut socket = AppSocket::accepted(stream)?;
        let Some(destination) = destination.unwrap_or(None) else {
            socket.abort();
            return Ok(AcceptOutcome::Direct(peer));
        };
        Ok(AcceptOutcome::Diverted(socket, peer, destination))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) | Self::Transparent(listener, _) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
            Self::Udp(socket, _) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quictun_skip::skipped;
    use std::time::Duration;

    use quictun_sys::{NetNamespace, Network};
    use socket2::SockRef;

    use super::*;
    use crate::line_counter::count_lines;
    use crate::settings::ForwardTo;

    fn linger(socket: &impl AsFd) -> Option<Duration> {
        SockRef::from(socket).linger().expect("it can be asked")
    }

    // PROTOCOL CLOSE-11.
    #[test]
    fn accepted_sockets_are_reset_at_the_death_of_the_process_with_any_listener() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = bind(&ListenOn::Tcp(any)).expect("a free port");
        assert_eq!(linger(&bound), Some(Duration::ZERO));
        let inherited = TcpListener::bind(any).expect("a free port");
        let address = inherited.local_addr().expect("it is bound");
        let _queued = TcpStream::connect(address).expect("it listens");
        let inherited = Listener::Tcp(inherited);
        let AcceptOutcome::Connection(AppSocket::Tcp(accepted), _) = inherited.accept() else {
            panic!("a connection is queued");
        };
        assert_eq!(linger(accepted.stream()), Some(Duration::ZERO));
        assert_eq!(linger(&inherited), None, "it stays as systemd made it");
    }

    #[test]
    fn machines_of_accepted_and_dialled_sockets_are_probed_while_they_are_silent() {
        let bound = bind(&ListenOn::Tcp((Ipv4Addr::LOCALHOST, 0).into())).expect("a free port");
        let address = bound.address().parse::<SocketAddr>().expect("TCP");
        let dialled = TcpStream::connect(address).expect("it listens");
        let AcceptOutcome::Connection(accepted, _) = bound.accept() else {
            panic!("a connection is queued");
        };
        prepare(&dialled).expect("options");
        for socket in [accepted, AppSocket::tcp(dialled)] {
            let descriptor = socket.descriptor().expect("TCP");
            assert!(SockRef::from(&descriptor).keepalive().expect("an option"));
        }
    }

    // Linux: an accepted socket inherits the listener's options from its first moment.
    #[test]
    fn an_accepted_socket_inherits_the_options_of_its_listener() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let Listener::Tcp(bound) = bind(&ListenOn::Tcp(any)).expect("a free port") else {
            panic!("TCP was asked for");
        };
        bound.set_nonblocking(false).expect("an option");
        let address = bound.local_addr().expect("it is bound");
        let _queued = TcpStream::connect(address).expect("it listens");
        let (accepted, _) = bound.accept().expect("a connection is queued");
        assert_eq!(linger(&accepted), Some(Duration::ZERO));
        assert!(accepted.nodelay().expect("an option"));
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().expect("an option"));
        let unsent = accepted.tcp_notsent_lowat().expect("an option");
        assert_eq!(unsent, 128 * 1024);
    }

    /// Runs `f` in a network of its own with this setting of the kernel. Says SKIPPED if the system does not allow that.
    fn with_kernel_setting<T: Send>(
        test: &str,
        path: &str,
        f: impl FnOnce() -> io::Result<T> + Send,
    ) -> Option<T> {
        let network = NetNamespace::new();
        let done =
            network.and_then(|it| it.within(|| std::fs::write(path, "1").and_then(|()| f())));
        match done {
            Ok(done) => Some(done),
            // The test has no rights, `/proc/sys` is read-only, or the kernel has no IPv6.
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::NotFound
                ) =>
            {
                skipped(test, format_args!("{path}: {why}"));
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn all_addresses_of_ipv6_include_those_of_ipv4_whatever_the_systems_default() {
        let test = "all_addresses_of_ipv6_include_those_of_ipv4_whatever_the_systems_default";
        let all = ListenOn::Tcp((Ipv6Addr::UNSPECIFIED, 0).into());
        let bound = with_kernel_setting(test, "/proc/sys/net/ipv6/bindv6only", || bind(&all));
        if let Some(bound) = bound {
            assert!(!SockRef::from(&bound).only_v6().expect("it can be asked"));
        }
    }

    #[test]
    fn a_machine_without_ipv6_has_no_loopback_address_of_it() {
        let test = "a_machine_without_ipv6_has_no_loopback_address_of_it";
        let setting = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
        let found = with_kernel_setting(test, setting, || {
            // The device comes up without an address of IPv6. Once the setting is back, it has one.
            Network::open()?.set_up("lo")?;
            let without = find_ipv6_loopback();
            std::fs::write(setting, "0")?;
            Ok((without, find_ipv6_loopback()))
        });
        assert!(found.is_none_or(|found| found == (false, true)));
    }

    #[test]
    fn a_port_that_is_taken_on_the_other_loopback_address_is_an_error() {
        let Ok(taken) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
            let test = "a_port_that_is_taken_on_the_other_loopback_address_is_an_error";
            return skipped(test, "no IPv6 here");
        };
        let port = taken.local_addr().expect("it is bound").port();
        let forward = Forward {
            listen: ListenOn::Loopback(port),
            to: ForwardTo::Proxy,
        };
        let forwards = with_one_listener(vec![forward]);
        let last = forwards.last().expect("two addresses");
        let error = bind(&last.listen).expect_err("another listener has it");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    // OPERATIONS, ports.
    #[test]
    fn a_port_alone_is_on_both_loopback_addresses() {
        let listening = |port| {
            let forward = Forward {
                listen: ListenOn::Loopback(port),
                to: ForwardTo::Proxy,
            };
            let forwards = with_one_listener(vec![forward]).into_iter();
            let on = forwards.map(|forward| forward.listen.to_string());
            on.collect::<Vec<_>>()
        };
        let both = ["127.0.0.1:2222", "[::1]:2222"];
        let possible = if has_ipv6_loopback() { 2 } else { 1 };
        assert_eq!(listening(2222), both[..possible]);
        assert_eq!(listening(0), ["127.0.0.1:0"]);
    }

    #[test]
    fn accept_finds_nothing_when_no_connection_is_queued() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = bind(&ListenOn::Tcp(any)).expect("a free port");
        assert!(matches!(listener.accept(), AcceptOutcome::Empty));
    }

    #[test]
    fn a_socket_file_is_replaced_when_its_owner_is_gone_and_never_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let on = ListenOn::Unix(path.clone());
        let first = bind(&on).expect("a free path");
        assert_eq!(first.address(), path.display().to_string());
        let taken = bind(&on).expect_err("its owner lives");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let second = bind(&on).expect("its owner is gone");
        let _queued = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let AcceptOutcome::Connection(AppSocket::Unix(_), AppAddr::Unix) = second.accept() else {
            panic!("a connection is queued");
        };
        drop(second);
        std::fs::remove_file(&path).expect("the file");
        std::fs::write(&path, "precious").expect("a file");
        assert!(bind(&on).is_err());
        assert_eq!(
            std::fs::read_to_string(&path).expect("it is still there"),
            "precious"
        );
    }

    // Accepting pauses for a tenth of a second, again and again, as long as applications hold all descriptors.
    #[test]
    fn a_lack_of_descriptors_that_lasts_causes_one_line_in_ten_seconds() {
        let (mut warning, begin) = (RateLimitedWarning::default(), Instant::now());
        let cause = io::Error::from(Errno::MFILE);
        let lines = count_lines(|| {
            for tenth in 0..600 {
                let now = begin + tenth * Duration::from_millis(100);
                warn_of_exhaustion(&mut warning, now, &cause);
            }
        });
        assert_eq!(lines, 6);
    }

    #[test]
    fn a_second_handle_takes_connections_of_the_same_queue() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first = bind(&ListenOn::Tcp(any)).expect("a free port");
        let second = first.try_clone().expect("a descriptor");
        assert_eq!(first.address(), second.address());
        let _queued = TcpStream::connect(first.address()).expect("it listens");
        assert!(matches!(second.accept(), AcceptOutcome::Connection(..)));
        assert!(matches!(first.accept(), AcceptOutcome::Empty));
    }
}
