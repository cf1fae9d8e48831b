//! The sockets of datagram flows (PROTOCOL section 5.11): at the server a UDP socket that is connected to the target, at
//! the client one source of datagrams at the UDP socket of a forward, one target of an association, or one program and target
//! behind a TUN device.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use quictun_engine::Socket;
use quictun_netstack::Datagram;
use quictun_stackd::netstackd::RemoteStack;
use quictun_stackd::stack_socket::SharedStack;
use quictun_sys::{BufferSide, recv_addressed, socket_buffer_force};
use quictun_wire::proxy::RelayHeader;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Type};

use crate::listener::Listener;

/// Length of the longest UDP payload, bytes.
const PAYLOAD_MAX: usize = 65_535;

/// Bytes of one source that wait for the engine, which takes them in the same turn.
const INBOX_MAX: usize = 64 * 1024;

/// Memory of a datagram that waits, beside its bytes.
const DATAGRAM_COST: usize = 64;

/// Receive buffer of a socket that one target answers, and of one at which the datagrams of several programs arrive, bytes.
/// At 50 Mbit/s, this process may be paused for 80 ms and more.
const TARGET_BUFFER: usize = 512 * 1024;
const SHARED_BUFFER: usize = 1024 * 1024;

/// Errors that one call passes over to get a datagram. They concern datagrams that the target's network has not carried.
const ERRORS_MAX: usize = 4;

thread_local! {
    /// The place into which datagrams are received, before they are copied to memory of their own length.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PAYLOAD_MAX]);
}

/// The datagrams of one source, or for one target of an association, which have been received.
pub(crate) type Inbox = Rc<RefCell<WaitingDatagrams>>;

/// Datagrams that wait for the engine, oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingDatagrams {
    all: VecDeque<Bytes>,
    /// Their bytes, with the cost of each.
    held: usize,
}

/// A socket of a datagram flow. Its stream carries no bytes, and ends when the flow does.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    peer: SocketAddr,
    end: DatagramEnd,
    /// The engine has ended the flow.
    finished: bool,
    /// The system has reported that the target refuses datagrams.
    failure: Option<io::ErrorKind>,
}

#[derive(Debug)]
enum DatagramEnd {
    Target(UdpSocket),
    /// The forward's socket, which closes with the forward, the address at which the source's datagrams arrive there, and
    /// the datagrams.
    Source(Weak<Listener>, Option<IpAddr>, Inbox),
    /// The stack of a TUN device, the target that a program there sends to, and what it has sent.
    Device(DeviceStack, SocketAddr, Inbox),
    /// The socket that answers a program for the address that it has sent to, and what it has sent.
    Diverted(Rc<UdpSocket>, Inbox),
    /// The UDP socket of an association, which closes with the association, the target as the application has written it,
    /// and what has arrived for it.
    Relayed(Weak<UdpSocket>, RelayHeader, Inbox),
}

/// The stack of a TUN device, by which answers reach programs.
#[derive(Clone, Debug)]
pub(crate) enum DeviceStack {
    Own(Rc<SharedStack>),
    Remote(Rc<RemoteStack>),
}

impl DeviceStack {
    /// Sends a datagram to a program. Returns false if there is no room for it.
    #[must_use = "a datagram may be dropped"]
    pub(crate) fn send(&self, datagram: Datagram) -> bool {
        match self {
            Self::Own(own) => own.stack.borrow_mut().send_datagram(&datagram),
            Self::Remote(remote) => remote.send_datagram(datagram),
        }
    }
}

impl DatagramSocket {
    /// Connects a UDP socket to a target, from and to which alone it takes and sends datagrams.
    pub(crate) fn connect(target: SocketAddr) -> io::Result<Self> {
        let domain = Domain::for_address(target);
        let socket = socket2::Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        refuse_fragments(&socket, target)?;
        socket_buffer_force(&socket, BufferSide::Receive, TARGET_BUFFER)?;
        socket.connect(&target.into())?;
        Ok(Self::new(target, DatagramEnd::Target(socket.into())))
    }

    /// Takes a socket that another process has connected to this target.
    pub(crate) fn take_over(target: SocketAddr, socket: UdpSocket) -> Self {
        Self::new(target, DatagramEnd::Target(socket))
    }

