//! The application in this process: it receives and sends one message at a time, in coroutines or in threads.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use quictun_ipc::{Allocation, Channel, Client, Executor, Message, WaitPolicy, connect};
use quictun_shmq::INLINE;
use rustix::net::{RecvFlags, SendFlags};

use super::setup::{BYTES_MAX, Mode, RECV, SEND, Setup};
use super::sockets::send_socket;
use crate::ipc::peer::TIMEOUT;
use crate::kind::Kind;
use crate::machine::{pause, thread_cpu_ns};

/// Bytes of shared memory for payloads that do not fit into a message: enough for one payload on each of 64
/// connections, and more.
const ARENA: u32 = 64 * 1024;

/// Number of messages between two readings of the clock. A reading takes a tenth of the time of the fastest messages.
const LOOKS: u64 = 16;

/// Duration of a run: a warm-up, and then measured parts without a pause between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTimes {
    pub(crate) warm_up: Duration,
    pub(crate) part: Duration,
    pub(crate) parts: usize,
}

/// The progress of a run at one moment. The first mark is the end of the warm-up.
#[derive(Clone, Copy, Debug)]
struct ProgressMark {
    done: u64,
    at: Instant,
}

pub(crate) struct PartSample {
    pub(crate) done: u64,
    pub(crate) elapsed: Duration,
}

pub(crate) struct RunResult {
    pub(crate) samples: Vec<PartSample>,
    pub(crate) counted: Instant,
    /// Processor time of the application's threads, and how long they ran.
    pub(crate) cpu: Duration,
    pub(crate) elapsed: Duration,
}

pub(crate) enum Application {
    Coroutines(Box<Executor>, Client),
    Threads(Vec<CallerTransport>),
}

impl Application {
    pub(crate) fn new(setup: &Setup, control: &OwnedFd) -> Result<Self> {
        let socket = || {
            let (here, there) = quictun_ipc::sockets().context("creating a socket pair")?;
            send_socket(control, &there)?;
            anyhow::Ok(here)
        };
        let channel = |number: usize| {
            let channel = connect(socket()?, ARENA, number as u64, TIMEOUT);
            channel.context("connecting to the stack's process")
        };
        let way = |number: usize| {
            if setup.kind == Kind::SeqPacket {
                return socket().map(CallerTransport::Socket);
            }
            let mut channel = channel(number)?;
            let buffer = channel.reserve(length(setup));
            Ok(CallerTransport::Shared(Box::new(channel), buffer))
        };
        if setup.kind == Kind::Asynchronous {
            let (client, executor) = Client::new(channel(0)?, WaitPolicy::Hybrid);
            return Ok(Self::Coroutines(Box::new(executor), client));
        }
        let ways = (0..setup.connections).map(way);
        Ok(Self::Threads(ways.collect::<Result<_>>()?))
    }

    pub(crate) fn run(
        self,
        setup: &Setup,
        plan: RunTimes,
        counting: &Arc<AtomicBool>,
    ) -> Result<RunResult> {
        let from = Instant::now();
        let (marks, cpu) = match self {
            Self::Coroutines(executor, client) => {
                run_coroutines(*executor, client, setup, plan, counting)?
            }
            Self::Threads(ways) => run_threads(ways, setup, plan, counting)?,
        };
        let between = |pair: &[ProgressMark]| PartSample {
            done: pair[1].done - pair[0].done,
            elapsed: pair[1].at - pair[0].at,
        };
        Ok(RunResult {
            samples: marks.windows(2).map(between).collect(),
            counted: marks.first().context("the warm-up did not end")?.at,
            cpu: Duration::from_nanos(cpu),
            elapsed: from.elapsed(),
        })
    }
}

fn length(setup: &Setup) -> u32 {
    u32::try_from(setup.bytes).unwrap_or(u32::MAX)
}

