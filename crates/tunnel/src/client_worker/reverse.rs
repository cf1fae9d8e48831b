//! The client's part of reverse forwards (PROTOCOL section 5.9): asks the server to listen, and dials the local
//! targets.
//!
//! One worker has all reverse forwards and asks on one connection to one server, the first that the configuration names.
//! This is the *listening connection*: the first one on which the server agrees. If it ends or does not answer, the
//! next connection takes its place. A reload may change the forwards, their targets and the server.

mod changes;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_control::line_budget::{LineBudget, LinePermit};
use quictun_control::rest::{ReverseForward, ReverseForwards};
use quictun_engine::report::ServerId;
use quictun_engine::{Client, ConnectionId, FlowId, FlowSummary, IncomingFlow};
use quictun_trust::access::{DialAddress, HeaderTargets, Peer, dialled_as};
use quictun_trust::descriptors;
use quictun_trust::shares::Holder;
use quictun_wire::code::{FlowCode, ListenCode};
use quictun_wire::listening::{
    HOLDER_LEN, IncomingPeer, Listen, ListenAck, ListenAddress, ListenId,
};
use quictun_wire::proxy_header;
use quictun_wire::target::{Family, Target};
use tracing::{debug, info, warn};

use crate::dial::{DialMemory, DialResult, Dials, dial_unix};
use crate::flow_source::{FlowEnd, FlowSource};
use crate::launch;
use crate::lookups::{self, Lookups};
use crate::requests::{Request, Requester};
use crate::role::{ClientContext, WorkerPart};
use crate::settings::Reverse;
use quictun_io::poller::{Key, ReadyEvent};

/// Limit of the time for a dial to one of this client's targets.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// First wait before the server is asked again if another process has the address (PROTOCOL REVERSE-8).
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_mins(5);

#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct ReverseForwarder {
    control: Requester,
    /// True in the one worker that has the forwards.
    has_forwards: bool,
    holder: [u8; HOLDER_LEN],
    forwards: Vec<Entry>,
    /// The number of the next forward. Numbers are never reused.
    next_id: ListenId,
    /// The server that listens.
    server: ServerId,
    /// Connections to that server on which it agrees, the listening connection first.
    agreed: Vec<ConnectionId>,
    /// Connections to other servers that agree.
    elsewhere: Vec<(ServerId, ConnectionId)>,
    /// True if the server is too old to listen.
    is_old_server: bool,
    stopped: bool,
    /// True if the next connection becomes the listening one, because all others are being replaced.
    replace: bool,
    warned_of_old_server: bool,
    dials: Dials,
    lookups: Lookups,
    /// The targets that get a PROXY header.
    header_targets: HeaderTargets,
    /// The flows that the server has opened.
    incoming: HashMap<FlowId, KnownIncoming>,
    shown: ReverseForwards,
    /// Limits the log lines about answers. A server may send any number of them.
    lines: LineBudget,
}

/// Facts about a flow that the server has opened.
struct KnownIncoming {
    /// The text of the target, for the log.
    target: String,
    /// The source address in a PROXY header: of the application that has connected to the server, or of the server.
    source: Option<SocketAddr>,
}

struct Entry {
    id: ListenId,
    listen: ListenAddress,
    target: Target,
    /// True if the listener was granted or taken away once. From then on its request waits while another process has
    /// the address (PROTOCOL REVERSE-7).
    waits: bool,
    state: State,
    /// The wait before the next request, and the time of that request.
    retry: Option<(Duration, Instant)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Unasked,
    Listening(ListenAddress),
    Refused(ListenCode),
}

impl ReverseForwarder {
    pub(crate) fn new(
        (control, has_forwards): (Requester, bool),
        (forwards, header_targets): (Vec<Reverse>, HeaderTargets),
        holder: [u8; HOLDER_LEN],
        (shown, lines): (ReverseForwards, LineBudget),
    ) -> Self {
        let mut new = Self {
            control,
            has_forwards,
            holder,
            forwards: Vec::new(),
            next_id: 0,
            server: ServerId(0),
            agreed: Vec::new(),
            elsewhere: Vec::new(),
            is_old_server: false,
            stopped: false,
            replace: false,
            warned_of_old_server: false,
            dials: Dials::new(
                descriptors::places(launch::descriptor_limit()),
                DialMemory::default(),
            ),
            lookups: Lookups::new(lookups::places()),
            header_targets,
            incoming: HashMap::new(),
            shown,
            lines,
        };
        for forward in forwards {
            new.add(forward);
        }
        if !new.forwards.is_empty() {
            new.show();
        }
        new
    }

