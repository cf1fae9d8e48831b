//! One connection that sends as fast as possible, and the rate at which its data arrives.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_emu::World;
use quictun_sys::uninterrupted;
use rustix::net::sockopt::set_tcp_congestion;

const CHUNK: usize = 256 << 10;

/// Maximum wait for the other side.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends over plain TCP with CUBIC from the near side to the far side, for `warm_up` and then for `duration`. Returns
/// the rate during `duration`, in bit/s.
pub(super) fn tcp(world: &World, warm_up: Duration, duration: Duration) -> anyhow::Result<u64> {
    let listener = listen(world)?;
    let (to, congestion) = (listener.local_addr()?, Some("cubic"));
    measure(world, &listener, to, congestion, warm_up, duration)
}

pub(super) fn listen(world: &World) -> io::Result<TcpListener> {
    world
        .far()
        .within(|| TcpListener::bind((world.far_addresses()[0], 0)))
}

/// Sends from the near side to `to`, which leads to `listener` directly or through a tunnel. Returns the rate during
/// `duration`, in bit/s. `congestion` is the congestion control, or `None` for the default.
pub(super) fn measure(
    world: &World,
    listener: &TcpListener,
    to: SocketAddr,
    congestion: Option<&str>,
    warm_up: Duration,
    duration: Duration,
) -> anyhow::Result<u64> {
    let sender = world.near().within(|| TcpStream::connect(to))?;
    if let Some(name) = congestion {
        // With another congestion control, the row's label would be wrong.
        set_tcp_congestion(&sender, name).with_context(|| {
            format!("this kernel has no TCP {name} (run `modprobe tcp_{name}` as root)")
        })?;
    }
    let (receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
    }
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().spawn_scoped(scope, || send(&sender))?;
        let received = receive(receiver, warm_up, duration);
        // Ends the sending thread.
        sender.shutdown(Shutdown::Both)?;
        sending.join().ok().context("the sending thread failed")?;
        Ok(received?)
    })
}

fn send(mut stream: &TcpStream) {
    let chunk = vec![0; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: TcpStream, warm_up: Duration, duration: Duration) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut read = |until: Instant| -> io::Result<u64> {
        let mut bytes = 0;
        while Instant::now() < until {
            // A program that was suspended and continues is interrupted.
            match uninterrupted(Instant::now() + TIMEOUT, |_| stream.read(&mut chunk))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => bytes += length as u64,
            }
        }
        Ok(bytes)
    };
    let begin = Instant::now();
    read(begin + warm_up)?;
    let begin = Instant::now();
    let bytes = read(begin + duration)?;
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / begin.elapsed().as_nanos().max(1);
    Ok(u64::try_from(bits).unwrap_or(u64::MAX))
}
