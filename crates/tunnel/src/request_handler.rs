//! Answers the requests of workers: addresses of names, and tokens.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use quictun_engine::ResolveResult;
use quictun_engine::report::ServerId;
use quictun_wire::code::{FlowCode, ListenCode};
use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Family;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::disk_queue::RULES;
use crate::mailbox::{ClientMessage, Mailbox, Message, ServerMessage};
use crate::outage_log;
use crate::outbound_proxy::{LOOKUP_TIMEOUT, OpenProxy, ProxiedServer};
use crate::probe::Probe;
use crate::rejections::RejectionWatch;
use crate::reload::dialled::DialledServers;
use crate::requests::Request;
use crate::resolve::Resolver;
use crate::reverse::bind::{self, Bound};
use crate::servers::Servers;
use crate::service::Services;
use crate::settings::{Address, HostPort};
use crate::token_source::TokenPlugin;
use crate::zone;
use quictun_control::line_budget::LineBudget;
use quictun_control::log::Untrusted;
use quictun_trust::shares::Holder;

/// The state behind the answers of a client: its servers and its token plugins. All fields are empty on a server.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) servers: Arc<DialledServers>,
    /// The services among `servers`, whose servers SRV records name.
    pub(crate) services: Services,
    /// The known addresses of the first server. If not empty, its name is not looked up.
    pub(crate) server_known: Vec<SocketAddr>,
    /// A socket for asking the network why a server does not answer, and the servers that the result is noted for.
    pub(crate) probe: Option<(UdpSocket, Arc<Servers>)>,
    /// A socket for asking the network whether it rejects datagrams, if that is of interest.
    pub(crate) rejections: Option<UdpSocket>,
    pub(crate) plugins: Vec<Option<TokenPlugin>>,
    /// The proxy through which TLS over TCP leads to the servers.
    pub(crate) outbound_proxy: Option<Arc<OpenProxy>>,
}

pub(crate) struct RequestHandler {
    sources: Sources,
    probe: Option<(Probe, Arc<Servers>)>,
    rejections: Option<RejectionWatch>,
    /// Resolves the names of servers. It is separate from `targets` so that a slow target name does not delay a
    /// server's.
    servers: Resolver,
    targets: Resolver,
    lines: LineBudget,
}

impl RequestHandler {
    /// Creates the state. Must be called within the tokio runtime.
    pub(crate) fn new(mut sources: Sources, lines: LineBudget) -> Self {
        Self {
            // If the probe cannot be made, the silence of a server is still logged, without the network's answer.
            probe: sources
                .probe
                .take()
                .and_then(|(socket, servers)| Some((Probe::new(socket).ok()?, servers))),
            rejections: sources.rejections.take().and_then(RejectionWatch::new),
            sources,
            servers: Resolver::new(),
            targets: Resolver::new(),
            lines,
        }
    }

    /// Keeps looking up the SRV records of the services.
    pub(crate) async fn refresh_services(&self, mailboxes: Vec<Mailbox>) {
        self.sources.services.keep(mailboxes).await;
    }

    /// Handles a request. Returns the message for its worker, or `None` if the worker needs no answer.
    pub(crate) async fn answer(&self, request: Request) -> Option<Message> {
        Some(match request {
            Request::ResolveServer { server, tenant } => {
                let (resolved, proxied) = self.ways(server).await;
                ClientMessage::ServerResolved {
                    server,
                    tenant,
                    resolved,
                    proxied,
                }
                .into()
            }
            Request::Unanswered(server) => {
                self.log_silence(server).await;
                return None;
            }
            Request::ResolveTarget {
                flow,
                holder,
                mut wanted,
                host,
                port,
                family,
            } => {
                let result = tokio::select! {
                    resolved = self.targets.resolve(&holder, &host, port, family) => {
                        resolved.map_err(|error| {
                            if let Some(line) = self.lines.take(&holder, Instant::now()) {
                                let (source, error) = (holder.to_string(), Untrusted(error));
                                warn!(target: "quictun", source, %error, lines_left_out = line.left_out(), "a target's name does not resolve");
                            }
                            FlowCode::NameNotFound
                        })
                    }
                    () = wanted.closed() => Err(FlowCode::AppReset),
                };
                Message::TargetResolved { flow, result }
            }
            Request::Listen {
                number,
                holder,
                address,
                below,
            } => {
                let result = self.listen(&holder, address, below).await;
                ServerMessage::Bound { number, result }.into()
            }
            Request::RemoveSocket(address) => {
                remove_socket(address).await;
                return None;
            }
            Request::Token {
                key,
                ticket,
                forward,
                app,
            } => {
                let plugin = self.sources.plugins.get(forward).and_then(Option::as_ref);
                let token = match plugin {
                    Some(plugin) => plugin.token(&app).await.map(Some),
                    None => Ok(None),
                };
                let token = token.unwrap_or_else(|error| {
                    let error = quictun_trust::error_chain(&error);
                    if let Some(line) = self.lines.take(&app.holder(), Instant::now()) {
                        warn!(target: "quictun", { "Client-App-Addr" = %app, error, lines_left_out = line.left_out() }, "no token: the connection is reset");
                    }
                    None
                });
                ClientMessage::Token { key, ticket, token }.into()
            }
        })
    }

