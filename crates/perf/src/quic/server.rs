//! The server's end of a measurement over QUIC.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{Engine, EngineConfig, Event, ServerEvent, ServerRole};
use rustls::ServerConfig;

use super::driver::Driver;
use super::socket::SocketContext;
use super::{MemorySocket, path, random, transport};
use crate::error::PerfError;
use crate::meter::Measurement;
use crate::plan::{Amount, Mode};
use crate::ports::port;
use crate::threads::Job;

/// Maximum number of concurrent connections: more than a client makes.
const CONNECTIONS_MAX: usize = 8192;

const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

/// Answers until the measurement is to end. It calls `begin` once the client may send requests.
pub(crate) fn answer(
    job: Job<'_>,
    crypto: &Arc<ServerConfig>,
    socket: UdpSocket,
    begin: &dyn Fn() -> Result<(), PerfError>,
) -> Result<Measurement, PerfError> {
    let config = EngineConfig {
        role: ServerRole {
            crypto: crypto.clone(),
            max_connections: CONNECTIONS_MAX,
            max_handshakes: CONNECTIONS_MAX,
            retry_above: CONNECTIONS_MAX,
            always_retry: false,
            https_proxy: false,
            identify: false,
            open_timeout: OPEN_TIMEOUT,
            bond_ttl: Duration::ZERO,
        },
        transport: transport(job.plan)?,
        worker: 0,
        seed: random()?,
        reset_key: random()?,
    };
    let ends = SocketContext::new(job, false);
    let port = port(socket, job.plan)?;
    let mut driver = Driver::new(job, Engine::server(config)?, port)?;
    let mut known = None;
    begin()?;
    while driver.turn(None)? {
        while let Some(event) = driver.port.engine.poll_event() {
            let now = Instant::now();
            match event {
                ServerEvent::Open(opened) => {
                    let socket = MemorySocket::server(&ends, opened.flow);
                    let dialed = Ok((socket, String::new()));
                    driver.port.engine.handle_dialed(now, opened.flow, dialed);
                    driver.hurry();
                }
                ServerEvent::Shared(Event::FlowClosed(_)) if job.plan.mode == Mode::Stream => {
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
    // The client may end without further data, so update the meter: the time may be over.
    ends.meter.borrow_mut().is_over(Instant::now());
    let mut measured = ends.meter.borrow_mut().finish();
    measured.path = known;
    measured.cut = matches!(job.plan.amount, Amount::Bytes(all) if measured.bytes != all);
    Ok(measured)
}