    /// Adds a forward that the server was not asked for yet.
    fn add(&mut self, Reverse { listen, target }: Reverse) {
        self.forwards.push(Entry {
            id: self.next_id,
            listen,
            target,
            waits: false,
            state: State::Unasked,
            retry: None,
        });
        self.next_id += 1;
    }

    /// Handles a new connection: asks on it for the listeners if it becomes the listening one.
    pub(crate) fn handle_welcome(
        &mut self,
        cx: &mut ClientContext<'_>,
        server: ServerId,
        connection: ConnectionId,
        agrees: bool,
    ) {
        if self.stopped {
            return;
        }
        if server != self.server {
            if agrees {
                self.elsewhere.push((server, connection));
            }
            return;
        }
        self.is_old_server = !agrees;
        self.warn_of_old_server();
        if !agrees {
            return;
        }
        if std::mem::take(&mut self.replace) {
            self.agreed.insert(0, connection);
        } else {
            self.agreed.push(connection);
        }
        if self.agreed.first() == Some(&connection) {
            self.ask_all(cx);
        }
    }

    fn warn_of_old_server(&mut self) {
        let is_needed = self.is_old_server && !self.forwards.is_empty();
        if is_needed && !std::mem::replace(&mut self.warned_of_old_server, true) {
            warn!(target: "quictun", "the server does not listen for clients: its version is older than reverse forwards (-R); upgrade the server, or take -R away");
        }
    }

    pub(crate) fn handle_network_change(&self) {
        self.dials.handle_network_change();
    }

    /// Handles a request to replace every connection.
    pub(crate) fn handle_reconnect(&mut self) {
        self.replace = !self.agreed.is_empty();
    }

    /// Handles a connection that has ended, or that does not answer while another one does.
    pub(crate) fn handle_lost(
        &mut self,
        cx: &mut ClientContext<'_>,
        connection: ConnectionId,
        ended: bool,
    ) {
        if ended {
            self.elsewhere.retain(|(_, other)| *other != connection);
        }
        let Some(index) = self.agreed.iter().position(|agreed| *agreed == connection) else {
            return;
        };
        if !ended && self.agreed.len() == 1 {
            // The connection that is being made takes its place.
            self.replace = true;
            return;
        }
        self.agreed.remove(index);
        if !ended {
            self.agreed.push(connection);
        }
        if self.agreed.is_empty() {
            for one in &mut self.forwards {
                one.state = State::Unasked;
            }
            self.show();
        } else if index == 0 {
            self.ask_all(cx);
        }
    }

    fn ask_all(&mut self, cx: &mut ClientContext<'_>) {
        for index in 0..self.forwards.len() {
            self.forwards[index].retry = None;
            self.ask(cx, index);
        }
    }

    fn ask(&mut self, cx: &mut ClientContext<'_>, index: usize) {
        let (Some(connection), Some(one)) = (self.agreed.first(), self.forwards.get(index)) else {
            return;
        };
        let listen = Listen {
            id: one.id,
            wait: one.waits,
            holder: self.holder,
            address: one.listen.to_string(),
        };
        // If the connection is gone, the event about its end follows.
        let _gone = cx.engine.listen(*connection, listen);
    }

    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        answer: &ListenAck,
    ) {
        if self.agreed.first() != Some(&connection) {
            return;
        }
        let mut forwards = self.forwards.iter_mut();
        let Some(one) = forwards.find(|one| one.id == answer.id) else {
            return;
        };
        let new = match &answer.result {
            Ok(bound) => State::Listening(bound.clone()),
            Err(code) => State::Refused(*code),
        };
        let news = one.state != new;
        one.state = new;
        one.retry = match &answer.result {
            Ok(_) => {
                one.waits = true;
                None
            }
            Err(code) => {
                one.waits |= *code == ListenCode::Taken;
                let wait = retry_delay(*code, one.retry.map(|(wait, _)| wait));
                wait.map(|wait| (wait, now + wait))
            }
        };
        if !news {
            one.log_repetition();
        } else if let Some(line) = self.lines.take(&Holder::Own, now) {
            one.log_news(line);
        }
        self.show();
    }

    fn show(&self) {
        let shown = self.forwards.iter().map(Entry::show);
        self.shown.set(shown.collect());
    }
}

