//! The side of ordinary programs: kernel sockets in the network of the device.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_sys::{NetNamespace, raise_scheduling_class};

use super::in_thread::StackCounters;
use super::service::Service;

/// Deadline for steps that should take no time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes per read or write of a bulk flow, as in iperf3.
const CHUNK: usize = 128 * 1024;

/// Serves one connection with the kernel's sockets until it ends, for comparison with the stack.
pub(crate) fn serve(
    listener: &TcpListener,
    service: Service,
    shared: &StackCounters,
) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![7; CHUNK];
    loop {
        let moved = match service {
            Service::Generate => stream.write(&buffer),
            _ => stream.read(&mut buffer),
        };
        match moved {
            Ok(0) | Err(_) => return Ok(()),
            Ok(length) => {
                shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
                if service == Service::Echo {
                    stream.write_all(&buffer[..length])?;
                }
            }
        }
    }
}

pub(crate) struct BulkFlow {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl BulkFlow {
    /// Connects and moves bytes as the counterpart of `service`, on the core of the calling thread.
    pub(crate) fn start(network: &NetNamespace, to: SocketAddr, service: Service) -> Result<Self> {
        let stream = connect(network, to)?;
        let mut other = stream.try_clone().context("duplicating a socket")?;
        let work = move || {
            let mut buffer = vec![7; CHUNK];
            loop {
                let moved = match service {
                    Service::Generate => other.read(&mut buffer),
                    _ => other.write(&buffer),
                };
                // The flow ends with a shutdown or a reset.
                if !matches!(moved, Ok(1..)) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .spawn(work)
            .context("starting a thread")?;
        Ok(Self { stream, thread })
    }

    pub(crate) fn stop(self) {
        // If the other side closed first, there is nothing left to shut down.
        drop(self.stream.shutdown(Shutdown::Both));
        drop(self.thread.join());
    }
}

/// Sends one byte and waits for its echo, again and again for `time`. Returns the times in nanoseconds. They are those
/// of the answering side, because this thread runs as soon as an echo arrives, whatever else its core has to do.
pub(crate) fn ping_pong(
    network: &NetNamespace,
    to: SocketAddr,
    time: Duration,
) -> Result<Vec<u64>> {
    raise_scheduling_class();
    let mut stream = connect(network, to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut times = Vec::new();
    let end = Instant::now() + time;
    let mut byte = [7];
    let mut last = Instant::now();
    while last < end {
        stream.write_all(&byte).context("sending one byte")?;
        stream.read_exact(&mut byte).context("receiving its echo")?;
        let now = Instant::now();
        times.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
    }
    Ok(times)
}

pub(crate) fn connect(network: &NetNamespace, to: SocketAddr) -> Result<TcpStream> {
    let connected = network.within(|| TcpStream::connect_timeout(&to, TIMEOUT));
    connected.with_context(|| format!("connecting to {to}"))
}
