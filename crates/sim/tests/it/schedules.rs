//! Random faults under random applications. Without bonds, faults abort flows, and no application may mistake an abort
//! for a FIN. With bonds, flows outlive every fault that is shorter than the lifetime of the bond. This includes flows of
//! reverse forwards.
//!
//! To run more seeds: `QUICTUN_SEED=0..20000 cargo test --release -p quictun-sim --test it outlive_faults_0`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quictun_flow::ResumeError;
use quictun_sim::engine::{
    Account, CarrierChoice, ClientEvent, ClientRole, ConnectionId, Ending, EngineConfig,
    EngineEvent, Event, FlowResources, FlowSummary, LossReason, ServerRole,
};
use quictun_sim::{
    AppOutcome, HostEngine, HostId, IncomingState, OutgoingState, Random, Seed, WriteStep, config,
};
use quictun_wire::code::FlowCode;

use crate::carrier_schedules::random_middleboxes;
use crate::datagram_schedules::check_datagrams;
use crate::endings::EndHost;
use crate::injected_faults::{
    FAULTS_WITHIN, HandOverEnd, InjectedFault, RECONNECT, random_deaths, random_faults,
    random_hand_overs,
};
use crate::oracle::{
    ScriptedFlow, check_accounting, check_direction, check_reset, is_over, random_flows,
    random_link,
};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, listen};

/// Maximum duration of a run in virtual time, without the lifetime of bonds.
const RUN_MAX: Duration = Duration::from_mins(30);

/// Memory budget in which flows can keep everything that they may have to send again.
const ROOMY: u64 = 16 << 20;

/// Maximum bytes of control frames that were created since the engine charged its account last.
const UNCHARGED: u64 = 1024;

/// The flows that a run must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SurvivingFlows {
    /// No flow is kept: there are no bonds, or only on one side.
    Nothing,
    /// All flows of bonds are kept, because no fault takes as long as the lifetime of bonds.
    All,
    /// Some flows of bonds are kept, because a fault may take longer than the lifetime of bonds.
    Some,
}

#[test]
fn no_cut_looks_like_an_end() {
    run_seeds(
        "schedules::no_cut_looks_like_an_end",
        0..200,
        SurvivingFlows::Nothing,
    );
}

#[test]
fn flows_of_bonds_outlive_faults_0() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_faults_0",
        0..500,
        SurvivingFlows::All,
    );
}

#[test]
fn flows_of_bonds_outlive_faults_1() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_faults_1",
        500..1000,
        SurvivingFlows::All,
    );
}

#[test]
fn nothing_is_left_of_bonds_after_their_lifetime() {
    run_seeds(
        "schedules::nothing_is_left_of_bonds_after_their_lifetime",
        0..150,
        SurvivingFlows::Some,
    );
}

/// A flow of this seed is reset between its MOVE and the answer, and the server reads about that on the control stream
/// first.
#[test]
fn flows_of_bonds_outlive_a_reset_between_move_and_answer() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_a_reset_between_move_and_answer",
        4846..4847,
        SurvivingFlows::All,
    );
}

/// The client of this seed is stopped for five minutes between MOVE and its answer. The answer is lost, and the
/// connection has not timed out when the client continues.
#[test]
fn flows_of_bonds_outlive_a_stop_between_move_and_answer() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_a_stop_between_move_and_answer",
        10_891..10_892,
        SurvivingFlows::All,
    );
}

/// A flow of this seed moves with data that its application has not taken, to a connection with a small window.
#[test]
fn flows_of_bonds_are_charged_when_they_move() {
    run_seeds(
        "schedules::flows_of_bonds_are_charged_when_they_move",
        2611..2612,
        SurvivingFlows::All,
    );
}

/// The server of this seed sleeps for five minutes. It has everything of a flow, and the application has not taken it.
#[test]
fn flows_of_reverse_forwards_outlive_a_sleep_before_their_last_bytes_are_read() {
    run_reverse_seeds(
        "schedules::flows_of_reverse_forwards_outlive_a_sleep_before_their_last_bytes_are_read",
        6562..6563,
        SurvivingFlows::All,
    );
}

