//! The control plane: one tokio thread beside the workers.
//!
//! It resolves names and asks token sources for the workers, serves HTTP, and turns signals into a drain. No byte of a
//! flow passes through it.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Sleep, sleep};
use tracing::{error, info, warn};

use crate::disk_queue::LOGS;
use crate::handover::{Draining, HandoverPort};
use crate::mailbox::{Mailbox, Message};
use crate::memory_budget::MemoryBudget;
use crate::network_watch::NetworkWatch;
use crate::public_certificate::CertificateDuty;
use crate::reload::join_messages::PendingJoin;
use crate::reload::{self, Reload, joining};
use crate::request_handler::RequestHandler;
use crate::requests::{REQUESTS, Request};
use crate::terminal::Terminal;
use crate::usage::UsageStore;
use quictun_control::line_budget::{self, LineBudget};
use quictun_control::log::{LogError, LogFiles};
use quictun_control::rest::{self, RestState};
use quictun_control::systemd;
use quictun_io::crash::Crash;
use quictun_trust::keeper;

/// Time that opening the log files has before the reload of the same SIGHUP begins, so that the new files have its lines.
/// A disk that hangs must not delay the reload further.
const REOPENING_FIRST: Duration = Duration::from_secs(1);

/// A time beyond the end of any drain.
const NEVER: Duration = Duration::from_hours(8760);

pub(crate) struct Control {
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) request_handler: Arc<RequestHandler>,
    pub(crate) rest: Arc<RestState>,
    pub(crate) http: Option<rest::BoundListener>,
    pub(crate) drain: Duration,
    pub(crate) log_files: LogFiles,
    /// The configuration that SIGHUP reads again. If `None`, SIGHUP only opens log files again.
    pub(crate) reload: Option<Reload>,
    /// Follows the limits of this process's memory.
    pub(crate) memory: Option<MemoryBudget>,
    /// Notifies the workers of changes of the network.
    pub(crate) network: Option<NetworkWatch>,
    /// On a server: stores the usage of clients.
    pub(crate) usage: Option<UsageStore>,
    /// On a server: keeps the certificate that programs without quictun see.
    pub(crate) certificate: Option<CertificateDuty>,
    /// Asks to look for a new certificate, after SIGHUP.
    pub(crate) certificate_again: Arc<Notify>,
    /// Hands the flows over to the next process.
    pub(crate) handover: Option<HandoverPort>,
    pub(crate) lines: LineBudget,
    pub(crate) terminal: Terminal,
    /// Announces that the process has started. `None` if a worker could not be built.
    pub(crate) announce: Option<Box<dyn FnOnce()>>,
}

pub(crate) type WorkerEnd = (usize, io::Result<()>);

/// Serves until all workers have ended. Returns the first error of a worker.
pub(crate) async fn serve(
    mut control: Control,
    requests: Receiver<(usize, Request)>,
    joins: Receiver<PendingJoin>,
    ends: Receiver<WorkerEnd>,
) -> io::Result<()> {
    let (stop_http, http_stopped) = oneshot::channel::<()>();
    let mut http = JoinSet::new();
    if let Some(listener) = control.http.take() {
        let listener = rest::Listener::new(listener)?;
        http.spawn(rest::serve(listener, control.rest.clone(), http_stopped));
    }
    let mut watches = JoinSet::new();
    if let Some(memory) = control.memory.take() {
        watches.spawn(memory.run());
    }
    if let Some(network) = control.network.take() {
        watches.spawn(network.run(control.mailboxes.clone()));
    }
    if let Some(certificate) = control.certificate.take() {
        watches.spawn(certificate.run(control.certificate_again.clone()));
    }
    let (request_handler, mailboxes) = (control.request_handler.clone(), control.mailboxes.clone());
    watches.spawn(async move { request_handler.refresh_services(mailboxes).await });
    let announce = control.announce.take();
    let mut usage = control.usage.take();
    let handover = control.handover.take();
    let outcome = handover.as_ref().map(HandoverPort::outcome);
    let draining = handover.as_ref().map(HandoverPort::draining);
    let draining = draining.unwrap_or_default();
    let result = {
        let work = serve_workers((&control, &draining), announce, requests, joins, ends);
        let mut work = pin!(work);
        tokio::select! {
            result = &mut work => result,
            () = run_usage_store(usage.as_mut()) => work.await,
            () = run_handover(handover, control.mailboxes.clone()) => {
                // The workers have let go of their flows, and end. The next process answers by HTTP.
                http.shutdown().await;
                work.await
            }
        }
    };
    // After a hand-over, the next process counts.
    let taken = outcome.is_some_and(|outcome| outcome.is_taken());
    if let Some(usage) = usage.filter(|_| !taken) {
        usage.end().await;
    }
    // An error means that the HTTP server has ended already.
    let _gone = stop_http.send(());
    http.shutdown().await;
    watches.shutdown().await;
    result
}

