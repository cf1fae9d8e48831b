//! Random faults under random applications. Without bonds, faults abort flows, and no application may mistake an abort
//! for a FIN. With bonds, flows outlive every fault that is shorter than the lifetime of the bond.
//!
//! To run more seeds: `QUICTUN_SEED=0..20000 cargo test --release -p quictun-sim --test it outlive_faults_0`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quictun_flow::BadNumber;
use quictun_sim::engine::{Account, ConnectionId, Ending, Engine, Event, FlowSummary, Residue};
use quictun_sim::{HostId, Incoming, MemSocket, Random, Seed, Write, config};
use quictun_wire::code::FlowCode;

use crate::oracle::{Flow, check_books, check_direction, is_over, random_flows, random_link};
use crate::world::{MS, SECOND, World};

/// Maximum duration of a run in virtual time, without the lifetime of bonds.
const RUN_MAX: Duration = Duration::from_mins(30);

/// Period in which faults begin.
const FAULTS_WITHIN: Duration = Duration::from_secs(40);

/// Maximum time that both sides need to reconnect: attempts that time out, and the waits between them.
const RECONNECT: Duration = Duration::from_secs(45);

/// Memory budget in which flows can keep everything that they may have to send again.
const ROOMY: u64 = 16 << 20;

/// Maximum bytes of control frames that were created since the engine charged its account last.
const UNCHARGED: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// No flow is kept: there are no bonds, or only on one side.
    Nothing,
    /// All flows of bonds are kept, because no fault takes as long as the lifetime of bonds.
    All,
    /// Some flows of bonds are kept, because a fault may take longer than the lifetime of bonds.
    Some,
}

#[test]
fn no_cut_looks_like_an_end() {
    run_seeds("schedules::no_cut_looks_like_an_end", 0..200, Kept::Nothing);
}

#[test]
fn flows_of_bonds_outlive_faults_0() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_faults_0",
        0..500,
        Kept::All,
    );
}

#[test]
fn flows_of_bonds_outlive_faults_1() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_faults_1",
        500..1000,
        Kept::All,
    );
}

#[test]
fn nothing_is_left_of_bonds_after_their_time() {
    run_seeds(
        "schedules::nothing_is_left_of_bonds_after_their_time",
        0..150,
        Kept::Some,
    );
}

/// A flow of this seed is reset between its MOVE and the answer, and the server reads about that on the control stream
/// first.
#[test]
fn flows_of_bonds_outlive_faults_beyond_those() {
    run_seeds(
        "schedules::flows_of_bonds_outlive_faults_beyond_those",
        4846..4847,
        Kept::All,
    );
}

fn run_seeds(test: &'static str, seeds: std::ops::Range<u64>, kept: Kept) {
    for seed in Seed::wanted(seeds) {
        Run::new(Seed::of_test(test, seed), kept).run();
    }
}

/// A fault that a run injects.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The QUIC library of a side gives up a connection.
    Break(Side),
    /// A side forgets a connection. With `mute`, it does not even send stateless resets.
    Forget { side: Side, mute: bool },
    /// A host sleeps with all its applications; datagrams for it are lost.
    Sleep(Side, Duration),
    /// A process is stopped; datagrams for it are queued.
    Stop(Side, Duration),
    /// The client gets another address.
    Move,
    /// The client gets another port.
    Rebind,
    /// The link delivers nothing in one or both directions for a while.
    BlackHole {
        up: bool,
        down: bool,
        time: Duration,
    },
    /// The client is told to reconnect.
    Reconnect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Fault {
    fn lasts(self) -> Duration {
        match self {
            Self::Sleep(_, time) | Self::Stop(_, time) | Self::BlackHole { time, .. } => time,
            Self::Break(_) | Self::Forget { .. } | Self::Move | Self::Rebind | Self::Reconnect => {
                Duration::ZERO
            }
        }
    }

    /// Returns a random fault that takes at most `most`.
    fn random(random: &mut Random, most: Duration) -> Self {
        let side = random.pick(&[Side::Client, Side::Client, Side::Server]);
        let ms = u64::try_from(most.as_millis()).expect("fits");
        let time = Duration::from_millis(random.magnitude(1, ms));
        match random.within(0, 14) {
            0 | 1 => Self::Break(side),
            2 => Self::Forget { side, mute: true },
            3 => Self::Forget { side, mute: false },
            4 | 5 => Self::Sleep(side, time),
            6 => Self::Stop(side, time),
            7 => Self::Move,
            8 => Self::Rebind,
            9 | 10 => Self::Reconnect,
            11 => Self::BlackHole {
                up: true,
                down: false,
                time,
            },
            12 => Self::BlackHole {
                up: false,
                down: true,
                time,
            },
            _ => Self::BlackHole {
                up: true,
                down: true,
                time,
            },
        }
    }
}