#[test]
fn flows_of_reverse_forwards_outlive_faults_0() {
    run_reverse_seeds(
        "schedules::flows_of_reverse_forwards_outlive_faults_0",
        0..500,
        SurvivingFlows::All,
    );
}

#[test]
fn flows_of_reverse_forwards_outlive_faults_1() {
    run_reverse_seeds(
        "schedules::flows_of_reverse_forwards_outlive_faults_1",
        500..1000,
        SurvivingFlows::All,
    );
}

#[test]
fn nothing_is_left_of_bonds_with_reverse_forwards_after_their_lifetime() {
    run_reverse_seeds(
        "schedules::nothing_is_left_of_bonds_with_reverse_forwards_after_their_lifetime",
        0..150,
        SurvivingFlows::Some,
    );
}

#[test]
fn no_cut_of_a_reverse_forward_looks_like_an_end() {
    run_reverse_seeds(
        "schedules::no_cut_of_a_reverse_forward_looks_like_an_end",
        0..100,
        SurvivingFlows::Nothing,
    );
}

fn run_seeds(test: &'static str, seeds: std::ops::Range<u64>, surviving: SurvivingFlows) {
    for seed in Seed::wanted(seeds) {
        let seed = Seed::of_test(test, seed);
        FaultRun::new(seed, surviving, false, CarrierChoice::Quic).run();
    }
}

/// Like [`run_seeds`], with flows of reverse forwards among the others.
fn run_reverse_seeds(test: &'static str, seeds: std::ops::Range<u64>, surviving: SurvivingFlows) {
    for seed in Seed::wanted(seeds) {
        let seed = Seed::of_test(test, seed);
        FaultRun::new(seed, surviving, true, CarrierChoice::Quic).run();
    }
}

pub(crate) struct FaultRun {
    pair: TunnelPair,
    flows: Vec<ScriptedFlow>,
    faults: Vec<(Duration, InjectedFault)>,
    random: Random,
    surviving: SurvivingFlows,
    ttl: Duration,
    roomy: bool,
    /// Time at which the last fault is over.
    calm_at: Duration,
    budget: u64,
    seed: u64,
    /// The role of the client's processes.
    client_role: ClientRole,
    /// Number of processes that have taken over from another one.
    handed_over: u64,
    /// The hosts whose processes hand over.
    hand_over: Vec<EndHost>,
}

impl FaultRun {
    /// Creates a run over the carriers of `choice`. With two of them, middleboxes disturb each.
    pub(crate) fn new(
        seed: Seed,
        surviving: SurvivingFlows,
        reverse: bool,
        choice: CarrierChoice,
    ) -> Self {
        let mut random = seed.random(200);
        let ttl = random.pick(&[2, 5, 30]) * Duration::from_mins(1);
        let mut flows = patient_flows(&mut random);
        if reverse {
            reverse_some(&mut seed.random(201), &mut flows);
        }
        let mut faults = random_faults(&mut random, ttl, surviving);
        if choice == CarrierChoice::Auto {
            faults.extend(random_middleboxes(&mut seed.random(202), FAULTS_WITHIN));
            faults.sort_by_key(|(at, _)| *at);
        }
        let budget = random.pick(&[1 << 20, ROOMY, 1 << 30]);
        let (flags, value) = ((surviving, reverse, choice), seed.value());
        let (mut pair, client_role) = random_world(seed, &mut random, flags, ttl, budget);
        let tcp = choice != CarrierChoice::Quic;
        pair.network.host(pair.server).set_listens_on_tcp(tcp);
        pair.network.host(pair.client).set_listen(listen(0));
        Self {
            pair,
            flows,
            faults,
            random,
            surviving,
            ttl,
            roomy: budget >= ROOMY,
            calm_at: Duration::ZERO,
            budget,
            seed: value,
            client_role,
            handed_over: 0,
            hand_over: Vec::new(),
        }
    }

