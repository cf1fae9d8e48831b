//! Flows that a server opens for connections to its listeners (PROTOCOL section 5.9).

use quictun_sim::engine::{Ending, Event};
use quictun_sim::{AppId, Dial, Incoming, Outgoing, Script, Seed, Write, config};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::listening::{HOLDER_LEN, Listen};

use crate::guests::Guests as _;
use crate::world::{MS, SECOND, World, wire};

fn world(reverse: bool) -> World {
    let seed = Seed::fixed(6);
    let mut client = config::client_speaking(config::NATIVE, seed.value());
    client.role.reverse = reverse;
    let server = config::server(seed.value());
    let mut world = World::with(seed, client, server, wire(20 * MS), wire(20 * MS));
    world.connect();
    world
}

fn serve(world: &mut World, dial: Dial) {
    let token = config::reverse_token(1);
    let host = world.network.host(world.client);
    host.serve(&token, dial, Script::echo());
}

fn open(world: &mut World, writes: &[Write]) -> AppId {
    let script = Script::echoed(1).write(writes.to_vec());
    world.network.open_incoming(world.server, 1, script)
}

fn is_reset(world: &World, app: AppId) -> bool {
    let outcome = world.network.outcome(app);
    (outcome.incoming, outcome.outgoing) == (Incoming::Reset, Outgoing::Reset)
}

fn listen() -> Listen {
    Listen {
        id: 1,
        wait: false,
        holder: [1; HOLDER_LEN],
        address: "tcp:127.0.0.1:0".to_owned(),
    }
}

// PROTOCOL REVERSE-9, REVERSE-10.
#[test]
fn what_connects_to_a_listener_reaches_the_clients_target() {
    let mut world = world(true);
    world.listen(1);
    serve(&mut world, Dial::connects());
    let app = open(&mut world, &[Write::Send(3_000_000), Write::Finish]);
    world.network.run_for(20 * SECOND);
    let outcome = world.network.outcome(app);
    assert!(
        outcome.is_clean() && outcome.received == 3_000_000,
        "{outcome:?}"
    );
    for host in [world.client, world.server] {
        let closed = world.closed(host);
        assert!(closed[0].incoming && closed[0].ending == Ending::Finished);
        assert_eq!(closed[0].server_app, "unix");
        // PROTOCOL CONTROL-5.
        assert_eq!(world.network.host(host).engine().unconfirmed(), 0);
    }
    world.check_nothing_left();
}

// PROTOCOL REVERSE-9.
#[test]
fn what_the_client_does_not_take_is_reset_outside_and_the_next_is_served() {
    let mut world = world(true);
    world.listen(1);
    for (dial, code) in [
        (Dial::refused(), FlowCode::Refused),
        (Dial::Never, FlowCode::DialTimeout),
    ] {
        serve(&mut world, dial);
        let app = open(&mut world, &[Write::Send(1000)]);
        world.network.run_for(11 * SECOND);
        assert!(is_reset(&world, app), "{code}");
        let closed = world.closed(world.server);
        let last = closed.last().expect("a flow");
        let told = Ending::PeerReset(Some(code));
        assert!(
            last.ending == Ending::Abandoned(code) || last.ending == told,
            "{last:?}"
        );
    }
    serve(&mut world, Dial::connects());
    let app = open(&mut world, &[Write::Send(1000), Write::Finish]);
    world.network.run_for(SECOND);
    assert!(world.network.outcome(app).is_clean());
    world.check_nothing_left();
}

// PROTOCOL REVERSE-2.
#[test]
fn a_server_can_open_nothing_before_the_client_has_asked() {
    let mut world = world(true);
    serve(&mut world, Dial::connects());
    let app = open(&mut world, &[Write::Send(1000)]);
    world.network.run_for(SECOND);
    assert!(is_reset(&world, app));
    assert!(world.closed(world.server).is_empty(), "no flow existed");
    world.listen(1);
    let app = open(&mut world, &[Write::Send(1000), Write::Finish]);
    world.network.run_for(SECOND);
    assert!(world.network.outcome(app).is_clean());
}

#[test]
fn more_flows_than_a_client_grants_at_first() {
    let mut world = world(true);
    world.listen(1);
    serve(&mut world, Dial::connects());
    let mut apps = Vec::new();
    for _ in 0..6 {
        let wait = [Write::Send(1000), Write::Wait(20 * SECOND), Write::Finish];
        apps.extend((0..60).map(|_| open(&mut world, &wait)));
        world.network.run_for(SECOND);
    }
    world.network.run_for(30 * SECOND);
    for app in apps {
        assert!(world.network.outcome(app).is_clean());
    }
    world.check_nothing_left();
}

// PROTOCOL REVERSE-1.
#[test]
fn a_client_that_did_not_ask_for_it_may_not_ask_to_listen() {
    for (reverse, agreed) in [(false, false), (true, true)] {
        let mut world = world(reverse);
        let welcome =
            |event: &Event| matches!(event, Event::Welcome { reverse, .. } if *reverse == agreed);
        assert_eq!(world.count(world.client, welcome), 1);
        let client = world.client;
        let asked = world.network.command(client, |engine, _| {
            let connection = engine.connection_reports()[0].id;
            engine.listen(connection, listen())
        });
        assert_eq!(asked, agreed);
        world.network.run_for(SECOND);
        let listen = |event: &Event| matches!(event, Event::Listen { .. });
        assert_eq!(world.count(world.server, listen), usize::from(agreed));
    }
}

// PROTOCOL REVERSE-1, REVERSE-5.
#[test]
fn a_listen_that_was_not_agreed_on_ends_the_connection() {
    for (agreed, frame, violates) in [
        (true, Frame::Listen(listen()), false),
        (true, Frame::Unlisten(vec![7]), false),
        (false, Frame::Listen(listen()), true),
        (false, Frame::Unlisten(vec![7]), true),
    ] {
        let mut world = world(false);
        let bare = world
            .network
            .add_bare("stranger", config::NATIVE, world.server);
        let link = wire(20 * MS);
        world.network.link(bare, world.server, link.clone(), link);
        world.network.run_for(SECOND);
        let mut bytes = Vec::new();
        let hello = Frame::Hello {
            proof: None,
            join: None,
            bond: None,
            reverse: agreed,
        };
        hello.encode(&mut bytes);
        frame.encode(&mut bytes);
        let stream = world.network.bare(bare).open();
        world.network.bare(bare).write(stream, &bytes);
        world.network.run_for(SECOND);
        let lost = world.network.bare(bare).lost();
        assert_eq!(lost.is_some(), violates, "{frame:?}: {lost:?}");
    }
}
