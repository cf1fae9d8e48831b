//! One connection that sends as much as it can, and how much of it arrives.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_emu::World;
use rustix::net::sockopt::set_tcp_congestion;

const CHUNK: usize = 256 << 10;

/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends from the near side to the far one with TCP alone, which is CUBIC, for `warm_up` and then for `duration`: bit/s of
/// the latter.
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

/// The same from the near side to `to`, from where it reaches `listener` in one way or another.
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
        // Another one would make the row say what it does not mean.
        set_tcp_congestion(&sender, name)
            .with_context(|| format!("TCP with {name} (`modprobe tcp_{name}` as root)"))?;
    }
    let (receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().spawn_scoped(scope, || send(&sender))?;
        let received = receive(receiver, warm_up, duration);
        // The sender ends with the connection.
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
            match stream.read(&mut chunk)? {
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
