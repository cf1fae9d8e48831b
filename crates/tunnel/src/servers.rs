//! The servers of a client, shared by all its workers: the causes that keep it from each, and the server that new flows
//! go to.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quictun_control::rest::{ServerName, ServerNames};
use quictun_engine::ServerPlace;
use quictun_engine::report::ServerId;

use crate::bond_notice::BondNotice;
use crate::carrier_notice::CarrierNotice;
use crate::outage_log::OutageLog;
use crate::refusal::RefusalFlag;
use crate::settings::SERVERS_MAX;

/// All servers, in the order given. A service has several places here; its records put a server into each of them or
/// leave it empty.
#[derive(Debug)]
pub(crate) struct Servers {
    each: Vec<ServerStatus>,
    names: ServerNames,
    logged: Mutex<LoggedState>,
}

/// One server of the list, or one place of a service.
#[derive(Debug)]
pub(crate) struct ServerStatus {
    pub(crate) outages: OutageLog,
    pub(crate) refused: RefusalFlag,
    pub(crate) bond_notice: BondNotice,
    pub(crate) carriers: CarrierNotice,
    place: Mutex<ServerPlace>,
}

#[derive(Debug, Default)]
struct LoggedState {
    chosen: Option<ServerId>,
    all_failed: bool,
}

impl Servers {
    /// Creates the list, with room for servers that a reload adds. `bonds` says whether flows may outlive their
    /// connections.
    pub(crate) fn new(places: &[ServerPlace], names: ServerNames, bonds: bool) -> Self {
        let unused = ServerPlace {
            wanted: false,
            ..ServerPlace::default()
        };
        let room = SERVERS_MAX.saturating_sub(places.len());
        let places = places
            .iter()
            .copied()
            .chain(std::iter::repeat_n(unused, room));
        names.reserve(SERVERS_MAX);
        let status = |place: ServerPlace| ServerStatus {
            outages: OutageLog::default(),
            refused: RefusalFlag::default(),
            bond_notice: BondNotice::new(bonds),
            carriers: CarrierNotice::default(),
            place: Mutex::new(place),
        };
        Self {
            each: places.map(status).collect(),
            names,
            logged: Mutex::default(),
        }
    }

    /// Has changes of the carrier logged, because the client chooses it.
    pub(crate) fn choosing_carriers(mut self, chooses: bool) -> Self {
        for status in &mut self.each {
            status.carriers.chooses = chooses;
        }
        self
    }

    /// Returns the status of a server, or `None` if the number is unknown.
    pub(crate) fn get(&self, server: ServerId) -> Option<&ServerStatus> {
        self.each.get(server.0)
    }

    pub(crate) fn name(&self, server: ServerId) -> String {
        let name = self.names.get(server.0);
        name.map_or_else(String::new, |name| name.name)
    }

