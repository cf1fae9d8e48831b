//! The start of a process of either side, in stages that consume one another.
//!
//! ```text
//!  start_keeper ─► prepare ─► the side opens sockets, keys, devices ─► Launch ── confine ──► Confined ── run ──► the end
//!                    logs, limits                                       has all rights        has the rights that it keeps
//! ```

use std::io;
use std::iter::repeat_with;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{Account, Engine, EngineConfig, PathMtu, Transport};
use quictun_sys::confine::{KernelSupport, kernel_support};
use quictun_sys::{raise_nofile_limit, use_small_pages};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::{debug, info, warn};

use crate::app_socket::AppSocket;
use crate::control::{self, Control, WorkerEnd};
use crate::handover::{Commitment, HandoverPort};
use crate::lookup_threads;
use crate::mailbox::{Inbox, Mailbox, mailbox};
use crate::memory_budget::MemoryBudget;
use crate::network_watch::NetworkWatch;
use crate::public_certificate::CertificateDuty;
use crate::qlog;
use crate::reload::Reload;
use crate::reload::join_messages::{self, PendingJoin};
use crate::request_handler::{RequestHandler, Sources};
use crate::requests::{REQUESTS, Requester};
use crate::role::{WorkerPart, WorkerRole};
use crate::settings::TransportSettings;
use crate::terminal::Terminal;
use crate::usage::UsageStore;
use crate::worker::{self, WorkerParts};
use quictun_control::line_budget::LineBudget;
use quictun_control::rest::{self, ProcessFacts, ReadUsage, ReplaceConnections, RestState};
use quictun_control::settings::ControlSettings;
use quictun_control::snapshot::Workers;
use quictun_io::crash::Crash;
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::confinement::{self, OffReason};
use quictun_trust::enrolment::Directory;
use quictun_trust::keeper::{self, LoadFn};
use quictun_trust::tls;

/// The receive buffer below which a hint is logged, bytes. A smaller buffer cannot hold the burst of one round trip at
/// 1 Gbit/s and 20 ms.
const UDP_BUFFER_HINT: usize = 2 << 20;

/// A process that has opened everything that needs its rights, and still has them.
pub(crate) struct Launch {
    pub(crate) control: ControlSettings,
    pub(crate) log: quictun_control::log::LogGuard,
    /// The process serves a device by itself, and therefore keeps its rights.
    pub(crate) one_process: bool,
    /// True if the process sends datagrams from addresses of other hosts (`--tproxy`).
    pub(crate) answers_for_others: bool,
    pub(crate) data_path: DataPath,
    pub(crate) duties: Duties,
}

/// The settings and resources of all workers.
pub(crate) struct DataPath {
    pub(crate) settings: TransportSettings,
    /// A socket for each worker.
    pub(crate) ports: Vec<UdpPort>,
    pub(crate) path_mtu: PathMtu,
    pub(crate) memory: MemoryBudget,
}

/// The duties of the control plane.
pub(crate) struct Duties {
    pub(crate) of_side: SideDuties,
    /// Hands the flows over to the next process.
    pub(crate) handover: Option<HandoverPort>,
    /// The last step of taking the flows of the previous process.
    pub(crate) commitment: Option<Commitment>,
    pub(crate) http: Option<rest::BoundListener>,
    /// Facts to show in `/v1/status`.
    pub(crate) facts: ProcessFacts,
    /// The configuration that SIGHUP reads again. If `None`, SIGHUP reopens log files only.
    pub(crate) reload: Option<Reload>,
    /// Notifies the workers of network changes.
    pub(crate) network: Option<NetworkWatch>,
    pub(crate) lines: LineBudget,
    pub(crate) announce: Box<dyn FnOnce()>,
}

/// The duties that only one side has.
pub(crate) enum SideDuties {
    /// Answers requests about servers and tokens.
    Client(Sources),
    Server(Box<ServerDuties>),
}

/// The duties of a server.
pub(crate) struct ServerDuties {
    /// Stores the usage of the clients.
    pub(crate) usage: Option<UsageStore>,
    /// Reports the usage of the clients.
    pub(crate) uses: ReadUsage,
    /// Keeps the certificate that programs without quictun see.
    pub(crate) certificate: Option<CertificateDuty>,
}

/// A process that has only the rights that it keeps, and no worker yet.
pub(crate) struct Confined {
    control: ControlSettings,
    log: quictun_control::log::LogGuard,
    memory: MemoryBudget,
    transport: Transport,
    drain: Duration,
    /// Each worker's socket and mailbox.
    post: Vec<(UdpPort, Mailbox, Inbox)>,
    terminal: Terminal,
    duties: Duties,
}

