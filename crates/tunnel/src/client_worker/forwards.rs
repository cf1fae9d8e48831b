//! The forwards of a worker: accepts the connections of applications, and opens flows for them.
//!
//! ```text
//!              ┌─ a fixed token, or the original destination ───────────────────┐
//!  accepted ───┼─ a plugin names the token ─► waiting ── ClientMessage::Token ──┼─► flow
//!              └─ the application names the target ─► Proxy ── request ─────────┘
//!                                                             └─ UDP ASSOCIATE ─► Associations
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_engine::{Client, FlowId, FlowSummary};
use slab::Slab;
use tracing::{debug, warn};

use super::associations::Associations;
use super::datagram_sources::DatagramSources;
use super::diverted_datagrams::DivertedDatagrams;
use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::flow_source::{FlowEnd, FlowSource, FlowToOpen};
use crate::forward_listener::{ForwardDestination, ForwardListener};
use crate::listener::{AcceptOutcome, Listener, warn_of_exhaustion};
use crate::proxy::{self, Proxy, ProxyRequest};
use crate::rate_limited_warning::RateLimitedWarning;
use crate::reload::client::ClientRules;
use crate::reload::forwards::{ForwardChange, ForwardNumber};
use crate::requests::{Request, Requester, WAITING_MAX};
use crate::role::{ClientContext, WorkerPart};
use crate::transparent;
use quictun_control::log_beginning;
use quictun_control::settings::Phrases;
use quictun_io::poller::{Key, ReadyEvent};
use quictun_trust::logins::Logins;

/// Limit of connections accepted from one listener before other listeners have their turn.
const ACCEPT_BURST: usize = 64;

/// Pause after descriptors ran out: long enough for some to be closed, short enough not to be noticed.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Forwards {
    control: Requester,
    listeners: BTreeMap<ForwardNumber, ForwardListener>,
    /// The connections to proxy listeners that have not named a target yet.
    proxy: Proxy,
    datagrams: DatagramSources,
    diverted: DivertedDatagrams,
    associations: Associations,
    /// True if the server learns the addresses from which applications have connected to listeners.
    sends_sources: bool,
    waiting: Slab<TokenWaiter>,
    tickets: u64,
    paused: Option<Instant>,
    stopped: bool,
    /// True if the warning about a connection made directly to a redirection listener was logged.
    direct: bool,
    exhausted: RateLimitedWarning,
    phrases: Phrases,
}

#[derive(Debug)]
struct TokenWaiter {
    socket: AppSocket,
    ticket: u64,
}

impl Forwards {
    pub(crate) fn new(
        control: Requester,
        listeners: BTreeMap<ForwardNumber, ForwardListener>,
        (logins, sends_sources): (Option<Logins>, bool),
        phrases: Phrases,
    ) -> Self {
        Self {
            control,
            listeners,
            proxy: Proxy::new(logins),
            datagrams: DatagramSources::default(),
            diverted: DivertedDatagrams::default(),
            associations: Associations::default(),
            sends_sources,
            waiting: Slab::new(),
            tickets: 0,
            paused: None,
            stopped: false,
            direct: false,
            exhausted: RateLimitedWarning::default(),
            phrases,
        }
    }

    /// Applies a reload while applications are connected. Open flows continue, whatever has become of their forward.
    pub(super) fn apply(
        &mut self,
        cx: &ClientContext<'_>,
        rules: &ClientRules,
        change: &ForwardChange,
    ) {
        self.sends_sources = rules.sends_sources;
        self.proxy.set_logins(rules.logins.clone());
        if self.stopped {
            return;
        }
        for number in &change.removed {
            let Some(forward) = self.listeners.remove(number) else {
                continue;
            };
            if self.paused.is_none()
                && let Err(cause) = cx.poller.remove(&*forward.listener)
            {
                debug!(target: "quictun", %cause, "a listener was not watched");
            }
            forward.listener.stop();
        }
        for (number, destination) in &change.retargeted {
            if let Some(forward) = self.listeners.get_mut(number) {
                forward.destination = destination.clone();
            }
        }
        for (number, forward) in &change.added {
            self.listeners.insert(*number, forward.clone());
            if self.paused.is_none() {
                self.watch(cx, *number);
            }
        }
    }

    /// Lets go of the listeners. Another process has those that it wants, and the others refuse connections from now on.
    pub(super) fn release(&mut self) {
        self.listeners.clear();
    }

