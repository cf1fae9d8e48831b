//! Random flows on random links, with drains, closes, crashes, stalls and outages at random moments. No promised byte
//! is lost, no byte arrives twice, and no abort looks like a FIN.

use std::time::Duration;

use quictun_sim::engine::Ending;
use quictun_sim::{
    AppOutcome, HostEngine, HostId, IncomingState, LinkConfig, OutgoingState, Random, Seed,
    WriteStep, config,
};
use quictun_wire::code::FlowCode;

use crate::oracle::{ScriptedFlow, check_direction, check_reset, random_flows, random_link};
use crate::tunnel_pair::{MS, SECOND, TunnelPair};

/// Maximum duration of a run in virtual time.
const RUN_MAX: Duration = Duration::from_mins(20);

/// Interval between two checks whether a drain is complete.
const DRAIN_CHECK_EVERY: Duration = Duration::from_millis(50);

/// A connection survives a silence of this length. A longer one may end it, and what was on its way is lost without bonds.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Deadline of a drain that has enough time to complete.
const LONG_DRAIN: Duration = Duration::from_mins(15);

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndHost {
    Client,
    Server,
}

/// An event that disturbs a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// A process is asked to drain within this time.
    Drain(EndHost, Duration),
    /// A process closes all its connections at once.
    Close(EndHost),
    /// A process dies, and the next one takes its place.
    Death(EndHost),
    /// A host is stopped for this long.
    Stall(EndHost, Duration),
    /// The link delivers nothing for this long.
    Outage(Duration),
}

/// A run in progress.
struct EndingRun {
    pair: TunnelPair,
    flows: Vec<ScriptedFlow>,
    /// Drains in progress, with their deadlines.
    drains: Vec<(EndHost, Duration)>,
    /// Sides whose drain has completed.
    drained: Vec<EndHost>,
    /// Set by an event after which only one guarantee is left: an abort never looks like a FIN.
    broken: bool,
    /// True if flows end with their connection, because there are no bonds.
    mortal: bool,
    links: [LinkConfig; 2],
    outage_until: Option<Duration>,
}

#[test]
fn endings_0() {
    run_seeds("endings_0", 0..500);
}

#[test]
fn endings_1() {
    run_seeds("endings_1", 500..1000);
}

fn run_seeds(test: &'static str, seeds: std::ops::Range<u64>) {
    let mut promises = 0;
    let wanted = Seed::wanted(seeds);
    let runs = wanted.end - wanted.start;
    for seed in wanted {
        promises += run(Seed::of_test(test, seed));
    }
    // A test of promises would prove nothing if the runs made none.
    assert!(
        runs < 100 || promises > runs / 4,
        "{promises} promises in {runs} runs"
    );
}

/// Runs one seed. Returns the number of flows that had to be complete.
fn run(seed: Seed) -> u64 {
    let mut random = seed.random(300);
    let flows = random_flows(&mut random);
    let links = [random_link(&mut random), random_link(&mut random)];
    let protocols = random.pick(&[config::NATIVE, config::NATIVE, config::COMPAT]);
    let mut run = EndingRun {
        pair: random_world(seed, protocols, &mut random, &links),
        flows,
        drains: Vec::new(),
        drained: Vec::new(),
        broken: false,
        mortal: protocols == config::COMPAT,
        links,
        outage_until: None,
    };
    for flow in &run.flows {
        let host = run.pair.network.host(run.pair.server);
        host.serve(&flow.token, flow.dial, flow.server.clone());
    }
    let mut disturbances = random_disturbances(&mut random);
    let mut opened = 0;
    loop {
        let elapsed = run.pair.network.elapsed();
        while run
            .flows
            .get(opened)
            .is_some_and(|flow| flow.opens_at <= elapsed)
        {
            run.open(opened);
            opened += 1;
        }
        while disturbances.first().is_some_and(|&(at, _)| at <= elapsed) {
            let (_, disturbance) = disturbances.remove(0);
            run.disturb(disturbance, &mut random);
        }
        run.go_on();
        if opened == run.flows.len() && disturbances.is_empty() && run.is_over() {
            break;
        }
        assert!(elapsed < RUN_MAX, "flows are left: {:?}", run.left());
        run.pair.network.run_for(DRAIN_CHECK_EVERY);
    }
    run.check()
}