    /// Adds hand-overs of a host to the faults.
    pub(crate) fn with_hand_overs(mut self, side: EndHost) -> Self {
        let purpose = match side {
            EndHost::Server => 203,
            EndHost::Client => 204,
        };
        let hand_overs = random_hand_overs(&mut Random::new(self.seed, purpose), side);
        self.faults.extend(hand_overs);
        self.faults.sort_by_key(|(at, _)| *at);
        self.hand_over.push(side);
        self
    }

    /// Adds hand-overs of a host to the faults, in each of which a process dies.
    pub(crate) fn with_deaths_in_hand_overs(mut self, side: EndHost) -> Self {
        let purpose = match side {
            EndHost::Server => 205,
            EndHost::Client => 206,
        };
        let deaths = random_deaths(&mut Random::new(self.seed, purpose), side);
        let is_fatal = |(_, fault): &(_, InjectedFault)| matches!(fault, InjectedFault::HandOver { end, .. } if end.is_fatal());
        if deaths.iter().any(is_fatal) {
            self.surviving = SurvivingFlows::Some;
        }
        self.faults.extend(deaths);
        self.faults.sort_by_key(|(at, _)| *at);
        self.hand_over.push(side);
        self
    }

    /// Adds flows, such as those of applications that exchange datagrams.
    pub(crate) fn with_flows(mut self, flows: Vec<ScriptedFlow>) -> Self {
        self.flows.extend(flows);
        self.flows.sort_by_key(|flow| flow.opens_at);
        self
    }

    pub(crate) fn run(mut self) {
        for flow in &self.flows {
            let (_, dials) = self.hosts_of(flow);
            let host = self.pair.network.host(dials);
            host.serve(&flow.token, flow.dial, flow.server.clone());
        }
        let mut faults = std::mem::take(&mut self.faults).into_iter().peekable();
        for index in 0..self.flows.len() {
            let opens_at = self.flows[index].opens_at;
            while let Some((at, fault)) = faults.next_if(|(at, _)| *at <= opens_at) {
                self.until(at);
                self.inject(fault);
            }
            self.until(opens_at);
            let (network, flow) = (&mut self.pair.network, &mut self.flows[index]);
            let script = flow.client.clone();
            let app = match flow.reverse {
                None => network.open(self.pair.client, &flow.token, script),
                Some(id) => network.open_incoming(self.pair.server, id, script),
            };
            flow.app = Some(app);
        }
        for (at, fault) in faults {
            self.until(at);
            self.inject(fault);
        }
        self.finish();
    }

    /// Lets time pass, and checks that both sides agree.
    fn until(&mut self, at: Duration) {
        let left = at.saturating_sub(self.pair.network.elapsed());
        self.pair.network.run_for(left);
        self.check_invariants();
    }

    /// Returns the host to which the first application of a flow has connected, and the host that dials the other one.
    fn hosts_of(&self, flow: &ScriptedFlow) -> (HostId, HostId) {
        let TunnelPair { client, server, .. } = self.pair;
        match flow.reverse {
            None => (client, server),
            Some(_) => (server, client),
        }
    }

    fn host(&self, side: EndHost) -> HostId {
        match side {
            EndHost::Client => self.pair.client,
            EndHost::Server => self.pair.server,
        }
    }