struct CoroutineState {
    setup: Setup,
    client: Client,
    plan: RunTimes,
    counting: Arc<AtomicBool>,
    /// End of the current part.
    until: Cell<Instant>,
    marks: RefCell<Vec<ProgressMark>>,
    done: Cell<u64>,
    failed: Cell<bool>,
}

fn run_coroutines(
    mut executor: Executor,
    client: Client,
    setup: &Setup,
    plan: RunTimes,
    counting: &Arc<AtomicBool>,
) -> Result<(Vec<ProgressMark>, u64)> {
    let cpu = thread_cpu_ns();
    let shared = Rc::new(CoroutineState {
        setup: *setup,
        client,
        plan,
        counting: counting.clone(),
        until: Cell::new(Instant::now() + plan.warm_up),
        marks: RefCell::default(),
        done: Cell::new(0),
        failed: Cell::new(false),
    });
    for number in 0..setup.connections {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        executor.spawner().spawn(1, shared.clone().serve(number));
    }
    executor.run();
    ensure!(!shared.failed.get(), "the process with the stack failed");
    let marks = shared.marks.take();
    Ok((marks, thread_cpu_ns() - cpu))
}

impl CoroutineState {
    async fn serve(self: Rc<Self>, number: u32) {
        while self.marks.borrow().len() <= self.plan.parts {
            let done = match self.setup.mode {
                Mode::Read => self.receive(number).await,
                Mode::Write => self.send(number).await,
                Mode::Call => self.answer(number).await,
            };
            if done.is_none() {
                self.failed.set(true);
                return;
            }
            self.done.set(self.done.get() + 1);
            if self.done.get().is_multiple_of(LOOKS) {
                self.look();
            }
        }
    }

    fn look(&self) {
        let (at, done) = (Instant::now(), self.done.get());
        if at >= self.until.get() {
            self.counting.store(true, Ordering::Relaxed);
            self.marks.borrow_mut().push(ProgressMark { done, at });
            self.until.set(at + self.plan.part);
        }
    }

    async fn answer(&self, number: u32) -> Option<()> {
        self.receive(number).await?;
        self.send(number).await
    }

    async fn receive(&self, number: u32) -> Option<()> {
        let mut left = self.setup.bytes;
        while left > 0 {
            let part = self.receive_some(number, left).await?;
            left = left.checked_sub(part).filter(|_| part > 0)?;
        }
        Some(())
    }

    async fn receive_some(&self, number: u32, wanted: usize) -> Option<usize> {
        let message = Message::new(RECV).with_sock(number);
        if wanted <= INLINE {
            let message = message.with_arg(wanted as u64);
            return Some(self.client.call(message).await.ok()?.bytes().len());
        }
        let mut bytes = [0; BYTES_MAX];
        let buffer = self.client.reserve(u32::try_from(wanted).ok()?)?;
        let mut call = std::pin::pin!(self.client.call_with(message, buffer));
        let answer = call.as_mut().await.ok()?;
        let (buffer, length) = (call.buffer()?, usize::try_from(answer.arg()).ok()?);
        let part = bytes.get_mut(..length)?;
        self.client
            .with_channel(|channel| channel.read_back(&buffer, 0, part));
        self.client.release(buffer);
        Some(length)
    }

    async fn send(&self, number: u32) -> Option<()> {
        let mut left = &[7; BYTES_MAX][..self.setup.bytes];
        while !left.is_empty() {
            let part = self.send_some(number, left).await?;
            left = left.get(part..).filter(|_| part > 0)?;
        }
        Some(())
    }

    async fn send_some(&self, number: u32, bytes: &[u8]) -> Option<usize> {
        let message = Message::new(SEND).with_sock(number);
        let answer = if let Ok(message) = message.with_bytes(bytes) {
            self.client.call(message).await.ok()?
        } else {
            let buffer = self.client.reserve(u32::try_from(bytes.len()).ok()?)?;
            self.client
                .with_channel(|channel| channel.write(&buffer, 0, bytes));
            let mut call = std::pin::pin!(self.client.call_with(message, buffer));
            let answer = call.as_mut().await.ok()?;
            self.client.release(call.buffer()?);
            answer
        };
        usize::try_from(answer.arg()).ok()
    }
}