impl EndingRun {
    fn open(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let network = &mut self.pair.network;
        flow.app = Some(network.open(self.pair.client, &flow.token, flow.client.clone()));
    }

    fn host(&self, side: EndHost) -> HostId {
        match side {
            EndHost::Client => self.pair.client,
            EndHost::Server => self.pair.server,
        }
    }

    fn disturb(&mut self, disturbance: Disturbance, random: &mut Random) {
        let elapsed = self.pair.network.elapsed();
        match disturbance {
            Disturbance::Drain(side, patience) => {
                let host = self.host(side);
                self.pair.network.command(host, |engine, _| engine.drain());
                self.drains.push((side, elapsed + patience));
            }
            Disturbance::Close(side) => self.close(side),
            Disturbance::Death(side) => {
                self.broken = true;
                let seed = random.any();
                let network = &mut self.pair.network;
                match side {
                    EndHost::Client => network.kill_client(self.pair.client, config::client(seed)),
                    EndHost::Server => network.kill_server(self.pair.server, config::server(seed)),
                }
                // In reality a process that was asked to drain is not restarted, but that makes no difference here.
                self.drains.retain(|&(drains, _)| drains != side);
            }
            Disturbance::Stall(side, time) => {
                self.broken |= self.mortal && time > SILENCE_MAX;
                let host = self.host(side);
                self.pair.network.stop(host, time);
            }
            Disturbance::Outage(time) => {
                self.broken |= self.mortal && time > SILENCE_MAX;
                self.outage_until = self.outage_until.max(Some(elapsed + time));
                self.set_loss(|_| 1.0);
            }
        }
    }

    fn close(&mut self, side: EndHost) {
        self.broken = true;
        let host = self.host(side);
        self.pair.network.command(host, HostEngine::close);
    }

    fn set_loss(&mut self, loss: impl Fn(&LinkConfig) -> f64) {
        let (client, server) = (self.pair.client, self.pair.server);
        for (index, (from, to)) in [(client, server), (server, client)].into_iter().enumerate() {
            let share = loss(&self.links[index]);
            let network = &mut self.pair.network;
            network.set_link(from, to, |link| link.loss = share);
        }
    }

    /// Ends outages that are over, and drains that are complete or late.
    fn go_on(&mut self) {
        let elapsed = self.pair.network.elapsed();
        if self.outage_until.is_some_and(|until| until <= elapsed) {
            self.outage_until = None;
            self.set_loss(|link| link.loss);
        }
        for (side, until) in std::mem::take(&mut self.drains) {
            let host = self.host(side);
            if self.pair.network.host(host).engine().is_drained() {
                self.drained.push(side);
                self.pair.network.command(host, HostEngine::close);
            } else if until <= elapsed {
                self.close(side);
            } else {
                self.drains.push((side, until));
            }
        }
    }