struct Run {
    world: World,
    flows: Vec<Flow>,
    faults: Vec<(Duration, Fault)>,
    random: Random,
    kept: Kept,
    ttl: Duration,
    roomy: bool,
    /// Time at which the last fault is over.
    calm_at: Duration,
}

impl Run {
    fn new(seed: Seed, kept: Kept) -> Self {
        let mut random = seed.random(200);
        let ttl = random.pick(&[2, 5, 30]) * Duration::from_mins(1);
        let flows = patient_flows(&mut random);
        let faults = random_faults(&mut random, ttl, kept);
        let budget = random.pick(&[1 << 20, ROOMY, 1 << 30]);
        let world = random_world(seed, &mut random, kept, ttl, budget);
        Self {
            world,
            flows,
            faults,
            random,
            kept,
            ttl,
            roomy: budget >= ROOMY,
            calm_at: Duration::ZERO,
        }
    }

    fn run(mut self) {
        for flow in &self.flows {
            let host = self.world.network.host(self.world.server);
            host.serve(&flow.token, flow.dial, flow.server.clone());
        }
        let mut faults = std::mem::take(&mut self.faults).into_iter().peekable();
        for index in 0..self.flows.len() {
            let opens_at = self.flows[index].opens_at;
            while let Some((at, fault)) = faults.next_if(|(at, _)| *at <= opens_at) {
                self.until(at);
                self.strike(fault);
            }
            self.until(opens_at);
            let (network, flow) = (&mut self.world.network, &mut self.flows[index]);
            let app = network.open(self.world.client, &flow.token, flow.client.clone());
            flow.app = Some(app);
        }
        for (at, fault) in faults {
            self.until(at);
            self.strike(fault);
        }
        self.finish();
    }

    /// Lets time pass, and checks that both sides agree.
    fn until(&mut self, at: Duration) {
        let left = at.saturating_sub(self.world.network.elapsed());
        self.world.network.run_for(left);
        self.check_invariants();
    }

    fn host(&self, side: Side) -> HostId {
        match side {
            Side::Client => self.world.client,
            Side::Server => self.world.server,
        }
    }

    fn strike(&mut self, fault: Fault) {
        self.calm_at = self
            .calm_at
            .max(self.world.network.elapsed() + fault.lasts());
        let (client, server) = (self.world.client, self.world.server);
        match fault {
            Fault::Break(side) => self.strike_connection(side, |engine, now, id| {
                engine.break_connection(now, id);
            }),
            Fault::Forget { side, mute } => self.strike_connection(side, |engine, now, id| {
                engine.forget_connection(now, id, mute);
            }),
            Fault::Sleep(side, time) => self.world.network.sleep(self.host(side), time),
            Fault::Stop(side, time) => self.world.network.stop(self.host(side), time),
            Fault::Move => self.world.network.move_host(client),
            Fault::Rebind => self.world.network.rebind(client),
            Fault::BlackHole { up, down, time } => {
                for (from, to, taken) in [(client, server, up), (server, client, down)] {
                    if taken {
                        self.world.network.black_hole(from, to, time);
                    }
                }
            }
            Fault::Reconnect => {
                let network = &mut self.world.network;
                network.command(client, Engine::reconnect);
            }
        }
        self.world.network.run_for(Duration::ZERO);
        self.check_invariants();
    }

