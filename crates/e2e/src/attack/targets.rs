//! Where hostile flows lead: targets that read nothing, send without end, or never answer.

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

/// Connections that wait in the queue of a listener: what systems permit unless told otherwise.
const QUEUE: i32 = 4096;

/// Connections to one address: fewer than there are ports to come from.
const TO_ONE: usize = 16_000;

/// Buffers of a target's socket: the data should stay with the server.
const BUFFER: usize = 8 * 1024;

/// The subcommand of `quictun-attack` that runs [`feed`].
const FEED: &str = "feed";

/// What comes before the targets that [`feed`] announces.
const LISTENING: &str = "listening ";

/// OPEN for a target (PROTOCOL section 5.2), without options.
///
/// # Errors
///
/// Where the target is longer than an integer of one byte can tell: the tests have none.
pub fn open_frame(target: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(target.len())?;
    anyhow::ensure!(length < 0x3f, "{target} is too long a target for this");
    let mut frame = vec![0x01, length + 1, length];
    frame.extend_from_slice(target.as_bytes());
    Ok(frame)
}

/// Targets of the same kind, to be used in turns.
#[derive(Debug)]
pub struct Targets {
    addresses: Vec<String>,
    next: usize,
    /// What keeps them listening: sockets here, or a process.
    _listeners: Vec<Socket>,
    _feeder: Option<Program>,
}

impl Targets {
    /// Targets whose connections are established and never read: they stay in the queues of their listeners.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn stalled(connections: usize) -> Result<Self> {
        // Connections that are given up stay in the queues as well.
        let (listeners, targets) = listen(1 + 2 * connections / usize::try_from(QUEUE)?)?;
        Ok(Self {
            addresses: targets,
            next: 0,
            _listeners: listeners,
            _feeder: None,
        })
    }

    /// Targets that send without end. They are a process of their own: it and the server need a descriptor for each
    /// flow, and this one some for honest flows.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn sources(connections: usize) -> Result<Self> {
        let mut command = program::command(std::env::current_exe()?);
        let count = 1 + connections / TO_ONE;
        let mut feeder = Program::start("feeder", command.args([FEED, &count.to_string()]))?;
        let line = feeder.wait_for(LISTENING, START)?;
        feeder.hush();
        let targets = line.trim_start_matches(LISTENING).split(' ');
        Ok(Self {
            addresses: targets.map(str::to_owned).collect(),
            next: 0,
            _listeners: Vec::new(),
            _feeder: Some(feeder),
        })
    }

    /// The target of the next flow.
    pub fn next_target(&mut self) -> &str {
        self.next += 1;
        &self.addresses[self.next % self.addresses.len()]
    }
}

/// Listens on so many addresses, with small buffers.
fn listen(count: usize) -> Result<(Vec<Socket>, Vec<String>)> {
    let (mut listeners, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(QUEUE)?;
        let address = socket.local_addr()?.as_socket();
        targets.push(format!("tcp:{}", address.context("an IP socket")?));
        listeners.push(socket);
    }
    Ok((listeners, targets))
}

/// Listens on so many addresses, announces them by `say` in one line, and sends without end to whoever connects.
///
/// # Errors
///
/// The system's answers.
pub fn feed(listeners: usize, say: impl FnOnce(&str)) -> Result<()> {
    let (listeners, targets) = listen(listeners)?;
    let feeder = Feeder::new(listeners)?;
    say(&format!("{LISTENING}{}", targets.join(" ")));
    feeder.run()
}

/// A target that reads everything and answers nothing.
///
/// # Errors
///
/// The system's answer.
pub fn sink() -> Result<Application> {
    Application::tcp(|mut connection| {
        let mut block = [0; 16 * 1024];
        while connection.read(&mut block)? > 0 {}
        Ok(())
    })
}

/// Writes to all connections whatever they take.
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
            // Told once per arrival: a listener without descriptors does not keep this thread busy.
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
                    // Without descriptors connections stay in the queue: flows that nothing is sent to.
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

/// Writes until the connection is full, or over.
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
