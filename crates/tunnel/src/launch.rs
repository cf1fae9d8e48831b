//! What both sides do to start: sockets, threads, control plane.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{Account, Algorithm, PathMtu, Transport};
use quictun_sys::{raise_nofile_limit, use_small_pages};
use tokio::sync::mpsc::{Receiver, channel};
use tracing::{info, warn};

use crate::control::{self, Control, Request};
use crate::mailbox::{Inbox, Mailbox, mailbox};
use crate::qlog;
use crate::reload::Reload;
use crate::settings::{Congestion, HostPort, TransportSettings};
use crate::token_source::TokenPlugin;
use crate::worker::{self, Duty, Parts};
use quictun_control::line_budget::LineBudget;
use quictun_control::log::LogFiles;
use quictun_control::rest::{self, ProcessClock, RestState};
use quictun_control::settings::ControlSettings;
use quictun_control::snapshot::{Ask, SnapshotRequest, Workers};
use quictun_io::crash::Crash;
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::keeper::{self, Kept};

/// Below this a burst of one round trip at 1 Gbit/s and 20 ms no longer fits.
const UDP_BUFFER_HINT: usize = 2 << 20;

/// Everything between the settings and the running process.
pub(crate) struct Launch {
    pub(crate) side: Side,
    pub(crate) transport: TransportSettings,
    pub(crate) control: ControlSettings,
    pub(crate) server: Option<HostPort>,
    /// Its addresses, where its name is not to be looked up again.
    pub(crate) server_known: Vec<SocketAddr>,
    pub(crate) plugins: Vec<Option<TokenPlugin>>,
    pub(crate) requests: Receiver<Request>,
    pub(crate) log_files: LogFiles,
    /// Where the HTTP interface listens, if it does.
    pub(crate) http: Option<rest::Bound>,
    /// Where the process listens, for those who ask.
    pub(crate) listen: Vec<String>,
    /// What SIGHUP reads again; `None`: nothing but log files.
    pub(crate) reload: Option<Reload>,
    /// What peers may add to the log.
    pub(crate) lines: LineBudget,
    /// Says that the process has started, once that is true.
    pub(crate) announce: Box<dyn FnOnce()>,
}

/// One worker's end of the mailboxes, and all of the others.
pub(crate) struct Post {
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) inboxes: Vec<Inbox>,
}

/// Starts the process that opens files again, where there is to be one. It comes first: what we hold by then, it holds.
///
/// `reads` are files that are read one by one for as long as the process runs, each with the most that is read of it;
/// `load` reads all that a reload reads.
pub(crate) fn start_keeper(
    control: &ControlSettings,
    reads: Vec<(PathBuf, u64)>,
    load: Option<Box<dyn Fn()>>,
) -> Result<()> {
    if !control.confine {
        return Ok(());
    }
    let appends = quictun_control::log::files(&control.log.outputs);
    let kept = Kept {
        reads,
        appends: appends.map(Path::to_owned).collect(),
        load,
    };
    keeper::start(kept).context("starting the process that opens files again")
}

/// Starts the logs, and sets the limits of descriptors and pages, before anything that can fail.
pub(crate) fn prepare(control: &ControlSettings) -> Result<quictun_control::log::Guard> {
    let guard = quictun_control::log::init(&control.log)?;
    if let Err(error) = use_small_pages() {
        warn!(target: "quictun", %error, "memory comes in huge pages: more of it may be held than the budget says");
    }
    if let Err(error) = raise_nofile_limit() {
        warn!(target: "quictun", %error, "the limit of open files could not be raised");
    }
    Ok(guard)
}

/// How many descriptors the process may have.
pub(crate) fn descriptor_limit() -> u64 {
    // What systems commonly grant, where this one does not let it be raised: that was said above.
    raise_nofile_limit().map_or(1024, |limit| limit.now)
}

/// Mailboxes for `count` workers; `budget` is the memory of the process, bytes.
pub(crate) fn post(count: usize, budget: u64) -> io::Result<Post> {
    let mut post = Post {
        mailboxes: Vec::new(),
        inboxes: Vec::new(),
    };
    for _ in 0..count {
        let (mailbox, inbox) = mailbox(budget)?;
        post.mailboxes.push(mailbox);
        post.inboxes.push(inbox);
    }
    Ok(post)
}