    fn strike_connection(
        &mut self,
        side: Side,
        fault: impl FnOnce(&mut Engine<MemSocket>, Instant, ConnectionId),
    ) {
        let host = self.host(side);
        let up = self.world.up(host);
        if up.is_empty() {
            return;
        }
        let id = self.random.pick(&up);
        let network = &mut self.world.network;
        network.command(host, |engine, now| fault(engine, now, id));
    }

    /// Checks PROTOCOL section 5.8: from <= the peer's next <= sent.
    fn check_invariants(&mut self) {
        let (client, server) = (self.world.client, self.world.server);
        for host in [client, server] {
            let holdings = self.world.network.host(host).engine().holdings();
            assert!(
                holdings.held <= holdings.charged + UNCHARGED,
                "{holdings:?}"
            );
        }
        for (here, there) in [(client, server), (server, client)] {
            let flows = self.world.network.host(there).engine().bonded_flows();
            let engine = self.world.network.host(here).engine();
            for flow in flows {
                let kept = engine.check_number(flow.bond, flow.number, flow.next);
                let fine = match kept {
                    None | Some(Ok(())) => true,
                    Some(Err(bad)) => !self.roomy && bad == BadNumber::TooOld,
                };
                assert!(fine, "{flow:?}: {kept:?}");
            }
        }
    }

    fn finish(mut self) {
        let server = self.world.server;
        let most = RUN_MAX + self.ttl;
        let flows = &self.flows;
        let network = &mut self.world.network;
        network.run_until(most, |network| {
            flows.iter().all(|flow| is_over(network, server, flow))
        });
        self.check_flows();
        // Datagrams that wait for a stopped host may still start something.
        self.until(self.calm_at + RECONNECT);
        // A connection that one side has forgotten stays at the other side until its idle timeout. A flow that one side
        // considers finished may wait at the other side for as long as a bond lasts.
        let (from, most) = (self.world.network.elapsed(), 2 * (self.ttl + RECONNECT));
        while self.is_left() && self.world.network.elapsed() < from + most {
            self.world.network.run_for(20 * SECOND);
            self.check_invariants();
        }
        self.world.check_nothing_left();
        let client = self.world.client;
        self.world.network.command(client, Engine::close);
        let silent = self.world.network.run_to_silence(self.ttl + RUN_MAX);
        assert!(silent, "a packet or a timer is left");
        for host in [client, server] {
            check_books(&mut self.world, host);
            let holdings = self.world.network.host(host).engine().holdings();
            assert_eq!(holdings.connections, 0, "{holdings:?}");
            assert_eq!(holdings.flows, 0, "{holdings:?}");
            let bonds = self.world.network.host(host).engine().bonded_flows();
            assert!(bonds.is_empty(), "{bonds:?}");
        }
        let apps = [client, server].map(|host| {
            let open = self.world.network.host(host).apps().iter();
            open.filter(|app| app.outcome().over.is_none()).count()
        });
        assert_eq!(apps, [0, 0], "applications that are still open");
    }

    fn is_left(&mut self) -> bool {
        let hosts = [self.world.client, self.world.server];
        let mut residues = hosts.map(|host| self.world.network.host(host).engine().residue());
        residues
            .iter_mut()
            .any(|residue| *residue != Residue::default())
    }

