//! The frames of a hostile client that the server knows by name (PROTOCOL sections 5.6 and 5.9).

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use quictun_trust::psk::Secret;
use quictun_wire::bond::BondRequest;
use quictun_wire::control::Frame;
use quictun_wire::listening::{HOLDER_LEN, Listen};
use quictun_wire::open::{EXPORTER_LABEL, Open, PROOF_LEN};
use quinn_proto::StreamId;

use super::peer::{HostilePeer, PeerState};
use super::run::AttackRun;
use super::targets::Targets;
use super::tcp_peer::TcpWork;

/// Opens the control stream of a connection, proves the client's identity, and asks for a bond.
///
/// # Errors
///
/// Fails if the connection is not established or has no stream left.
pub fn hello(peer: &mut HostilePeer, secret: &Secret) -> Result<StreamId> {
    let mut exporter = [0; 32];
    let session = peer.connection.crypto_session();
    session
        .export_keying_material(&mut exporter, EXPORTER_LABEL, b"")
        .map_err(|_| anyhow!("the handshake has not ended"))?;
    let mut frame = Vec::new();
    Frame::Hello {
        proof: Some(secret.prove(&exporter)),
        join: None,
        bond: Some(BondRequest::New),
        reverse: true,
    }
    .encode(&mut frame);
    let control = peer.open().ok_or_else(|| anyhow!("no stream"))?;
    peer.write(control, &frame);
    Ok(control)
}

/// Asks for listeners at ports that the server chooses.
pub fn listen(peer: &mut HostilePeer, control: StreamId, listeners: u64) {
    let mut frames = Vec::new();
    for id in 0..listeners {
        let listen = Listen {
            id,
            wait: false,
            holder: [7; HOLDER_LEN],
            address: "tcp:127.0.0.1:0".to_owned(),
        };
        Frame::Listen(listen).encode(&mut frames);
    }
    peer.write(control, &frames);
}

/// Opens a flow of the bond to `target`. Returns false if the server has granted no stream.
///
/// # Errors
///
/// Fails if the target is too long.
pub fn open(peer: &mut HostilePeer, target: &str, number: u64) -> Result<bool> {
    let open = Open {
        target: target.to_owned(),
        number: Some(number),
        ..Open::default()
    };
    send_open(peer, &open)
}

/// Asks for a flow with a proof of a wrong secret. Returns false if the server has granted no stream.
///
/// # Errors
///
/// Fails if the target is too long.
pub fn open_with_wrong_proof(peer: &mut HostilePeer, target: &str) -> Result<bool> {
    let open = Open {
        target: target.to_owned(),
        proof: Some([7; PROOF_LEN]),
        ..Open::default()
    };
    send_open(peer, &open)
}

fn send_open(peer: &mut HostilePeer, open: &Open) -> Result<bool> {
    let Some(stream) = peer.open() else {
        return Ok(false);
    };
    let mut frame = Vec::new();
    open.encode(&mut frame)
        .map_err(|error| anyhow!("{}: {error}", open.target))?;
    peer.write(stream, &frame);
    Ok(true)
}

/// Connects a known client by TLS, and opens at most `flows` flows. Returns the connection and the streams of its
/// flows, or `None` if the server has ended the connection in its handshake.
///
/// # Errors
///
/// Fails if the server does not answer in time.
pub fn enter_over_tls(
    run: &mut AttackRun<'_>,
    work: TcpWork,
    secret: &Secret,
    targets: &mut Targets,
    flows: u64,
) -> Result<Option<(usize, Vec<quictun_flow::StreamId>)>> {
    let peer = run.tcp.connect(work)?;
    let begun = Instant::now();
    while *run.tcp.peer(peer).state() == PeerState::Connecting {
        ensure!(
            run.turn()? && begun.elapsed() < ANSWERED,
            "no answer to a handshake"
        );
    }
    let Some(session) = run.tcp.peer(peer).session() else {
        return Ok(None);
    };
    session.hello(secret)?;
    let mut streams = Vec::new();
    for number in 0..flows {
        streams.extend(session.open(targets.next_target(), number)?);
    }
    run.opened += streams.len() as u64;
    run.tcp.serve(peer)?;
    Ok(Some((peer, streams)))
}

/// The longest time until the server has answered a handshake over TCP.
const ANSWERED: Duration = Duration::from_secs(10);