    /// Opens the flow of a connection whose token has come. `None` means that there is none.
    pub(super) fn handle_token(
        &mut self,
        cx: &mut ClientContext<'_>,
        (key, ticket): (usize, u64),
        token: Option<String>,
    ) {
        let waiting = self.waiting.get(key);
        if waiting.is_some_and(|waiting| waiting.ticket == ticket) {
            let socket = self.waiting.remove(key).socket;
            match token {
                Some(token) => self.open(cx, socket, token),
                None => reset(socket),
            }
        }
    }

    /// Takes what has arrived at a forward: connections, or datagrams.
    fn take(&mut self, cx: &mut ClientContext<'_>, number: ForwardNumber) {
        let forward = self.listeners.get(&number).cloned();
        match forward {
            Some(ForwardListener {
                listener,
                destination: ForwardDestination::Token(token),
            }) if matches!(&*listener, Listener::Udp(..)) => {
                let how = (self.phrases, self.sends_sources);
                let forward = (number, &listener, token.as_str());
                self.datagrams.receive(cx, forward, how);
            }
            Some(ForwardListener {
                listener,
                destination: ForwardDestination::Original,
            }) if matches!(&*listener, Listener::Udp(..)) => {
                let forward = (number, &listener);
                self.diverted.receive(cx, forward, self.phrases);
            }
            _ => self.accept(cx, number),
        }
    }

    fn accept(&mut self, cx: &mut ClientContext<'_>, number: ForwardNumber) {
        for _ in 0..ACCEPT_BURST {
            let Some(forward) = self.listeners.get(&number) else {
                return;
            };
            match forward.listener.accept() {
                AcceptOutcome::Connection(socket, app) => {
                    let destination = forward.destination.clone();
                    self.log_accepted(&app);
                    match destination {
                        ForwardDestination::Token(token) => self.open(cx, socket, token),
                        ForwardDestination::Plugin => self.request_token(socket, number, app),
                        ForwardDestination::Proxy => {
                            let asked = self.proxy.accept(cx.now, cx.poller, socket);
                            self.open_for_proxy(cx, asked);
                        }
                        ForwardDestination::Original => reset(socket),
                    }
                }
                AcceptOutcome::Diverted(socket, app, destination) => {
                    self.log_accepted(&app);
                    self.open(cx, socket, transparent::target(destination).to_string());
                }
                AcceptOutcome::Direct(app) => self.log_direct(&app),
                AcceptOutcome::Empty => return,
                AcceptOutcome::Exhausted(cause) => {
                    warn_of_exhaustion(&mut self.exhausted, cx.now, &cause);
                    self.pause(cx, Some(cx.now + EXHAUSTED_PAUSE));
                    return;
                }
                AcceptOutcome::Failed => {}
            }
        }
    }

    fn open(&self, cx: &mut ClientContext<'_>, socket: AppSocket, token: String) {
        let source = self.source(&socket);
        // If the engine takes no more flows, it has reset the connection.
        let _none = FlowToOpen::new(socket, token).open(cx, self.phrases, source);
    }

    /// Opens what an application has asked the proxy for, if anything.
    fn open_for_proxy(&mut self, cx: &mut ClientContext<'_>, asked: Option<ProxyRequest>) {
        let asked = match asked {
            None => return,
            Some(ProxyRequest::Flow(asked)) => asked,
            Some(ProxyRequest::Association(asked)) => {
                let refused = self.associations.open(cx, asked);
                if let Some((socket, code)) = refused {
                    self.proxy.refuse_associate(cx.now, cx.poller, socket, code);
                }
                return;
            }
        };
        let (watched, source) = (asked.watched, self.source(&asked.socket));
        match asked.open(cx, self.phrases, source) {
            Some(flow) => self.proxy.name(cx, flow),
            None => self.proxy.handle_refused(cx.now, cx.poller, watched),
        }
    }

    /// Returns the address of the application, if the server learns it.
    fn source(&self, socket: &AppSocket) -> Option<SocketAddr> {
        self.sends_sources.then(|| socket.peer_address()).flatten()
    }