    fn outcomes<'a>(&'a mut self, flow: &'a ScriptedFlow) -> Vec<AppOutcome> {
        let host = self.pair.network.host(self.pair.server);
        host.apps_of(&flow.token)
            .map(|app| app.outcome().clone())
            .collect()
    }

    fn left(&mut self) -> Vec<String> {
        let flows = std::mem::take(&mut self.flows);
        let mut left = Vec::new();
        for flow in &flows {
            let client = flow.app.map(|app| self.pair.network.outcome(app).clone());
            let open = |outcome: &AppOutcome| outcome.over.is_none();
            let servers = self.outcomes(flow);
            if client.as_ref().is_none_or(open) || servers.iter().any(open) {
                left.push(format!("{}: {client:?} {servers:?}", flow.token));
            }
        }
        self.flows = flows;
        left
    }

    fn is_over(&mut self) -> bool {
        self.left().is_empty()
    }

    /// Checks the run. Returns the number of flows that had to be complete.
    fn check(mut self) -> u64 {
        // A flow waits half a minute for a connection. A connection whose last packets were lost waits for its idle
        // timeout.
        self.pair.network.run_for(120 * SECOND);
        self.pair.check_nothing_left();
        let flows = std::mem::take(&mut self.flows);
        let sides = std::mem::take(&mut self.drained);
        let mut finished = Vec::new();
        for side in sides {
            let summaries = self.pair.closed(self.host(side));
            let ended = summaries
                .into_iter()
                .filter(|summary| summary.ending == Ending::Finished);
            finished.extend(ended.map(|summary| summary.token));
        }
        // The server has given no target to the last attempt of these flows. A target that it has dialled belongs to an
        // earlier attempt, which the client has given up before an answer came.
        let refused: Vec<String> = self
            .pair
            .closed(self.pair.client)
            .into_iter()
            .filter(|summary| summary.ending == Ending::PeerRefused(FlowCode::ShuttingDown))
            .map(|summary| summary.token)
            .collect();
        let mut promises = 0;
        for flow in &flows {
            let client = self.pair.network.outcome(flow.app.expect("opened")).clone();
            let servers = self.outcomes(flow);
            check_flow(flow, &client, &servers);
            if !self.broken
                && !refused.contains(&flow.token)
                && let [server] = &servers[..]
            {
                check_reset(flow, &client, server);
                check_reset(flow, server, &client);
            }
            if !self.broken && !flow.is_cut() && finished.contains(&flow.token) {
                promises += 1;
                let whole = servers.iter().any(AppOutcome::is_clean);
                assert!(
                    client.is_clean() && whole,
                    "{}: {client:?} {servers:?}",
                    flow.token
                );
            }
        }
        promises
    }
}

/// Checks that a FIN means that all data has arrived, and that data was delivered once.
fn check_flow(flow: &ScriptedFlow, client: &AppOutcome, servers: &[AppOutcome]) {
    let context = || format!("{}: {client:?} {servers:?}", flow.token);
    let carriers = servers.iter().filter(|server| server.received > 0);
    assert!(carriers.count() <= 1, "bytes arrived twice: {}", context());
    let Some(last) = servers.last() else {
        assert_ne!(client.incoming, IncomingState::Fin, "{}", context());
        assert_eq!(client.received, 0);
        return;
    };
    let server = servers
        .iter()
        .find(|server| server.received > 0)
        .unwrap_or(last);
    check_direction(flow, "to the server", client, server, &flow.client);
    // If there were several targets, the last one answers.
    check_direction(flow, "to the client", last, client, &flow.server);
    for other in servers {
        let cut = other.incoming != IncomingState::Fin || other.received == client.sent;
        assert!(cut, "an abort looks like a FIN: {}", context());
    }
    let aborts = flow.client.write.contains(&WriteStep::Abort);
    if client.outgoing == OutgoingState::Reset && !aborts {
        assert_ne!(server.incoming, IncomingState::Fin, "{}", context());
    }
}

fn random_world(
    seed: Seed,
    protocols: &'static [&'static [u8]],
    random: &mut Random,
    links: &[LinkConfig; 2],
) -> TunnelPair {
    let mut client = config::client_speaking(protocols, seed.value());
    let mut server = config::server(seed.value());
    for transport in [&mut client.transport, &mut server.transport] {
        transport.stream_window =
            u32::try_from(random.magnitude(16 << 10, 16 << 20)).expect("fits");
    }
    client.role.connections = usize::try_from(random.pick(&[1, 1, 3])).expect("small");
    server.role.always_retry = random.chance(1, 4);
    let [up, down] = links.clone();
    TunnelPair::with(seed, client, server, up, down)
}

fn random_disturbances(random: &mut Random) -> Vec<(Duration, Disturbance)> {
    let mut disturbances = Vec::new();
    for _ in 0..random.within(1, 4) {
        let side = random.pick(&[EndHost::Client, EndHost::Server]);
        let disturbance = match random.within(0, 10) {
            0..=3 => Disturbance::Drain(side, LONG_DRAIN),
            4 => Disturbance::Drain(side, random.time(MS, 5 * SECOND)),
            5 => Disturbance::Close(side),
            6 => Disturbance::Death(side),
            7 | 8 => Disturbance::Stall(side, random.time(MS, 20 * SECOND)),
            _ => Disturbance::Outage(random.time(MS, 20 * SECOND)),
        };
        disturbances.push((random.time(Duration::ZERO, 6 * SECOND), disturbance));
    }
    disturbances.sort_by_key(|&(at, _)| at);
    disturbances
}
