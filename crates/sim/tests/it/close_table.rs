//! The rows of the close mapping table. Each row is tested with both protocols and for a reverse forward, and with the
//! application of either side acting first.

use std::time::Duration;

use quictun_sim::engine::{Ending, EngineEvent, Event};
use quictun_sim::{
    AppId, AppOutcome, HostId, IncomingState, LinkConfig, OutgoingState, ReadStep, Script, Seed,
    SimulatedDial, WriteStep, config,
};
use quictun_wire::code::FlowCode;
use quinn_proto::VarInt;

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited, request, wire};

/// The side whose application acts first in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstActor {
    Client,
    Server,
}

/// The method by which flows are opened.
#[derive(Clone, Copy, Debug)]
struct OpenMethod {
    protocols: &'static [&'static [u8]],
    /// True if the server opens flows for connections to its listener (PROTOCOL section 5.9). "Client" and "server"
    /// below then mean the roles in the flow: the side that opens it and the side that dials.
    reverse: bool,
    /// True if flows outlive their connection (PROTOCOL section 5.8).
    bonds: bool,
}

impl OpenMethod {
    fn pair(self, seed: u64, link: LinkConfig) -> TunnelPair {
        let seed = Seed::fixed(seed);
        let mut client = config::client_speaking(self.protocols, seed.value());
        client.role.reverse = self.reverse;
        let mut server = config::server(seed.value());
        if self.bonds {
            (client.role.bond_ttl, server.role.bond_ttl) = (600 * SECOND, 600 * SECOND);
        }
        let mut pair = TunnelPair::with(seed, client, server, link.clone(), link);
        pair.connect();
        if self.reverse {
            pair.listen(1);
        }
        pair
    }

    /// Returns the host that opens flows and the host that dials for them.
    fn hosts(self, pair: &TunnelPair) -> (HostId, HostId) {
        if self.reverse {
            (pair.server, pair.client)
        } else {
            (pair.client, pair.server)
        }
    }

    fn open(self, pair: &mut TunnelPair, id: u64, (client, server): (Script, Script)) -> AppId {
        let (_, dials) = self.hosts(pair);
        let token = config::reverse_token(id);
        let dials = pair.network.host(dials);
        dials.serve(&token, SimulatedDial::connects(), server);
        if self.reverse {
            pair.network.open_incoming(pair.server, id, client)
        } else {
            pair.network.open(pair.client, &token, client)
        }
    }
}

/// One flow between the application that acts and the other application.
struct CloseCase {
    pair: TunnelPair,
    method: OpenMethod,
    origin: FirstActor,
    client_app: AppId,
}

impl CloseCase {
    fn new(
        method: OpenMethod,
        origin: FirstActor,
        link: LinkConfig,
        acts: &[WriteStep],
        other: (&[WriteStep], &[ReadStep]),
    ) -> Self {
        let mut pair = method.pair(4, link);
        let (mut client, mut server) = (Script::client(1), Script::server(1));
        let (acting, answering) = match origin {
            FirstActor::Client => (&mut client, &mut server),
            FirstActor::Server => (&mut server, &mut client),
        };
        acting.write = acts.to_vec();
        // The socket takes everything before a reset, even if the tunnel does not.
        acting.buffer = 4 << 20;
        if acts.contains(&WriteStep::Close) && !acts.contains(&WriteStep::Finish) {
            // Unread data makes a close a reset.
            acting.read = vec![ReadStep::Never];
        }
        answering.write = other.0.to_vec();
        answering.read = other.1.to_vec();
        let client_app = method.open(&mut pair, 1, (client, server));
        Self {
            pair,
            method,
            origin,
            client_app,
        }
    }

    /// Returns the outcomes of the acting application and of the other one.
    fn apps(&self) -> (AppOutcome, AppOutcome) {
        let client = self.pair.network.outcome(self.client_app).clone();
        let (_, dials) = self.method.hosts(&self.pair);
        let token = config::reverse_token(1);
        let server = self.pair.network.dialled(dials, &token);
        let server = server.expect("the target is dialled").clone();
        match self.origin {
            FirstActor::Client => (client, server),
            FirstActor::Server => (server, client),
        }
    }

    fn run(&mut self, time: Duration) {
        self.pair.network.run_for(time);
    }