    fn request_token(&mut self, socket: AppSocket, forward: ForwardNumber, app: AppAddr) {
        if self.waiting.len() >= WAITING_MAX {
            warn!(target: "quictun", "too many connections wait for a token: one was reset");
            return reset(socket);
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let key = self.waiting.insert(TokenWaiter { socket, ticket });
        let request = Request::Token {
            key,
            ticket,
            forward,
            app,
        };
        if self.control.send(request).is_err() {
            warn!(target: "quictun", "the token source is overloaded: a connection was reset");
            reset(self.waiting.remove(key).socket);
        }
    }

    /// Watches the listener of a forward, unless accepting pauses.
    fn watch(&mut self, cx: &ClientContext<'_>, number: ForwardNumber) {
        let Some(forward) = self.listeners.get(&number) else {
            return;
        };
        if !self.datagrams.watches(number, &forward.listener) {
            return;
        }
        let added = cx
            .poller
            .add_listener(&*forward.listener, Key::Listener(number));
        if let Err(cause) = added {
            warn!(target: "quictun", %cause, "a listener cannot be watched: trying again");
            self.paused = Some(cx.now + EXHAUSTED_PAUSE);
        }
    }

    /// Leaves applications that connect in the queues of the listeners until then, because another process takes over.
    pub(super) fn rest_until(&mut self, cx: &mut ClientContext<'_>, until: Instant) {
        if !self.stopped {
            self.pause(cx, Some(until));
        }
    }

    fn pause(&mut self, cx: &mut ClientContext<'_>, until: Option<Instant>) {
        if self.paused.is_none() {
            for forward in self.listeners.values() {
                if let Err(cause) = cx.poller.remove(&*forward.listener) {
                    debug!(target: "quictun", %cause, "a listener was not watched");
                }
            }
        }
        self.paused = until;
    }

    /// Logs that an application has connected. Users search for the original's phrases, so they stay word for word.
    fn log_accepted(&self, app: &AppAddr) {
        log_beginning!(
            self.phrases,
            { "Client-App-Addr" = %app },
            "Client connection accepted, prepare to entablish tunnel with server endpint for this connection.",
            "an application has connected"
        );
    }

    fn log_direct(&mut self, app: &AppAddr) {
        if std::mem::replace(&mut self.direct, true) {
            return debug!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself: it was reset");
        }
        warn!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself, which carries only connections that the packet filter redirects: it was reset, and so are further ones");
    }
}

impl WorkerPart for Forwards {
    type Role = Client;

    fn start(&mut self, cx: &mut ClientContext<'_>) -> io::Result<()> {
        for (number, forward) in &self.listeners {
            if self.datagrams.watches(*number, &forward.listener) {
                cx.poller
                    .add_listener(&*forward.listener, Key::Listener(*number))?;
            }
        }
        Ok(())
    }

    fn handle_ready(&mut self, cx: &mut ClientContext<'_>, ready: ReadyEvent) {
        match ready.key {
            Key::Listener(number) => self.take(cx, number),
            Key::Asking(_) => {
                let asked = self.proxy.handle_ready(cx.now, cx.poller, ready);
                self.open_for_proxy(cx, asked);
            }
            Key::Relay(number) => {
                let how = (self.phrases, self.sends_sources);
                self.associations.receive(cx, number, how);
            }
            Key::Lifeline(number) => self.associations.handle_lifeline(cx, number),
            Key::Udp
            | Key::Wake
            | Key::Tun
            | Key::Dial(_)
            | Key::Flow(_)
            | Key::CarrierListener(_)
            | Key::Carrier(_) => {}
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let times = [self.paused, self.proxy.next_timeout()];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        self.proxy.handle_timeout(cx.now);
        if self.paused.is_some_and(|until| until <= cx.now) {
            self.paused = None;
            if !self.stopped {
                let numbers: Vec<ForwardNumber> = self.listeners.keys().copied().collect();
                for number in numbers {
                    self.watch(cx, number);
                }
            }
        }
    }

    fn stop_accepting(&mut self, cx: &mut ClientContext<'_>) {
        self.stopped = true;
        self.pause(cx, None);
        self.proxy.stop();
        // The descriptors close here, so later connections are refused at once.
        self.listeners.clear();
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl FlowSource for Forwards {
    fn handle_established(&mut self, cx: &mut ClientContext<'_>, flow: FlowId) {
        proxy::handle_established(cx, flow);
    }

    fn handle_closed(&mut self, cx: &mut ClientContext<'_>, end: &FlowEnd<'_>) {
        let FlowSummary { flow, ending, .. } = *end.summary;
        self.datagrams.handle_closed(cx.now, flow, ending);
        self.diverted.handle_closed(cx.now, flow, ending);
        self.associations.handle_closed(cx.now, flow, ending);
        self.proxy.handle_closed(cx.now, cx.poller, flow, ending);
    }
}

fn reset(mut socket: AppSocket) {
    quictun_engine::Socket::abort(&mut socket);
}
