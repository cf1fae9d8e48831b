//! Applications for tests to reach through a tunnel: well-behaved ones, and kinds that cause trouble.

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

/// A listener that passes each connection to a function, on a thread of its own.
///
/// The listener lives until the process ends.
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
    /// Fails if the socket cannot be created, bound or listened on.
    pub fn tcp(serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static) -> Result<Self> {
        Self::tcp_on((Ipv4Addr::LOCALHOST, 0).into(), serve)
    }

    /// Listens on the given TCP address.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created, bound or listened on.
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

    /// Listens on a Unix socket at `path`.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be bound.
    pub fn unix(
        path: &Path,
        serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static,
    ) -> Result<Self> {
        let listener =
            UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
        let accept = move || Ok(OwnedFd::from(listener.accept()?.0).into());
        Ok(Self::start(Endpoint::Unix(path.to_owned()), serve, accept))
    }

    /// Listens on a free TCP port of 127.0.0.1 and echoes each connection ([`echo`]).
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created, bound or listened on.
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

    /// Returns the address on which the application listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the token or target that leads to this application.
    pub fn target(&self) -> String {
        self.endpoint.to_string()
    }

    /// Waits for the next connection to end and returns the function's result. Results arrive in the order in which
    /// connections end.
    ///
    /// # Errors
    ///
    /// Returns the function's error. Also fails if no connection ends within the time limit.
    pub fn outcome(&self, within: Duration) -> Result<()> {
        let outcome = self.outcomes.recv_timeout(within);
        outcome
            .map_err(|_| anyhow!("the application did not end a connection within {within:?}"))?
    }
}

/// Listens with the longest queue that the system permits. If the queue is full, a connection attempt takes seconds.
///
/// # Errors
///
/// Fails if the socket cannot be created, bound or listened on.
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
            // The test may have ended and dropped the receiver.
            if outcomes.send(connection.and_then(serve)).is_err() {}
        });
    }
}

/// Echoes all data as it arrives, and finishes when the peer has finished.
///
/// # Errors
///
/// Fails if reading or writing fails, for example after a reset by the peer.
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

/// Sends one payload to an echo and verifies what comes back. The connection sends FIN as soon as the payload is
/// written, and expects the FIN of the echo.
///
/// # Errors
///
/// Fails if connecting, reading or writing fails, if a byte is wrong or missing, or if more bytes arrive.
pub fn through_echo(endpoint: &Endpoint, payload: Payload) -> Result<()> {
    let mut connection = endpoint.connect()?;
    there_and_back(&mut connection, payload, true)?;
    let more = connection
        .read(&mut [0; 1])
        .context("reading the end of the stream")?;
    ensure!(more == 0, "the echo exceeds {} bytes", payload.bytes);
    Ok(())
}

/// Sends one payload to an echo and verifies what comes back, without ever sending FIN. For peers that drop data in
/// flight when one direction ends.
///
/// # Errors
///
/// Fails if connecting, reading or writing fails, or if a byte is wrong or missing.
pub fn through_echo_held_open(endpoint: &Endpoint, payload: Payload) -> Result<()> {
    there_and_back(&mut endpoint.connect()?, payload, false)
}

/// Retries until an echo returns the payload, and returns how long that took. Reads and writes of an attempt fail after
/// a second.
///
/// # Errors
///
/// Returns the error of the last attempt if none succeeds in time.
pub fn served_within(endpoint: &Endpoint, payload: Payload, within: Duration) -> Result<Duration> {
    let start = Instant::now();
    let attempt = || {
        let mut connection = endpoint.connect()?;
        connection.set_timeout(Duration::from_secs(1))?;
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

/// Writes the payload and at the same time reads and verifies the echo; with `finish`, sends FIN after the payload.
///
/// # Errors
///
/// Fails if reading or writing fails, or if a byte is wrong or missing.
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
        read.context("reading the echo")?;
        written.context("writing the payload")
    })
}

/// A TCP address that refuses connections while this value lives.
#[derive(Debug)]
pub struct RefusingAddress {
    _bound: Socket,
    address: SocketAddr,
}

impl RefusingAddress {
    /// Binds a port without listening on it.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created or bound.
    pub fn new() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket
            .local_addr()?
            .as_socket()
            .context("invariant: an IPv4 socket has an IP address")?;
        Ok(Self {
            _bound: socket,
            address,
        })
    }

    /// Returns the token or target that leads to this address.
    pub fn target(&self) -> String {
        format!("tcp:{}", self.address)
    }
}

/// A TCP address that does not answer SYNs while this value lives: a listener with a full queue.
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
    /// Fails if the socket cannot be created or bound, or if its queue does not fill.
    pub fn new() -> Result<Self> {
        const ENOUGH: usize = 8;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(0)?;
        let address = socket
            .local_addr()?
            .as_socket()
            .context("invariant: an IPv4 socket has an IP address")?;
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

    /// Returns the token or target that leads to this address.
    pub fn target(&self) -> String {
        format!("tcp:{}", self.address)
    }
}
