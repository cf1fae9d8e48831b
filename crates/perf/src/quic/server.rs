//! The server's end of a measurement over QUIC.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{Engine, EngineConfig, Event, ServerRole};
use rustls::ServerConfig;

use super::driver::Driver;
use super::socket::Ends;
use super::{MemorySocket, path, port, random, transport};
use crate::error::PerfError;
use crate::meter::{Clock, Measured};
use crate::plan::{Amount, Mode, Plan};
use crate::stop::Stop;

/// Connections at once: more than a client makes.
const CONNECTIONS_MAX: usize = 8192;

/// Time for a stream's first byte.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

/// What the thread that answers needs.
pub(crate) struct Answering<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) crypto: Arc<ServerConfig>,
    pub(crate) seed: u64,
    pub(crate) clock: &'a Clock,
    pub(crate) stop: &'a Stop,
}

impl Answering<'_> {
    /// Answers until everything is to end; `begin` is called when the first may ask.
    pub(crate) fn run(
        &self,
        socket: UdpSocket,
        begin: &dyn Fn() -> Result<(), PerfError>,
    ) -> Result<Measured, PerfError> {
        let config = EngineConfig {
            role: ServerRole {
                crypto: self.crypto.clone(),
                max_connections: CONNECTIONS_MAX,
                max_handshakes: CONNECTIONS_MAX,
                retry_above: CONNECTIONS_MAX,
                always_retry: false,
                identify: false,
                open_timeout: OPEN_TIMEOUT,
            },
            transport: transport(self.plan)?,
            worker: 0,
            seed: random()?,
            reset_key: random()?,
        };
        let ends = Ends::new(self.plan, self.clock, self.seed, false, Instant::now());
        let port = port(socket, self.plan)?;
        let mut driver = Driver::new(
            Engine::server(config)?,
            port,
            self.plan.event_loop,
            self.stop,
        )?;
        let mut known = None;
        begin()?;
        while driver.turn(None)? {
            while let Some(event) = driver.port.engine.poll_event() {
                let now = Instant::now();
                match event {
                    Event::Open(opened) => {
                        let socket = MemorySocket::server(&ends, opened.flow);
                        let dialed = Ok((socket, String::new()));
                        driver.port.engine.handle_dialed(now, opened.flow, dialed);
                        driver.hurry();
                    }
                    Event::FlowClosed(_) if self.plan.mode == Mode::Stream => {
                        known = path(&driver.port.engine.connection_reports()).or(known);
                    }
                    _ => {}
                }
            }
            for flow in ends.wakes.take() {
                let now = Instant::now();
                driver
                    .port
                    .engine
                    .handle_socket(now, flow, true, false, false);
                driver.hurry();
            }
        }
        driver.port.engine.close(Instant::now());
        driver.flush();
        if let Some(fault) = ends.fault.take() {
            return Err(fault);
        }
        // What a client did not wait for has not come.
        ends.meter.borrow_mut().is_over(Instant::now());
        let mut measured = ends.meter.borrow_mut().finish();
        measured.path = known;
        measured.cut = matches!(self.plan.amount, Amount::Bytes(all) if measured.bytes != all);
        Ok(measured)
    }
}
