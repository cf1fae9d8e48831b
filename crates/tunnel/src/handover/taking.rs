//! The new process's part: it takes everything over, and commits once it can continue.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use quictun_sys::{PacketListener, PacketStream, poll_until, read_sealed};
use quictun_wire::handover::exchange::{HandoverMessage, SocketPurpose};
use quictun_wire::handover::{HandedBond, HandedSocket, Handover, HandoverKind, MAX_WORKERS};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags};
use tracing::{info, warn};

use super::{ANSWER_TIME, STATE_MAX, STATE_TIME, TakenForwards, socket_path};
use crate::app_socket::AppSocket;
use crate::settings::{CertificateSource, ClientSettings, ServerSettings};
use quictun_trust::settings::Offer;

/// The agreement with the running process, which serves on.
#[derive(Debug)]
pub(crate) struct TakeOver {
    kind: HandoverKind,
    stream: PacketStream,
    /// The old process, which tells when it has ended.
    old: OwnedFd,
    workers: usize,
}

/// Everything that the old process has handed over.
#[derive(Debug)]
pub(crate) struct TakenState {
    /// A server's UDP sockets, by the old process's workers.
    pub(crate) udp: Vec<UdpSocket>,
    pub(crate) tls: Vec<TcpListener>,
    pub(crate) forwards: TakenForwards,
    pub(crate) http: Option<OwnedFd>,
    pub(crate) port: Option<PacketListener>,
    pub(crate) flows: TakenFlows,
    pub(crate) month: String,
    pub(crate) usage: BTreeMap<String, u64>,
    pub(crate) commitment: Commitment,
}

/// A bond with a descriptor for each of its flows.
#[derive(Debug)]
pub(crate) struct TakenBond {
    pub(crate) bond: HandedBond,
    pub(crate) sockets: Vec<OwnedFd>,
}

/// The bonds that the new process's workers continue, by the index of the old process's worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenFlows(Arc<Mutex<Vec<Vec<TakenBond>>>>);

/// The last step of a take-over.
#[derive(Debug)]
pub(crate) struct Commitment {
    kind: HandoverKind,
    stream: PacketStream,
    old: OwnedFd,
    flows: usize,
}

impl TakeOver {
    /// Asks the server that runs with these settings whether it hands its flows over.
    pub(crate) fn of_server(settings: &ServerSettings) -> Result<Self> {
        let state_dir = settings.clients_in.as_deref();
        let state_dir = state_dir.context("--take-over needs a state directory")?;
        if let Some(CertificateSource::Acme(acme)) = &settings.certificate {
            ensure!(
                acme.listen_http.is_none(),
                "--take-over cannot continue the listener for an authority's checks by HTTP: restart the server instead"
            );
        }
        let (taking, listen, _) = greet(HandoverKind::Server, state_dir, settings.control.program)?;
        ensure!(
            settings.listen.port() == 0 || settings.listen == listen,
            "--take-over: the running server listens on {listen}, and this configuration says {}: restart the server instead",
            settings.listen
        );
        Ok(taking)
    }

    /// Asks the client that runs with these settings whether it hands its flows over.
    pub(crate) fn of_client(settings: &ClientSettings) -> Result<Self> {
        let directory = settings.state_dir.as_deref();
        let directory = directory.context("--take-over needs the directory with the socket of the running client: give --state-dir DIR, as to that client, or set XDG_RUNTIME_DIR")?;
        let has_bonds = settings.offer != Offer::Compat
            && settings.transport.bond_ttl.is_none_or(|ttl| !ttl.is_zero());
        ensure!(
            has_bonds,
            "--take-over needs flows that outlive a connection: leave out --offer compat and --bond-ttl 0s"
        );
        let (taking, _, old) = greet(HandoverKind::Client, directory, settings.control.program)?;
        let all = settings.servers();
        let mut servers = all.iter().map(|server| server.server.to_string());
        ensure!(
            servers.any(|server| old.contains(&server)),
            "--take-over: the running client has the servers {}, and this configuration none of them: it seems to be another client; give each client a --state-dir of its own",
            old.join(", ")
        );
        Ok(taking)
    }

    /// Takes everything. The old process waits until [`Commitment::commit`], or goes on if this process ends before.
    pub(crate) fn take(self) -> Result<TakenState> {
        let kind = self.kind;
        self.receive().with_context(|| {
            format!(
                "--take-over: the running {kind} goes on, because its state cannot be taken over"
            )
        })
    }