    fn inject(&mut self, fault: InjectedFault) {
        self.calm_at = self
            .calm_at
            .max(self.pair.network.elapsed() + fault.lasts());
        let (client, server) = (self.pair.client, self.pair.server);
        match fault {
            InjectedFault::Break(side) => self.inject_into_connection(side, |engine, now, id| {
                engine.break_connection(now, id);
            }),
            InjectedFault::Forget { side, mute } => {
                self.inject_into_connection(side, |engine, now, id| {
                    engine.forget_connection(now, id, mute);
                });
            }
            InjectedFault::Sleep(side, time) => self.pair.network.sleep(self.host(side), time),
            InjectedFault::Stop(side, time) => self.pair.network.stop(self.host(side), time),
            InjectedFault::Move => self.pair.network.move_host(client),
            InjectedFault::Rebind => self.pair.network.rebind(client),
            InjectedFault::Filter(filter) => self.pair.filter(filter),
            InjectedFault::CutTcp => self.pair.network.cut_tcp(client),
            InjectedFault::SilenceTcp => self.pair.network.silence_tcp(client),
            InjectedFault::BlackHole { up, down, time } => {
                for (from, to, taken) in [(client, server, up), (server, client, down)] {
                    if taken {
                        self.pair.network.black_hole(from, to, time);
                    }
                }
            }
            InjectedFault::Reconnect => {
                let network = &mut self.pair.network;
                network.command(client, |engine, now| engine.client().reconnect(now));
            }
            InjectedFault::HandOver { side, takes, end } => match side {
                EndHost::Server => self.hand_over_server(takes, end),
                EndHost::Client => self.hand_over_client(takes, end),
            },
        }
        self.pair.network.run_for(Duration::ZERO);
        self.check_invariants();
    }

    /// Lets a client's process take over, unless a flow is not answered for long, as under a fault. A running client waits
    /// for a second before it gives such a flow up.
    fn hand_over_client(&mut self, takes: Duration, end: HandOverEnd) {
        let (network, client) = (&mut self.pair.network, self.pair.client);
        let mut cost = network.host(client).engine().restart_cost();
        for _ in 0..10 {
            if cost.unanswered > 0 {
                network.run_for(SECOND / 10);
                cost = network.host(client).engine().restart_cost();
            }
        }
        if cost.unanswered + cost.without_bond > 0 {
            return;
        }
        network.command(client, HostEngine::detach_all);
        self.wait_for_hand_over(client, takes);
        if end != (HandOverEnd::BothDied { released: false }) {
            let config = self.next_client();
            let commits = end != HandOverEnd::RolledBack;
            self.pair.network.hand_over_client(client, config, commits);
        }
        if end.is_fatal() {
            let config = self.next_client();
            self.pair.network.kill_client(client, config);
            self.pair.network.rebind(client);
        }
        if end == HandOverEnd::RolledBack {
            let network = &mut self.pair.network;
            // A running client leaves its old connections open for a while.
            if self.handed_over.is_multiple_of(2) {
                network.run_for(SECOND);
            }
            network.command(client, HostEngine::close_detached);
        }
    }

    fn hand_over_server(&mut self, takes: Duration, end: HandOverEnd) {
        let (network, server) = (&mut self.pair.network, self.pair.server);
        network.command(server, HostEngine::detach_all);
        self.wait_for_hand_over(server, takes);
        let released = HandOverEnd::BothDied { released: true };
        if end == HandOverEnd::Committed || end == released {
            let network = &mut self.pair.network;
            network.command(server, HostEngine::close_detached);
            network.run_for(Duration::ZERO);
        }
        if end != (HandOverEnd::BothDied { released: false }) {
            let config = self.next_server();
            let commits = end != HandOverEnd::RolledBack;
            self.pair.network.hand_over(server, config, commits);
        }
        if end == HandOverEnd::RolledBack {
            let network = &mut self.pair.network;
            network.command(server, HostEngine::close_detached);
        }
        if end.is_fatal() {
            let config = self.next_server();
            self.pair.network.kill_server(server, config);
        }
    }

    /// Lets a process wait until the other one has everything. Nothing of the process moves meanwhile, nor when the time is
    /// over: what arrives is the next one's.
    fn wait_for_hand_over(&mut self, host: HostId, takes: Duration) {
        if takes > Duration::ZERO {
            self.pair.network.stop(host, takes + MS);
            self.pair.network.run_for(takes);
        }
    }

    /// Returns the configuration of the client's next process, which draws other random numbers.
    fn next_client(&mut self) -> EngineConfig<ClientRole> {
        self.handed_over += 1;
        let seed = self.seed + (self.handed_over << 32);
        let mut config = config::client_speaking(config::NATIVE, seed);
        config.role = self.client_role.clone();
        config.transport.account = Account::new(self.budget);
        config
    }

