//! An application whose rate and delay are measured through a tunnel.
//!
//! The first byte of each connection selects what the application does with it: a [`Role`]. Order of use:
//! [`MeasuredApplication::serve`] on the far side, then [`upload`], [`download`], [`echo`] or [`connects`] on the near
//! side.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::report::figure;
use quictun_testbed::connection::{Connection, Endpoint};

/// The time for slow start and caches before a rate is measured.
pub(super) const WARM_UP: Duration = Duration::from_secs(1);

/// The length of one turn of [`take_turns`]: short, since most disturbances of a machine last longer, and then affect both
/// transfers.
const TURN: Duration = Duration::from_millis(100);

/// The time between two turns: the buffers of the other transfer empty, and those of this one fill.
const SETTLE: Duration = Duration::from_millis(50);

/// The number of round trips before delays are measured.
const WARM_ECHOES: usize = 50;

/// The block size of reads and writes, in bytes.
const BLOCK: usize = 128 * 1024;

/// The kernel's send buffer for the sender of a stalled flow, in bytes.
pub const LITTLE: usize = 32 * 1024;

/// The number of connections that [`connects`] opens concurrently.
const PARALLEL: usize = 8;

/// The application's behaviour on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Reads everything and counts it.
    Sink = b'u',
    /// Writes as much as the connection accepts.
    Source = b'd',
    /// Writes like a source, but with a small send buffer: a thousand such connections leave kernel memory for others.
    Brook = b's',
    /// Echoes every byte that it reads.
    Echo = b'e',
    /// Reads nothing from the connection.
    Deaf = b'n',
}

/// The application: one thread per connection, and a count of the bytes that sinks have received.
#[derive(Clone, Debug, Default)]
pub struct MeasuredApplication {
    received: Arc<AtomicU64>,
    peers: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl MeasuredApplication {
    /// Serves a listener's connections until the process ends.
    pub fn serve(&self, listener: TcpListener) {
        let application = self.clone();
        std::thread::spawn(move || {
            while let Ok((stream, peer)) = listener.accept() {
                let application = application.clone();
                lock(&application.peers).insert(peer.ip());
                // The measurement resets its connections, so errors here are expected; the near side reports the
                // relevant ones.
                std::thread::spawn(move || {
                    drop(Connection::new(stream.into()).and_then(|c| application.play(c)));
                });
            }
        });
    }

    /// Returns the bytes that sinks have received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the addresses from which connections came.
    pub fn peers(&self) -> BTreeSet<IpAddr> {
        lock(&self.peers).clone()
    }

    fn play(&self, mut connection: Connection) -> Result<()> {
        connection.set_timeout(Duration::from_mins(10))?;
        let mut role = [0];
        connection.read_exact(&mut role)?;
        if role[0] == Role::Brook as u8 {
            connection.limit_sending(LITTLE)?;
        }
        let mut block = vec![0; BLOCK];
        match role[0] {
            role if role == Role::Sink as u8 => loop {
                let read = connection.read(&mut block)?;
                if read == 0 {
                    return Ok(());
                }
                self.received.fetch_add(read as u64, Ordering::Relaxed);
            },
            role if role == Role::Source as u8 || role == Role::Brook as u8 => loop {
                connection.write_all(&block)?;
            },
            role if role == Role::Echo as u8 => loop {
                let read = connection.read(&mut block)?;
                if read == 0 {
                    return Ok(());
                }
                connection.write_all(&block[..read])?;
            },
            _ => connection.wait_for_end(),
        }
    }
}

fn lock(peers: &Mutex<BTreeSet<IpAddr>>) -> MutexGuard<'_, BTreeSet<IpAddr>> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a connection in this role.
///
/// # Errors
///
/// Fails if the tunnel does not accept the connection.
pub fn open(forward: &Endpoint, role: Role) -> Result<Connection> {
    let mut connection = forward.connect()?;
    connection.write_all(&[role as u8])?;
    Ok(connection)
}

/// Returns the rate in Mbit/s at which the application receives on one connection, over `time` after a warm-up.
///
/// # Errors
///
/// Fails if the connection fails.
pub fn upload(
    forward: &Endpoint,
    application: &MeasuredApplication,
    time: Duration,
) -> Result<f64> {
    upload_by(forward, application, time, &since_now())
}

/// Like [`upload`], with another `clock`: returns the Mbit received per second of that clock.
///
/// # Errors
///
/// Fails if the connection or the clock fails.
pub fn upload_by(
    forward: &Endpoint,
    application: &MeasuredApplication,
    time: Duration,
    clock: &RateClock<'_>,
) -> Result<f64> {
    let connection = open(forward, Role::Sink)?;
    let block = vec![0; BLOCK];
    let received = &application.received;
    transfer(connection, received, time, clock, |connection| {
        Ok(connection.write(&block).map(drop)?)
    })
}

/// Returns the rate in Mbit/s at which the near side receives on one connection, over `time` after a warm-up.
///
/// # Errors
///
/// Fails if the connection fails.
pub fn download(forward: &Endpoint, time: Duration) -> Result<f64> {
    let connection = open(forward, Role::Source)?;
    let received = AtomicU64::new(0);
    let mut block = vec![0; BLOCK];
    transfer(connection, &received, time, &since_now(), |connection| {
        let read = connection.read(&mut block)?;
        ensure!(read > 0, "the download ended early");
        received.fetch_add(read as u64, Ordering::Relaxed);
        Ok(())
    })
}

/// A clock by which a rate is measured.
pub type RateClock<'a> = dyn Fn() -> Result<Duration> + 'a;

/// Returns the clock of this machine.
fn since_now() -> impl Fn() -> Result<Duration> {
    let begin = Instant::now();
    move || Ok(begin.elapsed())
}

/// Repeats `step` on a separate thread and returns the rate of `counter`, in Mbit per second of the clock.
fn transfer(
    mut connection: Connection,
    counter: &AtomicU64,
    time: Duration,
    clock: &RateClock<'_>,
    mut step: impl FnMut(&mut Connection) -> Result<()> + Send,
) -> Result<f64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                step(&mut connection)?;
            }
            connection.reset()
        });
        pause(WARM_UP);
        let (begin, before) = (clock(), counter.load(Ordering::Relaxed));
        pause(time);
        let (end, after) = (clock(), counter.load(Ordering::Relaxed));
        over.store(true, Ordering::Relaxed);
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .context("running the measured transfer")?;
        let elapsed = end?.saturating_sub(begin?);
        Ok(figure(after - before) * 8.0 / 1e6 / elapsed.as_secs_f64())
    })
}

