//! The reports of an engine about its flows, its totals and its clients.

use quictun_sim::engine::report::ClientReport;
use quictun_sim::{Dial, Script, Seed, Write, config};

use crate::world::{MS, PROTOCOLS, SECOND, World, limited};

#[test]
fn flows_are_reported_while_they_are_open_and_no_longer() {
    for protocols in PROTOCOLS {
        let mut world = World::new(Seed::fixed(1), protocols, limited(2_500_000, 20 * MS));
        world.connect();
        let host = world.network.host(world.server);
        host.serve("echo", Dial::connects(), Script::echo());
        host.serve("refused", Dial::refused(), Script::echo());
        let ends = [Write::Finish, Write::Abort, Write::Close];
        let open = ends.map(|end| {
            let writes = [Write::Send(50_000), Write::Wait(2 * SECOND), end];
            let script = Script::client(1).write(writes);
            let script = Script {
                expects: None,
                ..script
            };
            world.network.open(world.client, "echo", script)
        });
        world
            .network
            .open(world.client, "refused", Script::client(1));
        world.network.run_for(SECOND);
        let hosts = [world.client, world.server];
        for host in hosts {
            let reports = world.network.host(host).engine().flow_reports();
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
        world.network.run_for(2 * SECOND);
        for host in hosts {
            let reports = world.network.host(host).engine().flow_reports();
            assert!(reports.is_empty(), "{reports:?}");
        }
    }
}

#[test]
fn bytes_count_while_they_move_and_for_their_client() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, limited(2_500_000, 20 * MS));
    world.connect();
    let server = world.network.host(world.server);
    server.serve("echo", Dial::connects(), Script::echo());
    let engine = server.engine();
    engine.know_client("bob");
    let connection = engine.connection_reports()[0].id;
    let now = world.network.now();
    let engine = world.network.host(world.server).engine();
    engine.name_peer(now, connection, "alice".to_owned());
    let writes = [Write::Send(50_000), Write::Wait(2 * SECOND), Write::Finish];
    let script = Script {
        expects: None,
        ..Script::client(1).write(writes)
    };
    world.network.open(world.client, "echo", script);
    world.network.run_for(SECOND);
    let mut first_bytes = Vec::new();
    for host in [world.client, world.server] {
        let totals = world.network.host(host).engine().totals();
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
    world.network.run_for(2 * SECOND);
    let engine = world.network.host(world.server).engine();
    let life = engine.totals().times.life;
    assert!(life.count() == 1 && life.sum() > SECOND, "{life:?}");
    let reports = engine.client_reports();
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
    let mut world = World::new(Seed::fixed(1), config::NATIVE, limited(12_500_000, 20 * MS));
    world.connect();
    let sink = Script::server(1).write([Write::ReceivedEnd, Write::Finish]);
    let host = world.network.host(world.server);
    host.serve("sink", Dial::connects(), sink);
    let script = Script::client(1).write([Write::Send(20_000_000), Write::Finish]);
    let app = world.network.open(world.client, "sink", script);
    world
        .network
        .run_until(10 * SECOND, |network| network.outcome(app).is_over());
    assert!(world.network.outcome(app).is_clean());
    let totals = world.network.host(world.client).engine().totals();
    assert!(
        totals.datagrams_sent >= 4 * totals.batches_sent,
        "{totals:?}"
    );
}