    /// Makes the socket of a source whose datagrams arrive at a forward, at the address `local` if that has several, and
    /// are put into `inbox`.
    pub(crate) fn of_source(
        (source, local): (SocketAddr, Option<IpAddr>),
        listener: &Arc<Listener>,
        inbox: Inbox,
    ) -> Self {
        let end = DatagramEnd::Source(Arc::downgrade(listener), local, inbox);
        Self::new(source, end)
    }

    /// Makes the socket of a program behind a TUN device that sends to one target.
    pub(crate) fn behind_device(
        (client, target): (SocketAddr, SocketAddr),
        stack: DeviceStack,
        inbox: Inbox,
    ) -> Self {
        Self::new(client, DatagramEnd::Device(stack, target, inbox))
    }

    /// Makes the socket of a program whose datagrams the packet filter leads here. `answers` has the address that they were
    /// sent to.
    pub(crate) fn diverted(source: SocketAddr, answers: Rc<UdpSocket>, inbox: Inbox) -> Self {
        Self::new(source, DatagramEnd::Diverted(answers, inbox))
    }

    /// Makes the socket of a target to which an application at `source` sends through an association.
    pub(crate) fn relayed(
        source: SocketAddr,
        relay: &Arc<UdpSocket>,
        header: RelayHeader,
        inbox: Inbox,
    ) -> Self {
        let end = DatagramEnd::Relayed(Arc::downgrade(relay), header, inbox);
        Self::new(source, end)
    }

    fn new(peer: SocketAddr, end: DatagramEnd) -> Self {
        Self {
            peer,
            end,
            finished: false,
            failure: None,
        }
    }

    /// Returns the address of the target at a server, and of the application at a client.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            DatagramEnd::Target(socket) => Some(socket.as_fd()),
            DatagramEnd::Source(..)
            | DatagramEnd::Relayed(..)
            | DatagramEnd::Device(..)
            | DatagramEnd::Diverted(..) => None,
        }
    }

    /// Decides what an error of the system means: it ends the flow, or only this datagram is lost.
    fn judge(&mut self, error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.failure = Some(error.kind());
            return Err(error);
        }
        Ok(())
    }
}