    fn next_server(&mut self) -> EngineConfig<ServerRole> {
        self.handed_over += 1;
        let mut config = config::server(self.seed + (self.handed_over << 32));
        config.role.bond_ttl = self.ttl;
        config.transport.account = Account::new(self.budget);
        config
    }

    fn inject_into_connection(
        &mut self,
        side: EndHost,
        fault: impl FnOnce(&mut HostEngine, Instant, ConnectionId),
    ) {
        let host = self.host(side);
        let up = self.pair.up(host);
        if up.is_empty() {
            return;
        }
        let id = self.random.pick(&up);
        let network = &mut self.pair.network;
        network.command(host, |engine, now| fault(engine, now, id));
    }

    /// Checks PROTOCOL section 5.8: from <= the peer's next <= sent.
    fn check_invariants(&mut self) {
        let (client, server) = (self.pair.client, self.pair.server);
        for host in [client, server] {
            let holdings = self.pair.network.host(host).engine().memory_usage();
            assert!(
                holdings.held <= holdings.charged + UNCHARGED,
                "{holdings:?}"
            );
        }
        for (here, there) in [(client, server), (server, client)] {
            let flows = self.pair.network.host(there).engine().bonded_flows();
            let engine = self.pair.network.host(here).engine();
            for flow in flows {
                let resumable = engine.check_number(flow.bond, flow.number, flow.next);
                let fine = match resumable {
                    None | Some(Ok(())) => true,
                    Some(Err(bad)) => !self.roomy && bad == ResumeError::TooOld,
                };
                assert!(fine, "{flow:?}: {resumable:?}");
            }
        }
    }

    fn finish(mut self) {
        let server = self.pair.server;
        let most = RUN_MAX + self.ttl;
        let flows: Vec<_> = self
            .flows
            .iter()
            .map(|flow| (flow, self.hosts_of(flow).1))
            .collect();
        let network = &mut self.pair.network;
        network.run_until(most, |network| {
            flows
                .iter()
                .all(|(flow, dials)| is_over(network, *dials, flow))
        });
        for flow in self.flows.iter().filter(|flow| flow.client.datagrams) {
            let (opens, dials) = (flow.app.expect("opened"), self.hosts_of(flow).1);
            check_datagrams(&self.pair.network, opens, dials, &flow.token);
        }
        // Datagrams that wait for a stopped host may still start something.
        self.until(self.calm_at + RECONNECT);
        // A connection that one side has forgotten stays at the other side until its idle timeout. A flow that one side
        // considers finished may wait at the other side for as long as a bond lasts.
        let (from, most) = (self.pair.network.elapsed(), 2 * (self.ttl + RECONNECT));
        while self.is_left() && self.pair.network.elapsed() < from + most {
            self.pair.network.run_for(20 * SECOND);
            self.check_invariants();
        }
        // A flow whose application has reset it ends later than the application.
        self.check_flows();
        self.pair.check_nothing_left();
        let client = self.pair.client;
        self.pair.network.command(client, HostEngine::close);
        let silent = self.pair.network.run_to_silence(self.ttl + RUN_MAX);
        assert!(silent, "a packet or a timer is left");
        for host in [client, server] {
            // The events of a host are those of all its processes, and its counters those of the last one.
            let mut hand_over = self.hand_over.iter();
            if !hand_over.any(|&side| self.host(side) == host) {
                check_accounting(&mut self.pair, host);
            }
            let holdings = self.pair.network.host(host).engine().memory_usage();
            assert_eq!(holdings.connections, 0, "{holdings:?}");
            assert_eq!(holdings.flows, 0, "{holdings:?}");
            let bonds = self.pair.network.host(host).engine().bonded_flows();
            assert!(bonds.is_empty(), "{bonds:?}");
        }
        let apps = [client, server].map(|host| {
            let open = self.pair.network.host(host).apps().iter();
            open.filter(|app| app.outcome().over.is_none()).count()
        });
        assert_eq!(apps, [0, 0], "applications that are still open");
    }

