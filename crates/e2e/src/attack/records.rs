//! Peers that break the rules of TLS records, of QMux's records and frames, and of its windows, or keep them in the
//! most expensive way.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_flow::StreamId;

use super::crowd::CrowdBehaviour;
use super::frame::{put_stream, put_varint};
use super::half_open::crowd;
use super::known;
use super::outcome::AttackOutcome;
use super::peer::PeerState;
use super::run::{self, AttackOptions, AttackRun};
use super::targets::Targets;
use super::tcp_peer::{TcpPeer, TcpWork};
use super::tls_session::{self, TlsSession};
use super::victim::{HOSTILE, Trust};

/// The longest record of TLS, and of QMux: bytes beyond it are sent in further ones.
const RECORD: usize = 16_000;

/// Flows of the known client, and connections with them.
const KNOWN: usize = 4;
const KNOWN_FLOWS: u64 = 8;

/// Key updates in a row: more than any library permits.
const KEY_UPDATES: usize = 100;

/// Stream of the first flow of a client.
const STREAM: u64 = 0;

const RESET_STREAM: u64 = 0x04;
const PING_OF_QUIC: u8 = 0x01;
const MAX_STREAMS: u64 = 0x12;
const DATAGRAM: u64 = 0x31;
const UNKNOWN: u64 = 0x3f42;
const QX_PING: u64 = 0x348c_6752_9ef8_c7bd;

/// The abuse of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Abuse {
    /// Records of QMux with one byte of PADDING, without end.
    TinyRecords,
    /// Records of TLS with one byte, without end.
    TinyTlsRecords,
    /// Pings without end, whose answers the server has to send.
    Pings,
    /// Streams with one byte each, as many as permitted, and nothing else.
    TinyStreams,
    /// A record that is longer than permitted.
    LongRecord,
    /// A record without a frame.
    EmptyRecord,
    /// A record that ends within a frame.
    CutFrame,
    /// A frame of an unknown type.
    UnknownFrame,
    /// A frame that only QUIC has.
    FrameOfQuic,
    /// A datagram, which the server has not permitted.
    Datagram,
    /// More data on a stream than permitted.
    OverCredit,
    /// Data beyond a gap.
    Gap,
    /// A stream far beyond the limit of streams.
    OverStreams,
    /// A stream that ends by a reset at the largest offset.
    FinalSize,
    /// A limit of streams that no stream number has.
    HugeLimit,
    /// Bytes that are no record of TLS.
    Garbage,
    /// The header of the longest record of TLS, and nothing else.
    LongTlsRecord,
    /// Updates of keys, without data.
    KeyUpdates,
}

const ABUSES: [Abuse; 18] = [
    Abuse::TinyRecords,
    Abuse::TinyTlsRecords,
    Abuse::Pings,
    Abuse::TinyStreams,
    Abuse::LongRecord,
    Abuse::EmptyRecord,
    Abuse::CutFrame,
    Abuse::UnknownFrame,
    Abuse::FrameOfQuic,
    Abuse::Datagram,
    Abuse::OverCredit,
    Abuse::Gap,
    Abuse::OverStreams,
    Abuse::FinalSize,
    Abuse::HugeLimit,
    Abuse::Garbage,
    Abuse::LongTlsRecord,
    Abuse::KeyUpdates,
];

