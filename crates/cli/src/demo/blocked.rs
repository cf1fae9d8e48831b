//! A transfer on a network that blocks UDP for a while. Its flow continues over TLS on TCP, and returns to QUIC.

use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_lab_run::tunnel::Tunnel;

use super::apps::{self, DemoApps};
use super::middlebox::Middlebox;
use super::tcp_relay::TcpRelay;

/// Bytes that a carrier must have moved to count as the one that carries: more than handshakes and keep-alives.
const SOME: u64 = 300_000;

/// Time limit of the whole transfer. The client tries QUIC again after 5 s, 15 s and 35 s at the latest.
const LIMIT: Duration = Duration::from_secs(40);

/// The times of the transfer.
pub(super) struct BlockedTimes {
    /// Longest time in which the application got no byte.
    pub(super) still: Duration,
    /// Time from the moment in which UDP passed again until QUIC carried.
    pub(super) back: Duration,
}

/// Starts a client that reaches the server through a middlebox, and runs a transfer while the middlebox blocks UDP.
pub(super) fn run(tunnel: &mut Tunnel, apps: &DemoApps) -> Result<BlockedTimes> {
    let server = tunnel.server().parse().context("bad server address")?;
    let middlebox = Middlebox::start(server).context("cannot start the middlebox")?;
    let relay = TcpRelay::start(server).context("cannot start the way for TCP")?;
    let tls_port = relay.port().to_string();
    let entry = super::behind(&middlebox, tunnel, apps, &["--tls-port", &tls_port])?;
    measure(entry, &middlebox, &relay)
}

/// The part of the transfer that runs.
enum TransferPhase {
    /// UDP passes, and QUIC carries.
    Before,
    /// UDP is blocked. The values are the bytes that TCP had carried then.
    Blocked(u64),
    /// UDP passes again since this time. The value is the number of bytes that QUIC had carried then.
    Passing(Instant, u64),
    /// QUIC carries again, after this time.
    Back(Duration),
}

fn measure(echo: SocketAddr, middlebox: &Middlebox, relay: &TcpRelay) -> Result<BlockedTimes> {
    let mut stream = super::connect(echo)?;
    let mut writer = stream.try_clone()?;
    let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
    let writing = std::thread::spawn(move || -> std::io::Result<u64> {
        let sent = apps::send_until(&mut writer, &stopped)?;
        writer.shutdown(Shutdown::Write)?;
        Ok(sent)
    });
    let mut stop = Some(stop);
    let (start, mut latest) = (Instant::now(), Instant::now());
    let (mut still, mut phase) = (Duration::ZERO, TransferPhase::Before);
    let received = apps::receive_told(&mut stream, None, |received| {
        let now = Instant::now();
        if matches!(phase, TransferPhase::Blocked(_)) {
            still = still.max(now.saturating_duration_since(latest));
        }
        latest = now;
        match phase {
            TransferPhase::Before if received > SOME => {
                middlebox.block(true);
                phase = TransferPhase::Blocked(relay.carried());
            }
            TransferPhase::Blocked(before) if relay.carried() > before + SOME => {
                middlebox.block(false);
                phase = TransferPhase::Passing(now, middlebox.carried());
            }
            TransferPhase::Passing(since, before) if middlebox.carried() > before + SOME => {
                phase = TransferPhase::Back(now.saturating_duration_since(since));
                stop = None;
            }
            _ => {}
        }
        if now > start + LIMIT {
            stop = None;
        }
    });
    let received = received.context("cannot finish the transfer while UDP was blocked")?;
    let sent = writing.join().ok().context("the writing thread failed")??;
    ensure!(received == sent, "{received} of {sent} bytes came back");
    match phase {
        TransferPhase::Back(back) => Ok(BlockedTimes { still, back }),
        TransferPhase::Before => bail!("the transfer ended before UDP was blocked"),
        TransferPhase::Blocked(_) => bail!("TLS did not carry while UDP was blocked"),
        TransferPhase::Passing(..) => bail!("QUIC did not carry again once UDP passed"),
    }
}
