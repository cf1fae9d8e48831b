//! The servers of a client, as all its workers know them: what keeps it from each, and which of them new flows go to.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quictun_engine::report::ServerId;

use crate::bonds::Bonds;
use crate::refusal::Refused;
use crate::trouble::Trouble;

/// All servers, in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Servers {
    each: Vec<Standing>,
    told: Mutex<Told>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) trouble: Trouble,
    pub(crate) refused: Refused,
    pub(crate) bonds: Bonds,
}

#[derive(Debug, Default)]
struct Told {
    chosen: Option<ServerId>,
    none_left: bool,
}

impl Servers {
    /// `bonds`: flows are to outlive their connections.
    pub(crate) fn new(shown: impl IntoIterator<Item = String>, bonds: bool) -> Self {
        let standing = |name| Standing {
            trouble: Trouble::to(name),
            refused: Refused::default(),
            bonds: Bonds::new(bonds),
        };
        Self {
            each: shown.into_iter().map(standing).collect(),
            told: Mutex::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.each.len()
    }

    /// What is known of a server; nothing, where there is no such server.
    pub(crate) fn get(&self, server: ServerId) -> Option<&Standing> {
        self.each.get(server.0)
    }

    pub(crate) fn name(&self, server: ServerId) -> &str {
        self.get(server).map_or("", |it| it.trouble.server.as_str())
    }

    /// All of them, for a line.
    pub(crate) fn shown(&self) -> String {
        let names = self.each.iter().map(|it| it.trouble.server.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    /// New flows of a worker go to this server. Returns whether that is news: each worker chooses for itself, but as a rule
    /// all choose the same.
    pub(crate) fn is_news(&self, server: ServerId) -> bool {
        self.told().chosen.replace(server) != Some(server)
    }

    /// An attempt to reach a server has failed, or has had no answer for long. Returns what was tried where none of several is
    /// left: once, until one answers.
    pub(crate) fn none_left(&self) -> Option<String> {
        if self.count() < 2 {
            return None;
        }
        let mut tried = String::new();
        for standing in &self.each {
            let cause = standing.trouble.cause()?;
            let separator = if tried.is_empty() { "" } else { "; " };
            let name = &standing.trouble.server;
            write!(tried, "{separator}{name}: {cause}")
                .expect("invariant: a String takes whatever is written to it");
        }
        let told = std::mem::replace(&mut self.told().none_left, true);
        (!told).then_some(tried)
    }

    /// A server has let this client in.
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
        Servers::new(names.iter().map(|name| (*name).to_owned()), true)
    }

    #[test]
    fn that_none_is_left_is_told_once_with_all_that_was_tried() {
        let (servers, now) = (servers(&["a:1", "b:2"]), Instant::now());
        let fail = |server: usize, cause: &str| {
            let standing = servers.get(ServerId(server)).expect("a server");
            standing.trouble.failed(now, cause);
            servers.none_left()
        };
        assert_eq!(fail(0, "no answer"), None, "the other may be there");
        let all = fail(1, "no such name");
        assert_eq!(all.as_deref(), Some("a:1: no answer; b:2: no such name"));
        assert_eq!(fail(0, "no answer"), None, "told already");
        let first = servers.get(ServerId(0)).expect("a server");
        first.trouble.connected(now);
        servers.one_answers();
        assert_eq!(fail(1, "no such name"), None, "one answers");
        assert!(fail(0, "refused").is_some(), "and does not any more");
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
}
