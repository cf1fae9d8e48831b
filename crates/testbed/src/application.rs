//! Applications to be reached through a tunnel: well-behaved ones, and the kinds that cause trouble.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use socket2::{Domain, Socket, Type};

use crate::connection::{Connection, Endpoint};
use crate::payload::Payload;

/// A listener whose every connection is served by a function, on a thread of its own.
///
/// It listens until the process ends.
#[derive(Debug)]
pub struct Application {
    endpoint: Endpoint,
    outcomes: Receiver<Result<()>>,
}

impl Application {
    /// Listens on a free TCP port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn tcp(serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static) -> Result<Self> {
        Self::tcp_on((Ipv4Addr::LOCALHOST, 0).into(), serve)
    }

    /// Listens on this TCP address.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn tcp_on(
        address: SocketAddr,
        serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static,
    ) -> Result<Self> {
        let listener = listen(address)?;
        let endpoint = Endpoint::Tcp(listener.local_addr()?);
        Ok(Self::start(endpoint, serve, move || {
            Ok(listener.accept()?.0.into())
        }))
    }

    /// Listens on a Unix socket.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn unix(
        path: &Path,
        serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static,
    ) -> Result<Self> {
        let listener =
            UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
        let accept = move || Ok(OwnedFd::from(listener.accept()?.0).into());
        Ok(Self::start(Endpoint::Unix(path.to_owned()), serve, accept))
    }

    /// Sends everything back as it comes, and the end as well.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn echo() -> Result<Self> {
        Self::tcp(echo)
    }

    fn start(
        endpoint: Endpoint,
        serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static,
        accept: impl Fn() -> std::io::Result<Socket> + Send + 'static,
    ) -> Self {
        let (sender, outcomes) = channel();
        std::thread::spawn(move || accept_all(&accept, &serve, &sender));
        Self { endpoint, outcomes }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The token or target that leads to it.
    pub fn target(&self) -> String {
        self.endpoint.to_string()
    }

    /// What the function made of a connection, in the order in which they ended.
    ///
    /// # Errors
    ///
    /// Its error; and where none ended in time.
    pub fn outcome(&self, within: Duration) -> Result<()> {
        let outcome = self.outcomes.recv_timeout(within);
        outcome
            .map_err(|_| anyhow!("the application did not end a connection within {within:?}"))?
    }
}

/// Listens with a queue as long as the system permits: a full one makes connecting take seconds.
///
/// # Errors
///
/// The system's answer.
pub fn listen(address: SocketAddr) -> Result<TcpListener> {
    const QUEUE: i32 = 4096;
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.bind(&address.into())?;
        socket.listen(QUEUE)?;
        Ok::<_, std::io::Error>(socket.into())
    };
    listen().with_context(|| format!("listening on {address}"))
}

fn accept_all(
    accept: &impl Fn() -> std::io::Result<Socket>,
    serve: &(impl Fn(Connection) -> Result<()> + Clone + Send + 'static),
    outcomes: &Sender<Result<()>>,
) {
    loop {
        let connection = accept()
            .map_err(anyhow::Error::from)
            .and_then(Connection::new);
        let (serve, outcomes) = (serve.clone(), outcomes.clone());
        std::thread::spawn(move || {
            // The test may have ended.
            if outcomes.send(connection.and_then(serve)).is_err() {}
        });
    }
}

/// Sends everything back as it comes, and the end as well.
///
/// # Errors
///
/// Where the other end resets.
pub fn echo(mut connection: Connection) -> Result<()> {
    let mut block = vec![0; 64 * 1024];
    loop {
        let read = connection.read(&mut block)?;
        if read == 0 {
            return connection.finish();
        }
        connection.write_all(&block[..read])?;
    }
}

/// One payload to an echo and back; the end goes out as soon as all is written, and comes back.
///
/// # Errors
///
/// Whatever is not as it should be.
pub fn through_echo(endpoint: &Endpoint, payload: Payload) -> Result<()> {
    let mut connection = endpoint.connect()?;
    there_and_back(&mut connection, payload, true)?;
    let more = connection.read(&mut [0; 1]).context("the end")?;
    ensure!(more == 0, "more than {} bytes come back", payload.bytes);
    Ok(())
}

/// One payload to an echo and back through a peer that loses what is on the way when one direction ends:
/// nothing ends before all is back.
///
/// # Errors
///
/// Whatever is not as it should be.
pub fn through_echo_held_open(endpoint: &Endpoint, payload: Payload) -> Result<()> {
    there_and_back(&mut endpoint.connect()?, payload, false)
}

/// Tries until an echo is reached; each try is given up after a second.
///
/// # Errors
///
/// The last one's, where none succeeded.
pub fn served_within(endpoint: &Endpoint, payload: Payload, within: Duration) -> Result<Duration> {
    let start = Instant::now();
    let attempt = || {
        let mut connection = endpoint.connect()?;
        connection.set_patience(Duration::from_secs(1))?;
        there_and_back(&mut connection, payload, true)
    };
    loop {
        match attempt() {
            Ok(()) => return Ok(start.elapsed()),
            Err(error) if start.elapsed() > within => {
                return Err(error.context(format!("not served within {within:?}")));
            }
            Err(_) => {}
        }
    }
}

/// Writes and reads at the same time.
///
/// # Errors
///
/// Whatever is not as it should be.
pub fn there_and_back(connection: &mut Connection, payload: Payload, finish: bool) -> Result<()> {
    let mut writing = connection.try_clone()?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            payload.write_to(&mut writing)?;
            if finish { writing.finish() } else { Ok(()) }
        });
        let read = payload.read_from(connection);
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.context("what comes back")?;
        written.context("what goes out")
    })
}

/// A TCP address that refuses connections for as long as this lives.
#[derive(Debug)]
pub struct Refusing {
    _bound: Socket,
    address: SocketAddr,
}

impl Refusing {
    /// Binds a port and does not listen.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn new() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket
            .local_addr()?
            .as_socket()
            .context("invariant: an IP socket")?;
        Ok(Self {
            _bound: socket,
            address,
        })
    }

    /// The token or target that leads to it.
    pub fn target(&self) -> String {
        format!("tcp:{}", self.address)
    }
}

/// A TCP address that answers no SYN for as long as this lives: a listener whose queue is full.
#[derive(Debug)]
pub struct BlackHole {
    _listener: Socket,
    _queued: Vec<TcpStream>,
    address: SocketAddr,
}

impl BlackHole {
    /// Fills the queue of a listener that never accepts.
    ///
    /// # Errors
    ///
    /// Where it cannot be filled.
    pub fn new() -> Result<Self> {
        const ENOUGH: usize = 8;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(0)?;
        let address = socket
            .local_addr()?
            .as_socket()
            .context("invariant: an IP socket")?;
        let mut queued = Vec::new();
        for _ in 0..ENOUGH {
            match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                Ok(stream) => queued.push(stream),
                Err(_) => {
                    return Ok(Self {
                        _listener: socket,
                        _queued: queued,
                        address,
                    });
                }
            }
        }
        Err(anyhow!(
            "a listener with a queue of 0 took {ENOUGH} connections"
        ))
    }

    /// The token or target that leads to it.
    pub fn target(&self) -> String {
        format!("tcp:{}", self.address)
    }
}
