//! Targets of hostile flows: they read nothing, send without end, or never answer.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use socket2::{Domain, Socket, Type};

use quictun_testbed::application::Application;
use quictun_testbed::program::{self, Program};
use quictun_testbed::tunnel::START;

/// The length of a listener's queue: the usual system maximum.
const QUEUE: i32 = 4096;

/// The maximum number of connections to one address: fewer than there are source ports.
const TO_ONE: usize = 16_000;

/// The socket buffer size of a target in bytes: small, so that data stays in the server.
const BUFFER: usize = 8 * 1024;

/// The subcommand of `quictun-attack` that runs [`feed`].
const FEED: &str = "feed";

/// The prefix of the line in which [`feed`] announces its targets.
const LISTENING: &str = "listening ";

/// Returns an OPEN for a target (PROTOCOL section 5.2), without options.
///
/// # Errors
///
/// Fails if the target's length does not fit into a one-byte integer. No test uses such a target.
pub fn open_frame(target: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(target.len())?;
    anyhow::ensure!(length < 0x3f, "{target} does not fit a short length");
    let mut frame = vec![0x01, length + 1, length];
    frame.extend_from_slice(target.as_bytes());
    Ok(frame)
}

/// Targets of the same kind, used in turn.
#[derive(Debug)]
pub struct Targets {
    addresses: Vec<String>,
    next: usize,
    /// The sockets or the process that keep the targets listening.
    _listeners: Vec<Socket>,
    _feeder: Option<Program>,
}

impl Targets {
    /// Creates targets whose connections are established but never accepted or read: they stay in the listeners'
    /// queues.
    ///
    /// # Errors
    ///
    /// Fails if the sockets cannot be created, bound or listened on.
    pub fn stalled(connections: usize) -> Result<Self> {
        // Connections that the server gives up also stay in the queues.
        let (listeners, targets) = listen(1 + 2 * connections / usize::try_from(QUEUE)?)?;
        Ok(Self {
            addresses: targets,
            next: 0,
            _listeners: listeners,
            _feeder: None,
        })
    }

    /// Starts targets that send without end, in a separate process. That process and the server each need a descriptor
    /// per flow, and this process needs some for honest flows.
    ///
    /// # Errors
    ///
    /// Fails if the process does not start.
    pub fn sources(connections: usize) -> Result<Self> {
        let mut command = program::command(std::env::current_exe()?);
        let count = 1 + connections / TO_ONE;
        let mut feeder = Program::start("feeder", command.args([FEED, &count.to_string()]))?;
        let line = feeder.wait_for(LISTENING, START)?;
        feeder.silence();
        let targets = line.trim_start_matches(LISTENING).split(' ');
        Ok(Self {
            addresses: targets.map(str::to_owned).collect(),
            next: 0,
            _listeners: Vec::new(),
            _feeder: Some(feeder),
        })
    }

    /// Returns the first target.
    pub fn first(&self) -> &str {
        &self.addresses[0]
    }

    /// Returns the target of the next flow.
    pub fn next_target(&mut self) -> &str {
        self.next += 1;
        &self.addresses[self.next % self.addresses.len()]
    }
}

/// Listens on `count` addresses, with small buffers.
fn listen(count: usize) -> Result<(Vec<Socket>, Vec<String>)> {
    let (mut listeners, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(QUEUE)?;
        let address = socket.local_addr()?.as_socket();
        targets.push(format!(
            "tcp:{}",
            address.context("the listener has no IP address")?
        ));
        listeners.push(socket);
    }
    Ok((listeners, targets))
}

/// Listens on `listeners` addresses, announces them with `say` in one line, and sends without end on every connection.
///
/// # Errors
///
/// Fails if a socket cannot be set up or polling fails.
pub fn feed(listeners: usize, say: impl FnOnce(&str)) -> Result<()> {
    let (listeners, targets) = listen(listeners)?;
    let feeder = Feeder::new(listeners)?;
    say(&format!("{LISTENING}{}", targets.join(" ")));
    feeder.run()
}

/// Starts a target that reads everything and sends nothing.
///
/// # Errors
///
/// Fails if the socket cannot be created, bound or listened on.
pub fn sink() -> Result<Application> {
    Application::tcp(|mut connection| {
        let mut block = [0; 16 * 1024];
        while connection.read(&mut block)? > 0 {}
        Ok(())
    })
}

/// Writes to every connection as much as it accepts.
struct Feeder {
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<TcpStream>>,
}

impl Feeder {
    fn new(sockets: Vec<Socket>) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut listeners = Vec::new();
        for (number, socket) in sockets.into_iter().enumerate() {
            let listener = TcpListener::from(socket);
            listener.set_nonblocking(true)?;
            let data = EventData::new_u64(number as u64);
            // Edge-triggered: a listener that cannot accept for lack of descriptors does not keep this thread busy.
            epoll::add(&epoll, &listener, data, EventFlags::IN | EventFlags::ET)?;
            listeners.push(listener);
        }
        Ok(Self {
            epoll,
            listeners,
            connections: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let number = usize::try_from(event.data.u64())?;
                if number < self.listeners.len() {
                    // Without free descriptors, connections stay in the queue: these flows receive no data.
                    if self.accept(number).is_err() {}
                } else {
                    fill(&mut self.connections[number - self.listeners.len()]);
                }
            }
        }
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        loop {
            let stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(true)?;
            let number = self.listeners.len() + self.connections.len();
            let data = EventData::new_u64(number as u64);
            epoll::add(&self.epoll, &stream, data, EventFlags::OUT | EventFlags::ET)?;
            self.connections.push(Some(stream));
        }
    }
}

/// Writes until the socket's buffer is full or the connection has ended.
fn fill(connection: &mut Option<TcpStream>) {
    const BLOCK: [u8; 16 * 1024] = [7; 16 * 1024];
    while let Some(stream) = connection {
        match stream.write(&BLOCK) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => *connection = None,
        }
    }
}
