//! The control plane: one tokio thread beside the workers.
//!
//! It resolves names and asks token sources for the workers, serves HTTP, and turns signals into a drain.
//! Nothing here is on the path of a byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::FlowId;
use quictun_wire::code::FlowCode;
use quictun_wire::target::Family;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::lookups::Wanted;
use crate::mailbox::{Mailbox, Message};
use crate::reload::{self, Reload};
use crate::resolve::Resolver;
use crate::settings::HostPort;
use crate::token_source::{AppAddr, TokenPlugin};
use quictun_control::line_budget::{self, LineBudget};
use quictun_control::log::{Foreign, LogFiles};
use quictun_control::rest::{self, RestState};
use quictun_control::systemd;
use quictun_io::crash::Crash;
use quictun_trust::keeper;
use quictun_trust::shares::Holder;

/// Requests that may wait, and that may be under way.
pub(crate) const REQUESTS: usize = 4096;

/// What workers ask of the control plane.
#[derive(Debug)]
pub(crate) enum Request {
    /// The addresses of the server.
    ResolveServer { worker: usize },
    /// The addresses of a target.
    ResolveTarget {
        worker: usize,
        flow: FlowId,
        /// For whom it takes a place.
        holder: Holder,
        /// Closed once nobody waits for the answer, which is sent all the same.
        wanted: Wanted,
        host: String,
        port: u16,
        family: Family,
    },
    /// A token for an accepted connection.
    Token {
        worker: usize,
        key: usize,
        ticket: u64,
        forward: usize,
        app: AppAddr,
    },
}

/// What the control plane serves with.
pub(crate) struct Control {
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) requests: Receiver<Request>,
    /// Client: where the server is.
    pub(crate) server: Option<HostPort>,
    /// Its addresses, where its name is not to be looked up again.
    pub(crate) server_known: Vec<SocketAddr>,
    /// Client: the token source of each forward that has one.
    pub(crate) plugins: Vec<Option<TokenPlugin>>,
    pub(crate) rest: Arc<RestState>,
    pub(crate) http: Option<rest::Bound>,
    pub(crate) drain: Duration,
    /// Each worker's end, with its error.
    pub(crate) ended: Receiver<(usize, io::Result<()>)>,
    pub(crate) log_files: LogFiles,
    /// What SIGHUP reads again; `None`: nothing but log files.
    pub(crate) reload: Option<Reload>,
    /// What peers may add to the log.
    pub(crate) lines: LineBudget,
    /// Says that the process has started; `None`: not all of it has.
    pub(crate) announce: Option<Box<dyn FnOnce()>>,
}

/// The channel from workers to the control plane.
pub(crate) fn requests() -> (Sender<Request>, Receiver<Request>) {
    channel(REQUESTS)
}

/// Serves until all workers have ended; the first error of one of them is returned.
pub(crate) async fn serve(mut control: Control) -> io::Result<()> {
    let (stop_http, http_stopped) = tokio::sync::oneshot::channel::<()>();
    let mut http = JoinSet::new();
    if let Some(listener) = control.http.take() {
        let listener = rest::Listener::new(listener)?;
        http.spawn(rest::serve(listener, control.rest.clone(), http_stopped));
    }
    let helpers = Arc::new(Helpers {
        server: control.server.take(),
        server_known: std::mem::take(&mut control.server_known),
        plugins: std::mem::take(&mut control.plugins),
        servers: Resolver::new(),
        targets: Resolver::new(),
        lines: control.lines.clone(),
    });
    let result = serve_workers(&mut control, helpers).await;
    // Whoever serves HTTP may have ended by itself.
    let _gone = stop_http.send(());
    http.shutdown().await;
    result
}

