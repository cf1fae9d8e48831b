//! A client with several servers: the server that new flows go to, and the cost of a server's death.

use std::time::Duration;

use quictun_sim::engine::report::{ChoiceReason, ServerId};
use quictun_sim::engine::{ClientEvent, EngineEvent, Rank, ServerPlace};
use quictun_sim::{
    AppId, HostEngine, HostId, IncomingState, LinkConfig, Network, OutgoingState, Script, Seed,
    SimulatedDial, WriteStep, config,
};

use quictun_wire::code::FlowCode;

use crate::tunnel_pair::{MS, SECOND, wire};

/// Bytes that each flow sends and receives back.
const BYTES: u64 = 300;

/// A client with bonds and its servers, each at the end of its own link.
struct ServerGroup<const N: usize> {
    network: Network,
    client: HostId,
    servers: [HostId; N],
    opened: Vec<AppId>,
}

fn server_config(seed: u64) -> quictun_sim::engine::EngineConfig<quictun_sim::engine::ServerRole> {
    let mut server = config::server(seed);
    server.role.bond_ttl = Duration::from_mins(30);
    server
}

impl<const N: usize> ServerGroup<N> {
    fn new(links: [LinkConfig; N]) -> Self {
        Self::in_places(links, [ServerPlace::default(); N])
    }

    fn in_places(links: [LinkConfig; N], places: [ServerPlace; N]) -> Self {
        let mut network = Network::new(Seed::fixed(1));
        let servers = std::array::from_fn(|index| {
            let seed = 10 + index as u64;
            network.add_server(&format!("server {index}"), server_config(seed))
        });
        let mut client = config::client_speaking(config::NATIVE, 1);
        client.role.bond_ttl = Duration::from_mins(30);
        let server = client.role.servers[0].clone();
        let dialled = places.map(|place| {
            let mut server = server.clone();
            server.place = place;
            server
        });
        client.role.servers = dialled.to_vec();
        let client = network.add_client_of("client", client, &servers);
        for (server, link) in servers.into_iter().zip(links) {
            network.link(client, server, link.clone(), link);
        }
        let mut several = Self {
            network,
            client,
            servers,
            opened: Vec::new(),
        };
        for server in servers {
            several.serve(server);
        }
        several.network.run_for(SECOND);
        several
    }

    fn serve(&mut self, server: HostId) {
        let host = self.network.host(server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
    }

    /// Opens 100 flows per second for `time`.
    fn open_for(&mut self, time: Duration) {
        let until = self.network.elapsed() + time;
        while self.network.elapsed() < until {
            let number = self.opened.len() as u64;
            let script = Script::echoed(number).write([WriteStep::Send(BYTES), WriteStep::Finish]);
            self.opened
                .push(self.network.open(self.client, "echo", script));
            self.network.run_for(10 * MS);
        }
    }

    /// Returns the number of flows, from number `from` on, that have not ended cleanly.
    fn failed(&self, from: usize) -> usize {
        let flows = self.opened[from..].iter();
        let bad = flows.filter(|&&app| {
            let outcome = self.network.outcome(app);
            !(outcome.is_clean() && outcome.received == BYTES)
        });
        bad.count()
    }

    /// Returns the number of flows that were opened on each server so far.
    fn asked(&mut self) -> [usize; N] {
        let reports = self.reports();
        std::array::from_fn(|index| usize::try_from(reports[index].flows_opened).expect("few"))
    }

    fn reports(&mut self) -> Vec<quictun_sim::engine::report::ServerReport> {
        let client = self.client;
        self.network
            .command(client, |engine, now| engine.client().server_reports(now))
    }

    fn set_place(&mut self, server: usize, place: ServerPlace) {
        let client = self.client;
        self.network.command(client, |engine, now| {
            engine.client().set_place(now, ServerId(server), place);
        });
    }

    fn cut(&mut self, server: usize, loss: f64) {
        let (client, server) = (self.client, self.servers[server]);
        for (from, to) in [(client, server), (server, client)] {
            self.network.set_link(from, to, |link| link.loss = loss);
        }
    }

    fn slow(&mut self, server: usize, delay: Duration) {
        let (client, server) = (self.client, self.servers[server]);
        for (from, to) in [(client, server), (server, client)] {
            self.network.set_link(from, to, |link| link.delay = delay);
        }
    }

    /// Returns the switches so far: the chosen server, the reason, and the time.
    fn switches(&mut self) -> Vec<(usize, ChoiceReason, Duration)> {
        let start = self.network.at(Duration::ZERO);
        let events = self.network.host(self.client).events().iter();
        let chosen = events.filter_map(|(at, event)| match event {
            EngineEvent::Client(ClientEvent::Chosen { server, reason, .. }) => {
                Some((server.0, *reason, *at - start))
            }
            _ => None,
        });
        chosen.collect()
    }

    fn latest(&mut self) -> (usize, ChoiceReason, Duration) {
        *self.switches().last().expect("a server was chosen")
    }
}

#[test]
fn a_restart_of_the_chosen_server_costs_the_flows_of_one_second_and_it_is_used_again() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    several.open_for(2 * SECOND);
    let (chosen, ..) = several.latest();
    assert_eq!(chosen, 0, "the first of equal servers");
    let killed = several.servers[0];
    several.network.replace(killed, server_config(99));
    several.serve(killed);
    several.open_for(30 * SECOND);
    several.network.run_for(SECOND);
    assert!(several.failed(0) <= 100, "{}", several.failed(0));
    let (again, why, back) = several.latest();
    assert_eq!(
        (again, why),
        (0, ChoiceReason::ListedFirst),
        "{:?}",
        several.switches()
    );
    assert!(back < 33 * SECOND, "{back:?}");
    let [first, second] = several.asked();
    assert!(first > 1500 && second > 800, "{first} {second}");
}

