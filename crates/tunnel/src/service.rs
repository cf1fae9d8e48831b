//! Servers by SRV records (RFC 2782): each service has places among the client's servers, and its records fill them.
//!
//! The records are looked up when the client starts, again when their time to live is over, and sooner when all servers
//! that they name fail. Records once found stay in use until other records are found, so neither an outage of the DNS
//! nor a mistake in a zone cuts a working tunnel.

mod name_servers;
mod order;
pub(crate) mod places;
mod query;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quictun_control::rest::{ServerName, ServerRecord};
use quictun_engine::report::ServerId;
use quictun_wire::srv::{ServiceName, SrvRecord, add_tls_ports};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::lookup_threads;
use crate::mailbox::{ClientMessage, Mailbox};
use crate::network_watch::ChangeNotifier;
use crate::servers::Servers;
use crate::settings::{Address, HostPort};
use name_servers::NameServers;
use places::ServicePlaces;
use query::FoundRecords;

/// Bounds of the records' time to live, whatever they say. The lower one spares the name server; by the upper one the
/// client finds a server that has moved within an hour.
const TTL_MIN: Duration = Duration::from_secs(30);
const TTL_MAX: Duration = Duration::from_hours(1);

/// Minimum time between two look-ups, and the time for which a failed look-up is not repeated.
const PAUSE: Duration = Duration::from_secs(5);

/// Time limit of the look-up of the records over TCP, so that it hardly delays the use of those over UDP.
const OVER_TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of the first look-up: that of three silent name servers, asked twice.
const FIRST_TIMEOUT: Duration = Duration::from_secs(15);

/// All services of a client. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct Services(Vec<Arc<Service>>);

/// One service, its places and its look-ups.
struct Service {
    name: ServiceName,
    first: ServerId,
    count: usize,
    servers: Arc<Servers>,
    state: Mutex<State>,
    /// Counts the requests for a look-up; `ended` counts the look-ups that have ended.
    lookup_requests: watch::Sender<u64>,
    ended: watch::Sender<u64>,
}

struct State {
    places: ServicePlaces,
    /// The latest records of the service over TCP.
    over_tcp: Vec<SrvRecord>,
    /// The time and the cause of the latest failed look-up.
    failure: Option<(Instant, String)>,
}

impl Services {
    /// Creates the services among the addresses dialled, in which each service occurs once for each of its places.
    pub(crate) fn new(dialled: &[Address], servers: &Arc<Servers>) -> Self {
        let mut services: Vec<Arc<Service>> = Vec::new();
        for (index, address) in dialled.iter().enumerate() {
            let Address::Service(name) = address else {
                continue;
            };
            if index == 0 || dialled[index - 1] != *address {
                let count = dialled.iter().filter(|other| *other == address).count();
                let service = Service::new(name.clone(), ServerId(index), count, servers.clone());
                services.push(Arc::new(service));
            }
        }
        Self(services)
    }

    /// Returns the host and port in a place. Waits for the first look-up of its service.
    pub(crate) async fn target(&self, server: ServerId) -> Result<HostPort, String> {
        let found = self.0.iter().find(|service| service.has(server));
        match found {
            Some(service) => service.target(server).await,
            None => Err("no service has this place".to_owned()),
        }
    }

    /// Returns the service and the server in a place, as another process reads them.
    pub(crate) fn pass_on(&self, server: ServerId) -> Option<String> {
        let service = self.0.iter().find(|service| service.has(server))?;
        let target = service.state().places.target(server)?;
        Some(format!("{} {target}", service.name))
    }

    /// Returns the place of the service and the server that another process has named. The server gets a place before the
    /// records are known.
    pub(crate) fn take_over(&self, name: &str, now: Instant) -> Option<ServerId> {
        let (name, target) = name.split_once(' ')?;
        let service = self
            .0
            .iter()
            .find(|service| service.name.to_string() == name)?;
        let (host, port) = target.rsplit_once(':')?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = port.parse().ok()?;
        service.state().places.reserve(now, HostPort { host, port })
    }