    /// Returns how the flow ended on the side of the acting application and on the other side.
    fn endings(&mut self) -> (Ending, Ending) {
        let (opens, dials) = self.method.hosts(&self.pair);
        let client = self.pair.closed(opens)[0].ending;
        let server = self.pair.closed(dials)[0].ending;
        match self.origin {
            FirstActor::Client => (client, server),
            FirstActor::Server => (server, client),
        }
    }
}

/// Runs a row in all combinations of method and first actor.
fn each(row: impl Fn(OpenMethod, FirstActor)) {
    let reverse = OpenMethod {
        protocols: config::NATIVE,
        reverse: true,
        bonds: false,
    };
    let methods = PROTOCOLS.map(|protocols| OpenMethod {
        protocols,
        reverse: false,
        bonds: false,
    });
    let bonds = OpenMethod {
        bonds: true,
        ..methods[0]
    };
    let reverse_bonds = OpenMethod {
        bonds: true,
        ..reverse
    };
    for method in methods.into_iter().chain([bonds, reverse, reverse_bonds]) {
        for origin in [FirstActor::Client, FirstActor::Server] {
            row(method, origin);
        }
    }
}

// PROTOCOL CLOSE-1.
#[test]
fn row_1_fin_from_an_application_finishes_its_direction_and_leaves_the_other_open() {
    each(|method, origin| {
        let later = [
            WriteStep::Wait(3 * SECOND),
            WriteStep::Send(100_000),
            WriteStep::Finish,
        ];
        let acts = [WriteStep::Send(1000), WriteStep::Finish];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&later, &[]));
        row.run(2 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(
            (acting.incoming, other.incoming),
            (IncomingState::Open, IncomingState::Fin),
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
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-2.
#[test]
fn row_2_a_received_fin_is_passed_on_after_all_bytes_and_the_application_is_still_read() {
    each(|method, origin| {
        // The other application is in the middle of a long, slow answer when it receives the FIN.
        let answer = [
            WriteStep::Send(500_000),
            WriteStep::ReceivedEnd,
            WriteStep::Send(300_000),
            WriteStep::Finish,
        ];
        let slowly = [ReadStep::Slowly {
            bytes: 10_000,
            every: 50 * MS,
        }];
        let acts = [WriteStep::Send(200_000), WriteStep::Finish];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&answer, &slowly));
        row.run(20 * SECOND);
        let (acting, other) = row.apps();
        assert!(
            acting.is_clean() && other.is_clean(),
            "{origin:?}: {acting:?} {other:?}"
        );
        assert_eq!((acting.received, other.received), (800_000, 200_000));
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-3.
#[test]
fn row_3_a_reset_by_an_application_resets_both_directions() {
    each(|method, origin| {
        let acts = [
            WriteStep::Send(50_000),
            WriteStep::Received(20_000),
            WriteStep::Abort,
        ];
        let busy = [WriteStep::Send(5_000_000), WriteStep::Finish];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&busy, &[]));
        row.run(2 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(acting.outgoing, OutgoingState::Aborted);
        assert_eq!(
            (other.incoming, other.outgoing),
            (IncomingState::Reset, OutgoingState::Reset),
            "{origin:?}"
        );
        let (here, there) = row.endings();
        assert_eq!(here, Ending::AppReset);
        assert_eq!(there, Ending::PeerReset(Some(FlowCode::AppReset)));
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-4.
#[test]
fn row_4_a_received_reset_never_looks_like_an_end_even_after_the_last_byte() {
    each(|method, origin| {
        // Everything that the application sent has been delivered and read; only the reset is still to come.
        let acts = [
            WriteStep::Send(30_000),
            WriteStep::Wait(SECOND),
            WriteStep::Abort,
        ];
        let mut row = CloseCase::new(
            method,
            origin,
            wire(20 * MS),
            &acts,
            (&[WriteStep::ReceivedEnd], &[]),
        );
        row.run(900 * MS);
        assert_eq!(row.apps().1.received, 30_000);
        row.run(SECOND);
        let (_, other) = row.apps();
        assert_eq!(
            (other.incoming, other.outgoing),
            (IncomingState::Reset, OutgoingState::Reset),
            "{origin:?}"
        );
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-3, CLOSE-7.
#[test]
fn row_3_what_an_application_sent_before_its_reset_arrives_before_the_reset() {
    let mut lossy = limited(2_000_000, 20 * MS);
    lossy.loss = 0.1;
    for link in [wire(20 * MS), lossy] {
        for bytes in [1, 620, 64 << 10, 1 << 20] {
            each(|method, origin| {
                let acts = [WriteStep::Send(bytes), WriteStep::Abort];
                // The other application is in the middle of an upload, as that of a request that is refused early.
                let busy = [WriteStep::Send(3_000_000)];
                let mut row = CloseCase::new(method, origin, link.clone(), &acts, (&busy, &[]));
                row.run(20 * SECOND);
                let (acting, other) = row.apps();
                assert_eq!(acting.outgoing, OutgoingState::Aborted);
                assert_eq!(
                    (other.received, other.incoming, other.outgoing),
                    (bytes, IncomingState::Reset, OutgoingState::Reset),
                    "{origin:?} {method:?}"
                );
                let (here, there) = row.endings();
                assert_eq!(here, Ending::AppReset);
                assert!(matches!(there, Ending::PeerReset(_)), "{there:?}");
                row.pair.check_nothing_left();
            });
        }
    }
}

// PROTOCOL CLOSE-3.
#[test]
fn row_3_a_close_with_unread_data_delivers_what_was_sent_and_then_a_reset() {
    each(|method, origin| {
        let acts = [
            WriteStep::Wait(SECOND),
            WriteStep::Send(5000),
            WriteStep::Close,
        ];
        // The acting application never reads the banner.
        let banner = [WriteStep::Send(100)];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&banner, &[]));
        row.run(5 * SECOND);
        let (_, other) = row.apps();
        assert_eq!(
            (other.received, other.incoming),
            (5000, IncomingState::Reset),
            "{origin:?}"
        );
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-4, CLOSE-7.
#[test]
fn row_4_an_application_that_reads_slowly_gets_everything_and_then_the_reset() {
    each(|method, origin| {
        let acts = [
            WriteStep::Send(120_000),
            WriteStep::Wait(SECOND),
            WriteStep::Abort,
        ];
        let slowly = [ReadStep::Slowly {
            bytes: 1000,
            every: SECOND,
        }];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&[], &slowly));
        row.run(140 * SECOND);
        let (_, other) = row.apps();
        assert_eq!(
            (other.received, other.incoming, other.outgoing),
            (120_000, IncomingState::Reset, OutgoingState::Reset),
            "{origin:?}"
        );
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-4, CLOSE-12.
#[test]
fn row_4_an_application_that_never_reads_is_reset_after_a_minute_without_progress() {
    for bytes in [120_000, 2_000_000] {
        each(|method, origin| {
            let acts = [WriteStep::Send(bytes), WriteStep::Abort];
            let never = [ReadStep::Never];
            let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&[], &never));
            row.run(50 * SECOND);
            assert_eq!(row.apps().1.incoming, IncomingState::Open, "{origin:?}");
            // The sender may wait for a minute, and then the receiver.
            row.run(80 * SECOND);
            let (_, other) = row.apps();
            assert_eq!(
                (other.received, other.incoming, other.outgoing),
                (0, IncomingState::Reset, OutgoingState::Reset),
                "{origin:?} {method:?}"
            );
            row.pair.check_nothing_left();
        });
    }
}

// PROTOCOL CLOSE-5.
#[test]
fn row_5_an_application_whose_reader_has_gone_is_reset_and_does_not_stall() {
    each(|method, origin| {
        // A half-closed application goes away. Its peer, in the middle of an answer, must notice that although no more
        // data can reach it.
        let acts = [
            WriteStep::Send(1000),
            WriteStep::Finish,
            WriteStep::Received(100_000),
            WriteStep::Close,
        ];
        let answer = [
            WriteStep::ReceivedEnd,
            WriteStep::Send(50_000_000),
            WriteStep::Finish,
        ];
        let mut row = CloseCase::new(method, origin, wire(20 * MS), &acts, (&answer, &[]));
        row.run(3 * SECOND);
        let (acting, other) = row.apps();
        assert_eq!(acting.incoming, IncomingState::Dropped);
        assert_eq!(
            other.incoming,
            IncomingState::Fin,
            "the earlier FIN must remain a plain FIN"
        );
        assert_eq!(
            other.outgoing,
            OutgoingState::Reset,
            "{origin:?}: {other:?}"
        );
        assert!(other.sent < 50_000_000);
        row.pair.check_nothing_left();
    });
}

// PROTOCOL CLOSE-5.
#[test]
fn row_5_a_peer_that_only_stops_gets_the_rest_and_the_application_is_reset_after_it() {
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(4), protocols, wire(20 * MS));
        let server = pair.server;
        let mut target = Script::server(1).write([WriteStep::Send(u64::MAX / 4)]);
        target.expects = None;
        pair.network
            .host(server)
            .serve("target", SimulatedDial::connects(), target);
        let bare = pair.network.add_bare("stops", protocols, server);
        pair.network
            .link(bare, server, wire(20 * MS), wire(20 * MS));
        pair.network.run_for(SECOND);
        let stream = pair.network.bare(bare).open();
        let bytes = request(protocols, "target");
        pair.network.bare(bare).write(stream, &bytes);
        pair.network.run_for(SECOND);
        let peer = pair.network.bare(bare);
        let stopped = peer
            .connection()
            .recv_stream(stream)
            .stop(VarInt::from_u32(1));
        assert_eq!(stopped, Ok(()));
        pair.network.run_for(SECOND);
        let outcome = |pair: &TunnelPair| {
            pair.network
                .dialled(server, "target")
                .expect("dialled")
                .clone()
        };
        let sent = outcome(&pair).sent;
        pair.network.bare(bare).write(stream, &[7; 1000]);
        pair.network.run_for(SECOND);
        let after = outcome(&pair);
        assert_eq!(
            (after.incoming, after.received),
            (IncomingState::Open, 1000)
        );
        assert!(after.sent <= sent, "the target is not read any more");
        assert_eq!(
            pair.network
                .bare(bare)
                .connection()
                .send_stream(stream)
                .finish(),
            Ok(())
        );
        pair.network.run_for(SECOND);
        let after = outcome(&pair);
        assert_eq!(
            (after.incoming, after.outgoing),
            (IncomingState::Reset, OutgoingState::Reset)
        );
        pair.check_nothing_left();
    }
}

// PROTOCOL CLOSE-6.
#[test]
fn row_6_a_lost_connection_resets_every_flow_and_is_reported_once() {
    each(|method, _| {
        if method.bonds {
            // Flows of bonds wait for the next connection.
            return;
        }
        let mut pair = method.pair(5, limited(2_000_000, 20 * MS));
        let (client, server) = (pair.client, pair.server);
        let mut apps = Vec::new();
        for number in 0..7u64 {
            let busy = [WriteStep::Send(1_000_000_000), WriteStep::Finish];
            let scripts = [Script::client(number), Script::server(number)];
            let [opens, dialled] = scripts.map(|script| script.write(busy));
            apps.push(method.open(&mut pair, number, (opens, dialled)));
        }
        pair.network.run_for(SECOND);
        for (from, to) in [(client, server), (server, client)] {
            pair.network.set_link(from, to, |link| link.loss = 1.0);
        }
        pair.network.run_for(90 * SECOND);
        for (number, &app) in apps.iter().enumerate() {
            let outcome = pair.network.outcome(app);
            assert_eq!(
                (outcome.incoming, outcome.outgoing),
                (IncomingState::Reset, OutgoingState::Reset)
            );
            let (_, dials) = method.hosts(&pair);
            let token = config::reverse_token(number as u64);
            let outcome = pair.network.dialled(dials, &token).expect("dialled");
            assert_eq!(
                (outcome.incoming, outcome.outgoing),
                (IncomingState::Reset, OutgoingState::Reset)
            );
        }
        for host in [client, server] {
            let lost = |event: &EngineEvent| {
                matches!(
                    event,
                    EngineEvent::Shared(Event::Disconnected { flows: 7, .. })
                )
            };
            assert_eq!(pair.count(host, lost), 1);
            assert_eq!(
                pair.count(host, |event| matches!(
                    event,
                    EngineEvent::Shared(Event::Disconnected { .. })
                )),
                1
            );
            let abandoned = Ending::Abandoned(FlowCode::ConnectionLost);
            assert!(
                pair.closed(host)
                    .iter()
                    .all(|summary| summary.ending == abandoned)
            );
        }
        pair.check_nothing_left();
    });
}
