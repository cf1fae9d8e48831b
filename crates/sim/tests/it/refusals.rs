//! Flows that a side refuses before it opens them: each is reported as one flow (PROTOCOL MEMORY-1), and counted.

use quictun_flow::Lease;
use quictun_sim::engine::{Account, Ending, LocalLimit};
use quictun_sim::{AppId, HostEngine, HostId, IncomingState, Script, Seed, WriteStep, config};
use quictun_wire::code::FlowCode;

use crate::oracle::check_accounting;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

/// Largest number of flows that wait for a connection.
const WAITING_MAX: usize = 4096;

const MIB: u64 = 1 << 20;

/// Creates a client and a server, each with an account of its own of `budget` bytes. The client is not connected yet.
fn pair(budget: u64) -> (TunnelPair, [Account; 2]) {
    let accounts = [Account::new(budget), Account::new(budget)];
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    client.role.reverse = true;
    client.transport.account = accounts[0].clone();
    server.transport.account = accounts[1].clone();
    let pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    (pair, accounts)
}

/// Charges all memory of an account. Dropping the lease returns the memory.
fn take_all(account: &Account) -> Lease {
    let mut lease = Lease::new(account.clone());
    lease.charge(lease.free());
    lease
}

fn open(pair: &mut TunnelPair) -> AppId {
    let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
    pair.network.open(pair.client, "echo", script)
}

/// Checks that exactly these applications' flows were refused, each with one report.
fn check_refused(pair: &mut TunnelPair, host: HostId, apps: &[AppId], ending: Ending) {
    let closed = pair.closed(host);
    assert_eq!(closed.len(), apps.len(), "{closed:?}");
    for summary in &closed {
        assert_eq!(summary.ending, ending);
        assert!(!summary.token.is_empty() && !summary.established);
        assert_eq!(summary.stream_id, None);
    }
    for &app in apps {
        assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    }
    let totals = pair.network.host(host).engine().totals();
    assert_eq!(totals.flows_refused, apps.len() as u64);
}

/// Ends both engines and checks that their counters agree with their events.
fn check_ended(mut pair: TunnelPair) {
    let (client, server) = (pair.client, pair.server);
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(70 * SECOND);
    for host in [client, server] {
        check_accounting(&mut pair, host);
    }
}

#[test]
fn each_flow_beyond_the_largest_number_that_may_wait_is_reported() {
    let (mut pair, _) = pair(1024 * MIB);
    let client = pair.client;
    for _ in 0..WAITING_MAX {
        open(&mut pair);
    }
    pair.network.run_for(MS);
    check_refused(&mut pair, client, &[], Ending::Finished);
    let refused: Vec<AppId> = (0..3).map(|_| open(&mut pair)).collect();
    pair.network.run_for(MS);
    let ending = Ending::LimitReached(LocalLimit::WaitingFlows);
    check_refused(&mut pair, client, &refused, ending);
    let closed = pair.closed(client);
    assert!(
        closed
            .iter()
            .all(|flow| flow.client_app.starts_with("app:"))
    );
    assert!(closed.iter().all(|flow| flow.connection.is_none()));
    check_ended(pair);
}

#[test]
fn each_flow_of_an_application_that_finds_no_memory_is_reported() {
    let (mut pair, [account, _]) = pair(MIB);
    let client = pair.client;
    pair.connect();
    let lease = take_all(&account);
    let mut refused = Vec::new();
    while refused.len() < 3 {
        let before = pair.network.host(client).engine().totals().flows_refused;
        let app = open(&mut pair);
        if pair.network.host(client).engine().totals().flows_refused > before {
            refused.push(app);
        }
    }
    pair.network.run_for(MS);
    let ending = Ending::LimitReached(LocalLimit::Memory);
    check_refused(&mut pair, client, &refused, ending);
    drop(lease);
    check_ended(pair);
}

#[test]
fn each_connection_to_a_listener_that_finds_no_memory_is_reported() {
    let (mut pair, [_, account]) = pair(MIB);
    let server = pair.server;
    pair.connect();
    pair.listen(1);
    let lease = take_all(&account);
    let refused: Vec<AppId> = (0..3)
        .map(|_| pair.network.open_incoming(server, 1, Script::echoed(1)))
        .collect();
    pair.network.run_for(MS);
    let ending = Ending::LimitReached(LocalLimit::Memory);
    check_refused(&mut pair, server, &refused, ending);
    for summary in pair.closed(server) {
        assert!(summary.incoming && summary.connection.is_some() && summary.remote.is_some());
        assert_eq!(summary.server_app, "unix");
    }
    drop(lease);
    check_ended(pair);
}

#[test]
fn a_draining_engine_reports_each_flow_that_it_refuses() {
    let (mut pair, _) = pair(1024 * MIB);
    let (client, server) = (pair.client, pair.server);
    pair.connect();
    pair.listen(1);
    for host in [client, server] {
        pair.network.host(host).engine().drain();
    }
    let outgoing = open(&mut pair);
    let incoming = pair.network.open_incoming(server, 1, Script::echoed(1));
    pair.network.run_for(MS);
    let ending = Ending::Abandoned(FlowCode::ShuttingDown);
    check_refused(&mut pair, client, &[outgoing], ending);
    check_refused(&mut pair, server, &[incoming], ending);
    check_ended(pair);
}