/// The engines' view of the data path, a clone for each worker; the account of memory is one for all.
pub(crate) fn transport(settings: &TransportSettings, path_mtu: PathMtu) -> Result<Transport> {
    let mut transport = Transport::new(path_mtu);
    transport.congestion = match settings.congestion {
        Congestion::Auto => Algorithm::Auto,
        Congestion::Cubic => Algorithm::Cubic,
        Congestion::NewReno => Algorithm::NewReno,
        Congestion::Fixed(rate) => Algorithm::Fixed(rate),
        Congestion::Background => Algorithm::Background,
    };
    transport.idle_timeout = settings.idle_timeout;
    transport.keep_alive = settings.keep_alive;
    transport.max_flows = settings.max_flows;
    transport.account = Account::new(settings.memory_budget);
    transport.tracer = settings.qlog_dir.as_deref().map(qlog::tracer).transpose()?;
    Ok(transport)
}

/// Random bytes from the system.
pub(crate) fn random() -> Result<[u8; 32]> {
    quictun_sys::random().context("the system gives no random numbers")
}

/// Binds the UDP sockets of all workers to one address. One that is taken by another process is an
/// error even where sharing among our own workers would hide it.
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

/// Takes over a socket, with buffers beyond the system's usual ones where the process has the right to.
pub(crate) fn open_udp(socket: UdpSocket, settings: &TransportSettings) -> Result<UdpPort> {
    UdpPort::new(socket, settings.udp_buffer, settings.gso).context("UDP socket options")
}

/// Says how large the buffers of a socket are, and gives a hint where that is too small.
pub(crate) fn tell_of_udp(port: &UdpPort, settings: &TransportSettings) {
    let report = port.report();
    info!(
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
            "the UDP receive buffer is small, fast links will drop packets: sysctl -w net.core.rmem_max={0} net.core.wmem_max={0}",
            settings.udp_buffer
        );
    }
}

impl Launch {
    /// Starts a thread for each worker that `make` builds, and serves until all have ended.
    ///
    /// `make` runs on the worker's own thread.
    pub(crate) fn run<D, F>(self, mailboxes: Vec<Mailbox>, makers: Vec<F>) -> Result<()>
    where
        D: Duty,
        F: FnOnce() -> Result<Parts<D>> + Send + 'static,
    {
        let count = makers.len();
        let (built_sender, built) = std::sync::mpsc::channel();
        let (ended_sender, ended) = channel(count.max(1));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the control plane")?;
        let mut threads = Vec::new();
        for (index, make) in makers.into_iter().enumerate() {
            let (built, ended) = (built_sender.clone(), ended_sender.clone());
            let body = move || {
                // A panic is our bug; the process must end all the same, not limp on without a worker.
                let run = || {
                    let parts = make().map_err(io::Error::other)?;
                    // Whoever waits for this may have failed.
                    built.send(()).ok();
                    drop(built);
                    worker::run(parts)
                };
                let result = catch_unwind(AssertUnwindSafe(run))
                    .unwrap_or_else(|_| Err(Crash::Panic.into()));
                // The control plane may have gone first.
                if ended.blocking_send((index, result)).is_err() {}
            };
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            threads.push(thread.spawn(body).context("starting a worker thread")?);
        }
        drop((built_sender, ended_sender));
        let all_built = built.iter().count() == count;
        let workers = Workers::new(mailboxes.iter().map(ask).collect());
        let clock = ProcessClock::start();
        let rest = RestState::new(self.side, workers, self.control.compat_json, clock)
            .with_names(&self.control.http_names)
            .with_listen(self.listen)
            .with_reload(self.reload.clone().map(|reload| Arc::new(reload) as _));
        let control = Control {
            mailboxes,
            requests: self.requests,
            server: self.server,
            server_known: self.server_known,
            plugins: self.plugins,
            rest: Arc::new(rest),
            http: self.http,
            drain: self.transport.drain,
            ended,
            log_files: self.log_files,
            reload: self.reload,
            lines: self.lines,
            announce: all_built.then_some(self.announce),
        };
        let result = runtime.block_on(control::serve(control));
        // A look-up that hangs in the system's resolver must not hold up the end.
        runtime.shutdown_background();
        for thread in threads {
            if thread.join().is_err() {
                warn!(target: "quictun", "a worker thread could not say how it ended");
            }
        }
        result.context("a worker failed")
    }
}

fn ask(mailbox: &Mailbox) -> Ask {
    let mailbox = mailbox.clone();
    Box::new(move |request: SnapshotRequest| mailbox.ask(request))
}

#[cfg(test)]
mod tests;