/// Opens TLS connections of strangers, each of which abuses one rule, and connections of a known client whose flows
/// send single bytes to targets that do not read.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the server refuses the known client.
pub fn records(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<AttackOutcome> {
    let terms = terms.over_tls(sources);
    let config = tls_session::client_config()?;
    let mut targets = Targets::stalled(KNOWN * usize::try_from(KNOWN_FLOWS)?)?;
    let behaviour = CrowdBehaviour::default();
    let files = connections as u64;
    run::attack(
        "tls-records",
        Trust::Named,
        &terms,
        behaviour,
        files,
        |run| {
            let tls = || -> Result<TcpWork> {
                let session = Box::new(TlsSession::new(&config)?);
                Ok(TcpWork::Tls {
                    session,
                    reads: true,
                })
            };
            let known = enter(run, &tls, &mut targets)?;
            let mut acted = Vec::new();
            let begun = Instant::now();
            // Each round replaces the connections that the server has ended.
            while begun.elapsed() < stay && run.goes_on() {
                let open = run.tcp.open().saturating_sub(KNOWN);
                crowd(
                    run,
                    connections.saturating_sub(open).min(WAVE),
                    Duration::ZERO,
                    |_| tls(),
                )?;
                acted.resize(run.tcp.peers().len(), 0);
                for number in KNOWN..acted.len() {
                    let step = &mut acted[number];
                    if act(run.tcp.peer(number), ABUSES[number % ABUSES.len()], *step)? {
                        *step += 1;
                        run.tcp.serve(number)?;
                    }
                }
                for &(peer, stream) in &known {
                    single_bytes(run, peer, stream)?;
                }
                run.turn()?;
            }
            let lost = |peer: &TcpPeer| matches!(peer.state(), PeerState::Lost(_));
            let peers = &run.tcp.peers()[KNOWN..];
            ensure!(
                peers.iter().any(lost),
                "the server has closed no connection"
            );
            Ok(())
        },
    )
}

/// Connections begun in one round.
const WAVE: usize = 16;

/// Connects a known client. Returns the connections and streams of its flows.
fn enter(
    run: &mut AttackRun<'_>,
    tls: &dyn Fn() -> Result<TcpWork>,
    targets: &mut Targets,
) -> Result<Vec<(usize, StreamId)>> {
    let secret = run.victim.secret(HOSTILE[1])?;
    let mut flows = Vec::new();
    for _ in 0..KNOWN {
        let entered = known::enter_over_tls(run, tls()?, &secret, targets, KNOWN_FLOWS)?;
        let (peer, streams) = entered.context("the server does not admit a known client")?;
        flows.extend(streams.into_iter().map(|stream| (peer, stream)));
    }
    Ok(flows)
}

/// Sends single bytes on a flow of a known client, each in a record of its own.
fn single_bytes(run: &mut AttackRun<'_>, peer: usize, stream: StreamId) -> Result<()> {
    /// Bytes in a turn.
    const BYTES: usize = 16;
    let peer_state = run.tcp.peer(peer);
    if !peer_state.has_room() {
        return Ok(());
    }
    if let Some(session) = peer_state.session() {
        for _ in 0..BYTES {
            session.write(stream, b"x")?;
        }
        run.tcp.serve(peer)?;
    }
    Ok(())
}

/// Takes the next step of an abuse on a connection. Returns true if it did anything.
fn act(peer: &mut TcpPeer, abuse: Abuse, step: u64) -> Result<bool> {
    let endless = matches!(
        abuse,
        Abuse::TinyRecords | Abuse::TinyTlsRecords | Abuse::Pings
    );
    let more = endless || abuse == Abuse::OverCredit;
    if (step > 0 && !more) || !peer.has_room() {
        return Ok(false);
    }
    let garbage: &[u8] = match abuse {
        Abuse::Garbage => b"GET / HTTP/1.1\r\n\r\n",
        Abuse::LongTlsRecord => &[23, 3, 3, 0xff, 0xff],
        _ => &[],
    };
    let Some(session) = peer.session() else {
        return Ok(false);
    };
    match abuse {
        Abuse::KeyUpdates => {
            for _ in 0..KEY_UPDATES {
                session.update_keys()?;
            }
        }
        Abuse::TinyTlsRecords => session.send(&records_of(abuse, step), 1)?,
        _ => session.send(&records_of(abuse, step), RECORD)?,
    }
    if !garbage.is_empty() {
        peer.send_raw(garbage);
    }
    Ok(true)
}

/// Returns the bytes of QMux of one step of an abuse.
fn records_of(abuse: Abuse, step: u64) -> Vec<u8> {
    let varints = |values: &[u64]| {
        let mut frame = Vec::new();
        for &value in values {
            put_varint(&mut frame, value);
        }
        frame
    };
    let on = |stream, offset, data: &[u8]| {
        let mut frame = Vec::new();
        put_stream(&mut frame, stream, offset, data, false);
        frame
    };
    let frames = match abuse {
        Abuse::TinyRecords => return [1, 0].repeat(500),
        Abuse::TinyTlsRecords => return [1, 0].repeat(50),
        Abuse::EmptyRecord => return vec![0],
        Abuse::LongRecord => return varints(&[16_383]),
        Abuse::Garbage | Abuse::LongTlsRecord | Abuse::KeyUpdates => return Vec::new(),
        Abuse::TinyStreams => {
            let streams = (0..STREAMS).flat_map(|number| on(4 * number, 0, &[1]));
            streams.collect()
        }
        Abuse::Pings => (0..100)
            .flat_map(|number| varints(&[QX_PING, 100 * step + number]))
            .collect(),
        // The length of the data is missing.
        Abuse::CutFrame => vec![0x0a, 0],
        Abuse::UnknownFrame => varints(&[UNKNOWN]),
        Abuse::FrameOfQuic => vec![PING_OF_QUIC],
        Abuse::Datagram => [varints(&[DATAGRAM, 1]), vec![0]].concat(),
        Abuse::OverCredit => on(STREAM, step * PIECE as u64, &[0; PIECE]),
        Abuse::Gap => on(STREAM, 1, &[0; 10]),
        Abuse::OverStreams => on(4 << 20, 0, &[1]),
        Abuse::FinalSize => varints(&[RESET_STREAM, STREAM, 7, (1 << 62) - 1]),
        Abuse::HugeLimit => varints(&[MAX_STREAMS, (1 << 60) + 1]),
    };
    let mut record = varints(&[frames.len() as u64]);
    record.extend(frames);
    record
}

/// Streams that a stranger may open.
const STREAMS: u64 = 16;

/// Bytes of a step beyond the credit.
const PIECE: usize = 8000;