/// Flows that the server opens to this client's targets.
impl ReverseForwarder {
    /// Handles a flow that the server has opened.
    pub(crate) fn handle_incoming(&mut self, cx: &mut ClientContext<'_>, taken: &IncomingFlow) {
        let flow = taken.flow;
        let mut forwards = self.forwards.iter();
        let Some(one) = forwards.find(|one| one.id == taken.incoming.id) else {
            // PROTOCOL REVERSE-9: a flow of an unknown listener is refused.
            cx.engine.handle_dialed(cx.now, flow, Err(FlowCode::NoFlow));
            return;
        };
        let target = one.target.clone();
        let text = target.to_string();
        cx.engine.name_target(flow, text.clone());
        let source = match taken.incoming.peer {
            IncomingPeer::Ip(address) => Some(address),
            IncomingPeer::Unix => cx.engine.remote(taken.connection),
        };
        let known = KnownIncoming {
            target: text,
            source,
        };
        self.incoming.insert(flow, known);
        if let Err(code) = self.dial(cx, flow, target) {
            cx.engine.handle_dialed(cx.now, flow, Err(code));
        }
    }

    /// Returns the text of the target of a flow that the server has opened.
    pub(super) fn target_of(&self, flow: FlowId) -> Option<&str> {
        Some(&self.incoming.get(&flow)?.target)
    }

    fn dial(
        &mut self,
        cx: &mut ClientContext<'_>,
        flow: FlowId,
        target: Target,
    ) -> Result<(), FlowCode> {
        let literal = target.ip_literal();
        let (host, port, family) = match &target {
            Target::Unix { path } => {
                let header = header(
                    &self.header_targets,
                    &self.incoming,
                    flow,
                    DialAddress::Unix(path),
                );
                let socket = dial_unix(path, None, header)?;
                let added = cx.poller.add_flow(socket.descriptor(), Key::Flow(flow));
                added.map_err(|_| FlowCode::Limit)?;
                let result = Ok((socket, target.to_string()));
                answer(cx, Some(DialResult { flow, result }));
                return Ok(());
            }
            Target::Tcp { family, host, port } => (host.clone(), *port, *family),
            Target::Udp { host, port } => (host.clone(), *port, Family::Any),
        };
        let holder = Holder::Own;
        if !self.dials.resolve(flow, &holder, cx.now + DIAL_TIMEOUT) {
            return Err(FlowCode::Limit);
        }
        if target.takes_datagrams() {
            self.dials.expect_datagrams(flow);
        }
        if let Some(ip) = literal {
            let address = dialled_as(SocketAddr::new(ip, port));
            let dialed = self
                .dials
                .handle_resolved(cx.now, cx.poller, flow, Ok(vec![address]));
            answer(cx, dialed);
            return Ok(());
        }
        let wanted = self.lookups.ask(flow, &holder, Peer::Anyone, target);
        let wanted = wanted.ok_or(FlowCode::Limit)?;
        let request = Request::ResolveTarget {
            flow,
            holder,
            wanted,
            host,
            port,
            family,
        };
        if self.control.send(request).is_err() {
            self.lookups.answered(flow);
            return Err(FlowCode::Limit);
        }
        Ok(())
    }

    pub(crate) fn handle_resolved(
        &mut self,
        cx: &mut ClientContext<'_>,
        flow: FlowId,
        result: Result<Vec<SocketAddr>, FlowCode>,
    ) {
        self.lookups.answered(flow);
        let dialed = self.dials.handle_resolved(cx.now, cx.poller, flow, result);
        answer(cx, dialed);
    }

    /// Returns the permission to log the end of a flow, or `None` if the line must be left out. Servers may open any number
    /// of flows, and applications any number that are refused or fail, so those count (PROTOCOL LOG-1). Flows of a server
    /// that the target has accepted have a budget of their own.
    pub(crate) fn line_about_end(&self, now: Instant, summary: &FlowSummary) -> Option<LinePermit> {
        // An application's flow has a token. Without one, it is a stream of the server whose request was not read.
        let by_server = summary.incoming || summary.token.is_empty();
        if summary.established && !by_server {
            return Some(LinePermit::default());
        }
        let app = summary.client_app.parse::<SocketAddr>().ok();
        let served = summary.established.then_some(summary.remote).flatten();
        let source = match (app.filter(|_| !by_server), served) {
            (Some(app), _) => Holder::at(app.ip()),
            (None, Some(server)) => Holder::at(server.ip()),
            (None, None) => Holder::Own,
        };
        self.lines.take(&source, now)
    }
}

