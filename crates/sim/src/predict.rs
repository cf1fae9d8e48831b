//! What the tunnel gets out of a link: one question, one answer, no clock.

use std::time::{Duration, Instant};

use quictun_engine::{PathMemory, Transport};
use quictun_link::{ConfigError, Counters, Histogram, LinkConfig};

use crate::network::{AppId, HostId, Network, TrafficId};
use crate::plain::{Traffic, TrafficReport};
use crate::script::{Script, Write};
use crate::seed::Seed;
use crate::{Dial, config};

/// Longest time for tunnels to connect.
const CONNECT_MAX: Duration = Duration::from_mins(1);

/// How often the clock stops while they do.
const CONNECT_STEP: Duration = Duration::from_millis(10);

/// Looks at the queue in one interval of the series.
const LOOKS: u32 = 100;

/// The token of the only target.
const TARGET: &str = "bulk";

/// A link, what crosses it, and for how long.
#[derive(Clone, Debug)]
pub struct Cell {
    /// From the clients to the servers.
    pub up: LinkConfig,
    /// From the servers to the clients.
    pub down: LinkConfig,
    /// Where the tunnels' bytes go.
    pub direction: Direction,
    /// Tunnels that share the link: one client, one server and one flow each.
    pub tunnels: usize,
    /// Bytes of each flow; `None`: as many as pass.
    pub bytes: Option<u64>,
    /// Cross traffic, on hosts of its own.
    pub traffic: Vec<(Direction, Traffic)>,
    /// Engine settings of both ends.
    pub transport: Transport,
    /// Time that does not count, from the moment at which the flows are opened.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
    /// Length of one point of the series.
    pub interval: Duration,
    /// What chance follows from.
    pub seed: u64,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the clients to the servers.
    #[default]
    Up,
    /// From the servers to the clients.
    Down,
}

/// What came of it. Rates are bytes per second that applications received.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The sum of the tunnels.
    pub goodput: f64,
    /// Each tunnel.
    pub goodputs: Vec<f64>,
    /// Cross traffic in the order of the cell: its rate, and its counts from the beginning.
    pub traffic: Vec<(f64, TrafficReport)>,
    /// One point for each interval, the warm-up among them.
    pub series: Vec<Point>,
    /// Waiting times in the queue of the tunnels' direction while it counted, evenly over time.
    pub queue: Histogram,
    /// What became of the packets of that direction, from the beginning.
    pub counters: Counters,
    /// When the last byte of the last flow came, after the flows were opened; `None`: not in time, or
    /// the flows have no end.
    pub finished: Option<Duration>,
    /// Packets that entered links.
    pub packets: u64,
}

/// One interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its end, counted from the moment at which the flows were opened.
    pub at: Duration,
    /// Bytes per second of each tunnel.
    pub goodputs: Vec<f64>,
    /// Bytes per second of each stream of cross traffic.
    pub traffic: Vec<f64>,
    /// Mean waiting time.
    pub queue: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// There is no such link.
    #[error(transparent)]
    Link(#[from] ConfigError),
    /// The link lets no handshake pass.
    #[error("no connection within {CONNECT_MAX:?}: lower the loss or the delay of the link")]
    Unreachable,
    /// A cell without time.
    #[error("duration and interval must be longer than nothing")]
    NoTime,
}

impl Cell {
    /// One tunnel that sends up for ten seconds after a warm-up of five, alone.
    pub fn new(up: LinkConfig, down: LinkConfig) -> Self {
        Self {
            up,
            down,
            direction: Direction::default(),
            tunnels: 1,
            bytes: None,
            traffic: Vec::new(),
            transport: config::client(0).transport,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(10),
            interval: Duration::from_millis(100),
            seed: 1,
        }
    }