    fn check_flows(&mut self) {
        let (clients, servers) = (
            self.world.closed(self.world.client),
            self.world.closed(self.world.server),
        );
        let welcomed = self.welcomed();
        for flow in &self.flows {
            let client = self.world.network.outcome(flow.app.expect("opened"));
            let Some(server) = self.world.network.dialled(self.world.server, &flow.token) else {
                assert_ne!(client.incoming, Incoming::Fin, "{client:?}");
                assert_eq!(client.received, 0);
                continue;
            };
            check_direction(flow, "to the server", client, server, &flow.client);
            check_direction(flow, "to the client", server, client, &flow.server);
            if flow.is_cut() || self.kept != Kept::All || client.is_clean() && server.is_clean() {
                continue;
            }
            let of = |told: &[FlowSummary]| -> Vec<FlowSummary> {
                let mine = told.iter().filter(|summary| summary.token == flow.token);
                mine.cloned().collect()
            };
            let (here, there) = (of(&clients), of(&servers));
            let [told] = &here[..] else {
                panic!("{}: {here:?}", flow.token);
            };
            // A flow without an answer cannot resume, and neither can one whose connection is lost before its bond was
            // granted.
            let bonded =
                told.established && told.connection.is_some_and(|id| welcomed.contains(&id));
            let poor = |told: &FlowSummary| match told.ending {
                Ending::Abandoned(code) | Ending::PeerReset(Some(code)) => {
                    matches!(code, FlowCode::TooOld | FlowCode::Limit)
                }
                _ => false,
            };
            let poor = !self.roomy && here.iter().chain(&there).any(poor);
            assert!(
                !bonded || poor,
                "{} was aborted: {client:?} {server:?}\n{here:#?}\n{there:#?}",
                flow.token
            );
        }
    }

    /// Returns the client's connections that were granted a bond.
    fn welcomed(&mut self) -> BTreeSet<ConnectionId> {
        let client = self.world.client;
        let events = self.world.network.host(client).events().iter();
        let welcomed = events.filter_map(|(_, event)| match event {
            Event::Welcome {
                connection,
                bonded: true,
                ..
            } => Some(*connection),
            _ => None,
        });
        welcomed.collect()
    }
}

/// Returns flows of applications that also wait. Without waits, all flows would be over before the first fault.
fn patient_flows(random: &mut Random) -> Vec<Flow> {
    let mut flows = random_flows(random);
    for flow in &mut flows {
        let slower = random.pick(&[1, 10, 40]);
        for script in [&mut flow.client, &mut flow.server] {
            for write in &mut script.write {
                if let Write::Wait(time) = write {
                    *time *= slower;
                }
            }
        }
        flow.opens_at *= random.pick(&[1, 1, 10]);
    }
    flows.sort_by_key(|flow| flow.opens_at);
    flows
}

/// Returns faults in the order of their times. Together they leave enough of `ttl`, unless some flows need not be kept.
fn random_faults(random: &mut Random, ttl: Duration, kept: Kept) -> Vec<(Duration, Fault)> {
    let count = random.within(1, 7);
    let most = ttl.saturating_sub(FAULTS_WITHIN + RECONNECT) / u32::try_from(count).expect("small");
    let mut faults = Vec::new();
    let mut last = Duration::ZERO;
    for _ in 0..count {
        // Many faults follow closely on the previous one.
        let at = if random.chance(1, 3) {
            last + random.time(Duration::ZERO, 300 * MS)
        } else {
            random.time(Duration::ZERO, FAULTS_WITHIN)
        };
        last = at;
        faults.push((at, Fault::random(random, most)));
    }
    if kept == Kept::Some {
        let fault = Fault::BlackHole {
            up: true,
            down: random.chance(3, 4),
            time: ttl + random.time(Duration::ZERO, 2 * RECONNECT),
        };
        faults.push((random.time(Duration::ZERO, FAULTS_WITHIN), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn random_world(seed: Seed, random: &mut Random, kept: Kept, ttl: Duration, budget: u64) -> World {
    let protocols = match kept {
        Kept::Nothing => random.pick(&[config::NATIVE, config::COMPAT]),
        Kept::All | Kept::Some => config::NATIVE,
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
    client.role.compat_streams = random.pick(&[80, 80, 3]);
    server.role.always_retry = random.chance(1, 4);
    (client.role.bond_ttl, server.role.bond_ttl) = match kept {
        Kept::All | Kept::Some => (ttl, ttl),
        Kept::Nothing => random.pick(&[
            (Duration::ZERO, Duration::ZERO),
            (ttl, Duration::ZERO),
            (Duration::ZERO, ttl),
        ]),
    };
    let up = random_link(random);
    let down = random_link(random);
    World::with(seed, client, server, up, down)
}
