//! A client that shares only the server with the clients under load, and the delay of its echoes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quictun_sys::raise_scheduling_class;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::Client;

use super::cut::FLOW_TIMEOUT;
use super::measured::pause;
use super::tunnel::{LoadOptions, LoadTunnel};

/// The pause between two echoes.
const TICK: Duration = Duration::from_millis(3);

/// A client with one flow, on which single bytes go to its application and back, one after another. The application runs
/// before other threads as far as the system allows, so that the measured delays are those of the tunnel.
pub(super) struct Bystander {
    client: Client,
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<EchoTime>>>,
}

/// The time of one byte to the application and back.
struct EchoTime {
    begin: Instant,
    end: Instant,
}

/// All echoes of a bystander.
pub(super) struct EchoTimes(Vec<EchoTime>);

impl Bystander {
    /// Starts a bystander at `site`, whose application passes accepted connections to `far`.
    pub(super) fn start(
        site: &LoadTunnel,
        plan: &LoadOptions,
        far: &Receiver<TcpStream>,
    ) -> Result<Self> {
        let client = site.another_client(plan, site.server.address)?;
        let Endpoint::Tcp(forward) = client.forward else {
            bail!("the client listens on a Unix socket");
        };
        let mut stream = site.near(|_| Ok(TcpStream::connect(forward)?))?;
        let reached = far
            .recv_timeout(FLOW_TIMEOUT)
            .context("the bystander's flow did not arrive")?;
        reached.set_nodelay(true)?;
        std::thread::spawn(move || {
            raise_scheduling_class();
            echo(reached);
        });
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(FLOW_TIMEOUT))?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            raise_scheduling_class();
            let mut echoes = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let begin = Instant::now();
                stream.write_all(b"?")?;
                stream.read_exact(&mut [0])?;
                let end = Instant::now();
                echoes.push(EchoTime { begin, end });
                pause(TICK);
            }
            Ok(echoes)
        });
        Ok(Self {
            client,
            over,
            thread,
        })
    }

    pub(super) fn program(&self) -> &Program {
        &self.client.program
    }

    pub(super) fn end(mut self) -> Result<EchoTimes> {
        self.client.program.silence();
        self.over.store(true, Ordering::Relaxed);
        let echoes = self.thread.join();
        echoes
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map(EchoTimes)
            .context("running the bystander, whose connection is not cut")
    }
}

impl EchoTimes {
    /// Returns the delays in milliseconds of the echoes that overlap some range of `times`, and of all others; both
    /// sorted.
    pub(super) fn split(&self, times: &[Range<Instant>]) -> (Vec<f64>, Vec<f64>) {
        let saw = |echo: &&EchoTime| {
            let mut times = times.iter();
            times.any(|time| echo.begin < time.end && time.start < echo.end)
        };
        let (within, without): (Vec<&EchoTime>, Vec<&EchoTime>) = self.0.iter().partition(saw);
        let delays = |echoes: Vec<&EchoTime>| {
            let delays = echoes.iter().map(|echo| echo.end - echo.begin);
            let mut delays: Vec<f64> = delays.map(|delay| delay.as_secs_f64() * 1e3).collect();
            delays.sort_by(f64::total_cmp);
            delays
        };
        (delays(within), delays(without))
    }
}

/// Echoes all data until the flow ends.
pub(super) fn echo(mut stream: TcpStream) {
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut block) {
        if stream.write_all(&block[..read]).is_err() {
            return;
        }
    }
}
