//! The rows of the close mapping table. Each row is tested with both protocols and for a reverse forward, and with the
//! application of either side acting first.

use std::time::Duration;

use quictun_sim::engine::{Ending, Event};
use quictun_sim::{
    AppId, Dial, HostId, Incoming, LinkConfig, Outcome, Outgoing, Read, Script, Seed, Write, config,
};
use quictun_wire::code::FlowCode;
use quinn_proto::VarInt;

use crate::guests::Guests as _;
use crate::world::{MS, PROTOCOLS, SECOND, World, limited, request, wire};

/// The side whose application acts first in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Client,
    Server,
}

/// The way in which flows are opened.
#[derive(Clone, Copy, Debug)]
struct Way {
    protocols: &'static [&'static [u8]],
    /// True if the server opens flows for connections to its listener (PROTOCOL section 5.9). "Client" and "server"
    /// below then mean the roles in the flow: the side that opens it and the side that dials.
    reverse: bool,
}

impl Way {
    fn world(self, seed: u64, link: LinkConfig) -> World {
        let seed = Seed::fixed(seed);
        let mut client = config::client_speaking(self.protocols, seed.value());
        client.role.reverse = self.reverse;
        let server = config::server(seed.value());
        let mut world = World::with(seed, client, server, link.clone(), link);
        world.connect();
        if self.reverse {
            world.listen(1);
        }
        world
    }

    /// Returns the host that opens flows and the host that dials for them.
    fn hosts(self, world: &World) -> (HostId, HostId) {
        if self.reverse {
            (world.server, world.client)
        } else {
            (world.client, world.server)
        }
    }

    fn open(self, world: &mut World, id: u64, (client, server): (Script, Script)) -> AppId {
        let (_, dials) = self.hosts(world);
        let token = config::reverse_token(id);
        let dials = world.network.host(dials);
        dials.serve(&token, Dial::connects(), server);
        if self.reverse {
            world.network.open_incoming(world.server, id, client)
        } else {
            world.network.open(world.client, &token, client)
        }
    }
}

/// One flow between the application that acts and the other application.
struct Row {
    world: World,
    way: Way,
    origin: Origin,
    client_app: AppId,
}

impl Row {
    fn new(
        way: Way,
        origin: Origin,
        link: LinkConfig,
        acts: &[Write],
        other: (&[Write], &[Read]),
    ) -> Self {
        let mut world = way.world(4, link);
        let (mut client, mut server) = (Script::client(1), Script::server(1));
        let (acting, answering) = match origin {
            Origin::Client => (&mut client, &mut server),
            Origin::Server => (&mut server, &mut client),
        };
        acting.write = acts.to_vec();
        answering.write = other.0.to_vec();
        answering.read = other.1.to_vec();
        let client_app = way.open(&mut world, 1, (client, server));
        Self {
            world,
            way,
            origin,
            client_app,
        }
    }

    /// Returns the outcomes of the acting application and of the other one.
    fn apps(&self) -> (Outcome, Outcome) {
        let client = self.world.network.outcome(self.client_app).clone();
        let (_, dials) = self.way.hosts(&self.world);
        let token = config::reverse_token(1);
        let server = self.world.network.dialled(dials, &token);
        let server = server.expect("the target is dialled").clone();
        match self.origin {
            Origin::Client => (client, server),
            Origin::Server => (server, client),
        }
    }

    fn run(&mut self, time: Duration) {
        self.world.network.run_for(time);
    }

    /// Returns how the flow ended on the side of the acting application and on the other side.
    fn endings(&mut self) -> (Ending, Ending) {
        let (opens, dials) = self.way.hosts(&self.world);
        let client = self.world.closed(opens)[0].ending;
        let server = self.world.closed(dials)[0].ending;
        match self.origin {
            Origin::Client => (client, server),
            Origin::Server => (server, client),
        }
    }
}

/// Runs a row in all six combinations of way and origin.
fn each(row: impl Fn(Way, Origin)) {
    let reverse = Way {
        protocols: config::NATIVE,
        reverse: true,
    };
    let ways = PROTOCOLS.map(|protocols| Way {
        protocols,
        reverse: false,
    });
    for way in ways.into_iter().chain([reverse]) {
        for origin in [Origin::Client, Origin::Server] {
            row(way, origin);
        }
    }
}