/// The inputs to build a worker of either side, on the worker's own thread.
pub(crate) struct WorkerInputs {
    pub(crate) index: usize,
    pub(crate) udp: UdpPort,
    pub(crate) inbox: Inbox,
    pub(crate) siblings: Vec<Mailbox>,
    pub(crate) transport: Transport,
    pub(crate) requests: Requester,
    pub(crate) joins: Sender<PendingJoin>,
}

impl WorkerInputs {
    pub(crate) fn config<R>(&self, role: R, reset_key: [u8; 32]) -> Result<EngineConfig<R>> {
        Ok(EngineConfig {
            role,
            transport: self.transport.clone(),
            worker: u8::try_from(self.index).context("too many workers: at most 256")?,
            seed: random()?,
            reset_key,
        })
    }

    pub(crate) fn parts<R: WorkerPart>(
        self,
        engine: Engine<AppSocket, R::Role>,
        role: R,
    ) -> WorkerParts<R> {
        WorkerParts {
            index: self.index,
            engine,
            udp: self.udp,
            inbox: self.inbox,
            siblings: self.siblings,
            role,
        }
    }
}

/// Starts the keeper process, which reopens files for this one, if confinement takes that right away. Call it before
/// other resources are opened, because the keeper inherits all of them.
///
/// `reads` are files that are read repeatedly while the process runs, each with the maximum number of bytes to read.
/// `load` reads everything that a reload reads. Clients that join are enrolled in `clients`. `listen` makes listeners
/// for clients.
pub(crate) fn start_keeper(
    control: &ControlSettings,
    reads: Vec<(PathBuf, u64)>,
    load: Option<LoadFn>,
    clients: Option<Directory>,
    listen: Option<keeper::ListenerFns>,
) -> Result<()> {
    if !needs_keeper(control.confine, kernel_support()) {
        return Ok(());
    }
    let appends = quictun_control::log::files(&control.log.outputs);
    let appends = appends.map(Path::to_owned).collect();
    keeper::start(reads, appends, load, clients, listen)
        .context("cannot start the keeper process, which reopens files")
}

/// Returns whether this process will lose the right to open files. Without Landlock and seccomp it keeps that right.
/// Emulators of another processor have neither. They also run a thread in the process, so no keeper can be forked.
fn needs_keeper(confine: bool, support: KernelSupport) -> bool {
    confine && (support.landlock.is_some() || support.seccomp)
}

/// Starts the logs, and sets the limits of descriptors and pages. Call it before anything that can fail.
pub(crate) fn prepare(control: &ControlSettings) -> Result<quictun_control::log::LogGuard> {
    let guard = quictun_control::log::init(&control.log)?;
    quictun_sys::ignore_user_signals().context("cannot ignore signals")?;
    if let Err(error) = use_small_pages() {
        warn!(target: "quictun", %error, "cannot disable huge pages: memory use may exceed the budget");
    }
    if let Err(error) = raise_nofile_limit() {
        warn!(target: "quictun", %error, "cannot raise the limit of open files");
    }
    Ok(guard)
}

pub(crate) fn descriptor_limit() -> u64 {
    // If the system does not allow to raise the limit, use the common default. `prepare` has logged the error.
    raise_nofile_limit().unwrap_or(1024)
}

/// Builds the engines' transport parameters. Each worker gets a clone; the memory account is shared.
fn transport(
    settings: &TransportSettings,
    path_mtu: PathMtu,
    account: &Account,
) -> Result<Transport> {
    let mut transport = Transport::new(path_mtu);
    transport.congestion = settings.congestion;
    transport.idle_timeout = settings.idle_timeout;
    transport.keep_alive = settings.keep_alive;
    transport.datagram_idle = settings.datagram_idle;
    transport.max_flows = settings.max_flows;
    transport.account = account.clone();
    transport.tracer = settings.qlog_dir.as_deref().map(qlog::tracer).transpose()?;
    Ok(transport)
}

pub(crate) fn random() -> Result<[u8; 32]> {
    quictun_sys::random().context("cannot get random numbers from the system")
}

