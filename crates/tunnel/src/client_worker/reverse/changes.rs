//! Reverse forwards that a reload adds, removes or leads elsewhere.

use quictun_engine::report::ServerId;
use quictun_wire::listening::ListenId;

use super::{Entry, ReverseForwarder, State};
use crate::reload::client::ClientRules;
use crate::reload::pairing::{pair, unpaired};
use crate::role::ClientContext;
use crate::settings::Reverse;

impl ReverseForwarder {
    /// Tells the server that it need not listen for these forwards.
    pub(super) fn give_back(&self, cx: &mut ClientContext<'_>, ids: &[ListenId]) {
        if let Some(connection) = self.agreed.first() {
            for ids in ids.chunks(quictun_wire::control::MAX_FLOWS) {
                cx.engine.unlisten(*connection, ids.to_vec());
            }
        }
    }

    /// Applies a reload. `server` listens from now on.
    pub(in crate::client_worker) fn apply(
        &mut self,
        cx: &mut ClientContext<'_>,
        rules: &ClientRules,
        server: Option<ServerId>,
    ) {
        if self.stopped {
            return;
        }
        self.header_targets = rules.header_targets.clone();
        if self.has_forwards {
            self.set_forwards(cx, &rules.reverse, server);
        }
    }

    /// Sets the forwards and the server that listens. A forward whose address stays keeps its listener, and open flows
    /// continue in any case.
    fn set_forwards(
        &mut self,
        cx: &mut ClientContext<'_>,
        wanted: &[Reverse],
        server: Option<ServerId>,
    ) {
        let known = self.forwards.iter().map(Entry::reverse);
        let known: Vec<Reverse> = known.collect();
        let paired = pair(&known, wanted, |reverse| reverse.listen.clone());
        let gone = unpaired(known.len(), &paired).into_iter();
        let gone: Vec<ListenId> = gone.map(|index| self.forwards[index].id).collect();
        self.give_back(cx, &gone);
        for (reverse, pair) in wanted.iter().zip(paired) {
            match pair {
                Some(index) => self.forwards[index].target = reverse.target.clone(),
                None => self.add(reverse.clone()),
            }
        }
        self.forwards.retain(|one| !gone.contains(&one.id));
        match server.filter(|server| *server != self.server) {
            Some(server) => self.change_server(cx, server),
            None => {
                for index in 0..self.forwards.len() {
                    if self.forwards[index].state == State::Unasked {
                        self.ask(cx, index);
                    }
                }
            }
        }
        self.warn_of_old_server();
        self.show();
    }

    /// Gives the listeners of the server back, and asks another one for them.
    fn change_server(&mut self, cx: &mut ClientContext<'_>, server: ServerId) {
        let ids: Vec<ListenId> = self.forwards.iter().map(|one| one.id).collect();
        self.give_back(cx, &ids);
        let before = self.server;
        let left = std::mem::take(&mut self.agreed).into_iter();
        let left = left.map(|connection| (before, connection));
        let (now, elsewhere): (Vec<_>, Vec<_>) = std::mem::take(&mut self.elsewhere)
            .into_iter()
            .chain(left)
            .partition(|(other, _)| *other == server);
        self.elsewhere = elsewhere;
        self.agreed = now.into_iter().map(|(_, connection)| connection).collect();
        (self.server, self.replace, self.is_old_server) = (server, false, false);
        for one in &mut self.forwards {
            (one.waits, one.state) = (false, State::Unasked);
        }
        self.ask_all(cx);
    }
}
