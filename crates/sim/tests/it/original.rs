//! A client and a server with the hazards of the original.

use std::time::Duration;

use quictun_sim::{
    AppId, HostId, IncomingState, LinkConfig, Network, Script, Seed, SimulatedDial, WriteStep,
    config,
};

use crate::guests::{Guests as _, OriginalOptions};
use crate::tunnel_pair::{MS, SECOND, limited};

/// A client that is linked to an original server.
pub(crate) struct OriginalPair {
    pub(crate) network: Network,
    pub(crate) client: HostId,
    pub(crate) original: HostId,
}

impl OriginalPair {
    pub(crate) fn new(link: LinkConfig) -> Self {
        Self::seeded(1, link)
    }

    fn seeded(seed: u64, link: LinkConfig) -> Self {
        let mut network = Network::new(Seed::fixed(seed));
        let original = network.add_original("original", OriginalOptions::default());
        let client = network.add_client("client", config::client(1), original);
        network.link(client, original, link.clone(), link);
        network
            .original(original)
            .serve("tcp:echo", SimulatedDial::connects());
        network
            .original(original)
            .serve("tcp:refused", SimulatedDial::refused());
        network
            .original(original)
            .serve("tcp:black-hole", SimulatedDial::Never);
        Self {
            network,
            client,
            original,
        }
    }

    pub(crate) fn connect(&mut self) {
        let client = self.client;
        let up = |network: &mut Network| network.client(client).is_connected();
        self.network.run_until(5 * SECOND, up);
        self.network.run_for(SECOND);
    }

    /// Opens a flow that sends, waits for its echo, and finishes.
    fn echo(&mut self, bytes: u64) -> AppId {
        let script = Script::echoed(1).write([
            WriteStep::Send(bytes),
            WriteStep::Received(bytes),
            WriteStep::Finish,
        ]);
        self.network.open(self.client, "tcp:echo", script)
    }

    pub(crate) fn all_clean(&mut self, apps: &[AppId], within: Duration) {
        let over = |network: &mut Network| apps.iter().all(|&app| network.outcome(app).is_over());
        self.network.run_until(within, over);
        for &app in apps {
            assert!(
                self.network.outcome(app).is_clean(),
                "{:?}",
                self.network.outcome(app)
            );
        }
    }
}

// PROTOCOL HAZARD-7, HAZARD-9, QUIC-3.
#[test]
fn a_first_byte_takes_one_round_trip_although_the_server_knows_no_pipelining() {
    let mut pair = OriginalPair::new(limited(12_500_000, 25 * MS));
    pair.connect();
    let app = pair.echo(500);
    pair.all_clean(&[app], SECOND);
    let after = pair
        .network
        .outcome(app)
        .first_byte_after()
        .expect("an answer");
    assert!(after <= (25 * MS).mul_f64(1.05), "{after:?}");
}

/// Opens 200 flows, `at_once` of them per 20 ms. Some of them send a lot of data.
fn busy(seed: u64, loss: f64, at_once: u64) -> OriginalPair {
    let link = limited(2_500_000, 30 * MS);
    let mut pair = OriginalPair::seeded(seed, LinkConfig { loss, ..link });
    pair.connect();
    let mut apps = Vec::new();
    for round in 0..200u64 {
        let bytes = if round % 10 == 0 {
            100_000
        } else {
            300 + round
        };
        apps.push(pair.echo(bytes));
        if round % at_once == 0 {
            pair.network.run_for(20 * MS);
        }
    }
    let over = |network: &mut Network| apps.iter().all(|&app| network.outcome(app).is_over());
    pair.network.run_until(300 * SECOND, over);
    pair
}

// PROTOCOL TOKEN-3, HAZARD-1.
#[test]
fn a_token_arrives_in_one_piece_among_many_and_among_other_data() {
    let mut pair = busy(1, 0.0, 7);
    let original = pair.network.original(pair.original);
    assert_eq!((original.mangled(), original.established()), (0, 200));
}

