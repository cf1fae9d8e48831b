//! Fake workers for tests, and comparisons with golden files and documents.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use quictun_engine::report::{
    BondId, BondReport, CarrierKind, ChoiceReason, ClientReport, ClientTotals, ConnectionReport,
    DurationHistograms, FlowReport, Protocol, QuicState, RestartCost, SendLimit, ServerId,
    ServerReport, Totals,
};
use quictun_engine::{
    AllowanceLimits, ClientUsage, ConnectionId, ControllerView, FlowId, LossReason,
};

use crate::reload::{self, Changes, ReloadOutcome, Reloadable};
use crate::rest::ClientUse;
use crate::snapshot::{Detail, RequestSender, WorkerSnapshot, Workers};
use quictun_io::udp_port::UdpSocketReport;

/// The start of the fake process.
pub(crate) static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the time one minute after the start, plus one second for each `round`.
fn taken(round: u64) -> Instant {
    *START + Duration::from_secs(60 + round)
}

/// Returns the first bytes that a SPICE client sends on the channel type `channel`.
pub(crate) fn spice_client_head(channel: u8) -> Vec<u8> {
    let mut head = b"REDQ".to_vec();
    for word in [2_u32, 2, 26] {
        head.extend(word.to_le_bytes());
    }
    head.extend([0xde, 0xad, 0xbe, 0xef, channel, 0]);
    head
}

/// Returns the first bytes that a SPICE server sends on the main channel: link reply, INIT, NAME and UUID.
pub(crate) fn spice_server_head(name: &str) -> Vec<u8> {
    let mut head = b"REDQ".to_vec();
    for word in [2_u32, 2, 8] {
        head.extend(word.to_le_bytes());
    }
    head.extend([0; 8]);
    head.extend(0_u32.to_le_bytes());
    let mut message = |kind: u16, payload: &[u8]| {
        head.extend(kind.to_le_bytes());
        head.extend(u32::try_from(payload.len()).expect("short").to_le_bytes());
        head.extend(payload);
    };
    message(103, &[0x12, 0x34, 0x56, 0x78, 0, 0]);
    let mut named = (u32::try_from(name.len()).expect("short") + 1)
        .to_le_bytes()
        .to_vec();
    named.extend(name.as_bytes());
    named.push(0);
    message(113, &named);
    message(114, &(0x10..0x20).collect::<Vec<u8>>());
    head
}

fn flow(id: u64, round: u64) -> FlowReport {
    FlowReport {
        id: FlowId(id),
        connection: ConnectionId(1),
        stream_id: id * 4,
        remote: "192.0.2.1:7500".parse().expect("an address"),
        token: "tcp:127.0.0.1:22".to_owned(),
        client_app: "127.0.0.1:40001".to_owned(),
        server_app: "127.0.0.1:22".to_owned(),
        opened: *START + Duration::from_millis(1_500 * (id + 1)),
        bytes_to_tunnel: 1000 + 1024 * round,
        bytes_to_app: 2000 + 2_621_440 * round,
        established: true,
        incoming: false,
        detached_since: (id == 1).then(|| *START + Duration::from_secs(55)),
        head_from_app: b"SSH-2.0-client".to_vec(),
        head_to_app: b"SSH-2.0-server".to_vec(),
    }
}

fn connection(id: u64, protocol: Option<Protocol>) -> ConnectionReport {
    ConnectionReport {
        id: ConnectionId(id),
        remote: "[2001:db8::1]:7500".parse().expect("an address"),
        carrier: CarrierKind::Quic,
        protocol,
        admitted: true,
        peer: (protocol == Some(Protocol::Native)).then(|| "alice".to_owned()),
        bond: (protocol == Some(Protocol::Native)).then_some(BondId([0xb0, 0x4d, 0, 1])),
        opened: *START + Duration::from_secs(id),
        flows: 3,
        rtt: Duration::from_micros(1_250 * (id + 1)),
        congestion_window: Some(120_000 * (id + 1)),
        controller: ControllerView {
            mode: "auto",
            phase: "cruise",
            starting: false,
            even: false,
            bandwidth: 12_000_000.0,
            min_rtt: Some(Duration::from_millis(1)),
            loss_floor: 0.01,
            trust: 1.0,
        },
        limit: SendLimit::Congestion,
        in_flight: 60_000,
        pacing_bytes_per_s: (id > 0).then_some(12_500_000),
        mtu: Some(1452),
        packets_sent: 1000,
        packets_lost: 5 * id,
        congestion_events: id,
        bytes_sent: 1_200_000,
        bytes_received: 40_000,
        batches_sent: 100,
        datagrams_sent: 1000,
        datagrams_repeated: 10,
        datagrams_received: 500,
        receive_window: 1 << 20,
        unresponsive: id == 2,
        migrations: id,
    }
}

