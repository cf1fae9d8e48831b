//! Queries from programs behind a TUN device to name servers. Each is carried over its own flow, as DNS over TCP (RFC
//! 7766), to the one name server that was chosen.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quictun_engine::{FlowId, FlowRequest};
use quictun_netstack::Datagram;
use quictun_wire::dns::Query;
use quictun_wire::target::Target;
use tracing::{debug, warn};

use crate::app_socket::AppSocket;
use crate::query_socket::{QuerySocket, Replies};
use crate::rate_limited_warning::RateLimitedWarning;
use crate::role::ClientContext;
use quictun_stackd::tun_device::PORT;

/// Limit of queries under way. The number is arbitrary; it bounds the resources of a program that asks in a loop.
const QUERIES_MAX: usize = 256;

/// Time limit of an answer: programs ask again after 5 s, and once more after that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DnsQueries {
    resolver: SocketAddr,
    target: String,
    open: BTreeMap<FlowId, u64>,
    flows: BTreeMap<u64, FlowId>,
    asked: u64,
    /// The deadlines, in the order in which the queries were asked, which is the order of the deadlines.
    deadlines: VecDeque<(Instant, FlowId)>,
    replies: Replies,
    overflow: RateLimitedWarning,
}

impl DnsQueries {
    pub(crate) fn new(resolver: IpAddr) -> io::Result<Self> {
        let resolver = SocketAddr::new(resolver, PORT);
        let target = Target::parse(&format!("tcp:{resolver}")).map_err(io::Error::other)?;
        Ok(Self {
            resolver,
            target: target.to_string(),
            open: BTreeMap::new(),
            flows: BTreeMap::new(),
            asked: 0,
            deadlines: VecDeque::new(),
            replies: Replies::default(),
            overflow: RateLimitedWarning::default(),
        })
    }

    pub(crate) fn resolver(&self) -> SocketAddr {
        self.resolver
    }

    /// Opens a flow for a program's query. A datagram that is not a query is dropped.
    pub(crate) fn ask(&mut self, cx: &mut ClientContext<'_>, asked: Datagram) {
        let query = match Query::parse(&asked.payload) {
            Ok(query) => query,
            Err(cause) => {
                debug!(target: "quictun", client = %asked.client, %cause, "a datagram to a name server was dropped");
                return;
            }
        };
        let client = asked.client.to_string();
        self.asked += 1;
        let number = self.asked;
        let socket = QuerySocket::new(number, asked, query, self.replies.clone());
        if self.open.len() >= QUERIES_MAX {
            // Dropping the socket fails the query.
            return self.warn_of_overflow(cx.now);
        }
        let socket = AppSocket::Query(Box::new(socket));
        let request = FlowRequest {
            token: self.target.clone(),
            client_app: client,
            source: None,
        };
        if let Some(flow) = cx.engine.open_flow(cx.now, socket, request) {
            self.open.insert(flow, number);
            self.flows.insert(number, flow);
            self.deadlines.push_back((cx.now + ANSWER_TIMEOUT, flow));
        }
    }

    fn warn_of_overflow(&mut self, now: Instant) {
        if let Some(queries) = self.overflow.count(now) {
            warn!(target: "quictun", queries, "too many DNS queries wait for the name server: they failed");
        }
    }

    pub(crate) fn handle_established(&self, cx: &mut ClientContext<'_>, flow: FlowId) {
        if self.open.contains_key(&flow) {
            cx.engine.handle_socket(cx.now, flow, true, true, false);
        }
    }

    pub(crate) fn handle_closed(&mut self, flow: FlowId) {
        if let Some(number) = self.open.remove(&flow) {
            self.flows.remove(&number);
        }
        while let Some((_, first)) = self.deadlines.front()
            && !self.open.contains_key(first)
        {
            self.deadlines.pop_front();
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    /// Abandons queries that have waited for too long. Their programs get an error as the flows end.
    pub(crate) fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        while let Some((at, flow)) = self.deadlines.front().copied()
            && at <= cx.now
        {
            self.deadlines.pop_front();
            if self.open.contains_key(&flow) {
                cx.fail(flow);
            }
        }
    }

    pub(crate) fn is_open(&self, flow: FlowId) -> bool {
        self.open.contains_key(&flow)
    }

    /// Abandons all queries. Their programs get an error as the flows end.
    pub(crate) fn give_up(&self, cx: &mut ClientContext<'_>) {
        for flow in self.open.keys() {
            cx.fail(*flow);
        }
    }

    /// Returns the next reply to a program. Its flow may have work to do afterwards.
    pub(crate) fn poll_reply(&mut self, cx: &mut ClientContext<'_>) -> Option<Datagram> {
        let reply = self.replies.borrow_mut().pop_front()?;
        if let Some(flow) = self.flows.get(&reply.number) {
            cx.engine.handle_socket(cx.now, *flow, true, false, false);
        }
        Some(reply.datagram)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::line_counter::count_lines;

    // A program that asks in a loop must not fill the log.
    #[test]
    fn queries_beyond_the_limit_cause_one_line_in_ten_seconds() {
        let mut queries = DnsQueries::new(Ipv4Addr::LOCALHOST.into()).expect("a name server");
        let begin = Instant::now();
        let lines = count_lines(|| {
            for ms in 0..20_000 {
                queries.warn_of_overflow(begin + Duration::from_millis(ms));
            }
        });
        assert_eq!(lines, 2);
    }
}