pub(crate) enum CallerTransport {
    Shared(Box<Channel>, Option<Allocation>),
    Socket(OwnedFd),
}

fn run_threads(
    mut ways: Vec<CallerTransport>,
    setup: &Setup,
    plan: RunTimes,
    counting: &Arc<AtomicBool>,
) -> Result<(Vec<ProgressMark>, u64)> {
    let over = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = ways.iter().map(|_| AtomicU64::new(0)).collect();
    let work = |way: &mut CallerTransport, count: &AtomicU64| {
        while !over.load(Ordering::Relaxed) {
            way.serve(setup)
                .context("the process with the stack failed")?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(thread_cpu_ns())
    };
    let mut marks = Vec::new();
    let cpu: Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads = ways.iter_mut().zip(&counts);
        let threads: Vec<_> = threads
            .map(|(way, count)| scope.spawn(move || work(way, count)))
            .collect();
        let mut slept = pause(plan.warm_up);
        for _ in 0..=plan.parts {
            let done = counts.iter().map(|count| count.load(Ordering::Relaxed));
            let (done, at) = (done.sum(), Instant::now());
            counting.store(true, Ordering::Relaxed);
            marks.push(ProgressMark { done, at });
            if marks.len() <= plan.parts {
                slept = slept.and_then(|()| pause(plan.part));
            }
        }
        over.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("a thread panicked"))?
        });
        let ended = ended.collect();
        slept.and(ended)
    });
    Ok((marks, cpu?.iter().sum()))
}

impl CallerTransport {
    fn serve(&mut self, setup: &Setup) -> Option<()> {
        match setup.mode {
            Mode::Read => self.move_all(RECV, setup.bytes),
            Mode::Write => self.move_all(SEND, setup.bytes),
            Mode::Call => {
                self.move_all(RECV, setup.bytes)?;
                self.move_all(SEND, setup.bytes)
            }
        }
    }

    fn move_all(&mut self, op: u16, bytes: usize) -> Option<()> {
        let mut left = bytes;
        while left > 0 {
            let part = self.call(op, left)?;
            left = left.checked_sub(part).filter(|_| part > 0)?;
        }
        Some(())
    }

    fn call(&mut self, op: u16, bytes: usize) -> Option<usize> {
        match self {
            Self::Shared(channel, buffer) => {
                let mut off = 0;
                if bytes > INLINE {
                    let buffer = buffer.as_ref()?;
                    off = buffer.off();
                    if op == SEND {
                        channel.write(buffer, 0, &[7; BYTES_MAX][..bytes]);
                    }
                }
                let message = Message::new(op).with_payload(off, u32::try_from(bytes).ok()?);
                if channel.push(message) != Ok(true) {
                    return None;
                }
                let answer = channel.pop_or_sleep()?;
                let done = usize::try_from(answer.arg()).ok()?;
                if bytes > INLINE && op == RECV {
                    let mut taken = [0; BYTES_MAX];
                    let part = taken.get_mut(..done)?;
                    channel.read_back(buffer.as_ref()?, 0, part);
                }
                Some(done)
            }
            Self::Socket(socket) => {
                let mut packet = [7; BYTES_MAX + 1];
                packet[0] = u8::try_from(op).ok()?;
                let packet = &packet[..=bytes];
                rustix::net::send(&*socket, packet, SendFlags::NOSIGNAL).ok()?;
                let mut answer = [0; BYTES_MAX];
                let (length, _) =
                    rustix::net::recv(&*socket, &mut answer, RecvFlags::empty()).ok()?;
                Some(if op == RECV { length } else { answer[0].into() })
            }
        }
    }
}