/// Returns a bond with a connection, and one that waits for its next connection with two flows.
fn bonds(worker: u64) -> Vec<BondReport> {
    let carried = BondReport {
        id: BondId([0xb0, 0x4d, 0, 1]),
        client: Some("alice".to_owned()),
        connections: 1,
        flows: 3,
        detached: 0,
        retained: 5_000,
        alone_since: None,
    };
    let alone = BondReport {
        id: BondId([0xb0, 0x4d, 0, 2]),
        connections: 0,
        flows: 2,
        detached: 2,
        retained: 70_000,
        alone_since: Some(*START + Duration::from_secs(55)),
        ..carried.clone()
    };
    if worker == 0 {
        vec![carried, alone]
    } else {
        Vec::new()
    }
}

/// Returns a server that is in use, and one that cannot be reached.
fn servers() -> Vec<ServerReport> {
    let used = ServerReport {
        server: ServerId(0),
        chosen: Some(ChoiceReason::Faster),
        ready: 1,
        unready: 0,
        flows: 3,
        flows_opened: 20,
        rtt: Some(Duration::from_millis(20)),
        bandwidth: Some(12_500_000),
        failure: None,
        quic: QuicState::Works,
        probe_in: None,
        transfers: None,
        draining: false,
    };
    let lost = ServerReport {
        server: ServerId(1),
        chosen: None,
        ready: 0,
        flows: 0,
        flows_opened: 1,
        rtt: None,
        bandwidth: None,
        failure: Some(LossReason::TimedOut),
        ..used.clone()
    };
    vec![used, lost]
}

fn totals(worker: u64) -> Totals {
    let unit = if worker == 0 { 1 } else { 100 };
    Totals {
        connections_opened: 11 * unit,
        connections_closed: 10 * unit,
        connections_lost: 2 * unit,
        handshakes_failed: 3 * unit,
        flows_opened: 40 * unit,
        flows_finished: 30 * unit,
        flows_reset: 4 * unit,
        flows_refused: 5 * unit,
        flows_moved: 6 * unit,
        moves_refused: 7 * unit,
        flow_datagrams_dropped: 8 * unit,
        bonds_refused: 8 * unit,
        packets_sent: 1_000 * unit,
        packets_lost: 20 * unit,
        bytes_to_tunnel: 6_000 * unit,
        bytes_to_app: 7_000 * unit,
        datagrams_received: 800 * unit,
        datagrams_sent: 900 * unit,
        batches_sent: 90 * unit,
        times: times(worker),
    }
}

/// Returns histograms with one duration in the first bucket, one in the middle and, for the second worker, one above
/// all.
fn times(worker: u64) -> DurationHistograms {
    let mut times = DurationHistograms::default();
    for histogram in [
        &mut times.rtt,
        &mut times.first_byte,
        &mut times.life,
        &mut times.moves,
    ] {
        for ms in [0, 75, 100_000_000]
            .into_iter()
            .take(3 - usize::from(worker == 0))
        {
            histogram.note(Duration::from_millis(ms));
        }
    }
    times
}

/// Returns reports on Alice, who is connected, and Bob, who has not connected yet.
fn clients(worker: u64) -> Vec<ClientReport> {
    let alice = ClientTotals {
        bytes_to_tunnel: 500 + worker,
        bytes_to_app: 600 + worker,
        flows_finished: 7,
        flows_reset: 2,
        flows_refused: 1,
        flows_moved: 3,
    };
    let report = |name: &str, totals, usage| ClientReport {
        name: name.into(),
        totals,
        usage: Some(usage),
    };
    vec![
        report("alice", alice, usage()),
        report("bob", ClientTotals::default(), ClientUsage::default()),
    ]
}

/// Returns the usage of Alice.
fn usage() -> ClientUsage {
    ClientUsage {
        limits: AllowanceLimits {
            flows: Some(100),
            rate_up: None,
            rate_down: Some(2_500_000),
            quota: Some(50_000_000_000),
        },
        flows: 6,
        used: 12_000_000_000,
        up: 1_000_000,
        down: 9_000_000,
    }
}

/// Returns the usage of both clients as the process reports it.
pub(crate) fn uses() -> Vec<ClientUse> {
    let bob = ClientUse {
        name: "bob".to_owned(),
        usage: ClientUsage::default(),
        expires: None,
        expired: false,
    };
    let alice = ClientUse {
        name: "alice".to_owned(),
        usage: usage(),
        expires: Some("2027-04-01T00:00:00Z".to_owned()),
        expired: false,
    };
    vec![bob, alice]
}

fn udp(worker: u64) -> UdpSocketReport {
    UdpSocketReport {
        recv_buffer: (4 << 20) >> worker,
        send_buffer: 2 << 20,
        gso: true,
        gro: worker == 0,
        gso_fallbacks: worker,
        send_errors: 2 + worker,
        receive_drops: 3 + worker,
    }
}

