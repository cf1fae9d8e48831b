//! The process with the stack: a second process of this program, whose standard input is one end of a socket pair.
//!
//! The socket pair brings the sockets of the callers, and at the end carries the report about what this process has
//! used.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_ipc::{
    Advance, Channel, ChannelError, Message, Request, Server, Spawner, WaitPolicy, accept,
};
use quictun_shmq::{INLINE, PeerPayload};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::json;

use super::host::StackHost;
use super::row::Latency;
use super::setup::{BYTES_MAX, Polling, RECV, SEND, Setup, WireKind};
use super::sockets::take;
use super::wire::{SimulatedPrograms, Wire};
use crate::ipc::peer::TIMEOUT;
use crate::kind::{Kind, Placement};
use crate::machine::{bind, clock_ns, cpu_ns};
use crate::netstack::device;

/// Time for which a process with its own core polls before it sleeps, as the product's does when messages are short.
const LOOK: Duration = Duration::from_micros(60);

/// Rounds between two checks whether all callers have gone; a check is a system call.
const ROUNDS: u32 = 4096;

pub(crate) fn run(setup: &Setup, cpu: usize) -> Result<()> {
    bind(cpu)?;
    let control = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("duplicating standard input")?;
    let wire = match setup.wire {
        WireKind::Tun => Wire::Tun(device::create(true).context("creating a TUN device")?),
        WireKind::Memory => {
            let programs = SimulatedPrograms::new(setup.mode, setup.bytes, setup.connections);
            Wire::Memory(programs)
        }
    };
    let host = StackHost::new(wire, setup.polling == Polling::EachSend)?;
    rustix::net::send(&control, b"ready", SendFlags::NOSIGNAL)?;
    let (from, cpu) = (Instant::now(), cpu_ns());
    let host = if setup.kind == Kind::Asynchronous {
        let channel = accept(take(&control)?, TIMEOUT)?;
        serve(channel, host, setup.placement)?
    } else {
        let ends = (0..setup.connections)
            .map(|_| ServerTransport::accept_caller(setup.kind, take(&control)?));
        serve_each(
            &control,
            ends.collect::<Result<_>>()?,
            host,
            setup.placement,
        )?
    };
    let (cpu, elapsed) = (cpu_ns() - cpu, from.elapsed());
    // The client sends the time from which on latencies count.
    let mut since = [0; 8];
    rustix::net::recv(&control, &mut since, RecvFlags::empty())?;
    let counted = clock_ns().saturating_sub(u64::from_le_bytes(since));
    let first = Instant::now().checked_sub(Duration::from_nanos(counted));
    let latency = match host.frames.wire {
        Wire::Memory(programs) => {
            let counts = |(asked, _): &&(Instant, u64)| first.is_some_and(|first| *asked >= first);
            let times = programs.times.iter().filter(counts).map(|(_, time)| *time);
            Latency::of(times.collect())
        }
        Wire::Tun(_) => None,
    };
    let used = json!({
        "cpu_ns": cpu,
        "elapsed_ns": u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        "latency": latency.map(Latency::to_json),
    });
    rustix::net::send(&control, used.to_string().as_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

struct ServerState {
    host: RefCell<StackHost>,
    server: Server,
    /// The request of each connection that waits for the stack, if there is one.
    parked: RefCell<Vec<Option<Request>>>,
    /// Set while a coroutine answers those requests.
    answering: Cell<bool>,
}

fn serve(channel: Channel, host: StackHost, placement: Placement) -> Result<StackHost> {
    let (server, mut executor) = Server::new(channel, WaitPolicy::Hybrid);
    let (wakes, spawner) = (executor.descriptor()?, executor.spawner());
    let shared = Rc::new(ServerState {
        host: RefCell::new(host),
        server,
        parked: RefCell::default(),
        answering: Cell::new(false),
    });
    spawner.spawn(1, shared.clone().answer_all());
    let mut idle: Option<Instant> = None;
    loop {
        let mut busy = shared.host.borrow_mut().turn()?;
        shared.answer_soon(&spawner);
        match executor.try_advance() {
            Some(Advance::Ended) => break,
            done => busy |= done.is_some(),
        }
        busy |= shared.host.borrow_mut().transmit()?;
        if busy {
            idle = None;
            if placement == Placement::OneCore {
                // As below: the caller that was answered needs this core.
                std::thread::yield_now();
            }
            continue;
        }
        let now = Instant::now();
        let since = *idle.get_or_insert(now);
        if placement == Placement::TwoCores && now - since < LOOK {
            std::hint::spin_loop();
            continue;
        }
        match executor.advance() {
            Advance::Ended => break,
            Advance::Ready => {}
            Advance::Asleep(_) => {
                // Requests may have arrived at the last moment.
                if !shared.host.borrow_mut().transmit()? {
                    shared.host.borrow().wait(&wakes)?;
                }
            }
        }
        idle = None;
    }
    drop((executor, wakes));
    let shared = Rc::into_inner(shared).context("some coroutines have not ended")?;
    Ok(shared.host.into_inner())
}

impl ServerState {
    async fn answer_all(self: Rc<Self>) {
        while let Ok(request) = self.server.recv().await {
            if self.answer(request).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, request: Request) -> Result<(), ChannelError> {
        if let Some(answer) = self.attempt(&request) {
            return self.server.reply(request, answer).await;
        }
        let number = request.message().sock() as usize;
        let mut parked = self.parked.borrow_mut();
        if parked.len() <= number {
            parked.resize_with(number + 1, || None);
        }
        parked[number] = Some(request);
        Ok(())
    }

    /// Returns the answer, or `None` if the request must wait.
    fn attempt(&self, request: &Request) -> Option<Message> {
        let message = request.message();
        let (number, host) = (message.sock() as usize, &mut *self.host.borrow_mut());
        let mut bytes = [0; BYTES_MAX];
        let length = request.buffer().map_or(0, |buffer| buffer.len() as usize);
        let length = length.min(BYTES_MAX);
        let answer = Message::new(0);
        match (message.op(), request.buffer()) {
            (RECV, None) => {
                let wanted = usize::try_from(message.arg()).unwrap_or(INLINE).min(INLINE);
                let received = host.receive(number, &mut bytes[..wanted])?;
                answer.with_bytes(&bytes[..received]).ok()
            }
            (RECV, Some(buffer)) => {
                let received = host.receive(number, &mut bytes[..length])?;
                self.server
                    .with_channel(|channel| channel.answer(buffer, 0, &bytes[..received]));
                Some(answer.with_arg(received as u64))
            }
            (_, None) => {
                let sent = host.send(number, message.bytes())?;
                Some(answer.with_arg(sent as u64))
            }
            (_, Some(buffer)) => {
                self.server
                    .with_channel(|channel| channel.read(buffer, 0, &mut bytes[..length]));
                let sent = host.send(number, &bytes[..length])?;
                Some(answer.with_arg(sent as u64))
            }
        }
    }

    fn unpark(&self, number: usize) -> Option<Request> {
        self.parked.borrow_mut().get_mut(number)?.take()
    }

    fn answer_soon(self: &Rc<Self>, spawner: &Spawner) {
        if !self.host.borrow().ready.is_empty() && !self.answering.replace(true) {
            spawner.spawn(0, self.clone().answer_ready());
        }
    }

    async fn answer_ready(self: Rc<Self>) {
        loop {
            let Some(number) = self.host.borrow_mut().ready.pop() else {
                break;
            };
            if let Some(request) = self.unpark(number)
                && self.answer(request).await.is_err()
            {
                break;
            }
        }
        self.answering.set(false);
    }
}

enum ServerTransport {
    Shared(Box<Channel>),
    Socket(OwnedFd),
}

struct CallRequest {
    op: u16,
    length: usize,
    bytes: [u8; BYTES_MAX],
    /// Destination of the answer in shared memory, if there is one.
    place: Option<PeerPayload>,
}

impl ServerTransport {
    fn accept_caller(kind: Kind, socket: OwnedFd) -> Result<Self> {
        Ok(match kind {
            Kind::Futex => Self::Shared(Box::new(accept(socket, TIMEOUT)?)),
            Kind::SeqPacket | Kind::Asynchronous => Self::Socket(socket),
        })
    }

    fn next(&mut self) -> Result<Option<CallRequest>> {
        let mut bytes = [0; BYTES_MAX];
        match self {
            Self::Shared(channel) => {
                let message = match channel.pop() {
                    Ok(Some(message)) => message,
                    Ok(None) | Err(ChannelError::Closed) => return Ok(None),
                    Err(error) => return Err(error.into()),
                };
                let length = (message.len() as usize).min(BYTES_MAX);
                let place = if length > INLINE {
                    channel.received(&message)?
                } else {
                    None
                };
                if let Some(place) = place {
                    channel.read(place, 0, &mut bytes[..length]);
                } else {
                    let length = length.min(INLINE);
                    bytes[..length].copy_from_slice(&message.bytes()[..length]);
                }
                let op = message.op();
                Ok(Some(CallRequest {
                    op,
                    length,
                    bytes,
                    place,
                }))
            }
            Self::Socket(socket) => {
                let mut packet = [0; BYTES_MAX + 1];
                match rustix::net::recv(&*socket, &mut packet, RecvFlags::DONTWAIT) {
                    Ok((1.., whole)) => {
                        // A request to receive is as long as the data that it asks for.
                        let length = whole.min(packet.len()) - 1;
                        bytes[..length].copy_from_slice(&packet[1..=length]);
                        let (op, place) = (packet[0].into(), None);
                        Ok(Some(CallRequest {
                            op,
                            length,
                            bytes,
                            place,
                        }))
                    }
                    Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Answers with the bytes received, or with the number of bytes sent.
    fn answer(&mut self, ask: &CallRequest, received: &[u8], done: usize) -> Result<()> {
        match self {
            Self::Shared(channel) => {
                let mut message = Message::default().with_arg(done as u64);
                if let Some(place) = ask.place {
                    channel.answer(place, 0, received);
                } else {
                    message = message.with_bytes(received)?;
                }
                if channel.push(message) == Ok(true) {
                    channel.flush();
                }
                Ok(())
            }
            Self::Socket(socket) => {
                let count = [u8::try_from(done).unwrap_or(u8::MAX)];
                let packet = if ask.op == RECV { received } else { &count };
                match rustix::net::send(&*socket, packet, SendFlags::NOSIGNAL) {
                    Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// Serves threads that each wait for their answer. It polls them in turn and never sleeps, as the original does.
fn serve_each(
    control: &OwnedFd,
    mut ends: Vec<ServerTransport>,
    mut host: StackHost,
    placement: Placement,
) -> Result<StackHost> {
    let mut asks: Vec<Option<CallRequest>> = ends.iter().map(|_| None).collect();
    for round in 0_u32.. {
        let mut busy = host.turn()?;
        host.ready.clear();
        for (number, (end, asked)) in ends.iter_mut().zip(&mut asks).enumerate() {
            if asked.is_none() {
                *asked = end.next()?;
            }
            let Some(ask) = asked else {
                continue;
            };
            let mut received = [0; BYTES_MAX];
            let done = if ask.op == SEND {
                host.send(number, &ask.bytes[..ask.length])
            } else {
                host.receive(number, &mut received[..ask.length])
            };
            if let Some(done) = done {
                let received = if ask.op == SEND {
                    &[][..]
                } else {
                    &received[..done]
                };
                end.answer(ask, received, done)?;
                *asked = None;
                busy = true;
            }
        }
        busy |= host.transmit()?;
        if round.is_multiple_of(ROUNDS) && is_over(control)? {
            break;
        }
        if placement == Placement::OneCore {
            // The callers that were answered or that are about to call need this core.
            std::thread::yield_now();
        } else if !busy {
            std::hint::spin_loop();
        }
    }
    Ok(host)
}

fn is_over(control: &OwnedFd) -> Result<bool> {
    let mut fds = [PollFd::new(control, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(rustix::event::poll(&mut fds, Some(&at_once))? > 0)
}
