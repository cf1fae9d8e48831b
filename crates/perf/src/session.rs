//! One measurement, from the server's side.

use std::io::{self, ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustls::ServerConfig;

use crate::channel::Channel;
use crate::error::{PerfError, chain};
use crate::exchange::{self, Exchange};
use crate::hello::{self, Done, Response, ServerResult, SessionParameters};
use crate::meter::{Clock, Measurement, Meter};
use crate::plan::{Mode, Plan, Transport};
use crate::ports::{OPENING_TIMEOUT, Server};
use crate::stop::{Stop, WakeReason};
use crate::threads::{self, Job};
use crate::{bulk, quic, udp};

const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits, in time and in bytes, on reading from another client while the server refuses it.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL_MAX: u64 = 64 * 1024;

pub(crate) struct Session<'a> {
    server: &'a Server<'a>,
    plan: &'a Plan,
    control: &'a TcpStream,
    cookie: u64,
    clock: Clock,
    stop: Stop,
    /// Set once the client was asked to begin.
    begun: OnceLock<()>,
    /// Congestion controller of this end's senders.
    congestion: OnceLock<String>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        server: &'a Server<'a>,
        plan: &'a Plan,
        control: &'a TcpStream,
    ) -> Result<Self, PerfError> {
        let random = quictun_sys::random();
        let random = random.map_err(PerfError::io("cannot draw a random number"))?;
        Ok(Self {
            server,
            plan,
            control,
            cookie: u64::from_ne_bytes(random.as_chunks().0[0]),
            clock: Clock::new(plan),
            stop: Stop::new().map_err(PerfError::io("cannot create an eventfd"))?,
            begun: OnceLock::new(),
            congestion: OnceLock::new(),
        })
    }

    pub(crate) fn run(self) -> Result<Measurement, PerfError> {
        // The work ends when the client reports that it is done, or disconnects.
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                self.await_done();
                self.stop.raise();
            });
            let measured = self.work();
            if self.begun.get().is_none() {
                let why = measured.as_ref().err().map(|error| chain(error));
                let refused = Response::Refused(why.unwrap_or_default());
                // A failure is ignored, because a client that has disconnected needs no answer; `measured` holds the
                // error.
                hello::send(&mut &*self.control, &refused).ok();
            }
            measured
        });
        let outcome = ServerResult {
            measured: match &measured {
                Ok(measured) => Ok(measured.clone()),
                Err(error) => Err(chain(error)),
            },
            congestion: self.congestion.into_inner(),
        };
        let mut control = self.control;
        let told = control
            .set_write_timeout(Some(OUTCOME_TIMEOUT))
            .and_then(|()| hello::send(&mut control, &outcome));
        match (measured, told) {
            (Ok(_), Err(error)) => Err(PerfError::Control(error)),
            (measured, _) => measured,
        }
    }

    fn begin(&self) -> Result<(), PerfError> {
        let ready = SessionParameters {
            cookie: self.cookie,
            pin: self.server.pin.clone(),
        };
        self.begun.get_or_init(|| ());
        let mut control = self.control;
        hello::send(&mut control, &Response::Ready(ready)).map_err(PerfError::Control)
    }

    /// Waits until the client is done or disconnects, or until the server stops.
    fn await_done(&self) {
        let mut control = self.control;
        let stop = self.server.stop;
        let over_tcp = matches!(self.plan.transport, Transport::Tcp | Transport::Tls);
        loop {
            let woken = if over_tcp {
                stop.wait_for(control, PollFlags::IN, None)
            } else {
                stop.wait_for_either(control, &self.server.listener)
            };
            if !matches!(woken, Ok(WakeReason::Ready | WakeReason::Due)) {
                return;
            }
            if !over_tcp && let Some((other, _)) = self.server.accept() {
                refuse(other);
            }
            match self
                .stop
                .wait_for(control, PollFlags::IN, Some(Instant::now()))
            {
                Ok(WakeReason::Due) => {}
                // The measurement is over, whether the client reports it or disconnects.
                Ok(WakeReason::Ready) => return drop(hello::receive::<Done>(&mut control)),
                Ok(WakeReason::Stopped) | Err(_) => return,
            }
        }
    }

    fn work(&self) -> Result<Measurement, PerfError> {
        let mut plan = self.plan.clone();
        plan.event_loop = self.server.options.event_loop.unwrap_or(plan.event_loop);
        let job = Job {
            plan: &plan,
            seed: self.cookie,
            clock: &self.clock,
            began: Instant::now(),
            stop: &self.stop,
        };
        let (mut no_progress, begin) = (|_| {}, || self.begin());
        let socket = || {
            let socket = self.server.udp.try_clone();
            socket.map_err(PerfError::io("cannot share the UDP socket"))
        };
        match plan.transport {
            Transport::Tcp | Transport::Tls => {
                self.begin()?;
                let work = |_| self.serve_connections(job);
                threads::run(job, plan.total_flows(), &work, &mut no_progress)
            }
            Transport::Quic => {
                let (name, _) = quic::congestion(&plan)?;
                self.congestion.get_or_init(|| name.to_owned());
                let work = |_| quic::server::answer(job, &self.server.crypto, socket()?, &begin);
                threads::run(job, 1, &work, &mut no_progress)
            }
            Transport::Udp => {
                let work = |_| udp::answer(job, socket()?, &begin);
                threads::run(job, 1, &work, &mut no_progress)
            }
        }
    }

    /// Accepts and serves connections on one thread of a measurement over TCP, until the client is done.
    fn serve_connections(&self, job: Job<'_>) -> Result<Measurement, PerfError> {
        let plan = job.plan;
        let tls = (plan.transport == Transport::Tls).then_some(&self.server.crypto);
        let mut streams = Measurement::default();
        let mut requests = Meter::new(job.clock);
        let mut dialogue = Exchange::new(job.seed);
        loop {
            let woken = self
                .stop
                .wait_for(&self.server.listener, PollFlags::IN, None);
            if woken.map_err(PerfError::io("cannot wait for connections"))? == WakeReason::Stopped {
                break;
            }
            let Some((socket, _)) = self.server.accept() else {
                continue;
            };
            match self.serve_connection(job, socket, tls, &mut dialogue, &mut requests) {
                Ok(measured) => streams.merge(measured),
                Err(PerfError::Cut) => streams.cut = true,
                Err(error) => return Err(error),
            }
        }
        if plan.mode == Mode::Stream {
            return Ok(streams);
        }
        Ok(Measurement {
            cut: streams.cut,
            ..requests.finish()
        })
    }

    fn serve_connection(
        &self,
        job: Job<'_>,
        socket: TcpStream,
        tls: Option<&Arc<ServerConfig>>,
        dialogue: &mut Exchange,
        requests: &mut Meter<'_>,
    ) -> Result<Measurement, PerfError> {
        let plan = job.plan;
        let Some((mut channel, flow)) = self.open(socket, tls)? else {
            return Ok(Measurement::default());
        };
        if let Some(name) = channel.congestion() {
            self.congestion.get_or_init(|| name);
        }
        let share = plan.share(flow);
        match (plan.mode, plan.reverse) {
            (Mode::Stream, true) => bulk::send(&mut channel, job, share),
            (Mode::Stream, false) => bulk::receive(&mut channel, job, share),
            (Mode::Rr | Mode::Crr, _) => {
                let each = plan.mode == Mode::Crr;
                let left = share.map(|share| if each { 1 } else { share });
                exchange::answer(&mut channel, plan, left, dialogue, requests)?;
                Ok(Measurement::default())
            }
        }
    }

    /// Accepts a data connection and returns its flow, or `None` if the connection does not belong to this measurement.
    fn open(
        &self,
        mut socket: TcpStream,
        tls: Option<&Arc<ServerConfig>>,
    ) -> Result<Option<(Channel, u32)>, PerfError> {
        let mut preamble = [0; hello::PREAMBLE];
        // Detect another client's control connection: it starts neither with a data preamble nor with a TLS handshake.
        let mut begin = || {
            socket.set_read_timeout(Some(OPENING_TIMEOUT))?;
            if tls.is_none() {
                return socket.read_exact(&mut preamble);
            }
            loop {
                match socket.peek(&mut preamble[..8]) {
                    // This process was suspended for a while and continues.
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    done => return done.map(drop),
                }
            }
        };
        if begin().is_err() {
            return Ok(None);
        }
        if preamble[..8] == hello::CONTROL {
            refuse(socket);
            return Ok(None);
        }
        let mut channel = Channel::accepted(socket, self.plan, tls, &self.stop)?;
        let mut have = if tls.is_some() { 0 } else { preamble.len() };
        while have < preamble.len() {
            match channel.read(&mut preamble[have..]) {
                Ok(0) => return Ok(None),
                Ok(read) => have += read,
                Err(error) => return Err(PerfError::flow(error)),
            }
        }
        let flow = hello::flow(preamble, self.cookie);
        Ok(flow.map(|flow| (channel, flow)))
    }
}

fn refuse(mut socket: TcpStream) {
    let busy = Response::Refused("it is busy with another measurement".to_owned());
    let mut tell = || {
        socket.set_read_timeout(Some(REFUSAL_TIMEOUT))?;
        hello::send(&mut socket, &busy)?;
        // Read the client's plan before closing. Otherwise the kernel would reset the connection, and the answer would
        // be lost.
        io::copy(&mut (&socket).take(REFUSAL_MAX), &mut io::sink())
    };
    // A failure is ignored, because the client may have disconnected.
    if tell().is_err() {}
}