    fn is_left(&mut self) -> bool {
        let hosts = [self.pair.client, self.pair.server];
        let mut residues = hosts.map(|host| self.pair.network.host(host).engine().flow_resources());
        residues
            .iter_mut()
            .any(|residue| *residue != FlowResources::default())
    }

    fn check_flows(&mut self) {
        let (clients, servers) = (
            self.pair.closed(self.pair.client),
            self.pair.closed(self.pair.server),
        );
        let welcomed = self.welcomed();
        // The connections of a client's earlier processes take places, too.
        let displaced = !self.roomy && self.has_displaced();
        for flow in &self.flows {
            let app = flow.app.expect("opened");
            let client = &self.pair.network.outcome(app).clone();
            let (_, dials) = self.hosts_of(flow);
            let Some(server) = self.pair.partner(dials, &flow.token) else {
                // A datagram flow that is idle ends by FIN.
                let ended = client.incoming == IncomingState::Fin && !flow.client.datagrams;
                assert!(!ended, "{client:?}");
                assert_eq!(client.received, 0);
                continue;
            };
            let server = &server;
            if !flow.client.datagrams {
                // A datagram flow that is idle ends by FIN, whatever becomes of its other end.
                check_direction(flow, "to the server", client, server, &flow.client);
                check_direction(flow, "to the client", server, client, &flow.server);
            }
            // PROTOCOL BOND-6: a flow is given up with its connection if the answer is lost, too.
            let heres = if flow.reverse.is_some() {
                &servers
            } else {
                &clients
            };
            let mut here = heres.iter().filter(|told| told.token == flow.token);
            let answered = here.all(|told| told.established);
            // A flow that was reset in one direction does not survive a hand-over.
            let kept = self.surviving == SurvivingFlows::All && self.hand_over.is_empty();
            let kept = answered && kept && self.roomy;
            if flow.is_cut() && kept {
                check_reset(flow, client, server);
                check_reset(flow, server, client);
            }
            if flow.is_cut()
                || self.surviving != SurvivingFlows::All
                || client.is_clean() && server.is_clean()
            {
                continue;
            }
            let of = |told: &[FlowSummary]| -> Vec<FlowSummary> {
                let mine = told.iter().filter(|summary| summary.token == flow.token);
                mine.cloned().collect()
            };
            let (mut here, mut there) = (of(&clients), of(&servers));
            if flow.reverse.is_some() {
                std::mem::swap(&mut here, &mut there);
            }
            let [told] = &here[..] else {
                // A process that hands over tells nothing about flows that it resets, which were not answered.
                let is_unanswered = client.received == 0;
                let hands_over = !self.hand_over.is_empty();
                assert!(
                    here.is_empty() && is_unanswered && hands_over,
                    "{}: {here:?}",
                    flow.token
                );
                continue;
            };
            // A flow without an answer cannot resume, and neither can one whose connection is lost before its bond was
            // granted. A server opens flows only after it has granted the bond.
            let granted = || told.connection.is_some_and(|id| welcomed.contains(&id));
            let bonded = told.established && (flow.reverse.is_some() || granted());
            let poor = |told: &FlowSummary| match told.ending {
                Ending::PeerRefused(code)
                | Ending::Abandoned(code)
                | Ending::PeerReset(Some(code)) => {
                    matches!(code, FlowCode::TooOld | FlowCode::Limit)
                }
                Ending::LimitReached(_) => true,
                _ => false,
            };
            let poor = displaced || !self.roomy && here.iter().chain(&there).any(poor);
            assert!(
                !bonded || poor,
                "{} was aborted: {client:?} {server:?}\n{here:#?}\n{there:#?}",
                flow.token
            );
        }
    }

    /// Returns whether the server has closed a connection because another one needed its place.
    fn has_displaced(&mut self) -> bool {
        let server = self.pair.server;
        let mut events = self.pair.network.host(server).events().iter();
        events.any(|(_, event)| {
            let EngineEvent::Shared(Event::Disconnected { reason, .. }) = event else {
                return false;
            };
            *reason == LossReason::GaveWay
        })
    }