impl WorkerPart for ReverseForwarder {
    type Role = Client;

    fn handle_ready(&mut self, cx: &mut ClientContext<'_>, ready: ReadyEvent) {
        let Key::Dial(dial) = ready.key else {
            return;
        };
        let header = |flow, address| {
            let dialled = DialAddress::Tcp(address);
            header(&self.header_targets, &self.incoming, flow, dialled)
        };
        let dialed = self.dials.handle_ready(cx.now, cx.poller, dial, header);
        answer(cx, dialed);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let retry = self.forwards.iter().filter_map(|one| Some(one.retry?.1));
        retry.chain(self.dials.next_timeout()).min()
    }

    fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        for index in 0..self.forwards.len() {
            let one = &mut self.forwards[index];
            if let Some((wait, at)) = one.retry
                && at <= cx.now
            {
                // The time-out in case no answer comes.
                one.retry = Some((wait, cx.now + RETRY_MAX));
                self.ask(cx, index);
            }
        }
        while let Some(dialed) = self.dials.handle_timeout(cx.now, cx.poller) {
            answer(cx, Some(dialed));
        }
    }

    /// Gives the listeners back, because the process takes no more flows. The server need not wait for its return.
    fn stop_accepting(&mut self, cx: &mut ClientContext<'_>) {
        let ids: Vec<ListenId> = self.forwards.iter().map(|one| one.id).collect();
        self.give_back(cx, &ids);
        self.agreed.clear();
        // A connection made while open flows finish asks for no listener.
        self.forwards.clear();
        self.stopped = true;
    }
}

impl FlowSource for ReverseForwarder {
    /// Handles the end of a flow, and cancels its dial (PROTOCOL OPEN-12).
    fn handle_closed(&mut self, _: &mut ClientContext<'_>, end: &FlowEnd<'_>) {
        let flow = end.summary.flow;
        self.dials.cancel(flow);
        self.lookups.forget(flow);
        self.incoming.remove(&flow);
    }
}

impl Entry {
    fn reverse(&self) -> Reverse {
        Reverse {
            listen: self.listen.clone(),
            target: self.target.clone(),
        }
    }

    fn log_news(&self, line: LinePermit) {
        let (listen, target) = (&self.listen, &self.target);
        let lines_left_out = line.left_out();
        match &self.state {
            State::Listening(bound) => {
                info!(target: "quictun", listen = %bound, %target, lines_left_out, "the server listens for this client");
            }
            State::Refused(code @ ListenCode::ShuttingDown) => {
                info!(target: "quictun", %listen, %target, reason = %code, lines_left_out, "the server no longer listens for this client");
            }
            State::Refused(code) => {
                let again_s = self.again_s();
                warn!(target: "quictun", %listen, %target, reason = %code, again_s, lines_left_out, "the server does not listen for this client");
            }
            State::Unasked => {}
        }
    }

    fn log_repetition(&self) {
        let (listen, target) = (&self.listen, &self.target);
        match &self.state {
            State::Listening(bound) => {
                debug!(target: "quictun", listen = %bound, %target, "the server still listens for this client");
            }
            State::Refused(code) => {
                let again_s = self.again_s();
                debug!(target: "quictun", %listen, %target, reason = %code, again_s, "the server still does not listen for this client");
            }
            State::Unasked => {}
        }
    }

    /// Returns the wait before the server is asked again, in seconds.
    fn again_s(&self) -> Option<u64> {
        Some(self.retry?.0.as_secs())
    }

    fn show(&self) -> ReverseForward {
        ReverseForward {
            listen: self.listen.to_string(),
            target: self.target.to_string(),
            bound: match &self.state {
                State::Listening(bound) => Some(bound.to_string()),
                State::Unasked | State::Refused(_) => None,
            },
            refused: match &self.state {
                State::Refused(code) => Some(code.label()),
                State::Unasked | State::Listening(_) => None,
            },
        }
    }
}

/// Returns the header for the target of a flow, or `None` if the target gets none (PROTOCOL HEADER-4).
fn header(
    header_targets: &HeaderTargets,
    incoming: &HashMap<FlowId, KnownIncoming>,
    flow: FlowId,
    dialled: DialAddress<'_>,
) -> Option<Vec<u8>> {
    if !header_targets.names(dialled) {
        return None;
    }
    let source = incoming.get(&flow).and_then(|known| known.source);
    Some(proxy_header::encode(source, dialled.address()))
}