async fn run_usage_store(usage: Option<&mut UsageStore>) {
    match usage {
        Some(usage) => usage.run().await,
        None => pending().await,
    }
}

async fn run_handover(handover: Option<HandoverPort>, mailboxes: Vec<Mailbox>) {
    match handover {
        Some(handover) => handover.run(mailboxes).await,
        None => pending().await,
    }
}

async fn serve_workers(
    (control, draining): (&Control, &Draining),
    announce: Option<Box<dyn FnOnce()>>,
    mut requests: Receiver<(usize, Request)>,
    mut joins: Receiver<PendingJoin>,
    mut ends: Receiver<WorkerEnd>,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut child = signal(SignalKind::child())?;
    // A process whose start must not be cut short has blocked these.
    quictun_sys::release_signals(&quictun_sys::END_SIGNALS)?;
    let mut tasks = JoinSet::new();
    let mut reports = tokio::time::interval(line_budget::REPORT);
    let mut state = ProcessState::new(control, draining);
    if let Some(announce) = announce {
        // A program that reads this line may query the status, and may send a signal.
        control.rest.readiness.set_listening();
        announce();
        systemd::notify_ready();
    }
    while state.left > 0 {
        tokio::select! {
            Some((worker, end)) = ends.recv() => state.handle_worker_end(worker, end),
            Some((worker, request)) = requests.recv(), if tasks.len() < REQUESTS => {
                let (request_handler, mailboxes) = (control.request_handler.clone(), control.mailboxes.clone());
                tasks.spawn(async move {
                    if let Some(message) = request_handler.answer(request).await {
                        request_handler.send(&mailboxes[worker], message).await;
                    }
                });
            }
            Some(_) = tasks.join_next() => {}
            _ = terminate.recv() => state.handle_signal(),
            _ = interrupt.recv() => state.handle_signal(),
            _ = hangup.recv() => state.handle_hangup(),
            () = draining.asked.notified() => state.handle_drain(),
            Some(errors) = state.reopening.running.join_next() => state.handle_reopened(errors),
            () = &mut state.reload_at => state.handle_reload_due(),
            Some(_) = state.reloads.running.join_next() => state.reloads.ended(control),
            Some(joining) = joins.recv(), if state.reloads.running.is_empty() => {
                state.reloads.join(control, joining);
            }
            _ = child.recv(), if !state.keeper_is_gone => state.handle_child_end(),
            _ = reports.tick() => control.lines.report(),
            () = &mut state.deadline => state.handle_deadline(),
        }
    }
    tasks.shutdown().await;
    control.lines.report();
    state.result
}

/// The state of the process, from its start to its end.
struct ProcessState<'a> {
    control: &'a Control,
    left: usize,
    result: io::Result<()>,
    signals: usize,
    draining: &'a Draining,
    keeper_is_gone: bool,
    reopening: Reopening,
    reloads: Reloads,
    /// A SIGHUP has asked for a reload, which begins once the log files are open, or at `reload_at`.
    reload_waits: bool,
    reload_at: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
}

impl<'a> ProcessState<'a> {
    fn new(control: &'a Control, draining: &'a Draining) -> Self {
        Self {
            control,
            left: control.mailboxes.len(),
            result: Ok(()),
            signals: 0,
            draining,
            keeper_is_gone: false,
            reopening: Reopening::default(),
            reloads: Reloads::default(),
            reload_waits: false,
            reload_at: Box::pin(sleep(NEVER)),
            deadline: Box::pin(sleep(NEVER)),
        }
    }

    /// Stores an error as the result of the run, unless an earlier one is stored.
    fn fail(&mut self, error: io::Error) {
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }

    fn send_all(&self, message: impl Fn() -> Message) {
        for mailbox in &self.control.mailboxes {
            // An error means that the worker has ended already.
            mailbox.send(message());
        }
    }

    fn handle_worker_end(&mut self, worker: usize, end: io::Result<()>) {
        self.left -= 1;
        if let Err(error) = end {
            warn!(target: "quictun", worker, %error, "a worker failed: ending");
            self.fail(error);
            self.send_all(|| Message::Close);
        }
    }

    fn handle_hangup(&mut self) {
        if self.control.terminal.has_gone() {
            // Both the kernel and the shell may send SIGHUP, so the second one is not a request to end at once.
            if self.signals == 0 {
                info!(target: "quictun", "SIGHUP: the terminal has closed");
                self.handle_signal();
            }
            return;
        }
        self.reopening.begin(&self.control.log_files);
        self.control.certificate_again.notify_one();
        if !self.reload_waits {
            self.reload_waits = true;
            let latest = Instant::now() + REOPENING_FIRST;
            self.reload_at.as_mut().reset(latest);
        }
    }

    fn handle_reopened(&mut self, errors: Result<Vec<LogError>, JoinError>) {
        // An error is a panic, which has a log line of its own.
        log_reopened(self.control, errors.unwrap_or_default());
        self.reopening.ended(&self.control.log_files);
        self.handle_reload_due();
    }