#[test]
fn flows_leave_a_server_that_drains_without_a_failure_and_return_to_the_next_one() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    several.open_for(SECOND);
    let drains = several.servers[0];
    let script = Script::client(2).write([WriteStep::Wait(SECOND), WriteStep::Finish]);
    let long = several.network.open(several.client, "echo", script);
    several.network.run_for(100 * MS);
    several.network.host(drains).engine().drain();
    several.open_for(MS);
    let [before, _] = several.asked();
    several.open_for(5 * SECOND);
    let (other, why, _) = several.latest();
    assert_eq!((other, why), (1, ChoiceReason::Draining));
    let [asked, _] = several.asked();
    // Those of half a round trip: 10 ms, at 100 flows a second.
    assert!(asked <= before + 2, "{before} {asked}");
    assert!(several.reports()[0].draining);
    assert!(several.network.outcome(long).is_clean(), "it stayed");
    assert!(several.network.host(drains).engine().is_drained());
    several.network.command(drains, HostEngine::close);
    several.open_for(SECOND);
    several.network.replace(drains, server_config(99));
    several.serve(drains);
    several.open_for(30 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    let (again, why, _) = several.latest();
    assert_eq!((again, why), (0, ChoiceReason::ListedFirst));
}

#[test]
fn a_server_that_drains_keeps_its_clients_if_no_other_answers() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    several.cut(1, 1.0);
    several.network.run_for(10 * SECOND);
    let drains = several.servers[0];
    several.network.host(drains).engine().drain();
    several.open_for(5 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    several.cut(1, 0.0);
    several.open_for(20 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    let (other, why, _) = several.latest();
    assert_eq!((other, why), (1, ChoiceReason::Draining));
}

/// Servers of earlier versions refuse flows while they drain.
#[test]
fn a_flow_that_a_draining_server_refuses_asks_another_one() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    let refuses = SimulatedDial::Fails {
        after: Duration::ZERO,
        code: FlowCode::ShuttingDown,
    };
    let host = several.network.host(several.servers[0]);
    host.serve("echo", refuses, Script::echo());
    let waits = Script::echoed(1).write([
        WriteStep::Wait(SECOND),
        WriteStep::Send(BYTES),
        WriteStep::Finish,
    ]);
    let app = several.network.open(several.client, "echo", waits);
    several.opened.push(app);
    several.network.run_for(100 * MS);
    several.open_for(SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.asked()[0], 1);
}