    /// The same link both ways: bytes per second, time there and back, share of packets lost at random, and
    /// a queue of one bandwidth-delay product, at least 64 KiB.
    pub fn symmetric(rate: u64, round_trip: Duration, loss: f64) -> Self {
        const QUEUE_MIN: usize = 64 * 1024;
        const MTU: usize = 1500;
        let mut link = LinkConfig {
            rate: Some(rate),
            delay: round_trip / 2,
            loss,
            mtu: MTU,
            ..LinkConfig::default()
        };
        let queue = link.bandwidth_delay(round_trip).max(QUEUE_MIN);
        link.queue = quictun_link::Queue::Bytes(queue);
        Self::new(link.clone(), link)
    }
}

/// Runs a cell in virtual time.
pub fn predict(cell: &Cell) -> Result<Prediction, PredictError> {
    if cell.duration.is_zero() || cell.interval.is_zero() {
        return Err(PredictError::NoTime);
    }
    cell.up.check()?;
    cell.down.check()?;
    let mut run = Run::new(cell);
    run.connect()?;
    run.open();
    Ok(run.measure())
}

/// A cell at work.
struct Run<'a> {
    cell: &'a Cell,
    network: Network,
    /// Client and server of each tunnel.
    tunnels: Vec<(HostId, HostId)>,
    apps: Vec<AppId>,
    traffic: Vec<TrafficId>,
    /// The two ends of the link in the tunnels' direction.
    bottleneck: (HostId, HostId),
    previous: Vec<u64>,
    queue: Histogram,
}

impl<'a> Run<'a> {
    fn new(cell: &'a Cell) -> Self {
        let mut network = Network::new(Seed::plain(cell.seed));
        let mut tunnels = Vec::new();
        for number in 0..cell.tunnels.max(1) {
            let seed = cell.seed.wrapping_add((number as u64) << 32);
            let mut config = config::server(seed);
            config.transport = cell.transport.clone();
            // A run begins without what another one has learnt.
            config.transport.memory = PathMemory::default();
            let server = network.add_server(&format!("server {number}"), config);
            let mut config = config::client_speaking(config::NATIVE, seed);
            config.transport = cell.transport.clone();
            config.transport.memory = PathMemory::default();
            let client = network.add_client(&format!("client {number}"), config, server);
            tunnels.push((client, server));
        }
        let mut left: Vec<HostId> = tunnels.iter().map(|ends| ends.0).collect();
        let mut right: Vec<HostId> = tunnels.iter().map(|ends| ends.1).collect();
        let mut pairs = Vec::new();
        for (number, (direction, _)) in cell.traffic.iter().enumerate() {
            let host = |network: &mut Network, side| network.add_plain(&format!("{side} {number}"));
            let pair = (host(&mut network, "left"), host(&mut network, "right"));
            left.push(pair.0);
            right.push(pair.1);
            pairs.push(match direction {
                Direction::Up => pair,
                Direction::Down => (pair.1, pair.0),
            });
        }
        let (up, down) = (cell.up.clone(), cell.down.clone());
        let ends = if let ([client], [server]) = (&left[..], &right[..]) {
            network.link(*client, *server, up, down);
            (*client, *server)
        } else {
            network.dumbbell(&left, &right, up, down, Duration::ZERO)
        };
        let traffic = pairs.iter().zip(&cell.traffic);
        let traffic =
            traffic.map(|(&(from, to), (_, traffic))| network.add_traffic(from, to, traffic));
        Self {
            cell,
            traffic: traffic.collect(),
            network,
            tunnels,
            apps: Vec::new(),
            bottleneck: match cell.direction {
                Direction::Up => ends,
                Direction::Down => (ends.1, ends.0),
            },
            previous: Vec::new(),
            queue: Histogram::default(),
        }
    }

    fn connect(&mut self) -> Result<(), PredictError> {
        let clients: Vec<HostId> = self.tunnels.iter().map(|ends| ends.0).collect();
        let until = self.network.now() + CONNECT_MAX;
        while self.network.now() < until {
            self.network.run_for(CONNECT_STEP);
            let network = &mut self.network;
            let is_up = |&client: &HostId| network.host(client).engine().is_connected();
            if clients.iter().all(is_up) {
                return Ok(());
            }
        }
        Err(PredictError::Unreachable)
    }