/// Moves one block over a connection.
type Step = Box<dyn FnMut(&mut Connection) -> Result<()> + Send>;

/// One of two transfers that take turns: see [`take_turns`].
pub(super) struct Transfer {
    connection: Connection,
    received: Arc<AtomicU64>,
    step: Step,
}

impl Transfer {
    /// Begins an upload on an open connection to this application.
    pub(super) fn upload(
        mut connection: Connection,
        application: &MeasuredApplication,
    ) -> Result<Self> {
        connection.write_all(&[Role::Sink as u8])?;
        let block = vec![0; BLOCK];
        Ok(Self {
            connection,
            received: application.received.clone(),
            step: Box::new(move |connection| Ok(connection.write(&block).map(drop)?)),
        })
    }

    /// Begins a download on an open connection: the application at the far end writes, and what arrives is counted.
    pub(super) fn download(mut connection: Connection) -> Result<Self> {
        connection.write_all(&[Role::Source as u8])?;
        let received = Arc::new(AtomicU64::new(0));
        let (counter, mut block) = (received.clone(), vec![0; BLOCK]);
        Ok(Self {
            connection,
            received,
            step: Box::new(move |connection| {
                let read = connection.read(&mut block)?;
                ensure!(read > 0, "the download ended early");
                counter.fetch_add(read as u64, Ordering::Relaxed);
                Ok(())
            }),
        })
    }

    /// Repeats the step while it is the turn of number `own`, until no transfer has a turn any more.
    fn take_part(mut self, own: usize, turn: &AtomicUsize) -> Result<()> {
        loop {
            match turn.load(Ordering::Relaxed) {
                OVER => return self.connection.reset(),
                now if now == own => (self.step)(&mut self.connection)?,
                _ => std::thread::park(),
            }
        }
    }
}

/// The turn of no transfer: both end.
const OVER: usize = usize::MAX;

/// Returns the rates of two transfers in Mbit/s, each over `time` in all. While one has its turn, the other one is
/// silent. `first` has the first turn.
///
/// # Errors
///
/// Fails if a connection fails.
pub(super) fn take_turns(
    transfers: [Transfer; 2],
    first: usize,
    time: Duration,
) -> Result<[f64; 2]> {
    // At least one, even for a time of 0.
    let turns = time.as_millis().div_ceil(TURN.as_millis()).max(1);
    let counters = [&transfers[0].received, &transfers[1].received].map(Arc::clone);
    let turn = AtomicUsize::new(first);
    let mut measured = [(0, Duration::ZERO); 2];
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (own, transfer) in transfers.into_iter().enumerate() {
            let turn = &turn;
            threads.push(scope.spawn(move || transfer.take_part(own, turn)));
        }
        let give = |to| {
            turn.store(to, Ordering::Relaxed);
            for thread in &threads {
                thread.thread().unpark();
            }
        };
        for number in 0..2 * (1 + turns) {
            let own = if number % 2 == 0 { first } else { 1 - first };
            give(own);
            if number < 2 {
                // Slow start comes first, once for each connection.
                pause(WARM_UP / 2);
                continue;
            }
            pause(SETTLE);
            let (begin, before) = (Instant::now(), counters[own].load(Ordering::Relaxed));
            pause(TURN);
            let after = counters[own].load(Ordering::Relaxed);
            measured[own].0 += after - before;
            measured[own].1 += begin.elapsed();
        }
        give(OVER);
        threads.into_iter().try_for_each(|thread| {
            let done = thread.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("running a measured transfer")
        })
    })?;
    Ok(measured.map(|(bytes, time)| figure(bytes) * 8.0 / 1e6 / time.as_secs_f64()))
}

/// Returns the round-trip times of single bytes in microseconds, sorted.
///
/// # Errors
///
/// Fails if the connection fails.
pub fn echo(forward: &Endpoint, count: usize) -> Result<Vec<f64>> {
    let mut connection = open(forward, Role::Echo)?;
    let mut times = Vec::with_capacity(count);
    for number in 0..WARM_ECHOES + count {
        let begin = Instant::now();
        connection.write_all(b"?")?;
        connection.read_exact(&mut [0])?;
        if number >= WARM_ECHOES {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    connection.reset()?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Returns the rate in connections per second at which connections are opened, answered with one byte and reset, eight
/// at a time.
///
/// # Errors
///
/// Fails if a connection fails.
pub fn connects(forward: &Endpoint, time: Duration) -> Result<f64> {
    let count = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| {
                    while begin.elapsed() < time {
                        let mut connection = open(forward, Role::Echo)?;
                        connection.write_all(b"?")?;
                        connection.read_exact(&mut [0])?;
                        connection.reset()?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, anyhow::Error>(())
                })
            })
            .collect();
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(figure(count.into_inner()) / begin.elapsed().as_secs_f64())
}

/// Blocks the thread for this long.
pub(super) fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
