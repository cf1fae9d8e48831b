//! The servers of a client, shared by all its workers: the causes that keep it from each, and the server that new flows
//! go to.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quictun_control::rest::{ServerName, ServerNames};
use quictun_engine::ServerPlace;
use quictun_engine::report::ServerId;

use crate::bonds::Bonds;
use crate::refusal::Refused;
use crate::trouble::Trouble;

/// All servers, in the order given. A service has several places here; its records put a server into each of them or
/// leave it empty.
#[derive(Debug)]
pub(crate) struct Servers {
    each: Vec<Standing>,
    names: ServerNames,
    told: Mutex<Told>,
}

/// One server of the list, or one place of a service.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) trouble: Trouble,
    pub(crate) refused: Refused,
    pub(crate) bonds: Bonds,
    place: Mutex<ServerPlace>,
}

#[derive(Debug, Default)]
struct Told {
    chosen: Option<ServerId>,
    none_left: bool,
}

impl Servers {
    /// Creates the list. `bonds` says whether flows may outlive their connections.
    pub(crate) fn new(places: &[ServerPlace], names: ServerNames, bonds: bool) -> Self {
        let standing = |place: &ServerPlace| Standing {
            trouble: Trouble::default(),
            refused: Refused::default(),
            bonds: Bonds::new(bonds),
            place: Mutex::new(*place),
        };
        Self {
            each: places.iter().map(standing).collect(),
            names,
            told: Mutex::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.each.len()
    }

    /// Returns the standing of a server, or `None` if the number is unknown.
    pub(crate) fn get(&self, server: ServerId) -> Option<&Standing> {
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
        let current = names.filter(|(_, it)| it.withdrawn_from.is_none());
        current.map(|(server, it)| (server, it.name)).collect()
    }

    /// Sets the server in a place. `name` is `None` if the place is empty.
    pub(crate) fn set_place(&self, server: ServerId, place: ServerPlace, name: Option<ServerName>) {
        let Some(standing) = self.get(server) else {
            return;
        };
        self.names.set(server.0, name);
        let mut known = standing
            .place
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, place);
        drop(known);
        if before.tenant != place.tenant || before.rank.is_none() != place.rank.is_none() {
            // The failures of the previous server do not apply to the new one.
            standing.trouble.forget();
            standing.refused.clear();
        }
    }

    /// Returns whether every server in this range has failed and none has answered since. Empty places and servers that
    /// were withdrawn are ignored.
    pub(crate) fn all_fail(&self, servers: Range<usize>) -> bool {
        let named = self.named().into_iter().map(|(server, _)| server);
        let there = named.filter(|server| servers.contains(server));
        let fails = |server| {
            let standing = self.get(ServerId(server));
            standing.is_some_and(|it| it.trouble.cause().is_some() || it.refused.is_set())
        };
        let each: Vec<bool> = there.map(fails).collect();
        !each.is_empty() && each.into_iter().all(|fails| fails)
    }

    /// Notes that a worker's new flows go to this server. Returns whether the choice has changed: each worker chooses
    /// for itself, but as a rule all choose the same.
    pub(crate) fn is_news(&self, server: ServerId) -> bool {
        self.told().chosen.replace(server) != Some(server)
    }

    /// Notes that an attempt to reach a server has failed or has had no answer for long. If all of several servers
    /// fail, returns the causes, once until a server answers.
    pub(crate) fn none_left(&self) -> Option<String> {
        let names = self.named();
        if names.len() < 2 {
            return None;
        }
        let mut tried = String::new();
        for (server, name) in names {
            let cause = self.get(ServerId(server))?.trouble.cause()?;
            let separator = if tried.is_empty() { "" } else { "; " };
            write!(tried, "{separator}{name}: {cause}")
                .expect("invariant: a String takes whatever is written to it");
        }
        let told = std::mem::replace(&mut self.told().none_left, true);
        (!told).then_some(tried)
    }

    /// Notes that a server has accepted this client.
    pub(crate) fn one_answers(&self) {
        self.told().none_left = false;
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn servers(names: &[&str]) -> Servers {
        let places = vec![ServerPlace::default(); names.len()];
        Servers::new(&places, names.iter().copied().collect(), true)
    }

    #[test]
    fn that_none_is_left_is_told_once_with_all_that_was_tried() {
        let (servers, now) = (servers(&["a:1", "b:2"]), Instant::now());
        let fail = |server: usize, cause: &str| {
            let standing = servers.get(ServerId(server)).expect("a server");
            standing.trouble.failed(now, cause);
            servers.none_left()
        };
        assert_eq!(fail(0, "no answer"), None, "the other may answer");
        let all = fail(1, "no such name");
        assert_eq!(all.as_deref(), Some("a:1: no answer; b:2: no such name"));
        assert_eq!(fail(0, "no answer"), None, "only once");
        let first = servers.get(ServerId(0)).expect("a server");
        first.trouble.connected(now);
        servers.one_answers();
        assert_eq!(fail(1, "no such name"), None, "one server answers");
        assert!(fail(0, "refused").is_some(), "that server fails again");
    }

    #[test]
    fn a_client_of_one_server_has_its_own_words_for_that() {
        let (servers, now) = (servers(&["a:1"]), Instant::now());
        let only = servers.get(ServerId(0)).expect("a server");
        only.trouble.failed(now, "no answer");
        assert_eq!(servers.none_left(), None);
    }

    #[test]
    fn a_switch_is_told_once_whichever_worker_is_the_first() {
        let servers = servers(&["a:1", "b:2"]);
        let told = [0, 0, 1, 1, 0].map(|server| servers.is_news(ServerId(server)));
        assert_eq!(told, [true, false, true, false, true]);
    }

    #[test]
    fn a_place_without_a_server_is_neither_told_of_nor_waited_for() {
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
            let standing = servers.get(ServerId(server)).expect("a server");
            standing.trouble.failed(now, "no answer");
        }
        // A server that refuses the client does not serve it, either.
        let refusing = self::servers(&["e:5"]);
        let standing = refusing.get(ServerId(0)).expect("a server");
        standing.refused.set();
        assert!(refusing.all_fail(0..1));
        assert!(servers.all_fail(0..3) && servers.all_fail(2..3));
        assert!(!servers.all_fail(1..2), "the place is empty");
        let all = servers.none_left();
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
