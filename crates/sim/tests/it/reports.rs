//! The reports of an engine about its flows, its totals and its clients.

use quictun_sim::engine::report::ClientReport;
use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited};

#[test]
fn flows_are_reported_while_they_are_open_and_no_longer() {
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(2_500_000, 20 * MS));
        pair.connect();
        let host = pair.network.host(pair.server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        host.serve("refused", SimulatedDial::refused(), Script::echo());
        let ends = [WriteStep::Finish, WriteStep::Abort, WriteStep::Close];
        let open = ends.map(|end| {
            let writes = [WriteStep::Send(50_000), WriteStep::Wait(2 * SECOND), end];
            let script = Script::client(1).write(writes);
            let script = Script {
                expects: None,
                ..script
            };
            pair.network.open(pair.client, "echo", script)
        });
        pair.network.open(pair.client, "refused", Script::client(1));
        pair.network.run_for(SECOND);
        let hosts = [pair.client, pair.server];
        for host in hosts {
            let reports = pair.network.host(host).engine().flow_reports();
            assert_eq!(reports.len(), open.len(), "{reports:?}");
            let bytes = |report: &quictun_sim::engine::report::FlowReport| {
                (report.bytes_to_tunnel, report.bytes_to_app)
            };
            assert!(
                reports
                    .iter()
                    .all(|report| bytes(report) == (50_000, 50_000))
            );
        }
        pair.network.run_for(2 * SECOND);
        for host in hosts {
            let reports = pair.network.host(host).engine().flow_reports();
            assert!(reports.is_empty(), "{reports:?}");
        }
    }
}

#[test]
fn bytes_count_while_they_move_and_for_their_client() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, limited(2_500_000, 20 * MS));
    pair.connect();
    let server = pair.network.host(pair.server);
    server.serve("echo", SimulatedDial::connects(), Script::echo());
    let engine = server.engine();
    engine.server().know_client("bob");
    let connection = engine.connection_reports()[0].id;
    let now = pair.network.now();
    let engine = pair.network.host(pair.server).engine();
    engine
        .server()
        .name_peer(now, connection, "alice".to_owned(), [[1; 32]].into());
    let writes = [
        WriteStep::Send(50_000),
        WriteStep::Wait(2 * SECOND),
        WriteStep::Finish,
    ];
    let script = Script {
        expects: None,
        ..Script::client(1).write(writes)
    };
    pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    let mut first_bytes = Vec::new();
    for host in [pair.client, pair.server] {
        let totals = pair.network.host(host).engine().totals();
        let bytes = (totals.bytes_to_tunnel, totals.bytes_to_app);
        assert_eq!(bytes, (50_000, 50_000), "the flow is still open");
        let times = totals.times;
        assert_eq!((times.first_byte.count(), times.life.count()), (1, 0));
        first_bytes.push(times.first_byte.sum());
        // The round-trip time is 20 ms, and is counted once in each of the three or four seconds.
        let rtt = |most| {
            let mut counts = times.rtt.up_to();
            counts
                .find(|(bound, _)| *bound == most)
                .map(|(_, count)| count)
        };
        assert_eq!(
            (rtt(10 * MS), rtt(75 * MS)),
            (Some(0), Some(times.rtt.count()))
        );
        assert!((1..=4).contains(&times.rtt.count()), "{times:?}");
        assert!(totals.packets_sent > 40, "{totals:?}");
    }
    // The client's time includes the way to the server and back.
    assert!(
        first_bytes[0] >= first_bytes[1] + 20 * MS,
        "{first_bytes:?}"
    );
    pair.network.run_for(2 * SECOND);
    let engine = pair.network.host(pair.server).engine();
    let life = engine.totals().times.life;
    assert!(life.count() == 1 && life.sum() > SECOND, "{life:?}");
    let reports = engine.server().client_reports();
    let [bob, alice] = &reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!((&*bob.name, &*alice.name), ("bob", "alice"));
    let moved = |of: &ClientReport| {
        let totals = of.totals;
        (
            totals.bytes_to_tunnel,
            totals.bytes_to_app,
            totals.flows_finished,
        )
    };
    assert_eq!((moved(bob), moved(alice)), ((0, 0, 0), (50_000, 50_000, 1)));
}

#[test]
fn bulk_leaves_in_batches_of_several_datagrams() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, limited(12_500_000, 20 * MS));
    pair.connect();
    let sink = Script::server(1).write([WriteStep::ReceivedEnd, WriteStep::Finish]);
    let host = pair.network.host(pair.server);
    host.serve("sink", SimulatedDial::connects(), sink);
    let script = Script::client(1).write([WriteStep::Send(20_000_000), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "sink", script);
    pair.network
        .run_until(10 * SECOND, |network| network.outcome(app).is_over());
    assert!(pair.network.outcome(app).is_clean());
    let totals = pair.network.host(pair.client).engine().totals();
    assert!(
        totals.datagrams_sent >= 4 * totals.batches_sent,
        "{totals:?}"
    );
}