    /// Opens the flow of each tunnel.
    fn open(&mut self) {
        // Far more than passes in any run.
        let bytes = self.cell.bytes.unwrap_or(u64::MAX / 4);
        let sends = Script {
            sends: 1,
            ..Script::default()
        };
        let sends = sends.write([Write::Send(bytes), Write::Finish]);
        let receives = Script::default().write([Write::Finish]);
        let (client_script, server_script) = match self.cell.direction {
            Direction::Up => (sends, receives),
            Direction::Down => (receives, sends),
        };
        for &(client, server) in &self.tunnels {
            let host = self.network.host(server);
            host.serve(TARGET, Dial::connects(), server_script.clone());
            let app = self.network.open(client, TARGET, client_script.clone());
            self.apps.push(app);
        }
    }

    fn measure(mut self) -> Prediction {
        let opened = self.network.now();
        self.previous = self.received();
        let mut series = Vec::new();
        self.advance(self.cell.warm_up, opened, &mut series);
        let before = self.received();
        self.queue = Histogram::default();
        self.advance(self.cell.duration, opened, &mut series);
        let rates = rates(&before, &self.received(), self.cell.duration);
        let (goodputs, traffic) = rates.split_at(self.tunnels.len());
        let reports = self.traffic.iter().map(|&id| self.network.traffic(id));
        let (from, to) = self.bottleneck;
        Prediction {
            goodput: goodputs.iter().sum(),
            goodputs: goodputs.to_vec(),
            traffic: traffic.iter().copied().zip(reports).collect(),
            series,
            counters: self.network.counters(from, to),
            finished: self.finished().map(|at| at - opened),
            packets: self.network.packets(),
            queue: self.queue,
        }
    }

    /// Lets time pass, point by point.
    fn advance(&mut self, time: Duration, opened: Instant, series: &mut Vec<Point>) {
        let until = self.network.now() + time;
        let (from, to) = self.bottleneck;
        while self.network.now() < until {
            let begins = self.network.now();
            let ends = (begins + self.cell.interval).min(until);
            let length = ends - begins;
            let mut waits = Duration::ZERO;
            for look in 1..=LOOKS {
                let at = begins + length * look / LOOKS;
                self.network.run_for(at - self.network.now());
                let wait = self.network.queue_delay(from, to);
                self.queue.record(wait);
                waits += wait;
            }
            let received = self.received();
            let mut rates = rates(&self.previous, &received, length);
            let traffic = rates.split_off(self.tunnels.len());
            self.previous = received;
            series.push(Point {
                at: ends - opened,
                goodputs: rates,
                traffic,
                queue: waits / LOOKS,
            });
        }
    }

    /// Bytes received so far by each tunnel's application, then by each stream of cross traffic.
    fn received(&self) -> Vec<u64> {
        let tunnels = self.tunnels.iter().zip(&self.apps);
        let tunnels = tunnels.map(|(&(_, server), &app)| match self.cell.direction {
            Direction::Up => {
                let target = self.network.dialled(server, TARGET);
                target.map_or(0, |target| target.received)
            }
            Direction::Down => self.network.outcome(app).received,
        });
        let traffic = self.traffic.iter();
        let traffic = traffic.map(|&id| self.network.traffic(id).received);
        tunnels.chain(traffic).collect()
    }

    /// When the last flow had received all its bytes, if they all have.
    fn finished(&self) -> Option<Instant> {
        let bytes = self.cell.bytes?;
        let mut last = self.network.at(Duration::ZERO);
        for (&(_, server), &app) in self.tunnels.iter().zip(&self.apps) {
            let outcome = match self.cell.direction {
                Direction::Up => self.network.dialled(server, TARGET)?,
                Direction::Down => self.network.outcome(app),
            };
            if outcome.received < bytes {
                return None;
            }
            last = last.max(outcome.last_byte?);
        }
        Some(last)
    }
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