/// Binds the UDP sockets of all workers to one address. An address used by another process is an error, even if sharing
/// among this process's workers would hide the conflict.
pub(crate) fn bind_udp(address: SocketAddr, workers: usize) -> io::Result<Vec<UdpSocket>> {
    if workers == 1 {
        return Ok(vec![udp_port::bind(address, false)?]);
    }
    let probe = udp_port::bind(address, false)?;
    let address = probe.local_addr()?;
    drop(probe);
    (0..workers)
        .map(|_| udp_port::bind(address, true))
        .collect()
}

/// Wraps a socket and enlarges its buffers, beyond the system's limits if the process has the right to.
pub(crate) fn open_udp(socket: UdpSocket, settings: &TransportSettings) -> Result<UdpPort> {
    UdpPort::new(socket, settings.udp_buffer, settings.gso).context("cannot set UDP socket options")
}

/// Logs the sizes of a socket's buffers, with a hint if they are too small.
pub(crate) fn log_udp(port: &UdpPort, settings: &TransportSettings) {
    let report = port.report();
    debug!(
        target: "quictun",
        receive_buffer_bytes = report.recv_buffer,
        send_buffer_bytes = report.send_buffer,
        gso = report.gso,
        gro = report.gro,
        "UDP socket"
    );
    if report.recv_buffer < UDP_BUFFER_HINT.min(settings.udp_buffer) {
        warn!(
            target: "quictun",
            "the UDP receive buffer is small, fast links will drop packets: `sysctl -w net.core.rmem_max={0} net.core.wmem_max={0}`",
            settings.udp_buffer
        );
    }
}

/// Opens the common parts of all TLS configurations, and logs the suites.
pub(crate) fn tls(settings: &TransportSettings) -> Result<tls::SharedConfig> {
    let shared = tls::SharedConfig::open(settings.key_log.as_deref(), settings.aead)?;
    debug!(target: "quictun", aead = %shared.suites, "TLS");
    Ok(shared)
}

pub(crate) fn warn_of_key_log(settings: &TransportSettings) {
    if let Some(path) = &settings.key_log {
        warn!(target: "quictun", path = %path.display(), "UNSAFE: TLS secrets are written to a file, which lets its readers decrypt the traffic");
    }
}

impl Launch {
    /// Gives up the rights that the process needs no more.
    pub(crate) fn confine(self) -> Result<Confined> {
        let DataPath {
            settings,
            ports,
            path_mtu,
            memory,
        } = self.data_path;
        memory.log(self.control.banner.is_some());
        let transport = transport(&settings, path_mtu, memory.account())?;
        let budget = memory.account().budget();
        let post = ports.into_iter().map(|port| {
            let (mailbox, inbox) = mailbox(budget)?;
            Ok((port, mailbox, inbox))
        });
        let post = post.collect::<io::Result<_>>()?;
        let terminal = Terminal::of_process();
        if !self.one_process && needs_keeper(self.control.confine, kernel_support()) {
            lookup_threads::start().context("cannot start a thread for look-ups")?;
        }
        confinement::enter(confinement::Options {
            writes: settings.qlog_dir.into_iter().collect(),
            answers_for_others: self.answers_for_others,
            off: match (self.control.confine, self.one_process) {
                (false, _) => Some(OffReason::Requested),
                (true, true) => Some(OffReason::OneProcess),
                (true, false) => None,
            },
        });
        let mut log = self.log;
        log.start()?;
        Ok(Confined {
            control: self.control,
            log,
            memory,
            transport,
            drain: settings.drain,
            post,
            terminal,
            duties: self.duties,
        })
    }
}