    fn receive(self) -> Result<TakenState> {
        let until = Instant::now() + STATE_TIME;
        self.stream
            .send(&HandoverMessage::Take.encode(), &[], until)?;
        let mut udp = BTreeMap::new();
        let (mut tls, mut http, mut port) = (Vec::new(), None, None);
        let mut forwards = TakenForwards::default();
        let mut flows: Vec<Vec<OwnedFd>> = Vec::new();
        flows.resize_with(self.workers, Vec::new);
        let state = loop {
            let packet = self.stream.receive(until)?;
            let mut fds = packet.fds;
            match HandoverMessage::decode(&packet.bytes)? {
                HandoverMessage::Sockets(purpose) => {
                    let fd = fds.pop().filter(|_| fds.is_empty());
                    let fd = fd.context("a message has a wrong number of descriptors")?;
                    match purpose {
                        SocketPurpose::Udp { worker } => {
                            check_kind(&fd, &IP, SocketType::DGRAM, false)?;
                            udp.insert(worker, UdpSocket::from(fd));
                        }
                        SocketPurpose::Tls => {
                            check_kind(&fd, &IP, SocketType::STREAM, true)?;
                            tls.push(TcpListener::from(fd));
                        }
                        SocketPurpose::Http => http = Some(fd),
                        SocketPurpose::Handover => port = Some(PacketListener::from_passed(fd)?),
                        SocketPurpose::Forward { address } => forwards.add(address, fd),
                    }
                }
                HandoverMessage::Flows { worker } => {
                    let worker = usize::try_from(worker).ok();
                    let of_worker = worker.and_then(|worker| flows.get_mut(worker));
                    let of_worker = of_worker.context("sockets of a worker that does not exist")?;
                    of_worker.append(&mut fds);
                }
                HandoverMessage::State => {
                    let memory = fds.pop().context("a message has no descriptor")?;
                    let bytes = zeroize::Zeroizing::new(read_sealed(memory, STATE_MAX)?);
                    break Handover::decode(&bytes, self.kind)
                        .context("the state is not understood")?;
                }
                HandoverMessage::Kept { reason } => bail!(reason),
                _ => bail!(
                    "the running {} has not kept to the order of the exchange",
                    self.kind
                ),
            }
        };
        let has_sockets = self.kind == HandoverKind::Client || udp.len() == self.workers;
        ensure!(
            has_sockets && state.workers.len() == self.workers,
            "the sockets of a worker are missing"
        );
        let count = flows.iter().map(Vec::len).sum();
        Ok(TakenState {
            udp: udp.into_values().collect(),
            tls,
            forwards,
            http,
            port,
            flows: TakenFlows::new(state.workers, flows)?,
            month: state.month,
            usage: state.usage.into_iter().collect(),
            commitment: Commitment {
                kind: self.kind,
                stream: self.stream,
                old: self.old,
                flows: count,
            },
        })
    }
}

pub(super) const IP: [AddressFamily; 2] = [AddressFamily::INET, AddressFamily::INET6];
pub(super) const UNIX: [AddressFamily; 1] = [AddressFamily::UNIX];

/// Connects to the running process, and agrees on a version. Also returns the address of a server, and the servers of a
/// client.
fn greet(
    kind: HandoverKind,
    directory: &Path,
    program: &str,
) -> Result<(TakeOver, SocketAddr, Vec<String>)> {
    let path = socket_path(kind, directory);
    let stream = PacketStream::connect(&path).with_context(|| {
        format!(
            "--take-over: no {kind} runs that could be taken over at {}: start it without this flag",
            path.display()
        )
    })?;
    let version = kind.version();
    let answer = agree(&stream, version..=version, program);
    let (answer, old, user) =
        answer.with_context(|| format!("--take-over: the running {kind} does not answer"))?;
    // The running process passes listeners on. Those of another user would lead strangers into this tunnel.
    ensure!(
        user == rustix::process::geteuid().as_raw(),
        "--take-over: the running {kind} is a process of user {user}: start this one as the same user"
    );
    match answer {
        HandoverMessage::Accept {
            version,
            program,
            listen,
            workers,
            servers,
        } if version == kind.version() => {
            let workers = usize::try_from(workers).unwrap_or(usize::MAX);
            ensure!(
                (1..=MAX_WORKERS).contains(&workers),
                "--take-over: the running {kind} has {workers} workers, which is impossible"
            );
            info!(target: "quictun", process = %kind, version = program, workers, "taking over from the running process");
            let taking = TakeOver {
                kind,
                stream,
                old,
                workers,
            };
            Ok((taking, listen, servers))
        }
        HandoverMessage::Refuse { reason } => bail!("--take-over: {reason}"),
        _ => bail!("--take-over: the running {kind} is not understood: restart it instead"),
    }
}

/// Says hello, with the versions of the document that this process reads. Returns the answer, and a descriptor and the user
/// of the process that has sent it.
pub(super) fn agree(
    stream: &PacketStream,
    versions: RangeInclusive<u64>,
    program: &str,
) -> Result<(HandoverMessage, OwnedFd, u32)> {
    let until = Instant::now() + ANSWER_TIME;
    let hello = HandoverMessage::Hello {
        lowest: *versions.start(),
        highest: *versions.end(),
        program: program.to_owned(),
    };
    stream.send(&hello.encode(), &[], until)?;
    let packet = stream.receive(until)?;
    let sender = packet.sender.context("it does not show who it is")?;
    let own = rustix::process::geteuid().as_raw();
    ensure!(
        sender.user == own || own == 0,
        "it is a process of user {}",
        sender.user
    );
    let process = Pid::from_raw(sender.process.cast_signed());
    let process = process.context("it runs in another container")?;
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    Ok((
        HandoverMessage::decode(&packet.bytes)?,
        process,
        sender.user,
    ))
}