impl Socket for DatagramSocket {
    fn read(&mut self, _: &mut Vec<u8>) -> io::Result<usize> {
        match self.failure {
            Some(failure) => Err(failure.into()),
            None if self.finished => Ok(0),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        // PROTOCOL UDP-2: a byte on the stream of a datagram flow.
        self.failure = Some(io::ErrorKind::InvalidData);
        Err(io::ErrorKind::InvalidData.into())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        Ok(())
    }

    fn carries_datagrams(&self) -> bool {
        true
    }

    fn recv_datagram(&mut self) -> io::Result<Bytes> {
        let blocked = || io::ErrorKind::WouldBlock.into();
        for _ in 0..ERRORS_MAX {
            let received = match &self.end {
                DatagramEnd::Target(socket) => receive(|scratch| socket.recv(scratch)),
                DatagramEnd::Source(_, _, inbox)
                | DatagramEnd::Relayed(_, _, inbox)
                | DatagramEnd::Device(_, _, inbox)
                | DatagramEnd::Diverted(_, inbox) => {
                    return inbox.borrow_mut().pop().ok_or_else(blocked);
                }
            };
            match received {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.judge(error)?,
                received => return received,
            }
        }
        Err(blocked())
    }

    fn send_datagram(&mut self, payload: &[u8]) -> io::Result<()> {
        let sent = match &self.end {
            DatagramEnd::Target(socket) => send_past_error(|| socket.send(payload)),
            DatagramEnd::Source(listener, local, _) => {
                // The forward may be gone, or the program. The flow ends when it is idle.
                let listener = listener.upgrade();
                let sent = listener.map(|it| it.send_datagram(payload, self.peer, *local));
                return sent_or_lost(sent);
            }
            DatagramEnd::Relayed(relay, header, _) => {
                let relay = relay.upgrade();
                let sent = relay.map(|it| it.send_to(&header.encode(payload), self.peer));
                return sent_or_lost(sent);
            }
            DatagramEnd::Diverted(answers, _) => {
                let sent = answers.send_to(payload, self.peer);
                return sent.map(drop).map_err(|_| io::ErrorKind::WouldBlock.into());
            }
            DatagramEnd::Device(stack, target, _) => {
                let (client, target, payload) = (self.peer, *target, payload.to_vec());
                let sent = stack.send(Datagram {
                    client,
                    target,
                    payload,
                });
                let lost = || io::ErrorKind::WouldBlock.into();
                return sent.then_some(()).ok_or_else(lost);
            }
        };
        sent.map(drop).or_else(|error| {
            self.judge(error)?;
            Err(io::ErrorKind::WouldBlock.into())
        })
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}

/// Sends a datagram by `call`, which reports the error of an earlier datagram once instead of sending this one.
fn send_past_error(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let ends = [io::ErrorKind::ConnectionRefused, io::ErrorKind::WouldBlock];
    match call() {
        Err(error) if !ends.contains(&error.kind()) => call(),
        sent => sent,
    }
}

/// Lets the system drop datagrams that are too long for the path, instead of fragmenting them (PROTOCOL UDP-11).
pub(crate) fn refuse_fragments(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
    }
    // A socket for IPv6 may send by IPv4, too.
    Ok(set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?)
}

/// Makes room in a socket for the datagrams of several programs, as far as the system permits that.
pub(crate) fn make_room_for_many(socket: impl AsFd) -> io::Result<()> {
    socket_buffer_force(socket, BufferSide::Receive, SHARED_BUFFER).map(drop)
}

/// Returns what has become of a datagram to an application. One that cannot be sent is lost.
fn sent_or_lost(sent: Option<io::Result<usize>>) -> io::Result<()> {
    let lost = || io::Error::from(io::ErrorKind::WouldBlock);
    sent.and_then(Result::ok).map(drop).ok_or_else(lost)
}

/// Receives a datagram by `call` into memory of its own length.
fn receive(call: impl Fn(&mut [u8]) -> io::Result<usize>) -> io::Result<Bytes> {
    SCRATCH.with_borrow_mut(|scratch| {
        let length = call(scratch)?;
        Ok(Bytes::copy_from_slice(&scratch[..length]))
    })
}

/// Receives a datagram at the socket of a forward or of an association, with its source, and the address of this host to
/// which it was sent, if the socket has several.
pub(crate) fn receive_from(
    socket: &UdpSocket,
) -> io::Result<(Bytes, (SocketAddr, Option<IpAddr>))> {
    SCRATCH.with_borrow_mut(|scratch| {
        let came = recv_addressed(socket, scratch)?;
        let payload = Bytes::copy_from_slice(&scratch[..came.length]);
        Ok((payload, (came.source, came.local)))
    })
}

/// Receives a datagram that the packet filter has led here, with its source, and the address that it was sent to.
pub(crate) fn receive_diverted(
    socket: &UdpSocket,
) -> io::Result<(Bytes, (SocketAddr, SocketAddr))> {
    SCRATCH.with_borrow_mut(|scratch| {
        let came = quictun_sys::receive_diverted(socket, scratch)?;
        let payload = Bytes::copy_from_slice(&scratch[..came.length]);
        Ok((payload, (came.source, came.destination)))
    })
}

/// Makes the inbox of a source that has sent this datagram.
pub(crate) fn inbox_with(payload: Bytes) -> Inbox {
    let inbox = Inbox::default();
    put(&inbox, payload);
    inbox
}

/// Puts a datagram into the inbox of its source. The oldest ones there give way to it. Returns how many.
pub(crate) fn put(inbox: &Inbox, payload: Bytes) -> u64 {
    let mut inbox = inbox.borrow_mut();
    inbox.held += payload.len() + DATAGRAM_COST;
    inbox.all.push_back(payload);
    let mut dropped = 0;
    while inbox.all.len() > 1 && inbox.held > INBOX_MAX {
        inbox.pop();
        dropped += 1;
    }
    dropped
}

impl WaitingDatagrams {
    fn pop(&mut self) -> Option<Bytes> {
        let oldest = self.all.pop_front()?;
        self.held -= oldest.len() + DATAGRAM_COST;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use quictun_engine::Socket as _;

    use super::*;
    use crate::app_socket::AppSocket;

    fn target() -> (UdpSocket, DatagramSocket) {
        let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = target.local_addr().expect("it is bound");
        let socket = DatagramSocket::connect(address).expect("a route to itself");
        (target, socket)
    }

    /// Receives a datagram that may take a moment.
    fn receive(socket: &mut DatagramSocket) -> io::Result<Bytes> {
        loop {
            match socket.recv_datagram() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                received => return received,
            }
        }
    }

