//! The client: it agrees with a server on a plan, moves the bytes, and puts both ends' counts together.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::bulk;
use crate::channel::Channel;
use crate::error::PerfError;
use crate::exchange::Asking;
use crate::hello::{self, Answer, Done, Outcome, Purpose, Ready};
use crate::meter::{Clock, Measured, micros_since};
use crate::plan::{Mode, Plan, Transport};
use crate::report::{Report, report};
use crate::stop::Stop;
use crate::{crew, quic, trust, udp};

/// Time for the control connection, and for each answer on it.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a measurement goes, told about four times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the first connection was begun.
    pub elapsed: Duration,
    /// Bytes or transactions at this end so far, the warm-up's included.
    pub moved: u64,
}

/// Measures once. `watch` hears how it goes; where `stop` is raised, what was measured until then is the result.
///
/// # Errors
///
/// Whatever keeps it from a result that counts.
pub fn run(
    address: SocketAddr,
    plan: &Plan,
    stop: &Stop,
    watch: &mut dyn FnMut(Moment),
) -> Result<Report, PerfError> {
    plan.check()?;
    if plan.transport == Transport::Quic {
        quic::congestion(plan)?;
    }
    let mut control = Control::connect(address)?;
    let ready = control.agree(plan)?;
    let crypto = match plan.transport {
        Transport::Tls | Transport::Quic => Some(trust::client_config(&ready.pin)?),
        Transport::Tcp | Transport::Udp => None,
    };
    let clock = Clock::new(plan);
    let began = Instant::now();
    let mut watch = |moved| {
        watch(Moment {
            elapsed: began.elapsed(),
            moved,
        });
    };
    let job = Job {
        address,
        plan,
        seed: ready.cookie,
        crypto,
        clock: &clock,
        stop,
        began,
    };
    let here = job.run(&mut watch);
    let total_us = micros_since(began, Instant::now());
    let there = control.finish();
    let (here, there) = (here?, there?);
    // Of two the one who closed knows why.
    let server = there.measured.map_err(|why| PerfError::Far { why })?;
    let interrupted = stop.is_raised();
    if (here.measured.cut || server.cut) && !interrupted {
        return Err(PerfError::Cut);
    }
    let congestion = if plan.reverse {
        there.congestion
    } else {
        here.congestion
    };
    Ok(Report {
        interrupted,
        ..report(plan, congestion, here.measured, server, total_us)
    })
}

/// What one end has to say when it is done.
pub(crate) struct Part {
    pub(crate) measured: Measured,
    /// Of the senders, where they have one.
    pub(crate) congestion: Option<String>,
}

struct Job<'a> {
    address: SocketAddr,
    plan: &'a Plan,
    seed: u64,
    crypto: Option<Arc<ClientConfig>>,
    clock: &'a Clock,
    stop: &'a Stop,
    began: Instant,
}

impl Job<'_> {
    fn run(&self, watch: &mut dyn FnMut(u64)) -> Result<Part, PerfError> {
        match (self.plan.transport, &self.crypto) {
            (Transport::Udp, _) => self.over_udp(watch),
            (Transport::Quic, Some(crypto)) => self.over_quic(crypto.clone(), watch),
            (Transport::Tcp | Transport::Tls | Transport::Quic, _) => self.over_tcp(watch),
        }
    }

    fn over_tcp(&self, watch: &mut dyn FnMut(u64)) -> Result<Part, PerfError> {
        let (plan, seed) = (self.plan, self.seed);
        let congestion = OnceLock::new();
        let work = |index| {
            let preamble = hello::preamble(seed, index);
            let connect = || {
                let tls = self.crypto.as_ref();
                let channel = Channel::connect(self.address, plan, tls, &preamble, self.stop)?;
                if congestion.get().is_none()
                    && let Some(name) = channel.congestion()
                {
                    // Several flows may find it out at once; it is the same.
                    congestion.get_or_init(|| name);
                }
                Ok(channel)
            };
            if plan.mode != Mode::Stream {
                let asking = Asking {
                    plan,
                    seed,
                    clock: self.clock,
                    began: self.began,
                    stop: self.stop,
                };
                return asking.run(index, &connect);
            }
            let (mut channel, share) = (connect()?, plan.share(index));
            if plan.reverse {
                // The server learns from it which flow this is, and begins.
                channel.flush_held().map_err(PerfError::flow)?;
                bulk::receive(&mut channel, seed, self.clock, share, self.began)
            } else {
                bulk::send(&mut channel, seed, self.clock, share)
            }
        };
        let measured = crew::run(plan.total_flows(), self.clock, self.stop, &work, watch)?;
        Ok(Part {
            measured,
            congestion: congestion.into_inner(),
        })
    }

    fn over_quic(
        &self,
        crypto: Arc<ClientConfig>,
        watch: &mut dyn FnMut(u64),
    ) -> Result<Part, PerfError> {
        let asking = quic::client::Asking {
            server: self.address,
            plan: self.plan,
            crypto,
            seed: self.seed,
            clock: self.clock,
            began: self.began,
            stop: self.stop,
        };
        let work = |index| asking.run(index);
        let threads = asking.threads();
        let measured = crew::run(threads, self.clock, self.stop, &work, watch)?;
        Ok(Part {
            measured,
            congestion: Some(quic::congestion(self.plan)?.0.to_owned()),
        })
    }

    fn over_udp(&self, watch: &mut dyn FnMut(u64)) -> Result<Part, PerfError> {
        let end = udp::End {
            plan: self.plan,
            cookie: self.seed,
            clock: self.clock,
            stop: self.stop,
        };
        let work = |_| end.ask(self.address, self.began);
        let measured = crew::run(1, self.clock, self.stop, &work, watch)?;
        Ok(Part {
            measured,
            congestion: None,
        })
    }
}

/// The control connection.
struct Control {
    address: SocketAddr,
    socket: TcpStream,
}

impl Control {
    fn connect(address: SocketAddr) -> Result<Self, PerfError> {
        let failed = |source| PerfError::Connect { address, source };
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed)?;
        let options = || {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(CONTROL_TIMEOUT))?;
            socket.set_write_timeout(Some(CONTROL_TIMEOUT))
        };
        options().map_err(failed)?;
        Ok(Self { address, socket })
    }

    fn agree(&mut self, plan: &Plan) -> Result<Ready, PerfError> {
        let address = self.address;
        let stranger = |_| PerfError::Stranger { address };
        let opening = hello::opening(Purpose::Control);
        let mut ask = || {
            self.socket.write_all(&opening)?;
            hello::send(&mut self.socket, plan)?;
            hello::receive(&mut self.socket)
        };
        match ask().map_err(stranger)? {
            Answer::Ready(ready) => Ok(ready),
            Answer::Refused(why) => Err(PerfError::Refused { why }),
        }
    }

    fn finish(&mut self) -> Result<Outcome, PerfError> {
        hello::send(&mut self.socket, &Done).map_err(PerfError::Control)?;
        hello::receive(&mut self.socket).map_err(PerfError::Control)
    }
}
