//! What an engine says about itself.

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