#[test]
fn a_token_that_is_lost_is_sent_again_in_one_piece() {
    // This is not always true: if three tokens are lost at once, one of them is split over two packets. Without a
    // preference for tokens, and a limit to the data that follows them, one in a hundred would be split.
    let mangled = |seed| {
        let mut pair = busy(seed, 0.05, 1);
        pair.network.original(pair.original).mangled()
    };
    let mangled: u64 = (0..6).map(mangled).sum();
    assert!(mangled <= 3, "{mangled} of 1200");
}

// PROTOCOL ACK-4, HAZARD-4.
#[test]
fn endless_error_answers_are_stopped_and_the_next_request_is_served() {
    let mut pair = OriginalPair::new(limited(12_500_000, 20 * MS));
    pair.connect();
    for _ in 0..5 {
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
        let refused = pair.network.open(pair.client, "tcp:refused", script);
        let good = pair.echo(100);
        pair.all_clean(&[good], SECOND);
        let outcome = pair.network.outcome(refused);
        assert_eq!(
            (outcome.incoming, outcome.received),
            (IncomingState::Reset, 0)
        );
        // The request was served after the refused one, on the same connection. This takes two more round trips,
        // because the connection's window is full of unwanted answers.
        assert!(pair.network.outcome(good).first_byte_after() <= Some(3 * 21 * MS));
    }
    assert_eq!(pair.network.original(pair.original).accepted(), 1);
}

// PROTOCOL HAZARD-5.
#[test]
fn flows_do_not_wait_behind_an_unanswered_dial() {
    let mut pair = OriginalPair::new(limited(12_500_000, 20 * MS));
    pair.connect();
    let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
    pair.network.open(pair.client, "tcp:black-hole", script);
    let behind = pair.echo(100);
    pair.network.run_for(2500 * MS);
    let after: Vec<AppId> = (0..20).map(|_| pair.echo(100)).collect();
    pair.all_clean(&after, 100 * MS);
    assert_eq!(pair.network.original(pair.original).accepted(), 2);
    // The flow that was sent behind that dial waits for it: its bytes may be at the server already.
    pair.all_clean(&[behind], 70 * SECOND);
}

// PROTOCOL HAZARD-6.
#[test]
fn more_flows_than_a_connection_takes_get_another_one() {
    let mut pair = OriginalPair::new(limited(12_500_000, 20 * MS));
    pair.connect();
    let held: Vec<AppId> = (0..250)
        .map(|_| {
            let script = Script::echoed(1).write([
                WriteStep::Send(100),
                WriteStep::Wait(10 * SECOND),
                WriteStep::Send(100),
                WriteStep::Received(200),
                WriteStep::Finish,
            ]);
            pair.network.open(pair.client, "tcp:echo", script)
        })
        .collect();
    pair.network.run_for(SECOND);
    for &app in &held {
        assert_eq!(pair.network.outcome(app).received, 100);
    }
    assert_eq!(pair.network.original(pair.original).accepted(), 4);
    pair.all_clean(&held, 20 * SECOND);
}

// PROTOCOL HAZARD-6.
#[test]
fn streams_that_the_server_never_gives_back_do_not_wedge_the_client() {
    let mut pair = OriginalPair::new(limited(12_500_000, 20 * MS));
    pair.connect();
    for round in 0..600u64 {
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
        let refused = pair.network.open(pair.client, "tcp:refused", script);
        pair.network.run_for(SECOND);
        assert_eq!(
            pair.network.outcome(refused).incoming,
            IncomingState::Reset,
            "round {round}"
        );
        if round % 20 == 0 {
            let good = pair.echo(100);
            pair.all_clean(&[good], 200 * MS);
        }
    }
    let open = pair
        .network
        .host(pair.client)
        .engine()
        .connection_reports()
        .len();
    assert!(open <= 3, "{open} connections");
}
