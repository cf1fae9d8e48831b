//! Requests of clients for listeners: LISTEN and UNLISTEN, and the answers to them.

use std::net::SocketAddr;

use quictun_engine::ConnectionId;
use quictun_wire::code::ListenCode;
use quictun_wire::listening::{Listen, ListenAck, ListenAddress, ListenId};
use tracing::info;

use super::ServerWorker;
use super::listeners::{Listeners, OwnListener, PendingListener, State};
use crate::flow_records::name_of;
use crate::requests::Request;
use crate::reverse::bind::Bound;
use crate::reverse::holders::{
    ExistingListener, ListenOutcome, ListenerNumber, LostListener, PreviousHolder,
};
use crate::role::ServerContext;
use quictun_control::log::Untrusted;
use quictun_trust::access::Peer;
use quictun_trust::shares::Holder;

impl ServerWorker {
    pub(super) fn handle_listen(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        listen: &Listen,
    ) {
        let peer = self.peer(connection);
        let answer = self.judge_listen(connection, &peer, listen);
        let client = name_of(&peer).to_owned();
        let existing = match answer {
            Ok((ListenOutcome::Bind { number, gave_way }, address)) => {
                if let Some(lost) = gave_way {
                    self.close_lost_listener(cx, &lost);
                }
                return self.make_listener(cx, connection, &peer, listen, (number, address));
            }
            Ok((ListenOutcome::Exists(existing), _)) => *existing,
            Ok((ListenOutcome::Refused(code), _)) => {
                let why = code.to_string();
                return self.refuse_listener(cx, connection, remote, listen, (code, &why));
            }
            Err((code, why)) => {
                return self.refuse_listener(cx, connection, remote, listen, (code, &why));
            }
        };
        let ExistingListener {
            number,
            listener,
            asked,
            bound,
            before,
        } = existing;
        let moves = before.is_some();
        if let Some(before) = before {
            self.notify_previous(cx, number, before);
        }
        let listeners = &mut self.listeners;
        let own = OwnListener {
            number,
            listener,
            client: client.as_str().into(),
            id: listen.id,
            holder: listen.holder,
            asked: asked.clone(),
            bound: bound.clone(),
            connection,
            state: State::Resting(cx.now),
        };
        let key = match listeners.find(number) {
            Some(key) => {
                if let Some(known) = listeners.own.get_mut(key) {
                    (known.id, known.connection) = (listen.id, connection);
                    (known.holder, known.asked) = (listen.holder, asked);
                }
                key
            }
            None => listeners.own.insert(own),
        };
        if moves && let Some(line) = self.line_of(cx.now, connection, remote) {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, listen = %bound, lines_left_out = line.left_out() }, "the listener continues on another connection of its client");
        }
        let result = Ok(bound);
        let id = listen.id;
        cx.engine
            .answer_listen(connection, ListenAck { id, result });
        self.resume(cx, key);
    }

    /// Accepts connections for the client that has asked for a listener again.
    pub(super) fn resume(&mut self, cx: &mut ServerContext<'_>, key: usize) {
        let Some(own) = self.listeners.own.get_mut(key) else {
            return;
        };
        if own.state != State::Watched {
            // The listener is not watched, so nothing reports the connections in its queue.
            own.state = State::Resting(cx.now);
            self.drop_stale_datagrams(key);
            self.accept(cx, key);
        }
    }

    fn judge_listen(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        listen: &Listen,
    ) -> Result<(ListenOutcome, ListenAddress), (ListenCode, String)> {
        let address = ListenAddress::parse(&listen.address);
        let address = address.map_err(|error| (ListenCode::BadAddress, error.to_string()))?;
        self.policy
            .may_listen(peer, &address)
            .map_err(|denied| (ListenCode::NotAllowed, denied.to_string()))?;
        if self.listeners.stopped {
            let code = ListenCode::ShuttingDown;
            return Err((code, code.to_string()));
        }
        let Peer::Named(client) = peer else {
            // Only named clients have rules.
            return Err((ListenCode::NotAllowed, String::new()));
        };
        let location = self.listeners.location(connection);
        let holders = &self.listeners.holders;
        let answer = holders.ask(&client.shared_name(), listen, &address, location);
        Ok((answer, address))
    }

    fn make_listener(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        peer: &Peer,
        listen: &Listen,
        (number, address): (ListenerNumber, ListenAddress),
    ) {
        let asked = PendingListener {
            connection,
            client: name_of(peer).into(),
            id: listen.id,
            holder: listen.holder,
            asked: address.clone(),
        };
        self.listeners.asked.insert(number, asked);
        let request = Request::Listen {
            number,
            holder: Holder::Client(name_of(peer).into()),
            below: self.policy.listen_directory_of(peer, &address),
            address,
        };
        if self.control.send(request).is_err() {
            self.handle_bound(cx, number, Err(ListenCode::Failed));
        }
    }

    /// Closes a listener that has given way to another one of its client.
    fn close_lost_listener(&mut self, cx: &mut ServerContext<'_>, lost: &LostListener) {
        self.remove_socket(&lost.listener, &lost.bound);
        if lost.location.worker != self.index {
            if let Some(mailbox) = self.listeners.siblings.get(lost.location.worker) {
                mailbox.tell_taken(lost.number, lost.id, false);
            }
        } else if let Some(key) = self.listeners.find(lost.number) {
            self.listeners.forget(cx.poller, key);
        }
    }

    pub(super) fn handle_bound(
        &mut self,
        cx: &mut ServerContext<'_>,
        number: ListenerNumber,
        result: Result<Bound, ListenCode>,
    ) {
        let asked = self.listeners.asked.remove(&number);
        let made = match result {
            Ok((listener, bound)) => match self.listeners.holders.bound(number, listener, &bound) {
                Ok(listener) => Some(Ok((listener, bound))),
                Err(unwanted) => {
                    self.remove_socket(&unwanted, &bound);
                    None
                }
            },
            Err(code) => {
                self.listeners.holders.failed(number);
                Some(Err(code))
            }
        };
        let listeners = &mut self.listeners;
        let (Some(made), Some(asked)) = (made, asked) else {
            return;
        };
        let PendingListener {
            connection,
            client,
            id,
            holder,
            asked,
        } = asked;
        let result = match made {
            Ok((listener, bound)) => {
                let own = OwnListener {
                    number,
                    listener,
                    client: client.clone(),
                    id,
                    holder,
                    asked,
                    bound: bound.clone(),
                    connection,
                    state: State::Resting(cx.now),
                };
                let key = listeners.own.insert(own);
                if listeners.stopped {
                    return self.close_listener(cx, key, Some(ListenCode::ShuttingDown));
                }
                let own = &self.listeners.own[key];
                if !self.may_still_listen(&own.client, &own.asked) {
                    // The rules have changed meanwhile.
                    return self.close_listener(cx, key, Some(ListenCode::Revoked));
                }
                if self.peers.contains_key(&connection) {
                    self.listeners.watch(cx.poller, cx.now, key);
                    if cx.engine.is_silent(connection) {
                        self.handle_silent(cx, connection);
                    }
                } else {
                    // The connection has ended meanwhile.
                    return self.lose_listener(cx, key);
                }
                if let Some(line) = self.line_about(cx.now, &client) {
                    info!(target: "quictun", client = &*client, listen = %bound, lines_left_out = line.left_out(), "listening for a client");
                }
                Ok(bound)
            }
            Err(code) => {
                if let Some(line) = self.line_about(cx.now, &client) {
                    info!(target: "quictun", client = &*client, listen = %asked, reason = %code, lines_left_out = line.left_out(), "a client's listener was refused");
                }
                Err(code)
            }
        };
        cx.engine
            .answer_listen(connection, ListenAck { id, result });
    }

    fn refuse_listener(
        &self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        listen: &Listen,
        (code, why): (ListenCode, &str),
    ) {
        if let Some(line) = self.line_of(cx.now, connection, remote) {
            let peer = self.peer(connection);
            let (client, address) = (name_of(&peer), Untrusted(&listen.address));
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, listen = %address, reason = %code, denied = why, lines_left_out = line.left_out() }, "a client's listener was refused");
        }
        let (id, result) = (listen.id, Err(code));
        cx.engine
            .answer_listen(connection, ListenAck { id, result });
    }

    /// Notifies the previous holder that the listener has moved: its worker stops accepting, and another process of the
    /// client gets a `LISTEN_ACK`.
    fn notify_previous(
        &mut self,
        cx: &mut ServerContext<'_>,
        number: ListenerNumber,
        before: PreviousHolder,
    ) {
        let PreviousHolder {
            location,
            id,
            other,
        } = before;
        if location.worker != self.index {
            if let Some(mailbox) = self.listeners.siblings.get(location.worker) {
                mailbox.tell_taken(number, id, other);
            }
            return;
        }
        if other {
            let result = Err(ListenCode::Taken);
            let answer = ListenAck { id, result };
            cx.engine.answer_listen(location.connection, answer);
        }
    }

    /// Handles that another worker has taken the listener over.
    pub(super) fn handle_listener_taken(
        &mut self,
        cx: &mut ServerContext<'_>,
        (number, id, other): (ListenerNumber, ListenId, bool),
    ) {
        let Some(key) = self.listeners.find(number) else {
            return;
        };
        let connection = self.listeners.own[key].connection;
        let location = self.listeners.location(connection);
        if self.listeners.holders.is_at(number, location) {
            // The listener has come back to this worker since.
            return;
        }
        self.listeners.forget(cx.poller, key);
        if other {
            let result = Err(ListenCode::Taken);
            cx.engine
                .answer_listen(connection, ListenAck { id, result });
        }
    }

    pub(super) fn handle_unlisten(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        ids: &[ListenId],
    ) {
        let of = |own: &OwnListener| own.connection == connection && ids.contains(&own.id);
        for key in self.listeners.keys_where(of) {
            self.close_listener(cx, key, None);
        }
        self.listeners.silence.forget(connection, ids);
        // A listener that is being made is closed as soon as it exists.
        let Listeners { asked, holders, .. } = &mut self.listeners;
        asked.retain(|number, asked| {
            let meant = asked.connection == connection && ids.contains(&asked.id);
            if meant {
                holders.forget(*number);
            }
            !meant
        });
    }
}