    /// Returns the client's connections that were granted a bond.
    fn welcomed(&mut self) -> BTreeSet<ConnectionId> {
        let client = self.pair.client;
        let events = self.pair.network.host(client).events().iter();
        let welcomed = events.filter_map(|(_, event)| match event {
            EngineEvent::Client(ClientEvent::Welcome {
                connection,
                bonded: true,
                ..
            }) => Some(*connection),
            _ => None,
        });
        welcomed.collect()
    }
}

impl TunnelPair {
    /// Returns the application that a host has dialled for a flow. The first request of a flow that was opened twice may
    /// arrive late, and its target is then reset without a byte.
    fn partner(&mut self, dials: HostId, token: &str) -> Option<AppOutcome> {
        let apps = self.network.host(dials).apps_of(token);
        let outcomes: Vec<AppOutcome> = apps.map(|app| app.outcome().clone()).collect();
        let fed = outcomes.iter().filter(|outcome| outcome.received > 0);
        assert!(fed.count() <= 1, "bytes arrived twice: {outcomes:?}");
        let rank = |outcome: &AppOutcome| {
            let reset = outcome.outgoing == OutgoingState::Reset
                || outcome.incoming == IncomingState::Reset;
            (outcome.received, !reset, outcome.sent)
        };
        outcomes.into_iter().max_by_key(rank)
    }
}

/// Returns flows of applications that also wait. Without waits, all flows would be over before the first fault.
fn patient_flows(random: &mut Random) -> Vec<ScriptedFlow> {
    let mut flows = random_flows(random);
    for flow in &mut flows {
        let slower = random.pick(&[1, 10, 40]);
        for script in [&mut flow.client, &mut flow.server] {
            for write in &mut script.write {
                if let WriteStep::Wait(time) = write {
                    *time *= slower;
                }
            }
        }
        flow.opens_at *= random.pick(&[1, 1, 10]);
    }
    flows.sort_by_key(|flow| flow.opens_at);
    flows
}

/// Makes about half of the flows flows of reverse forwards.
fn reverse_some(random: &mut Random, flows: &mut [ScriptedFlow]) {
    for (id, flow) in (0..).zip(flows) {
        if random.chance(1, 2) {
            flow.token = config::reverse_token(id);
            flow.reverse = Some(id);
        }
    }
}

fn random_world(
    seed: Seed,
    random: &mut Random,
    (surviving, reverse, choice): (SurvivingFlows, bool, CarrierChoice),
    ttl: Duration,
    budget: u64,
) -> (TunnelPair, ClientRole) {
    let protocols = match surviving {
        SurvivingFlows::Nothing => random.pick(&[config::NATIVE, config::COMPAT]),
        SurvivingFlows::All | SurvivingFlows::Some => config::NATIVE,
    };
    let mut client = config::client_speaking(protocols, seed.value());
    let mut server = config::server(seed.value());
    let idle = random.pick(&[10, 30, 60]) * SECOND;
    for transport in [&mut client.transport, &mut server.transport] {
        transport.stream_window =
            u32::try_from(random.magnitude(16 << 10, 16 << 20)).expect("fits");
        transport.max_segments = random.pick(&[1, 2, 10, 64]);
        transport.account = Account::new(budget);
        transport.idle_timeout = idle;
    }
    client.role.connections = usize::try_from(random.pick(&[1, 1, 1, 3])).expect("small");
    client.role.reverse = reverse;
    client.role.servers[0].carrier = choice;
    client.role.compat_streams = random.pick(&[80, 80, 3]);
    server.role.always_retry = random.chance(1, 4);
    (client.role.bond_ttl, server.role.bond_ttl) = match surviving {
        SurvivingFlows::All | SurvivingFlows::Some => (ttl, ttl),
        SurvivingFlows::Nothing => random.pick(&[
            (Duration::ZERO, Duration::ZERO),
            (ttl, Duration::ZERO),
            (Duration::ZERO, ttl),
        ]),
    };
    let up = random_link(random);
    let down = random_link(random);
    let role = client.role.clone();
    (TunnelPair::with(seed, client, server, up, down), role)
}
