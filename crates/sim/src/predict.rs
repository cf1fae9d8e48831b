//! Predicts the goodput of the tunnel on a given link, in virtual time.

use std::time::Duration;

use quictun_engine::{PathMemory, Transport};
use quictun_link::{ConfigError, LinkConfig};

use crate::network::{HostId, Network};
use crate::plain::CrossTraffic;
use crate::script::{Script, WriteStep};
use crate::seed::Seed;
use crate::{SimulatedDial, config};

const CONNECT_MAX: Duration = Duration::from_mins(1);

const CONNECT_STEP: Duration = Duration::from_millis(10);

const TARGET: &str = "bulk";

/// One experiment: a link, the traffic on it, and the duration. The tunnel's only flow goes from the client to the
/// server.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The direction from the client to the server.
    pub up: LinkConfig,
    /// The direction from the server to the client.
    pub down: LinkConfig,
    /// Size of the flow in bytes; `None` means unlimited.
    pub bytes: Option<u64>,
    /// Cross traffic from the client's side to the server's side, on separate hosts.
    pub traffic: Vec<CrossTraffic>,
    /// Engine settings of both client and server.
    pub transport: Transport,
    /// Time after opening the flow that is not measured.
    pub warm_up: Duration,
    /// Measured time, after the warm-up.
    pub duration: Duration,
    /// Seed of all randomness in the run.
    pub seed: u64,
}

/// Rates over the measured time, in bytes per second that applications received.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Goodput of the tunnel's flow.
    pub goodput: f64,
    /// Rates of the cross traffic, in the order of [`Experiment::traffic`].
    pub traffic: Vec<f64>,
}

/// The reason for a failed prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The configuration of a link is invalid.
    #[error(transparent)]
    Link(#[from] ConfigError),
    /// The handshake did not complete within a minute of virtual time.
    #[error("no connection within {CONNECT_MAX:?}: lower the loss or the delay of the link")]
    Unreachable,
    /// The experiment has no time to measure: [`Experiment::duration`] is zero.
    #[error("the measured duration is zero; it must be positive")]
    NoTime,
}

impl Experiment {
    /// Creates an experiment of ten seconds after a warm-up of five, without cross traffic.
    pub fn new(up: LinkConfig, down: LinkConfig) -> Self {
        Self {
            up,
            down,
            bytes: None,
            traffic: Vec::new(),
            transport: config::client(0).transport,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(10),
            seed: 1,
        }
    }
}

/// Runs an experiment in virtual time and returns the rates.
pub fn predict(cell: &Experiment) -> Result<Prediction, PredictError> {
    if cell.duration.is_zero() {
        return Err(PredictError::NoTime);
    }
    cell.up.check()?;
    cell.down.check()?;
    let mut network = Network::new(Seed::plain(cell.seed));
    let mut server = config::server(cell.seed);
    server.transport = transport(cell);
    let server = network.add_server("server 0", server);
    let mut client = config::client_speaking(config::NATIVE, cell.seed);
    client.transport = transport(cell);
    let client = network.add_client("client 0", client, server);
    let (mut left, mut right) = (vec![client], vec![server]);
    for number in 0..cell.traffic.len() {
        left.push(network.add_plain(&format!("left {number}")));
        right.push(network.add_plain(&format!("right {number}")));
    }
    let (up, down) = (cell.up.clone(), cell.down.clone());
    if cell.traffic.is_empty() {
        network.link(client, server, up, down);
    } else {
        network.dumbbell(&left, &right, up, down, Duration::ZERO);
    }
    let pairs = left.into_iter().zip(right).skip(1).zip(&cell.traffic);
    let traffic = pairs.map(|((from, to), traffic)| network.add_traffic(from, to, traffic));
    let traffic: Vec<_> = traffic.collect();
    connect(&mut network, client)?;
    // More than any run can transfer.
    let bytes = cell.bytes.unwrap_or(u64::MAX / 4);
    let sends = Script {
        sends: 1,
        ..Script::default()
    };
    let receives = Script::default().write([WriteStep::Finish]);
    network
        .host(server)
        .serve(TARGET, SimulatedDial::connects(), receives);
    let writes = [WriteStep::Send(bytes), WriteStep::Finish];
    network.open(client, TARGET, sends.write(writes));
    // Bytes received so far: first by the target, then by each stream of cross traffic.
    let received = |network: &Network| -> Vec<u64> {
        let target = network.dialled(server, TARGET);
        let target = target.map_or(0, |target| target.received);
        let traffic = traffic.iter().map(|&id| network.traffic(id).received);
        [target].into_iter().chain(traffic).collect()
    };
    network.run_for(cell.warm_up);
    let before = received(&network);
    network.run_for(cell.duration);
    let mut rates = rates(&before, &received(&network), cell.duration);
    let traffic = rates.split_off(1);
    Ok(Prediction {
        goodput: rates[0],
        traffic,
    })
}

/// Returns the settings of one side. The memory of paths is empty, so that runs do not influence each other.
fn transport(cell: &Experiment) -> Transport {
    Transport {
        memory: PathMemory::default(),
        ..cell.transport.clone()
    }
}

fn connect(network: &mut Network, client: HostId) -> Result<(), PredictError> {
    let until = network.now() + CONNECT_MAX;
    while network.now() < until {
        network.run_for(CONNECT_STEP);
        if network.client(client).is_connected() {
            return Ok(());
        }
    }
    Err(PredictError::Unreachable)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn rates(before: &[u64], after: &[u64], time: Duration) -> Vec<f64> {
    let bytes = before
        .iter()
        .zip(after)
        .map(|(before, after)| after - before);
    bytes
        .map(|bytes| bytes as f64 / time.as_secs_f64())
        .collect()
}
