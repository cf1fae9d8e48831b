//! An application that takes datagrams, and the programs that send them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_sys::{BufferSide, socket_buffer_force};
use quictun_testbed::deadline;

use crate::load::measured::pause;

/// The first byte of a datagram that the application sends back. It only counts the others.
const ECHO: u8 = b'?';
const COUNT: u8 = b'.';

/// Receive buffer of the application, bytes: its thread may be paused for some time.
const BUFFER: usize = 4 << 20;

/// Time limit for the first answer, and the time between two attempts.
const ANSWERS: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(200);

/// Time for which answers are awaited after the last datagram.
const LATE: Duration = Duration::from_secs(1);

/// Time between two bursts of a flood.
const BURST: Duration = Duration::from_millis(1);

/// An application that sends datagrams back, or counts them.
#[derive(Clone, Debug, Default)]
pub(super) struct DatagramApplication {
    counted: Arc<AtomicU64>,
}

impl DatagramApplication {
    /// Takes the datagrams that arrive at `port` of all IPv4 addresses, until the process ends.
    pub(super) fn serve(&self, port: u16) -> Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        socket_buffer_force(&socket, BufferSide::Receive, BUFFER)?;
        let counted = self.counted.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_535];
            loop {
                match socket.recv_from(&mut buffer) {
                    // A program that has ended refuses the answer.
                    Ok((length, source)) if buffer[..length].first() == Some(&ECHO) => {
                        drop(socket.send_to(&buffer[..length], source));
                    }
                    Ok(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Err(_) => {}
                }
            }
        });
        Ok(())
    }

    /// Returns the number of datagrams that were not sent back.
    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }
}

/// Connects a program to an address, and sends there until the application has answered once: before that, a tunnel lets
/// few datagrams pass.
pub(super) fn connect(to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(AGAIN))?;
    deadline::until(&format!("an answer of {to}"), ANSWERS, || {
        socket.send(&[ECHO]).is_ok() && socket.recv(&mut [0; 8]).is_ok()
    })?;
    Ok(socket)
}

/// Datagrams at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramRhythm {
    /// Length of a datagram, bytes.
    pub(super) length: usize,
    /// Number of datagrams that are sent in each second.
    pub(super) per_second: u32,
    pub(super) count: u32,
}

/// The answers to datagrams.
#[derive(Clone, Debug)]
pub(super) struct RoundTrips {
    /// Their times in milliseconds, sorted.
    pub(super) times: Vec<f64>,
    /// Percentage of datagrams without an answer.
    pub(super) lost: f64,
}

/// Sends datagrams to the application and back.
pub(super) fn round_trips(socket: &UdpSocket, rhythm: DatagramRhythm) -> Result<RoundTrips> {
    let DatagramRhythm {
        length,
        per_second,
        count,
    } = rhythm;
    let begin = Instant::now();
    let due = |number: u32| begin + Duration::from_secs(1) * number / per_second;
    let now = || begin.elapsed().as_secs_f64();
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut payload = vec![ECHO; length];
            for number in 0..count {
                pause(due(number).saturating_duration_since(Instant::now()));
                payload[1..9].copy_from_slice(&now().to_be_bytes());
                socket.send(&payload)?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let mut answer = vec![0; length];
        while times.len() < count as usize && Instant::now() < due(count) + LATE {
            // A timeout is no error, and answers to `connect` are shorter.
            if let Ok(got) = socket.recv(&mut answer)
                && got == length
                && let Some(sent) = answer[1..].first_chunk()
            {
                times.push((now() - f64::from_be_bytes(*sent)) * 1e3);
            }
        }
        sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .context("sending datagrams")
    })?;
    times.sort_by(f64::total_cmp);
    let answered = u32::try_from(times.len())?;
    let lost = f64::from(count.saturating_sub(answered)) / f64::from(count) * 100.0;
    Ok(RoundTrips { times, lost })
}

/// Sends datagrams that the application only counts, on all sockets in turn, for `time`. Returns their number.
pub(super) fn flood(
    sockets: &[UdpSocket],
    length: usize,
    per_second: u64,
    time: Duration,
) -> Result<u64> {
    let payload = vec![COUNT; length];
    let begin = Instant::now();
    let mut sockets = sockets.iter().cycle();
    let mut sent = 0;
    loop {
        let elapsed = begin.elapsed();
        if elapsed >= time {
            return Ok(sent);
        }
        let due = elapsed.as_micros() * u128::from(per_second) / 1_000_000;
        let due = u64::try_from(due)?.min(sent + per_second.div_ceil(100));
        while sent < due {
            let socket = sockets.next().context("no socket")?;
            socket.send(&payload)?;
            sent += 1;
        }
        pause(BURST.saturating_sub(begin.elapsed().saturating_sub(elapsed)));
    }
}