async fn serve_workers(control: &mut Control, helpers: Arc<Helpers>) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut child = signal(SignalKind::child())?;
    let mut keeper_is_gone = false;
    let mut tasks = JoinSet::new();
    let mut reloads = Reloads::default();
    let mut left = control.mailboxes.len();
    let mut result = Ok(());
    let mut signals = 0;
    let far = Duration::from_hours(8760);
    let deadline = tokio::time::sleep(far);
    tokio::pin!(deadline);
    let mut reports = tokio::time::interval(line_budget::REPORT);
    if let Some(announce) = control.announce.take() {
        // Whoever reads this line may ask, and may send a signal.
        control.rest.readiness().set_listening();
        announce();
        systemd::notify_ready();
    }
    while left > 0 {
        let signalled = tokio::select! {
            Some((worker, ended)) = control.ended.recv() => {
                left -= 1;
                if let Err(error) = ended {
                    warn!(target: "quictun", worker, %error, "a worker failed: ending");
                    result = result.and(Err(error));
                    tell_all(&control.mailboxes, || Message::Close);
                }
                false
            }
            Some(request) = control.requests.recv(), if tasks.len() < REQUESTS => {
                tasks.spawn(answer(request, helpers.clone(), control.mailboxes.clone()));
                false
            }
            Some(_) = tasks.join_next() => false,
            _ = terminate.recv() => true,
            _ = interrupt.recv() => true,
            _ = hangup.recv() => {
                reopen_logs(control);
                if signals == 0 {
                    reloads.begin(control);
                }
                false
            }
            Some(_) = reloads.running.join_next() => {
                reloads.ended(control);
                false
            }
            _ = child.recv(), if !keeper_is_gone => {
                keeper_is_gone = keeper::is_gone();
                if keeper_is_gone {
                    error!(target: "quictun", "the process that opens files again, quictun-keeper, has died: ending");
                    result = result.and(Err(Crash::Keeper.into()));
                }
                // As where a person asks for it, unless one has.
                keeper_is_gone && signals == 0
            }
            _ = reports.tick() => {
                control.lines.report();
                false
            }
            () = &mut deadline => {
                warn!(target: "quictun", "the time to drain is over: what is open is reset");
                tell_all(&control.mailboxes, || Message::Close);
                deadline.as_mut().reset(tokio::time::Instant::now() + far);
                false
            }
        };
        if signalled {
            signals += 1;
            if signals > 2 {
                // Each message has its place in a mailbox: more of the same would take others'.
                continue;
            }
            if signals == 2 {
                let cut = io::Error::new(
                    io::ErrorKind::Interrupted,
                    "a second signal cut the drain short",
                );
                result = result.and(Err(cut));
            }
            let drain = (signals == 1).then_some(control.drain);
            end(control, drain);
            if let Some(drain) = drain {
                deadline.as_mut().reset(tokio::time::Instant::now() + drain);
            }
        }
    }
    tasks.shutdown().await;
    control.lines.report();
    result
}

/// Reloads: one at a time, and one more after it where a signal has come meanwhile.
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

    fn ended(&mut self, control: &Control) {
        if std::mem::take(&mut self.again) {
            self.begin(control);
        }
    }
}

/// SIGHUP: what rotates logs asks for new files.
fn reopen_logs(control: &Control) {
    let files = &control.log_files;
    let errors = files.reopen();
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

/// The first signal drains, the second ends.
fn end(control: &Control, drain: Option<Duration>) {
    control.rest.readiness().set_draining();
    systemd::notify_stopping();
    if let Some(drain) = drain {
        info!(target: "quictun", drain_s = drain.as_secs(), "ending: open tunnels may finish; a second signal ends at once");
        tell_all(&control.mailboxes, || Message::Drain);
    } else {
        info!(target: "quictun", "ending at once");
        tell_all(&control.mailboxes, || Message::Close);
    }
}

fn tell_all(mailboxes: &[Mailbox], message: impl Fn() -> Message) {
    for mailbox in mailboxes {
        // A worker that has ended already need not be told.
        mailbox.send(message());
    }
}

/// What answering needs.
struct Helpers {
    server: Option<HostPort>,
    server_known: Vec<SocketAddr>,
    plugins: Vec<Option<TokenPlugin>>,
    /// Two classes, so that a slow name among the targets does not delay the way to the server.
    servers: Resolver,
    targets: Resolver,
    lines: LineBudget,
}

async fn answer(request: Request, helpers: Arc<Helpers>, mailboxes: Vec<Mailbox>) {
    let (worker, message) = match request {
        Request::ResolveServer { worker } => {
            let resolved = match &helpers.server {
                Some(_) if !helpers.server_known.is_empty() => Ok(helpers.server_known.clone()),
                Some(server) => helpers
                    .servers
                    .resolve(&Holder::Own, &server.host, server.port, Family::Any)
                    .await
                    .map_err(|error| error.to_string()),
                None => Err("no server is configured".to_owned()),
            };
            (worker, Message::ServerResolved(resolved))
        }
        Request::ResolveTarget {
            worker,
            flow,
            holder,
            mut wanted,
            host,
            port,
            family,
        } => {
            let result = tokio::select! {
                resolved = helpers.targets.resolve(&holder, &host, port, family) => {
                    resolved.map_err(|error| {
                        if let Some(line) = helpers.lines.take(&holder, Instant::now()) {
                            let (source, error) = (holder.to_string(), Foreign(error));
                            warn!(target: "quictun", source, %error, lines_left_out = line.left_out(), "a target's name does not resolve");
                        }
                        FlowCode::NameNotFound
                    })
                }
                () = wanted.closed() => Err(FlowCode::AppReset),
            };
            (worker, Message::TargetResolved { flow, result })
        }
        Request::Token {
            worker,
            key,
            ticket,
            forward,
            app,
        } => {
            let plugin = helpers.plugins.get(forward).and_then(Option::as_ref);
            let token = match plugin {
                Some(plugin) => plugin
                    .token(&app)
                    .await
                    .inspect_err(|error| {
                        let error = quictun_trust::error_chain(error);
                        warn!(target: "quictun", { "Client-App-Addr" = %app, error }, "no token: the connection is reset");
                    })
                    .ok(),
                None => None,
            };
            (worker, Message::Token { key, ticket, token })
        }
    };
    // The worker may have ended meanwhile.
    mailboxes[worker].send(message);
}