impl Confined {
    /// Starts a thread for each worker, and serves until all workers have ended. Returns their result.
    ///
    /// `make` is called for each worker. The closure that it returns builds the worker on the worker's own thread.
    pub(crate) fn run<R, F>(self, make: impl FnMut() -> F) -> Result<io::Result<()>>
    where
        R: WorkerRole,
        F: FnOnce(WorkerInputs) -> Result<WorkerParts<R>> + Send + 'static,
    {
        let duties = self.duties;
        let (side, sources, of_server) = match duties.of_side {
            SideDuties::Client(sources) => (Side::Client, sources, None),
            SideDuties::Server(duties) => (Side::Server, Sources::default(), Some(duties)),
        };
        let (mut usage, mut uses, mut certificate) = (None, None, None);
        if let Some(it) = of_server {
            (usage, uses, certificate) = (it.usage, Some(it.uses), it.certificate);
        }
        let makers: Vec<F> = repeat_with(make).take(self.post.len()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the control plane")?;
        let within_runtime = runtime.enter();
        let request_handler = Arc::new(RequestHandler::new(sources, duties.lines.clone()));
        drop(within_runtime);
        let (sender, requests) = channel(REQUESTS);
        let (join_sender, joins) = join_messages::joins();
        let each = self.post.iter();
        let mailboxes: Vec<Mailbox> = each.map(|(_, mailbox, _)| mailbox.clone()).collect();
        let inputs = self.post.into_iter().enumerate();
        let inputs = inputs.map(|(index, (udp, _, inbox))| WorkerInputs {
            index,
            udp,
            inbox,
            siblings: mailboxes.clone(),
            transport: self.transport.clone(),
            requests: Requester::new(index, sender.clone()),
            joins: join_sender.clone(),
        });
        let running = start(inputs.zip(makers).collect())?;
        if let Some(commitment) = duties.commitment.filter(|_| running.all_built) {
            // An error ends this process, and the previous one goes on.
            commitment.commit()?;
        }
        for gate in running.gates {
            // An error means that the worker has failed.
            if gate.send(()).is_err() {}
        }
        drop((sender, join_sender));
        let workers = Workers::new(mailboxes.iter().map(Mailbox::snapshots).collect());
        let reloadable = duties.reload.clone().map(|reload| Arc::new(reload) as _);
        let mut rest = RestState::new(side, workers, &self.control, duties.facts, reloadable);
        if side == Side::Client {
            rest = rest.with_reconnect(replace(mailboxes.clone()));
        }
        if let Some(uses) = uses {
            rest = rest.with_uses(uses);
        }
        let control = Control {
            mailboxes,
            request_handler,
            rest: Arc::new(rest),
            http: duties.http,
            drain: self.drain,
            log_files: self.log.files().clone(),
            reload: duties.reload,
            memory: Some(self.memory),
            network: duties.network,
            usage,
            certificate,
            certificate_again: Arc::default(),
            handover: duties.handover,
            lines: duties.lines,
            terminal: self.terminal,
            announce: running.all_built.then_some(duties.announce),
        };
        let result = runtime.block_on(control::serve(control, requests, joins, running.ends));
        // A look-up that hangs in the system's resolver must not delay the end of the process.
        runtime.shutdown_background();
        for thread in running.threads {
            if thread.join().is_err() {
                warn!(target: "quictun", "a worker thread ended without a result");
            }
        }
        Ok(result)
    }
}

struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
    /// Each lets a worker begin. A worker without its gate ends.
    gates: Vec<std::sync::mpsc::Sender<()>>,
    all_built: bool,
    ends: Receiver<WorkerEnd>,
}

/// Starts a thread for each worker, and waits until each worker has been built or has failed. No worker runs before its
/// gate opens.
fn start<R, F>(workers: Vec<(WorkerInputs, F)>) -> Result<WorkerThreads>
where
    R: WorkerRole,
    F: FnOnce(WorkerInputs) -> Result<WorkerParts<R>> + Send + 'static,
{
    let (built_sender, built) = std::sync::mpsc::channel();
    let (end_sender, ends) = channel(workers.len().max(1));
    let (mut threads, mut gates) = (Vec::new(), Vec::new());
    for (inputs, make) in workers {
        let (gate, opened) = std::sync::mpsc::channel();
        gates.push(gate);
        let (index, built, ended) = (inputs.index, built_sender.clone(), end_sender.clone());
        let body = move || {
            // A panic is a bug in this program. The process must end nevertheless, rather than continue without a
            // worker.
            let run = || {
                let parts = make(inputs).map_err(io::Error::other)?;
                // The receiving thread may have failed already.
                built.send(()).ok();
                drop(built);
                match opened.recv() {
                    Ok(()) => worker::run(parts),
                    Err(_) => Ok(()),
                }
            };
            let result =
                catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Crash::Panic.into()));
            // The control plane may have ended first.
            if ended.blocking_send((index, result)).is_err() {}
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}"));
        threads.push(thread.spawn(body).context("cannot start a worker thread")?);
    }
    drop((built_sender, end_sender));
    Ok(WorkerThreads {
        all_built: built.iter().count() == threads.len(),
        threads,
        gates,
        ends,
    })
}

fn replace(mailboxes: Vec<Mailbox>) -> ReplaceConnections {
    Box::new(move || {
        info!(target: "quictun", "asked to reconnect: every connection is replaced");
        for mailbox in &mailboxes {
            mailbox.reconnect();
        }
    })
}

#[cfg(test)]
mod tests;