/// Returns the wait before asking again after a refusal, or `None` if only the next connection asks again.
fn retry_delay(code: ListenCode, before: Option<Duration>) -> Option<Duration> {
    match code {
        ListenCode::Taken | ListenCode::InUse | ListenCode::Failed => {
            let next = before.map_or(RETRY_FIRST, |before| before * 2);
            Some(next.min(RETRY_MAX))
        }
        _ => None,
    }
}

fn answer(cx: &mut ClientContext<'_>, dialed: Option<DialResult>) {
    let Some(DialResult { flow, result }) = dialed else {
        return;
    };
    if let Err(code) = &result {
        debug!(target: "quictun", flow = flow.0, reason = %code, "the target of a reverse forward cannot be reached");
    }
    cx.engine.handle_dialed(cx.now, flow, result);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_counter::count_lines;

    fn forwarder(address: SocketAddr) -> ReverseForwarder {
        let target = "tcp:127.0.0.1:80".parse().expect("a target");
        let listen = ListenAddress::Tcp(address);
        let forwards = vec![Reverse { listen, target }];
        let (sender, _requests) = tokio::sync::mpsc::channel(1);
        let control = (Requester::new(0, sender), true);
        let header_targets = HeaderTargets::default();
        let outputs = (ReverseForwards::default(), LineBudget::default());
        let forwards = (forwards, header_targets);
        ReverseForwarder::new(control, forwards, [0; HOLDER_LEN], outputs)
    }

    // PROTOCOL LOG-1.
    #[test]
    fn a_server_that_opens_flows_without_end_causes_few_lines() {
        let reverse = forwarder(([127, 0, 0, 1], 8080).into());
        let now = Instant::now();
        let of_server = FlowSummary {
            flow: FlowId(1),
            connection: Some(ConnectionId(1)),
            stream_id: Some(1),
            remote: None,
            token: String::new(),
            client_app: String::new(),
            server_app: String::new(),
            ending: FlowCode::BadOpen.into(),
            established: false,
            incoming: false,
            bytes_to_tunnel: 0,
            bytes_to_app: 0,
            elapsed: Duration::ZERO,
        };
        let lines = |summary: &FlowSummary| {
            let permits = (0..1000).filter(|_| reverse.line_about_end(now, summary).is_some());
            permits.count()
        };
        let refused = FlowSummary {
            incoming: true,
            token: "reverse".to_owned(),
            ..of_server.clone()
        };
        assert_eq!(lines(&of_server) + lines(&refused), 100);
        let of_application = FlowSummary {
            token: "tcp:192.0.2.1:1".to_owned(),
            client_app: "127.0.0.1:4711".to_owned(),
            ..of_server.clone()
        };
        assert_eq!(lines(&of_application), 100);
        let served = FlowSummary {
            established: true,
            remote: Some(([192, 0, 2, 1], 7500).into()),
            ..refused
        };
        assert_eq!(
            lines(&served),
            100,
            "they do not lack lines of refused ones"
        );
        let by_application = FlowSummary {
            incoming: false,
            ..served
        };
        assert_eq!(lines(&by_application), 1000);
    }

    #[test]
    fn a_server_that_answers_otherwise_each_time_causes_few_lines() {
        let address: SocketAddr = ([127, 0, 0, 1], 8080).into();
        let mut reverse = forwarder(address);
        let connection = ConnectionId(1);
        reverse.agreed.push(connection);
        let now = Instant::now();
        let results = [Ok(ListenAddress::Tcp(address)), Err(ListenCode::NotAllowed)];
        let lines = count_lines(|| {
            for result in results.iter().cycle().take(10_000) {
                let result = result.clone();
                reverse.handle_answer(now, connection, &ListenAck { id: 0, result });
            }
        });
        assert_eq!(lines, 100);
    }

    // PROTOCOL REVERSE-8.
    #[test]
    fn a_taken_listener_is_requested_ever_more_rarely_and_a_forbidden_one_never_again() {
        let mut waits = Vec::new();
        let mut before = None;
        for _ in 0..8 {
            before = retry_delay(ListenCode::Taken, before);
            waits.push(before.expect("it asks again").as_secs());
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        for code in [
            ListenCode::NotAllowed,
            ListenCode::BadAddress,
            ListenCode::TooMany,
        ] {
            assert_eq!(retry_delay(code, None), None);
        }
    }
}