    /// Returns all names, for a log line.
    pub(crate) fn shown(&self) -> String {
        let names = self.named().into_iter();
        names.map(|(_, name)| name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the place of a server as the engines need it.
    pub(crate) fn place(&self, server: ServerId) -> Option<ServerPlace> {
        let place = self.get(server)?.place.lock();
        Some(*place.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the servers to which the client may connect for new flows, with their names.
    fn named(&self) -> Vec<(usize, String)> {
        let names = self.names.all().into_iter();
        let current = names.filter(|(_, it)| it.is_current());
        current.map(|(server, it)| (server, it.name)).collect()
    }

    /// Sets the server in a place. `name` is `None` if the place is empty.
    pub(crate) fn set_place(&self, server: ServerId, place: ServerPlace, name: Option<ServerName>) {
        let Some(status) = self.get(server) else {
            return;
        };
        self.names.set(server.0, name);
        let mut known = status.place.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, place);
        drop(known);
        if before.tenant != place.tenant || before.rank.is_none() != place.rank.is_none() {
            // The failures of the previous server do not apply to the new one.
            status.outages.forget();
            status.refused.clear();
        }
    }

    /// Returns whether every server in this range has failed and none has answered since. Empty places and servers that
    /// were withdrawn are ignored.
    pub(crate) fn all_fail(&self, servers: Range<usize>) -> bool {
        let named = self.named().into_iter().map(|(server, _)| server);
        let there = named.filter(|server| servers.contains(server));
        let fails = |server| {
            let status = self.get(ServerId(server));
            status.is_some_and(|it| it.outages.cause().is_some() || it.refused.is_set())
        };
        let each: Vec<bool> = there.map(fails).collect();
        !each.is_empty() && each.into_iter().all(|fails| fails)
    }

    /// Notes that a worker's new flows go to this server. Returns whether the choice has changed: each worker chooses
    /// for itself, but as a rule all choose the same.
    pub(crate) fn is_new_choice(&self, server: ServerId) -> bool {
        self.logged().chosen.replace(server) != Some(server)
    }

    /// Notes that an attempt to reach a server has failed or has had no answer for long. If all of several servers
    /// fail, returns the causes, once until a server answers.
    pub(crate) fn all_failed(&self) -> Option<String> {
        let names = self.named();
        if names.len() < 2 {
            return None;
        }
        let mut tried = String::new();
        for (server, name) in names {
            let cause = self.get(ServerId(server))?.outages.cause()?;
            let separator = if tried.is_empty() { "" } else { "; " };
            write!(tried, "{separator}{name}: {cause}")
                .expect("invariant: a String takes whatever is written to it");
        }
        let logged = std::mem::replace(&mut self.logged().all_failed, true);
        (!logged).then_some(tried)
    }

    /// Notes that a server has accepted this client, or answers it again.
    pub(crate) fn handle_answer(&self) {
        self.logged().all_failed = false;
    }

    fn logged(&self) -> MutexGuard<'_, LoggedState> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::outage_log::Origin;

    fn servers(names: &[&str]) -> Servers {
        let places = vec![ServerPlace::default(); names.len()];
        Servers::new(&places, names.iter().copied().collect(), true)
    }

    #[test]
    fn the_failure_of_all_servers_is_reported_once_with_every_cause() {
        let (servers, now) = (servers(&["a:1", "b:2"]), Instant::now());
        let fail = |server: usize, cause: &str| {
            let status = servers.get(ServerId(server)).expect("a server");
            status.outages.failed(now, cause, Origin::Path);
            servers.all_failed()
        };
        assert_eq!(fail(0, "no answer"), None, "the other may answer");
        let all = fail(1, "no such name");
        assert_eq!(all.as_deref(), Some("a:1: no answer; b:2: no such name"));
        assert_eq!(fail(0, "no answer"), None, "only once");
        let first = servers.get(ServerId(0)).expect("a server");
        first.outages.connected(now);
        servers.handle_answer();
        assert_eq!(fail(1, "no such name"), None, "one server answers");
        assert!(fail(0, "refused").is_some(), "that server fails again");
    }

    #[test]
    fn the_failure_of_an_only_server_is_not_reported_as_that_of_all() {
        let (servers, now) = (servers(&["a:1"]), Instant::now());
        let only = servers.get(ServerId(0)).expect("a server");
        only.outages.failed(now, "no answer", Origin::Path);
        assert_eq!(servers.all_failed(), None);
    }

    #[test]
    fn a_switch_of_servers_is_reported_once_for_all_workers() {
        let servers = servers(&["a:1", "b:2"]);
        let logged = [0, 0, 1, 1, 0].map(|server| servers.is_new_choice(ServerId(server)));
        assert_eq!(logged, [true, false, true, false, true]);
    }

    #[test]
    fn an_empty_place_is_neither_reported_nor_waited_for() {
        let servers = servers(&["a:1", "b:2", "c:3"]);
        let now = Instant::now();
        servers.set_place(ServerId(1), ServerPlace::default(), None);
        assert_eq!(servers.shown(), "a:1, c:3");
        let left = ServerName {
            name: "b:2".to_owned(),
            withdrawn_from: Some("srv:example".to_owned()),
            ..ServerName::default()
        };
        servers.set_place(ServerId(1), ServerPlace::default(), Some(left));
        assert_eq!(servers.shown(), "a:1, c:3", "it gets no new flows");
        assert_eq!(servers.name(ServerId(1)), "b:2");
        assert!(!servers.all_fail(0..3));
        for server in [0, 2] {
            let status = servers.get(ServerId(server)).expect("a server");
            status.outages.failed(now, "no answer", Origin::Path);
        }
        // A server that refuses the client does not serve it, either.
        let refusing = self::servers(&["e:5"]);
        let status = refusing.get(ServerId(0)).expect("a server");
        status.refused.set();
        assert!(refusing.all_fail(0..1));
        assert!(servers.all_fail(0..3) && servers.all_fail(2..3));
        assert!(!servers.all_fail(1..2), "the place is empty");
        let all = servers.all_failed();
        assert_eq!(all.as_deref(), Some("a:1: no answer; c:3: no answer"));
        // Another server takes the place of one that failed.
        let next = ServerPlace {
            tenant: 1,
            ..ServerPlace::default()
        };
        let name = ServerName {
            name: "d:4".to_owned(),
            ..ServerName::default()
        };
        servers.set_place(ServerId(0), next, Some(name));
        assert_eq!(
            (
                servers.name(ServerId(0)).as_str(),
                servers.place(ServerId(0))
            ),
            ("d:4", Some(next))
        );
        assert!(!servers.all_fail(0..3));
    }
}
