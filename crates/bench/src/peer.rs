//! The server of a measurement: this program once more, with one end of a socket pair as its standard input.

use std::hint::black_box;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Arg;
use quictun_ipc::{Channel, Message, Request, Server, WaitPolicy, accept};
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::{ClockId, clock_gettime};

use super::machine::bind;
use super::policy_of;
use super::synchronous::next;
use crate::OnlyForItself;

/// How long one waits for the other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a call asks for.
pub(crate) const WORK: u16 = 1;
pub(crate) const STATISTICS: u16 = 2;
pub(crate) const PAYLOAD: u16 = 3;

/// Rows of the largest matrix that a call may ask for.
const MATRIX_MAX: usize = 64;

/// What to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    kind: Kind,
    cpu: usize,
    policy: WaitPolicy,
}

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Asynchronous,
    /// One call at a time, in shared memory, both sides asleep in between.
    Futex,
    /// One call at a time, through the kernel.
    SeqPacket,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Asynchronous => "async",
            Self::Futex => "sync-futex",
            Self::SeqPacket => "sync-seqpacket",
        }
    }
}

/// The flag that says what to be.
pub(crate) const FLAG: &str = "peer";

pub(crate) fn arg() -> Arg {
    Arg::new(FLAG)
        .long(FLAG)
        .num_args(3)
        .value_names(["KIND", "CPU", "POLICY"])
        .hide(true)
        .help("Be the server, as `quictun bench ipc` itself asks for")
}

pub(crate) fn parse(words: &[&str]) -> Result<Part, OnlyForItself> {
    let kinds = [Kind::Asynchronous, Kind::Futex, Kind::SeqPacket];
    let part = match words {
        [kind, cpu, policy] => kinds
            .into_iter()
            .find(|known| known.word() == *kind)
            .zip(cpu.parse().ok())
            .map(|(kind, cpu)| Part {
                kind,
                cpu,
                policy: policy_of(policy),
            }),
        _ => None,
    };
    part.ok_or(OnlyForItself {
        flag: "--peer",
        program: "quictun bench ipc",
    })
}

/// A server that runs, and the socket to it.
pub(crate) struct Peer {
    child: Child,
}

impl Peer {
    pub(crate) fn start(kind: Kind, cpu: usize, policy: WaitPolicy) -> Result<(Self, OwnedFd)> {
        let (here, there) = quictun_ipc::sockets().context("a pair of sockets")?;
        let program = std::env::current_exe().context("finding this program")?;
        let child = Process::new(program)
            .args([
                "bench",
                "ipc",
                "--peer",
                kind.word(),
                &cpu.to_string(),
                policy.word(),
            ])
            .stdin(Stdio::from(there))
            .spawn()
            .context("starting this program again")?;
        Ok((Self { child }, here))
    }

    /// One that was started otherwise.
    pub(crate) fn of(child: Child) -> Self {
        Self { child }
    }

    /// Waits for its end, which comes once its socket is closed.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.child.wait().context("waiting for the server")?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only where something went wrong is it still running.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Is the server until the client is gone.
pub(crate) fn run(part: &Part) -> Result<()> {
    bind(part.cpu)?;
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("standard input")?;
    match part.kind {
        Kind::Asynchronous => serve(accept(socket, PATIENCE)?, part.policy),
        Kind::Futex => {
            let mut channel = accept(socket, PATIENCE)?;
            while let Some(item) = next(&mut channel) {
                if channel.push(&item) != Ok(true) {
                    break;
                }
            }
        }
        Kind::SeqPacket => {
            let mut byte = [0];
            while rustix::net::recv(&socket, &mut byte, RecvFlags::empty())?.0 == 1 {
                rustix::net::send(&socket, &byte, SendFlags::NOSIGNAL)?;
            }
        }
    }
    Ok(())
}

fn serve(channel: Channel, policy: WaitPolicy) {
    let (server, mut executor) = Server::new(channel, policy);
    let mut work = Work::default();
    executor.spawner().spawn(1, async move {
        while let Ok(request) = server.recv().await {
            let message = request.message();
            let answer = match message.op() {
                WORK => {
                    work.run(message.sock());
                    let byte = message.bytes().first().copied().unwrap_or_default();
                    Message::new(0).with_bytes(&[byte.wrapping_add(1)])
                }
                PAYLOAD => Ok(Message::new(0).with_arg(sum(&server, &request))),
                _ => Message::new(0)
                    .with_arg(server.counters().notifications)
                    .with_bytes(&cpu_ns().to_le_bytes()),
            };
            let Ok(answer) = answer else { return };
            if server.reply(request, answer).await.is_err() {
                return;
            }
        }
    });
    executor.run();
}

/// Of the words of its buffer, or of the bytes that it carries itself.
fn sum(server: &Server, request: &Request) -> u64 {
    match request.buffer() {
        Some(buffer) => {
            let add = |sums: [u64; 8], line: &[u64; 8]| {
                std::array::from_fn(|at| sums[at].wrapping_add(line[at]))
            };
            let sums = server.with_channel(|channel| channel.fold_lines(buffer, [0; 8], add));
            sums.into_iter().fold(0, u64::wrapping_add)
        }
        None => request
            .message()
            .bytes()
            .iter()
            .map(|byte| u64::from(*byte))
            .sum(),
    }
}

/// What the original's server does per call: four squarings of a matrix.
#[derive(Default)]
struct Work {
    matrix: Vec<u64>,
    square: Vec<u64>,
}

impl Work {
    fn run(&mut self, rows: u32) {
        let rows = (rows as usize).min(MATRIX_MAX);
        if rows == 0 {
            return;
        }
        self.matrix.clear();
        self.matrix.resize(rows * rows, 1);
        self.square.resize(rows * rows, 0);
        for _ in 0..4 {
            for (row, squares) in self
                .matrix
                .chunks_exact(rows)
                .zip(self.square.chunks_exact_mut(rows))
            {
                for (column, square) in squares.iter_mut().enumerate() {
                    let factors = self.matrix.iter().skip(column).step_by(rows);
                    let products = row.iter().zip(factors).map(|(a, b)| a.wrapping_mul(*b));
                    *square = products.fold(0, u64::wrapping_add);
                }
            }
            std::mem::swap(&mut self.matrix, &mut self.square);
        }
        black_box(&self.matrix);
    }
}

/// Nanoseconds of processor that this process has used.
pub(crate) fn cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Nanoseconds of the clock that all processes share: that of [`std::time::Instant`].
pub(crate) fn clock_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}