/// A flow that is refused on a connection which is replaced meanwhile ends, because that connection takes no part any more.
#[test]
fn a_flow_that_a_draining_server_refuses_on_a_replaced_connection_does_not_hang() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    let refuses = SimulatedDial::Fails {
        after: 100 * MS,
        code: FlowCode::ShuttingDown,
    };
    let host = several.network.host(several.servers[0]);
    host.serve("echo", refuses, Script::echo());
    let waits = Script::echoed(1).write([WriteStep::Wait(SECOND), WriteStep::Finish]);
    let app = several.network.open(several.client, "echo", waits);
    several.network.run_for(50 * MS);
    let client = several.client;
    several
        .network
        .command(client, |engine, now| engine.client().reconnect(now));
    several.network.run_for(SECOND);
    assert!(several.network.outcome(app).over.is_some());
}

#[test]
fn a_server_in_a_black_hole_costs_the_flows_of_one_second_and_is_used_again_within_thirty() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    several.open_for(2 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    let at = several.opened.len();
    several.cut(0, 1.0);
    let cut_at = several.network.elapsed();
    several.open_for(40 * SECOND);
    several.network.run_for(SECOND);
    let (other, why, left) = several.latest();
    assert_eq!((other, why), (1, ChoiceReason::NoAnswer));
    assert!(left < cut_at + SECOND, "{left:?} after {cut_at:?}");
    let stuck = several.failed(at);
    assert!(stuck <= 100, "{stuck}");
    assert_eq!(several.reports()[0].ready, 0);
    assert!(several.reports()[0].failure.is_some());

    several.cut(0, 0.0);
    let back_at = several.network.elapsed();
    several.open_for(30 * SECOND);
    let (again, why, back) = several.latest();
    assert_eq!(
        (again, why),
        (0, ChoiceReason::ListedFirst),
        "{:?}",
        several.switches()
    );
    assert!(back < back_at + 30 * SECOND, "{back:?} after {back_at:?}");
    several.network.run_for(SECOND);
    // Flows that had sent bytes have waited for their own server, which still knows them.
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.switches().len(), 3);
}

#[test]
fn flows_of_a_dead_server_wait_for_it_while_new_ones_go_elsewhere() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(30 * MS)]);
    let script = Script::echoed(1).write([WriteStep::Send(20_000_000), WriteStep::Finish]);
    let bulk = several.network.open(several.client, "echo", script);
    several.network.run_for(100 * MS);
    several.cut(0, 1.0);
    several.open_for(20 * SECOND);
    let outcome = several.network.outcome(bulk);
    assert_eq!(outcome.incoming, IncomingState::Open);
    assert_ne!(outcome.outgoing, OutgoingState::Reset);
    several.cut(0, 0.0);
    several
        .network
        .run_until(60 * SECOND, |network| network.outcome(bulk).is_over());
    let outcome = several.network.outcome(bulk);
    assert_eq!(
        (outcome.incoming, outcome.received),
        (IncomingState::Fin, 20_000_000)
    );
}

#[test]
fn new_flows_take_the_near_server_and_leave_it_when_it_slows_to_a_third() {
    let mut several = ServerGroup::new([wire(40 * MS), wire(20 * MS)]);
    several.open_for(30 * SECOND);
    let [far, near] = several.asked();
    assert!(near * 20 >= (near + far) * 19, "{far} {near}");
    assert_eq!(several.switches().len(), 1, "{:?}", several.switches());
    several.slow(1, 30 * MS);
    let slowed_at = several.network.elapsed();
    several.open_for(30 * SECOND);
    let (to, why, at) = several.latest();
    assert_eq!(
        (to, why),
        (0, ChoiceReason::Faster),
        "{:?}",
        several.switches()
    );
    assert!(at < slowed_at + 6 * SECOND, "{at:?} after {slowed_at:?}");
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.switches().len(), 2, "{:?}", several.switches());
}

