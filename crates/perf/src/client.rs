//! The client: agrees on a plan with a server, moves the bytes, and combines both ends' counts.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::channel::Channel;
use crate::error::PerfError;
use crate::hello::{self, Done, Response, ServerResult, SessionParameters};
use crate::meter::{Clock, Measurement, micros_since};
use crate::plan::{Mode, Plan, Transport};
use crate::report::{Report, report};
use crate::stop::Stop;
use crate::threads::{self, Job};
use crate::{bulk, exchange, quic, trust, udp};

const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Progress of a measurement, reported about four times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressUpdate {
    /// Time since the first connection was started.
    pub elapsed: Duration,
    /// Bytes or transactions at this end so far, including the warm-up.
    pub moved: u64,
}

/// Runs one measurement. `watch` receives its progress. If `stop` is raised, the report contains the results up to
/// then.
pub fn run(
    address: SocketAddr,
    plan: &Plan,
    stop: &Stop,
    watch: &mut dyn FnMut(ProgressUpdate),
) -> Result<Report, PerfError> {
    plan.check()?;
    if plan.transport == Transport::Quic {
        quic::congestion(plan)?;
    }
    let mut control = ControlConnection::connect(address)?;
    let ready = control.agree(plan)?;
    let crypto = match plan.transport {
        Transport::Tls | Transport::Quic => Some(trust::client_config(&ready.pin)?),
        Transport::Tcp | Transport::Udp => None,
    };
    let clock = Clock::new(plan);
    let began = Instant::now();
    let mut watch = |moved| {
        watch(ProgressUpdate {
            elapsed: began.elapsed(),
            moved,
        });
    };
    let job = Job {
        plan,
        seed: ready.cookie,
        clock: &clock,
        began,
        stop,
    };
    let here = measure(job, address, crypto, &mut watch);
    let total_us = micros_since(began, Instant::now());
    let there = control.finish();
    let ((client, own_congestion), there) = (here?, there?);
    // Report a server's error before a cut flow: the end that closed a flow knows the reason.
    let server = there.measured.map_err(PerfError::Far)?;
    let interrupted = stop.is_raised();
    if (client.cut || server.cut) && !interrupted {
        return Err(PerfError::Cut);
    }
    let congestion = if plan.reverse {
        there.congestion
    } else {
        own_congestion
    };
    Ok(Report {
        interrupted,
        ..report(plan, congestion, client, server, total_us)
    })
}

/// Moves the bytes. Returns the counts, and the senders' congestion controller if there is one.
fn measure(
    job: Job<'_>,
    address: SocketAddr,
    crypto: Option<Arc<ClientConfig>>,
    watch: &mut dyn FnMut(u64),
) -> Result<(Measurement, Option<String>), PerfError> {
    match (job.plan.transport, crypto) {
        (Transport::Udp, _) => {
            let work = |_| udp::ask(job, address);
            Ok((threads::run(job, 1, &work, watch)?, None))
        }
        (Transport::Quic, Some(crypto)) => {
            let work = |index| quic::client::run(job, address, &crypto, index);
            let threads = quic::client::threads(job.plan);
            let measured = threads::run(job, threads, &work, watch)?;
            Ok((measured, Some(quic::congestion(job.plan)?.0.to_owned())))
        }
        (Transport::Tcp | Transport::Tls | Transport::Quic, tls) => {
            over_tcp(job, address, tls.as_ref(), watch)
        }
    }
}

fn over_tcp(
    job: Job<'_>,
    address: SocketAddr,
    tls: Option<&Arc<ClientConfig>>,
    watch: &mut dyn FnMut(u64),
) -> Result<(Measurement, Option<String>), PerfError> {
    let plan = job.plan;
    let congestion = OnceLock::new();
    let work = |index| {
        let preamble = hello::preamble(job.seed, index);
        let connect = || {
            let channel = Channel::connect(address, plan, tls, &preamble, job.stop)?;
            if congestion.get().is_none()
                && let Some(name) = channel.congestion()
            {
                // Several flows may read the name at once; it is the same for all.
                congestion.get_or_init(|| name);
            }
            Ok(channel)
        };
        if plan.mode != Mode::Stream {
            return exchange::ask(job, index, &connect);
        }
        let (mut channel, share) = (connect()?, plan.share(index));
        if plan.reverse {
            // The server learns from the held bytes which flow this is, and begins.
            channel.flush_held().map_err(PerfError::flow)?;
            bulk::receive(&mut channel, job, share)
        } else {
            bulk::send(&mut channel, job, share)
        }
    };
    let measured = threads::run(job, plan.total_flows(), &work, watch)?;
    Ok((measured, congestion.into_inner()))
}

struct ControlConnection {
    address: SocketAddr,
    socket: TcpStream,
}

impl ControlConnection {
    fn connect(address: SocketAddr) -> Result<Self, PerfError> {
        let failed = |source| PerfError::Connect(address, source);
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed)?;
        let options = || {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(CONTROL_TIMEOUT))?;
            socket.set_write_timeout(Some(CONTROL_TIMEOUT))
        };
        options().map_err(failed)?;
        Ok(Self { address, socket })
    }

    fn agree(&mut self, plan: &Plan) -> Result<SessionParameters, PerfError> {
        let address = self.address;
        let stranger = |_| PerfError::Stranger(address);
        let mut ask = || {
            self.socket.write_all(&hello::CONTROL)?;
            hello::send(&mut self.socket, plan)?;
            hello::receive(&mut self.socket)
        };
        match ask().map_err(stranger)? {
            Response::Ready(ready) => Ok(ready),
            Response::Refused(why) => Err(PerfError::Refused(why)),
        }
    }

    fn finish(&mut self) -> Result<ServerResult, PerfError> {
        hello::send(&mut self.socket, &Done).map_err(PerfError::Control)?;
        hello::receive(&mut self.socket).map_err(PerfError::Control)
    }
}