/// Checks that a descriptor is a socket of this kind.
pub(super) fn check_kind(
    fd: &impl AsFd,
    families: &[AddressFamily],
    kind: SocketType,
    listens: bool,
) -> Result<()> {
    let found = || -> io::Result<_> {
        let listens = kind == SocketType::STREAM && sockopt::socket_acceptconn(fd)?;
        Ok((
            sockopt::socket_domain(fd)?,
            sockopt::socket_type(fd)?,
            listens,
        ))
    };
    let (family, found, found_listens) = found().context("a descriptor is not a socket")?;
    ensure!(
        families.contains(&family) && found == kind && found_listens == listens,
        "a descriptor is a socket of another kind than the state says"
    );
    Ok(())
}

impl TakenBond {
    /// Returns the bond, and the sockets of its flows. Nothing is set on them.
    pub(crate) fn into_parts(self) -> (HandedBond, Vec<AppSocket>) {
        let each = self.bond.flows.iter().zip(self.sockets);
        let sockets = each.map(|(flow, fd)| AppSocket::take_over(flow.socket, fd));
        let sockets = sockets.collect();
        (self.bond, sockets)
    }
}

impl TakenFlows {
    fn new(workers: Vec<Vec<HandedBond>>, fds: Vec<Vec<OwnedFd>>) -> Result<Self> {
        let mut taken = Vec::new();
        for (bonds, fds) in workers.into_iter().zip(fds) {
            let mut fds = fds.into_iter();
            let mut of_worker = Vec::new();
            for bond in bonds {
                let sockets: Vec<OwnedFd> = fds.by_ref().take(bond.flows.len()).collect();
                ensure!(
                    sockets.len() == bond.flows.len(),
                    "the socket of a flow is missing"
                );
                for (flow, fd) in bond.flows.iter().zip(&sockets) {
                    match flow.socket {
                        HandedSocket::Tcp { .. } => check_kind(fd, &IP, SocketType::STREAM, false),
                        HandedSocket::Unix => check_kind(fd, &UNIX, SocketType::STREAM, false),
                        HandedSocket::Datagrams(_) => check_kind(fd, &IP, SocketType::DGRAM, false),
                    }?;
                }
                of_worker.push(TakenBond { bond, sockets });
            }
            ensure!(fds.next().is_none(), "a socket belongs to no flow");
            taken.push(of_worker);
        }
        Ok(Self(Arc::new(Mutex::new(taken))))
    }

    /// Takes the bonds that this worker of `workers` continues. The index of each old worker is in the route of its bonds:
    /// without that worker, their clients come to the worker with the remainder.
    pub(crate) fn take(&self, worker: usize, workers: usize) -> Vec<TakenBond> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = all.iter_mut().enumerate();
        let own = each.filter(|(old, _)| old % workers == worker);
        own.flat_map(|(_, bonds)| std::mem::take(bonds)).collect()
    }
}

impl Commitment {
    /// Tells the old process that this one can continue everything, and waits until it has let go.
    pub(crate) fn commit(self) -> Result<()> {
        let kind = self.kind;
        let until = Instant::now() + STATE_TIME;
        let committed = HandoverMessage::Committed.encode();
        // This fails if the old process has given up or is gone. The answer, or its absence, tells which.
        self.stream.send(&committed, &[], until).ok();
        let mut answer = self.stream.receive(until);
        if answer.as_ref().is_err_and(is_reset) {
            // The old process has not read everything. Its last message follows.
            answer = self.stream.receive(until);
        }
        match answer {
            Ok(packet) => match HandoverMessage::decode(&packet.bytes)? {
                HandoverMessage::Released => {}
                HandoverMessage::Kept { reason } => {
                    bail!("--take-over: the running {kind} goes on: {reason}")
                }
                _ => bail!("--take-over: the running {kind} is not understood"),
            },
            // Only a dead process is sure not to serve the flows.
            Err(error) if is_end(&error) && self.old_has_ended(until)? => {
                warn!(target: "quictun", "the process that was taken over has died: its flows continue here");
            }
            Err(error) => {
                let unanswered = format!("--take-over: the running {kind} does not answer");
                return Err(error).context(unanswered);
            }
        }
        info!(target: "quictun", flows = self.flows, "the flows of the previous process continue here");
        Ok(())
    }

    fn old_has_ended(&self, until: Instant) -> io::Result<bool> {
        poll_until(&mut [PollFd::new(&self.old, PollFlags::IN)], until)
    }
}

fn is_reset(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

fn is_end(error: &io::Error) -> bool {
    is_reset(error) || error.kind() == io::ErrorKind::UnexpectedEof
}