    /// Sends the answer to a worker. If it contains the addresses of a server, tells the worker next if the network rejects
    /// datagrams to the first one.
    pub(crate) async fn send(&self, mailbox: &Mailbox, answer: Message) {
        let first = match &answer {
            Message::Client(ClientMessage::ServerResolved { resolved, .. }) => {
                resolved.iter().flatten().next().copied()
            }
            _ => None,
        };
        // An error means that the worker has ended meanwhile.
        let send = |message: Message| mailbox.send(message);
        match (&self.rejections, first) {
            (Some(rejections), Some(remote)) => {
                if rejections.ask(remote, || send(answer)).await {
                    send(ClientMessage::UdpRejected(remote).into());
                }
            }
            _ => send(answer),
        }
    }

    /// Makes a listener for a client.
    async fn listen(
        &self,
        holder: &Holder,
        address: ListenAddress,
        below: Option<String>,
    ) -> Result<Bound, ListenCode> {
        let to_bind = address.clone();
        let bound = RULES.run(move || bind::for_client(&to_bind, below.as_deref()));
        let bound = bound.await.unwrap_or_else(|error| Err(error.into()));
        bound.map_err(|cause| {
            let code = bind::code_of(&cause);
            if code == ListenCode::Failed
                && let Some(line) = self.lines.take(holder, Instant::now())
            {
                let client = holder.to_string();
                warn!(target: "quictun", client, %address, %cause, lines_left_out = line.left_out(), "the server cannot listen for a client");
            }
            code
        })
    }

    async fn log_silence(&self, id: ServerId) {
        let Ok(addresses) = self.server(id).await else {
            // The failed look-up has its own log line.
            return;
        };
        let (mut network_says, mut name) = (None, None);
        if let Some((probe, servers)) = &self.probe {
            network_says = Some(probe.ask(&addresses).await);
            name = Some(servers.name(id));
            let status = servers.get(id);
            if status.is_some_and(|it| !it.outages.is_probed()) {
                // The server answered while the network was asked.
                return;
            }
        }
        let after_s = outage_log::SILENCE_LIMIT.as_secs();
        warn!(target: "quictun", server = name, after_s, network_says, check = outage_log::CHECK_PATH, "the server does not answer; dialling continues");
    }

    /// Looks up the addresses of a server, and those of the proxy through which it is reached.
    async fn ways(&self, server: ServerId) -> (ResolveResult, Option<ProxiedServer>) {
        let Some(proxy) = &self.sources.outbound_proxy else {
            return (self.server(server).await, None);
        };
        let target = match self.target(server).await {
            Ok((target, _)) if proxy.serves(&target) => target,
            Ok(_) => return (self.server(server).await, None),
            Err(error) => return (Err(error), None),
        };
        let HostPort { host, port } = proxy.at();
        let of_proxy = self.servers.resolve(&Holder::Own, host, *port, Family::Any);
        let own = timeout(LOOKUP_TIMEOUT, self.server(server));
        let (own, of_proxy) = tokio::join!(own, of_proxy);
        let late = || Err(format!("the resolver does not answer for {}", target.host));
        let addresses = of_proxy.map_err(|error| proxy.unresolved(&error.to_string()));
        (
            own.unwrap_or_else(|_| late()),
            Some(ProxiedServer { target, addresses }),
        )
    }

    /// Returns the host and port of a server, and whether records have named them.
    async fn target(&self, server: ServerId) -> Result<(HostPort, bool), String> {
        match self.sources.servers.address(server) {
            Some(Address::At(at)) => Ok((at, false)),
            Some(Address::Service(_)) => Ok((self.sources.services.target(server).await?, true)),
            None => Err("no server is configured".to_owned()),
        }
    }

    async fn server(&self, server: ServerId) -> ResolveResult {
        let (HostPort { host, port }, by_records) = self.target(server).await?;
        if by_records {
            // The target of a record is an absolute name (RFC 2782).
            let resolved = self
                .servers
                .resolve_absolute(&Holder::Own, &host, port, Family::Any);
            let resolved = resolved.await.map_err(|error| error.to_string())?;
            return zone::with_zones(&host, resolved);
        }
        if server == ServerId(0) && !self.sources.server_known.is_empty() {
            return Ok(self.sources.server_known.clone());
        }
        let resolved = self.servers.resolve(&Holder::Own, &host, port, Family::Any);
        let resolved = resolved.await.map_err(|error| error.to_string())?;
        zone::with_zones(&host, resolved)
    }
}

/// Removes the socket file of a listener that is closed.
async fn remove_socket(address: ListenAddress) {
    let of = address.clone();
    let removed = RULES.run(move || bind::remove_for_client(&of)).await;
    if let Err(cause) = removed.unwrap_or_else(|error| Err(error.into())) {
        debug!(target: "quictun", %address, %cause, "the socket file of a client's listener stays");
    }
}
