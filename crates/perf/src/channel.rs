//! A measured TCP connection, plain or with TLS.
//!
//! Reads and writes block, but for at most [`TIMEOUT`] at a time. Then they check whether the measurement is to end.
//! If so, they return an error of the kind `Interrupted`.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::PerfError;
use crate::path::Path;
use crate::plan::Plan;
use crate::stop::Stop;

/// Time for which a call blocks before it checks whether the measurement is to end.
const TIMEOUT: Duration = Duration::from_millis(200);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a read of ciphertext from the socket. rustls asks for only 4 KiB at a time.
const INPUT: usize = 128 * 1024;

/// Plaintext that rustls accepts at once; more than one write of this crate.
const OUTPUT: usize = 256 * 1024;

pub(crate) struct Channel {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
    stop: Stop,
    /// Bytes sent together with the first data, in one packet.
    held: Vec<u8>,
}

struct Tls {
    connection: Connection,
    input: Vec<u8>,
    /// Range of `input` that rustls has not taken yet.
    taken: std::ops::Range<usize>,
}

impl Channel {
    /// Connects as the plan says. `first` is sent together with the first data.
    pub(crate) fn connect(
        address: SocketAddr,
        plan: &Plan,
        tls: Option<&Arc<ClientConfig>>,
        first: &[u8],
        stop: &Stop,
    ) -> Result<Self, PerfError> {
        let failed = |source| PerfError::Connect(address, source);
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        if let Some(mtu) = plan.mtu {
            let headers = if address.is_ipv4() { 40 } else { 60 };
            socket
                .set_tcp_mss(mtu - headers)
                .map_err(PerfError::io("cannot set the segment size"))?;
        }
        socket
            .connect_timeout(&address.into(), CONNECT_TIMEOUT)
            .map_err(failed)?;
        let mut channel = Self::new(socket.into(), plan, stop)?;
        if let Some(config) = tls {
            let connection =
                ClientConnection::new(config.clone(), ServerName::IpAddress(address.ip().into()));
            channel.secure(connection.map(Connection::from))?;
        }
        channel.held = first.to_vec();
        Ok(channel)
    }

    pub(crate) fn accepted(
        socket: TcpStream,
        plan: &Plan,
        tls: Option<&Arc<ServerConfig>>,
        stop: &Stop,
    ) -> Result<Self, PerfError> {
        let mut channel = Self::new(socket, plan, stop)?;
        if let Some(config) = tls {
            let connection = ServerConnection::new(config.clone());
            channel.secure(connection.map(Connection::from))?;
        }
        Ok(channel)
    }

    fn new(socket: TcpStream, plan: &Plan, stop: &Stop) -> Result<Self, PerfError> {
        if let Some(name) = &plan.congestion {
            set_congestion(&socket, name)?;
        }
        let options = || {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            socket.set_write_timeout(Some(TIMEOUT))
        };
        options().map_err(PerfError::io("cannot set socket options"))?;
        Ok(Self {
            socket,
            tls: None,
            stop: stop.clone(),
            held: Vec::new(),
        })
    }

    fn secure(&mut self, made: Result<Connection, rustls::Error>) -> Result<(), PerfError> {
        let refused = |error| match PerfError::flow(error) {
            PerfError::Io(_, source) => PerfError::Io("TLS handshake failed", source),
            cut => cut,
        };
        let mut connection = made.map_err(io::Error::other).map_err(refused)?;
        connection.set_buffer_limit(Some(OUTPUT));
        let mut tls = Box::new(Tls {
            connection,
            input: vec![0; INPUT],
            taken: 0..0,
        });
        while tls.connection.is_handshaking() {
            tls.flush(&mut self.socket, &self.stop).map_err(refused)?;
            if tls.connection.is_handshaking()
                && tls.fill(&mut self.socket, &self.stop).map_err(refused)? == 0
            {
                return Err(refused(ErrorKind::UnexpectedEof.into()));
            }
        }
        // The last flight of the handshake may still be unsent.
        tls.flush(&mut self.socket, &self.stop).map_err(refused)?;
        self.tls = Some(tls);
        Ok(())
    }

    /// Writes as much of `bytes` as the socket takes, at least one byte.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.held.is_empty() {
            let mut together = std::mem::take(&mut self.held);
            together.extend_from_slice(bytes);
            self.write_all(&together)?;
            return Ok(bytes.len());
        }
        let Some(tls) = &mut self.tls else {
            return patient(&self.stop, || self.socket.write(bytes));
        };
        let taken = tls.connection.writer().write(bytes)?;
        tls.flush(&mut self.socket, &self.stop)?;
        Ok(taken)
    }

    /// Sends the bytes held for the first data, because this side sends no data.
    pub(crate) fn flush_held(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        self.write_all(&held)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.write(bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Reads the available bytes. Returns 0 at the end of the stream.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return patient(&self.stop, || self.socket.read(into));
        };
        loop {
            match tls.connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.fill(&mut self.socket, &self.stop)? == 0 {
                // Report the end to rustls, which decides whether it was a clean end.
                tls.connection.read_tls(&mut io::empty())?;
                return tls.connection.reader().read(into);
            }
        }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            tls.flush(&mut self.socket, &self.stop)?;
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Returns whether the measurement is to end. A caller whose calls never block must check this.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_raised()
    }

    pub(crate) fn path(&self) -> Option<Path> {
        let info = quictun_sys::tcp_info(&self.socket).ok()?;
        Some(Path {
            rtt_us: Some(u64::try_from(info.rtt.as_micros()).unwrap_or(u64::MAX)),
            lost_packets: info.segments_again,
            sent_packets: info.segments_sent,
            mtu: info.path_mtu,
            gso_segments_per_send: None,
        })
    }

    pub(crate) fn congestion(&self) -> Option<String> {
        let name = rustix::net::sockopt::tcp_congestion(&self.socket).ok()?;
        Some(name.trim_end_matches('\0').to_owned())
    }
}

impl Tls {
    fn flush(&mut self, socket: &mut TcpStream, stop: &Stop) -> io::Result<()> {
        while self.connection.wants_write() {
            if patient(stop, || self.connection.write_tls(socket))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Passes the available ciphertext to rustls, as much as it takes. Returns 0 at the end of the stream.
    fn fill(&mut self, socket: &mut TcpStream, stop: &Stop) -> io::Result<usize> {
        if self.taken.is_empty() {
            let read = patient(stop, || socket.read(&mut self.input))?;
            if read == 0 {
                return Ok(0);
            }
            self.taken = 0..read;
        }
        let taken = self
            .connection
            .read_tls(&mut &self.input[self.taken.clone()])?;
        self.taken.start += taken;
        if let Err(error) = self.connection.process_new_packets() {
            // Send the alert so that the peer learns the reason. A failure is ignored: the error below matters more.
            self.connection.write_tls(socket).ok();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(taken)
    }
}

/// Repeats a call that timed out until the measurement is to end.
fn patient<T>(stop: &Stop, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.is_raised() {
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn set_congestion(socket: &TcpStream, name: &str) -> Result<(), PerfError> {
    rustix::net::sockopt::set_tcp_congestion(socket, name).map_err(|_| {
        let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(file).unwrap_or_default();
        PerfError::Congestion(name.to_owned(), available.trim().to_owned())
    })
}