#[test]
fn a_server_that_refuses_this_client_gets_no_flow() {
    let mut network = Network::new(Seed::fixed(1));
    let mut refusing = server_config(10);
    refusing.role.identify = true;
    let servers = [
        network.add_server("refuses", refusing),
        network.add_server("takes", server_config(11)),
    ];
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.servers = vec![client.role.servers[0].clone(); 2];
    let client = network.add_client_of("client", client, &servers);
    for (server, round_trip) in servers.into_iter().zip([10 * MS, 80 * MS]) {
        network.link(client, server, wire(round_trip), wire(round_trip));
    }
    let mut several = ServerGroup {
        network,
        client,
        servers,
        opened: Vec::new(),
    };
    several.serve(servers[1]);
    // The first flow is opened before any connection is up.
    several.open_for(20 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.asked()[0], 0);
    assert_eq!(several.switches().len(), 1);
}

#[test]
fn flows_wait_while_no_server_answers_and_go_to_the_first_that_does() {
    let mut several = ServerGroup::new([wire(20 * MS), wire(20 * MS)]);
    several.cut(0, 1.0);
    several.cut(1, 1.0);
    several.network.run_for(10 * SECOND);
    let number = several.opened.len() as u64;
    let script = Script::echoed(number).write([WriteStep::Send(BYTES), WriteStep::Finish]);
    several
        .opened
        .push(several.network.open(several.client, "echo", script));
    several.network.run_for(5 * SECOND);
    assert_eq!(several.failed(0), 1, "the flow waits");
    several.cut(1, 0.0);
    several.network.run_for(16 * SECOND);
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.latest().0, 1);
    assert_eq!(several.reports()[1].server, ServerId(1));
    assert_eq!(several.reports()[1].chosen, Some(ChoiceReason::NoAnswer));
}

/// Returns the place of a server of the only service, by its priority.
fn of_priority(priority: u16) -> ServerPlace {
    ServerPlace {
        rank: Some(Rank {
            service: ServerId(0),
            priority,
            order: 0,
        }),
        ..ServerPlace::default()
    }
}

/// Returns a place that no record fills.
fn vacant() -> ServerPlace {
    ServerPlace {
        wanted: false,
        ..ServerPlace::default()
    }
}

#[test]
fn a_server_of_a_lower_priority_number_is_used_however_far_and_again_when_it_is_back() {
    let places = [of_priority(10), of_priority(20)];
    let mut several = ServerGroup::in_places([wire(80 * MS), wire(10 * MS)], places);
    several.open_for(10 * SECOND);
    assert_eq!(several.asked()[1], 0, "{:?}", several.switches());
    several.cut(0, 1.0);
    several.open_for(10 * SECOND);
    assert_eq!(several.latest().0, 1);
    several.cut(0, 0.0);
    let back_at = several.network.elapsed();
    several.open_for(30 * SECOND);
    let (again, why, back) = several.latest();
    assert_eq!(
        (again, why),
        (0, ChoiceReason::Priority),
        "{:?}",
        several.switches()
    );
    assert!(back < back_at + 30 * SECOND, "{back:?} after {back_at:?}");
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
}

#[test]
fn after_a_start_without_records_the_lowest_priority_number_gets_the_first_flows() {
    let links = [wire(80 * MS), wire(10 * MS)];
    let mut several = ServerGroup::in_places(links, [vacant(), vacant()]);
    let address = several.network.address(several.servers[0]);
    let client = several.client;
    let unknown = Err("no name server answers".to_owned());
    several.network.host(client).set_resolver_of(0, unknown);
    // Until records are known, the first place of a service stands for all, and its look-up is that of the records.
    several.set_place(0, ServerPlace::default());
    several.network.run_for(4 * SECOND);
    let found = Ok(vec![address]);
    several.network.host(client).set_resolver_of(0, found);
    several.set_place(0, of_priority(10));
    several.set_place(1, of_priority(20));
    several.open_for(5 * SECOND);
    assert_eq!(several.asked()[1], 0, "{:?}", several.switches());
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
}

