//! The sockets of a server: those that the service manager has opened, and those that are bound here.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::{Context, Result, ensure};
use quictun_control::systemd::{self, ActivatedSocket};
use quictun_io::udp_port;
use socket2::SockRef;
use tracing::{info, warn};

use crate::carrier_sockets;
use crate::handover::TakenState;
use crate::launch;
use crate::settings::{CARRIER_LISTENERS_MAX, ServerSettings};

/// Number of further ports that are tried if the system chooses them.
const PORTS_TRIED: usize = 8;

/// The sockets on which clients reach a server.
#[derive(Debug)]
pub(crate) struct ServerSockets {
    /// The UDP sockets, one for each worker.
    pub(crate) udp: Vec<UdpSocket>,
    /// The address of the UDP sockets.
    pub(crate) address: SocketAddr,
    /// The listeners for flows in TLS.
    pub(crate) carriers: Vec<TcpListener>,
}

impl ServerSockets {
    /// Takes the sockets of the process that this one takes over from, or those that the service manager has opened, and
    /// opens the remaining ones.
    pub(crate) fn open(settings: &ServerSettings, taken: Option<&mut TakenState>) -> Result<Self> {
        let (mut udp, mut carriers) = (Vec::new(), Vec::new());
        if let Some(taken) = taken {
            udp = udp_of_workers(std::mem::take(&mut taken.udp), settings.transport.workers)?;
            carriers = configured(std::mem::take(&mut taken.tls), settings);
        }
        let takes_tcp = settings.listen_tls.as_ref().is_none_or(|it| !it.is_empty());
        for (name, activated) in systemd::listen_fds()? {
            match activated {
                ActivatedSocket::Udp(socket) if udp.is_empty() => {
                    info!(target: "quictun", name, "UDP socket inherited: one worker");
                    udp.push(socket);
                }
                ActivatedSocket::Tcp(listener) if takes_tcp => {
                    info!(target: "quictun", name, "TCP socket inherited: for flows in TLS");
                    carriers.push(listener);
                }
                ActivatedSocket::Tcp(_) => {
                    warn!(target: "quictun", name, "an inherited TCP socket is not used: this server takes no flows in TLS");
                }
                ActivatedSocket::Udp(_) | ActivatedSocket::Unix(_) => {
                    warn!(target: "quictun", name, "an inherited socket is not used: a server needs one UDP socket, and TCP sockets");
                }
            }
        }
        if udp.is_empty() {
            udp = bind_udp(
                settings,
                carriers.is_empty() && settings.listen_tls.is_none(),
            )?;
        }
        let address = udp[0]
            .local_addr()
            .context("cannot read the address of the UDP socket")?;
        open_carriers(settings, address, &mut carriers)?;
        ensure!(
            !settings.https_proxy || !carriers.is_empty(),
            "--https-proxy needs a TCP port, and this server listens on none: see --listen-tls"
        );
        Ok(Self {
            udp,
            address,
            carriers,
        })
    }
}

/// Binds the UDP sockets. The system chooses a port that is free for UDP. If TCP `follows`, it should be free for that, too.
fn bind_udp(settings: &ServerSettings, follows: bool) -> Result<Vec<UdpSocket>> {
    let listen = settings.listen;
    let bind = || {
        launch::bind_udp(listen, settings.transport.workers.max(1))
            .with_context(|| format!("cannot listen on UDP {listen}"))
    };
    let is_free = |udp: &[UdpSocket]| {
        let address = udp[0].local_addr();
        address.is_ok_and(|address| TcpListener::bind(address).is_ok())
    };
    let mut udp = bind()?;
    for _ in 0..PORTS_TRIED {
        if listen.port() != 0 || !follows || is_free(&udp) {
            break;
        }
        udp = bind()?;
    }
    Ok(udp)
}

/// Makes as many UDP sockets as there are workers of those that another process has handed over.
fn udp_of_workers(mut udp: Vec<UdpSocket>, workers: usize) -> Result<Vec<UdpSocket>> {
    let workers = workers.max(1);
    udp.truncate(workers);
    let more = workers - udp.len();
    if let Some(first) = udp.first().filter(|_| more > 0) {
        let address = first.local_addr();
        let address = address.context("cannot read the address of the UDP socket")?;
        for shared in &udp {
            SockRef::from(shared)
                .set_reuse_port(true)
                .context("cannot share the UDP address among more workers")?;
        }
        for _ in 0..more {
            let another = udp_port::bind(address, true);
            udp.push(another.with_context(|| format!("cannot listen on UDP {address}"))?);
        }
    }
    Ok(udp)
}

/// Returns the listeners that the settings name. The other ones close.
fn configured(mut listeners: Vec<TcpListener>, settings: &ServerSettings) -> Vec<TcpListener> {
    if let Some(addresses) = &settings.listen_tls {
        let named = |at: SocketAddr| addresses.iter().any(|it| *it == at || it.port() == 0);
        listeners.retain(|listener| listener.local_addr().is_ok_and(named));
    }
    listeners
}

/// Opens the listeners for flows in TLS that are missing. Unless the settings name addresses or the service manager has
/// opened one, it is that beside the UDP socket, if the system permits it.
fn open_carriers(
    settings: &ServerSettings,
    udp: SocketAddr,
    carriers: &mut Vec<TcpListener>,
) -> Result<()> {
    let congestion = settings.transport.tcp_congestion.as_deref();
    for inherited in &*carriers {
        carrier_sockets::prepare(inherited, congestion)
            .context("cannot prepare an inherited TCP socket")?;
    }
    let open = |address| {
        carrier_sockets::listen(address, congestion)
            .with_context(|| format!("cannot listen on TCP {address}: see --listen-tls"))
    };
    match &settings.listen_tls {
        Some(addresses) => {
            for &address in addresses {
                let is_it = |at: SocketAddr| {
                    at == address || address.port() == 0 && at.ip() == address.ip()
                };
                let has_it = |it: &TcpListener| it.local_addr().is_ok_and(is_it);
                if !carriers.iter().any(has_it) {
                    carriers.push(open(address)?);
                }
            }
        }
        None if carriers.is_empty() => match open(udp) {
            Ok(listener) => carriers.push(listener),
            Err(error) => {
                let cause = format!("{error:#}");
                warn!(target: "quictun", cause, "clients on networks without UDP cannot connect");
            }
        },
        None => {}
    }
    ensure!(
        carriers.len() <= CARRIER_LISTENERS_MAX,
        "there are {} TCP sockets for flows in TLS, inherited ones included: use at most {CARRIER_LISTENERS_MAX}",
        carriers.len()
    );
    Ok(())
}