// PROTOCOL CLOSE-1.
#[test]
fn row_1_fin_from_an_application_finishes_its_direction_and_leaves_the_other_open() {
    each(|way, origin| {
        let later = [Write::Wait(3 * SECOND), Write::Send(100_000), Write::Finish];
        let acts = [Write::Send(1000), Write::Finish];
        let mut row = Row::new(way, origin, wire(20 * MS), &acts, (&later, &[]));
        row.run(2 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(
            (acting.incoming, other.incoming),
            (Incoming::Open, Incoming::Fin),
            "{origin:?}"
        );
        assert_eq!(other.received, 1000);
        row.run(5 * SECOND);
        let (acting, other) = row.apps();
        assert!(
            acting.is_clean() && other.is_clean(),
            "{origin:?}: {acting:?} {other:?}"
        );
        assert_eq!(acting.received, 100_000);
        assert_eq!(row.endings(), (Ending::Finished, Ending::Finished));
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-2.
#[test]
fn row_2_a_received_fin_is_passed_on_after_all_bytes_and_the_application_is_still_read() {
    each(|way, origin| {
        // The other application is in the middle of a long, slow answer when it receives the FIN.
        let answer = [
            Write::Send(500_000),
            Write::ReceivedEnd,
            Write::Send(300_000),
            Write::Finish,
        ];
        let slowly = [Read::Slowly {
            bytes: 10_000,
            every: 50 * MS,
        }];
        let acts = [Write::Send(200_000), Write::Finish];
        let mut row = Row::new(way, origin, wire(20 * MS), &acts, (&answer, &slowly));
        row.run(20 * SECOND);
        let (acting, other) = row.apps();
        assert!(
            acting.is_clean() && other.is_clean(),
            "{origin:?}: {acting:?} {other:?}"
        );
        assert_eq!((acting.received, other.received), (800_000, 200_000));
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-3.
#[test]
fn row_3_a_reset_by_an_application_cuts_both_directions_and_says_so() {
    each(|way, origin| {
        let acts = [Write::Send(50_000), Write::Received(20_000), Write::Abort];
        let busy = [Write::Send(5_000_000), Write::Finish];
        let mut row = Row::new(way, origin, wire(20 * MS), &acts, (&busy, &[]));
        row.run(2 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(acting.outgoing, Outgoing::Aborted);
        assert_eq!(
            (other.incoming, other.outgoing),
            (Incoming::Reset, Outgoing::Reset),
            "{origin:?}"
        );
        let (here, there) = row.endings();
        assert_eq!(here, Ending::AppReset);
        assert_eq!(there, Ending::PeerReset(Some(FlowCode::AppReset)));
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-4.
#[test]
fn row_4_a_received_reset_never_looks_like_an_end_even_after_the_last_byte() {
    each(|way, origin| {
        // Everything that the application sent has been delivered and read; only the reset is still to come.
        let acts = [Write::Send(30_000), Write::Wait(SECOND), Write::Abort];
        let mut row = Row::new(
            way,
            origin,
            wire(20 * MS),
            &acts,
            (&[Write::ReceivedEnd], &[]),
        );
        row.run(900 * MS);
        assert_eq!(row.apps().1.received, 30_000);
        row.run(SECOND);
        let (_, other) = row.apps();
        assert_eq!(
            (other.incoming, other.outgoing),
            (Incoming::Reset, Outgoing::Reset),
            "{origin:?}"
        );
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-4, CLOSE-7.
#[test]
fn row_4_a_received_reset_overtakes_bytes_that_the_application_has_not_read() {
    each(|way, origin| {
        let acts = [Write::Send(120_000), Write::Wait(SECOND), Write::Abort];
        let mut row = Row::new(way, origin, wire(20 * MS), &acts, (&[], &[Read::Never]));
        row.run(5 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!((acting.outgoing, other.received), (Outgoing::Aborted, 0));
        assert_eq!(
            (other.incoming, other.outgoing),
            (Incoming::Reset, Outgoing::Reset),
            "{origin:?}"
        );
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-5.
#[test]
fn row_5_an_application_whose_reader_has_gone_is_reset_and_does_not_stall() {
    each(|way, origin| {
        // A half-closed application goes away. Its peer, in the middle of an answer, must notice that although no more
        // data can reach it.
        let acts = [
            Write::Send(1000),
            Write::Finish,
            Write::Received(100_000),
            Write::Close,
        ];
        let answer = [Write::ReceivedEnd, Write::Send(50_000_000), Write::Finish];
        let mut row = Row::new(way, origin, wire(20 * MS), &acts, (&answer, &[]));
        row.run(3 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(acting.incoming, Incoming::Dropped);
        assert_eq!(
            other.incoming,
            Incoming::Fin,
            "the earlier FIN must remain a plain FIN"
        );
        assert_eq!(other.outgoing, Outgoing::Reset, "{origin:?}: {other:?}");
        assert!(other.sent < 50_000_000);
        row.world.check_nothing_left();
    });
}

// PROTOCOL CLOSE-5.
#[test]
fn row_5_a_peer_that_only_stops_gets_the_rest_and_the_application_is_reset_after_it() {
    for protocols in PROTOCOLS {
        let mut world = World::new(Seed::fixed(4), protocols, wire(20 * MS));
        let server = world.server;
        let mut target = Script::server(1).write([Write::Send(u64::MAX / 4)]);
        target.expects = None;
        world
            .network
            .host(server)
            .serve("target", Dial::connects(), target);
        let bare = world.network.add_bare("stops", protocols, server);
        world
            .network
            .link(bare, server, wire(20 * MS), wire(20 * MS));
        world.network.run_for(SECOND);
        let stream = world.network.bare(bare).open();
        let bytes = request(protocols, "target");
        world.network.bare(bare).write(stream, &bytes);
        world.network.run_for(SECOND);
        let peer = world.network.bare(bare);
        let stopped = peer
            .connection()
            .recv_stream(stream)
            .stop(VarInt::from_u32(1));
        assert_eq!(stopped, Ok(()));
        world.network.run_for(SECOND);
        let outcome = |world: &World| {
            world
                .network
                .dialled(server, "target")
                .expect("dialled")
                .clone()
        };
        let sent = outcome(&world).sent;
        world.network.bare(bare).write(stream, &[7; 1000]);
        world.network.run_for(SECOND);
        let after = outcome(&world);
        assert_eq!((after.incoming, after.received), (Incoming::Open, 1000));
        assert!(after.sent <= sent, "the target is not read any more");
        assert_eq!(
            world
                .network
                .bare(bare)
                .connection()
                .send_stream(stream)
                .finish(),
            Ok(())
        );
        world.network.run_for(SECOND);
        let after = outcome(&world);
        assert_eq!(
            (after.incoming, after.outgoing),
            (Incoming::Reset, Outgoing::Reset)
        );
        world.check_nothing_left();
    }
}

// PROTOCOL CLOSE-6.
#[test]
fn row_6_a_lost_connection_resets_every_flow_and_is_told_once() {
    each(|way, _| {
        let mut world = way.world(5, limited(2_000_000, 20 * MS));
        let (client, server) = (world.client, world.server);
        let mut apps = Vec::new();
        for number in 0..7u64 {
            let busy = [Write::Send(1_000_000_000), Write::Finish];
            let scripts = [Script::client(number), Script::server(number)];
            let [opens, dialled] = scripts.map(|script| script.write(busy));
            apps.push(way.open(&mut world, number, (opens, dialled)));
        }
        world.network.run_for(SECOND);
        for (from, to) in [(client, server), (server, client)] {
            world.network.set_link(from, to, |link| link.loss = 1.0);
        }
        world.network.run_for(90 * SECOND);
        for (number, &app) in apps.iter().enumerate() {
            let outcome = world.network.outcome(app);
            assert_eq!(
                (outcome.incoming, outcome.outgoing),
                (Incoming::Reset, Outgoing::Reset)
            );
            let (_, dials) = way.hosts(&world);
            let token = config::reverse_token(number as u64);
            let outcome = world.network.dialled(dials, &token).expect("dialled");
            assert_eq!(
                (outcome.incoming, outcome.outgoing),
                (Incoming::Reset, Outgoing::Reset)
            );
        }
        for host in [client, server] {
            let lost = |event: &Event| matches!(event, Event::Disconnected { flows: 7, .. });
            assert_eq!(world.count(host, lost), 1);
            assert_eq!(
                world.count(host, |event| matches!(event, Event::Disconnected { .. })),
                1
            );
            let abandoned = Ending::Abandoned(FlowCode::ConnectionLost);
            assert!(
                world
                    .closed(host)
                    .iter()
                    .all(|summary| summary.ending == abandoned)
            );
        }
        world.check_nothing_left();
    });
}