    #[test]
    fn the_socket_of_a_target_can_go_over_to_another_process_and_that_of_a_source_cannot() {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let target = DatagramSocket::connect(at).expect("a socket");
        let answers = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let source = DatagramSocket::diverted(at, Rc::new(answers), Inbox::default());
        for (socket, stays) in [(target, false), (source, true)] {
            let socket = AppSocket::Datagrams(Box::new(socket));
            assert_eq!(socket.stays_with_process(), stays, "{socket:?}");
        }
    }

    #[test]
    fn datagrams_pass_whole_also_empty_ones() {
        let (target, mut socket) = target();
        let mut buffer = vec![0; PAYLOAD_MAX];
        for payload in [&b"query"[..], b"", &[7; 9000]] {
            socket.send_datagram(payload).expect("sent");
            let (length, from) = target.recv_from(&mut buffer).expect("received");
            assert_eq!(&buffer[..length], payload);
            target.send_to(payload, from).expect("sent back");
            assert_eq!(receive(&mut socket).expect("received"), payload);
        }
    }

    // PROTOCOL UDP-7.
    #[test]
    fn datagrams_of_other_addresses_are_not_taken() {
        let (target, mut socket) = target();
        socket.send_datagram(b"x").expect("sent");
        let (_, from) = target.recv_from(&mut [0; 9]).expect("received");
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        other.send_to(b"other", from).expect("sent");
        target.send_to(b"target", from).expect("sent");
        assert_eq!(receive(&mut socket).expect("received"), &b"target"[..]);
    }

    // PROTOCOL UDP-2.
    #[test]
    fn a_target_that_refuses_ends_the_flow() {
        let (target, mut socket) = target();
        drop(target);
        assert!(
            socket
                .read(&mut Vec::new())
                .is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock)
        );
        socket.send_datagram(b"x").expect("sent");
        let refused = receive(&mut socket).expect_err("refused").kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        let told = socket
            .read(&mut Vec::new())
            .expect_err("the flow ends")
            .kind();
        assert_eq!(told, io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_inbox_keeps_the_newest() {
        let inbox = Inbox::default();
        for number in 0..300_u16 {
            let payload = [&number.to_be_bytes()[..], &vec![0; 60_000]].concat();
            put(&inbox, payload.into());
        }
        let kept = inbox.borrow_mut().pop().expect("one");
        assert_eq!(kept[..2], 299_u16.to_be_bytes());
        // Each one costs memory, also if it is empty.
        let dropped: u64 = (0..5000).map(|_| put(&inbox, Bytes::new())).sum();
        assert_eq!(dropped, 5000 - 1024);
        while inbox.borrow_mut().pop().is_some() {}
        assert_eq!(inbox.borrow().held, 0);
    }

    #[test]
    fn a_datagram_is_sent_after_the_error_of_an_earlier_one() {
        let unreachable = || io::Error::from(io::ErrorKind::HostUnreachable);
        let mut answers = vec![Ok(7), Err(unreachable())];
        let mut next = || answers.pop().expect("two calls at most");
        assert_eq!(send_past_error(&mut next).expect("sent"), 7);
        for last in [io::ErrorKind::ConnectionRefused, io::ErrorKind::WouldBlock] {
            let mut answers = vec![Err(last.into())];
            let mut next = || answers.pop().expect("one call");
            let told = send_past_error(&mut next).expect_err("not sent");
            assert_eq!(told.kind(), last);
        }
    }

    #[test]
    fn the_stream_ends_when_the_flow_is_finished() {
        let (_target, mut socket) = target();
        socket.finish().expect("never fails");
        assert_eq!(socket.read(&mut Vec::new()).expect("the end"), 0);
    }
}