    /// Reads the configuration again after SIGHUP. The log files are open by then, unless their disk hangs.
    fn handle_reload_due(&mut self) {
        self.reload_at.as_mut().reset(Instant::now() + NEVER);
        if std::mem::take(&mut self.reload_waits) && !self.draining.has_begun() {
            self.reloads.begin(self.control);
        }
    }

    fn handle_child_end(&mut self) {
        self.keeper_is_gone = keeper::is_gone();
        if self.keeper_is_gone {
            error!(target: "quictun", "the process that opens files again, quictun-keeper, has died: ending");
            self.fail(Crash::Keeper.into());
            // Begins a drain, as a signal does, unless a signal has come already.
            if self.signals == 0 {
                self.handle_signal();
            }
        }
    }

    fn handle_deadline(&mut self) {
        warn!(target: "quictun", "the time to drain is over: open flows are reset");
        self.send_all(|| Message::Close);
        self.deadline.as_mut().reset(Instant::now() + NEVER);
    }

    /// Begins a drain without a time limit, because `quictun drain` asks for it. A signal sets a limit.
    fn handle_drain(&mut self) {
        if !self.draining.has_begun() {
            info!(target: "quictun", "asked to drain: this process ends with its last flow; a signal sets the limit of --drain");
            self.begin_drain();
        }
    }

    fn begin_drain(&mut self) {
        self.control.rest.readiness.set_draining();
        // Each message has a reserved place in a mailbox: there is one for this message.
        if self.draining.begin() {
            self.send_all(|| Message::Drain);
        }
    }

    /// Begins a drain on the first signal, and ends at once on the second.
    fn handle_signal(&mut self) {
        self.signals += 1;
        if self.signals > 2 {
            // Each message has a reserved place in a mailbox: further ones would take the place of other messages.
            return;
        }
        systemd::notify_stopping();
        if self.signals == 1 {
            let reload = self.control.reload.as_ref();
            let drain = reload.map_or(self.control.drain, Reload::drain);
            info!(target: "quictun", drain_s = drain.as_secs(), "ending: open flows may finish; a second signal ends at once");
            self.begin_drain();
            self.deadline.as_mut().reset(Instant::now() + drain);
        } else {
            let cut = "a second signal cut the drain short";
            self.fail(io::Error::new(io::ErrorKind::Interrupted, cut));
            info!(target: "quictun", "ending at once");
            self.send_all(|| Message::Close);
        }
    }
}

/// Reloads and attempts to join. They run one at a time, followed by one more reload if a signal has come meanwhile.
#[derive(Default)]
struct Reloads {
    running: JoinSet<()>,
    again: bool,
}

impl Reloads {
    fn begin(&mut self, control: &Control) {
        let Some(reload) = &control.reload else {
            return;
        };
        if self.running.is_empty() {
            let mailboxes = control.mailboxes.clone();
            self.running.spawn(reload::run(reload.clone(), mailboxes));
        } else {
            self.again = true;
        }
    }

    /// Starts an attempt to join. Must be called only while nothing else runs.
    fn join(&mut self, control: &Control, joining: PendingJoin) {
        // Without a reload the server has no clients that could join, and no worker asks.
        if let Some(reload) = &control.reload {
            let mailboxes = control.mailboxes.clone();
            self.running
                .spawn(joining::run(reload.clone(), mailboxes, joining));
        }
    }

    fn ended(&mut self, control: &Control) {
        if std::mem::take(&mut self.again) {
            self.begin(control);
        }
    }
}

/// Opening log files again on SIGHUP, by which log rotation asks for new files: once at a time, followed by once more
/// if a signal has come meanwhile.
#[derive(Default)]
struct Reopening {
    running: JoinSet<Vec<LogError>>,
    again: bool,
}

impl Reopening {
    fn begin(&mut self, files: &LogFiles) {
        if self.running.is_empty() {
            let files = files.clone();
            self.running.spawn(async move {
                let reopened = LOGS.run(move || files.reopen()).await;
                reopened.unwrap_or_default()
            });
        } else {
            self.again = true;
        }
    }

    fn ended(&mut self, files: &LogFiles) {
        if std::mem::take(&mut self.again) {
            self.begin(files);
        }
    }
}

fn log_reopened(control: &Control, errors: Vec<LogError>) {
    let files = &control.log_files;
    if control.reload.is_some() {
        info!(target: "quictun", log_files = files.count(), "SIGHUP: log files are opened again, and the configuration is read again");
    } else {
        info!(target: "quictun", log_files = files.count(), "SIGHUP: log files are opened again; a new configuration needs a restart, which drains");
    }
    for error in errors {
        let cause = quictun_trust::error_chain(&error);
        warn!(target: "quictun", cause, "a log file stays as it was");
    }
}