#[test]
fn a_server_that_no_record_names_keeps_its_flows_and_gets_no_new_ones() {
    let places = [of_priority(10), vacant()];
    let mut several = ServerGroup::in_places([wire(20 * MS), wire(20 * MS)], places);
    assert_eq!(several.reports()[1].ready, 0, "it is not dialled");
    let script = Script::echoed(1).write([WriteStep::Send(20_000_000), WriteStep::Finish]);
    let bulk = several.network.open(several.client, "echo", script);
    several.network.run_for(100 * MS);
    several.set_place(1, of_priority(10));
    several.network.run_for(SECOND);
    let before = several.asked()[0];
    several.set_place(0, vacant());
    several.open_for(5 * SECOND);
    assert_eq!(several.asked()[0], before);
    assert_eq!(
        (several.latest().0, several.latest().1),
        (1, ChoiceReason::NoRecord)
    );
    several
        .network
        .run_until(60 * SECOND, |network| network.outcome(bulk).is_over());
    let outcome = several.network.outcome(bulk);
    assert_eq!(outcome.received, 20_000_000);
    // Once no flow needs the connection, it ends.
    several.network.run_for(90 * SECOND);
    let left = &several.reports()[0];
    assert_eq!((left.ready, left.unready, left.flows), (0, 0, 0));
    several.open_for(SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    // The server returns as any new server does.
    several.set_place(0, of_priority(5));
    several.open_for(20 * SECOND);
    assert_eq!(
        (several.latest().0, several.latest().1),
        (0, ChoiceReason::Priority)
    );
}

#[test]
fn flows_that_wait_for_a_server_that_no_record_names_still_continue_there() {
    let places = [of_priority(10), of_priority(20)];
    let mut several = ServerGroup::in_places([wire(20 * MS), wire(20 * MS)], places);
    let script = Script::echoed(1).write([WriteStep::Send(20_000_000), WriteStep::Finish]);
    let bulk = several.network.open(several.client, "echo", script);
    several.network.run_for(100 * MS);
    several.cut(0, 1.0);
    several.network.run_for(90 * SECOND);
    several.set_place(0, vacant());
    several.network.run_for(10 * SECOND);
    assert_eq!(several.reports()[0].flows, 1, "the flow that waits");
    several.cut(0, 0.0);
    several
        .network
        .run_until(60 * SECOND, |network| network.outcome(bulk).is_over());
    let outcome = several.network.outcome(bulk);
    assert_eq!(
        (outcome.incoming, outcome.received),
        (IncomingState::Fin, 20_000_000)
    );
}

#[test]
fn addresses_that_arrive_after_another_server_has_the_place_are_dropped() {
    let places = [of_priority(10), of_priority(20)];
    let mut several = ServerGroup::in_places([wire(20 * MS), wire(20 * MS)], places);
    let (client, [old, other]) = (several.client, several.servers);
    let [old, other] = [old, other].map(|host| several.network.address(host));
    let host = several.network.host(client);
    host.set_resolver(Ok(vec![other]), SECOND);
    let next = ServerPlace {
        tenant: 1,
        ..of_priority(10)
    };
    several.set_place(0, next);
    several.network.run_for(100 * MS);
    // The look-up of the previous server ends only now.
    let late = Ok(vec![old]);
    several.network.command(client, |engine, now| {
        engine.client().handle_resolved(now, ServerId(0), 0, &late);
    });
    several.network.run_for(500 * MS);
    assert_eq!(several.reports()[0].ready, 0, "the old server was dialled");
    several.network.run_for(SECOND);
    assert_eq!(several.reports()[0].ready, 1);
}

#[test]
fn another_server_in_a_place_ends_the_flows_of_the_one_before() {
    let places = [of_priority(10), of_priority(20)];
    let mut several = ServerGroup::in_places([wire(20 * MS), wire(20 * MS)], places);
    let script = Script::echoed(1).write([WriteStep::Send(20_000_000)]);
    let bulk = several.network.open(several.client, "echo", script);
    several.network.run_for(100 * MS);
    several.set_place(0, vacant());
    several.network.run_for(SECOND);
    assert!(!several.network.outcome(bulk).is_over());
    let next = ServerPlace {
        tenant: 1,
        ..of_priority(10)
    };
    several.set_place(0, next);
    several.network.run_for(SECOND);
    assert!(several.network.outcome(bulk).is_over());
    assert_eq!(several.reports()[0].ready, 1, "it is dialled anew");
    several.open_for(20 * SECOND);
    several.network.run_for(SECOND);
    assert_eq!(several.failed(0), 0);
    assert_eq!(several.latest().0, 0);
}