/// Returns the snapshots of two workers, a minute and `round` seconds after the start. Their flows carry SSH and SPICE,
/// and one of them is still being opened.
pub(crate) fn snapshots(round: u64) -> Vec<WorkerSnapshot> {
    let spice = FlowReport {
        head_from_app: spice_client_head(1),
        head_to_app: spice_server_head("vm <1> & \"co\""),
        ..flow(1, round)
    };
    let webdav = FlowReport {
        head_from_app: spice_client_head(11),
        head_to_app: Vec::new(),
        ..flow(2, round)
    };
    let unknown = FlowReport {
        head_from_app: spice_client_head(99),
        head_to_app: Vec::new(),
        ..flow(0, round)
    };
    let opening = FlowReport {
        established: false,
        bytes_to_app: 0,
        client_app: String::new(),
        server_app: String::new(),
        ..flow(4, round)
    };
    let worker = |worker: u64, flows, connections| WorkerSnapshot {
        worker: usize::try_from(worker).expect("small"),
        taken: taken(round),
        flows,
        connections,
        bonds: bonds(worker),
        servers: servers(),
        totals: totals(worker),
        clients: clients(worker),
        restart_cost: RestartCost {
            continuing: 3,
            without_bond: usize::from(worker == 1),
            ..RestartCost::default()
        },
        udp: udp(worker),
    };
    vec![
        worker(
            0,
            vec![flow(0, round), spice, webdav],
            vec![connection(0, None), connection(1, Some(Protocol::Native))],
        ),
        worker(
            1,
            vec![unknown, opening],
            vec![connection(2, Some(Protocol::Compat))],
        ),
    ]
}

/// Returns the same snapshots as a server sees them: the client's bytes go to the local application.
pub(crate) fn server_snapshots(round: u64) -> Vec<WorkerSnapshot> {
    let mut snapshots = snapshots(round);
    for flow in snapshots
        .iter_mut()
        .flat_map(|snapshot| &mut snapshot.flows)
    {
        std::mem::swap(&mut flow.head_from_app, &mut flow.head_to_app);
    }
    snapshots
}

/// Returns workers that answer their nth request with `make(n)`, and a counter of all requests.
pub(crate) fn workers(make: fn(u64) -> Vec<WorkerSnapshot>) -> (Workers, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let ask = |worker: usize| {
        let asked = Arc::clone(&asked);
        let rounds = AtomicU64::new(0);
        Box::new(move |request: crate::snapshot::SnapshotRequest| {
            asked.fetch_add(1, Ordering::Relaxed);
            let round = rounds.fetch_add(1, Ordering::Relaxed);
            let Some(mut snapshot) = make(round).into_iter().nth(worker) else {
                return false;
            };
            if request.detail == Detail::Counters {
                snapshot.flows.clear();
            }
            request.reply.send(snapshot).is_ok()
        }) as RequestSender
    };
    (Workers::new(vec![ask(0), ask(1)]), asked)
}

/// A configuration with a fixed preview of its changes and a fixed outcome of its latest reload.
#[derive(Debug)]
struct Configuration {
    would: Result<Changes, String>,
    state: reload::ReloadState,
}

impl Reloadable for Configuration {
    fn would_change(&self) -> reload::BoxFuture<'_, Result<Changes, String>> {
        Box::pin(async { self.would.clone() })
    }

    fn state(&self) -> &reload::ReloadState {
        &self.state
    }
}

/// Returns a configuration whose next reload would give `would`, and whose latest reload was `was`.
pub(crate) fn reload(
    would: Result<Changes, String>,
    was: Option<ReloadOutcome>,
) -> Arc<dyn Reloadable> {
    let state = was.into();
    Arc::new(Configuration { would, state })
}

/// Compares `got` with a file in `tests/golden`. With `UPDATE=1` in the environment, writes the file first.
#[track_caller]
pub(crate) fn check_golden(name: &str, got: &str) {
    check_file(&root().join("tests/golden").join(name), got);
}

/// Compares `got` with the part of `docs/<file>` between the markers of `part`. With `UPDATE=1`, writes it first.
#[track_caller]
pub(crate) fn check_document(file: &str, part: &str, got: &str) {
    // Several tests, each in a thread of its own, rewrite parts of the same file.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let path = root().join("../../docs").join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (begin, end) = (
        format!("<!-- begin {part}: written by a test -->\n"),
        format!("<!-- end {part} -->\n"),
    );
    let (before, rest) = text
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{file} has no {begin}"));
    let (_, after) = rest
        .split_once(&end)
        .unwrap_or_else(|| panic!("{file} has no {end}"));
    check_file(&path, &format!("{before}{begin}{got}{end}{after}"));
}

#[track_caller]
fn check_file(path: &std::path::Path, got: &str) {
    if std::env::var_os("UPDATE").is_some() {
        // Other tests may read the file at the same time, so it is replaced as a whole.
        let new = path.with_extension("new");
        std::fs::write(&new, got)
            .and_then(|()| std::fs::rename(&new, path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let expected =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        got == expected,
        "{} is stale; UPDATE=1 rewrites it. Got:\n{got}",
        path.display()
    );
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