    /// Looks the records up again and again, and notifies the workers of changes. Returns only if there is no service.
    pub(crate) async fn keep(&self, mailboxes: Vec<Mailbox>) {
        let notifier = Arc::new(Mutex::new(ChangeNotifier::new(mailboxes)));
        let mut tasks = JoinSet::new();
        for service in &self.0 {
            tasks.spawn(service.clone().keep(notifier.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }
}

impl Service {
    fn new(name: ServiceName, first: ServerId, count: usize, servers: Arc<Servers>) -> Self {
        Self {
            name,
            first,
            count,
            servers,
            state: Mutex::new(State {
                places: ServicePlaces::new(first, count),
                over_tcp: Vec::new(),
                failure: None,
            }),
            lookup_requests: watch::Sender::new(0),
            ended: watch::Sender::new(0),
        }
    }

    fn has(&self, server: ServerId) -> bool {
        (self.first.0..self.first.0 + self.count).contains(&server.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn target(&self, server: ServerId) -> Result<HostPort, String> {
        let mut ended = self.ended.subscribe();
        let known = self.known_target(server, Instant::now());
        if let Some(target) = known {
            return target;
        }
        self.lookup_requests.send_modify(|count| *count += 1);
        // A time-out is not an error here: the state below then says that the look-up is still under way. The sender
        // lives as long as `self`, so no other failure is possible.
        timeout(FIRST_TIMEOUT, ended.changed()).await.ok();
        let state = self.state();
        let failure = || match &state.failure {
            Some((_, why)) => why.clone(),
            None => format!("the records of {} are still being looked up", self.name),
        };
        state.places.target(server).ok_or_else(failure)
    }

    /// Returns the server of a place, or the latest failure, if either is known without waiting.
    fn known_target(&self, server: ServerId, now: Instant) -> Option<Result<HostPort, String>> {
        let state = self.state();
        if let Some(target) = state.places.target(server) {
            drop(state);
            if self
                .servers
                .all_fail(self.first.0..self.first.0 + self.count)
            {
                self.lookup_requests.send_modify(|count| *count += 1);
            }
            return Some(Ok(target));
        }
        let recent = |(at, _): &&(Instant, String)| now < *at + PAUSE;
        let failure = state.failure.as_ref().filter(recent);
        failure.map(|(_, why)| Err(why.clone()))
    }

    async fn keep(self: Arc<Self>, notifier: Arc<Mutex<ChangeNotifier>>) {
        let mut lookup_requests = self.lookup_requests.subscribe();
        let mut servers = NameServers::default();
        loop {
            let found = lookup_threads::run(name_servers::of_system).await;
            let before = std::mem::replace(&mut servers, found.unwrap_or_default());
            servers.log_unusable(&before);
            let (outcome, over_tcp) = self.look_up(&servers.each).await;
            if let Some(over_tcp) = over_tcp {
                self.state().over_tcp = over_tcp;
            }
            let pause = self.apply(Instant::now(), outcome, &mut draw, &notifier);
            self.ended.send_modify(|count| *count += 1);
            lookup_requests.mark_unchanged();
            let wished = async {
                sleep(PAUSE).await;
                lookup_requests.changed().await
            };
            tokio::select! {
                () = sleep(pause) => {}
                wished = wished => if wished.is_err() { return },
            }
        }
    }

    /// Looks up the records of the service over UDP, and over TCP. Of the latter, returns `None` if no name server
    /// answers, and an empty list if there are none.
    async fn look_up(
        &self,
        servers: &[SocketAddr],
    ) -> (Result<FoundRecords, String>, Option<Vec<SrvRecord>>) {
        let name_over_tcp = self.name.over_tcp();
        let over_udp = query::query(&self.name, servers, number);
        let over_tcp = query::query(&name_over_tcp, servers, number);
        // Without the TCP ports, the servers can be used by QUIC.
        let over_tcp = timeout(OVER_TCP_TIMEOUT, over_tcp);
        let (over_udp, over_tcp) = tokio::join!(over_udp, over_tcp);
        let over_tcp = match over_tcp {
            Ok(Ok((records, _))) => Some(records),
            Ok(Err(error)) if error.is_absence() => Some(Vec::new()),
            Ok(Err(_)) | Err(_) => None,
        };
        (over_udp.map_err(|error| error.to_string()), over_tcp)
    }

    /// Applies the result of a look-up. Returns the time until the next one.
    fn apply(
        &self,
        now: Instant,
        outcome: Result<FoundRecords, String>,
        draw: &mut dyn FnMut(u32) -> u32,
        notifier: &Mutex<ChangeNotifier>,
    ) -> Duration {
        let mut state = self.state();
        let (mut records, ttl_s) = match outcome {
            Ok(found) => found,
            Err(why) => {
                let is_new_failure = state.failure.replace((now, why.clone())).is_none();
                // If no records are known, the first place of the service fails, which is logged as for any server.
                if is_new_failure && state.places.is_known() {
                    warn!(target: "quictun", service = %self.name, reason = why, "the records of a service cannot be looked up: its servers stay as they are");
                }
                return TTL_MIN;
            }
        };
        state.failure = None;
        add_tls_ports(&mut records, &state.over_tcp);
        let ttl = Duration::from_secs(ttl_s.into()).clamp(TTL_MIN, TTL_MAX);
        if !state.places.update(now, records, draw) {
            return ttl;
        }
        let mut lines = Vec::new();
        for held in state.places.contents() {
            let named = held.record.as_ref().map(|record| self.name_of(record));
            let left = || Some(self.name_of_withdrawn(&state.places.target(held.server)?));
            let name = named.or_else(left);
            lines.extend(held.record.map(|record| (record.priority, shown(&record))));
            self.servers.set_place(held.server, held.place, name);
        }
        drop(state);
        lines.sort();
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
        // The names of hosts are safe to log: the parser has checked each byte.
        let servers = lines.join(", ");
        info!(target: "quictun", service = %self.name, servers, ttl_s = ttl.as_secs(), "the records of a service name these servers");
        let mut notifier = notifier.lock().unwrap_or_else(PoisonError::into_inner);
        notifier.notify(ClientMessage::PlacesChanged);
        ttl
    }

    fn name_of(&self, record: &SrvRecord) -> ServerName {
        ServerName {
            name: format!("{}:{}", record.target, record.port),
            record: Some(ServerRecord {
                service: self.name.to_string(),
                priority: record.priority,
                weight: record.weight,
            }),
            withdrawn_from: None,
            removed: false,
            tls_address: record
                .tls_port
                .map(|port| format!("{}:{port}", record.target)),
        }
    }

    fn name_of_withdrawn(&self, server: &HostPort) -> ServerName {
        ServerName {
            name: server.to_string(),
            record: None,
            withdrawn_from: Some(self.name.to_string()),
            removed: false,
            tls_address: None,
        }
    }
}

/// Formats one record for a log line.
fn shown(record: &SrvRecord) -> String {
    let SrvRecord {
        priority,
        weight,
        port,
        target,
        tls_port,
    } = record;
    let tls = tls_port.map(|port| format!(", TCP port {port}"));
    let tls = tls.unwrap_or_default();
    format!("{target}:{port} (priority {priority}, weight {weight}{tls})")
}

/// Returns a random number from 0 to `most`. If the system provides none, it returns 0, which still draws a server.
fn draw(most: u32) -> u32 {
    let Some(numbers) = numbers() else {
        return 0;
    };
    let drawn = u64::from_le_bytes(numbers) % (u64::from(most) + 1);
    u32::try_from(drawn).unwrap_or_default()
}

/// Returns the number of a query. Without random numbers, a forger has to guess only the name server's address and
/// the local port.
fn number() -> u16 {
    let [one, other, ..] = numbers().unwrap_or_default();
    u16::from_le_bytes([one, other])
}

fn numbers() -> Option<[u8; 8]> {
    quictun_sys::random().ok()?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
