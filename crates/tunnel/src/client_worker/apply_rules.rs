//! Applies a reload while applications are connected: forwards, reverse forwards, servers, and the rules for making
//! connections. Open flows continue, whatever has become of their forward or server.

use quictun_engine::report::ServerId;
use quictun_engine::{ServerPlace, ServerToDial};
use tracing::{debug, error, warn};

use super::{ClientWorker, DialState, EXHAUSTED_PAUSE};
use crate::reload::change::ClientChange;
use crate::reload::client::ClientRules;
use crate::reload::dialled::DialledServer;
use crate::reload::forwards::{ForwardChange, ForwardNumber};
use crate::role::WorkerContext;
use quictun_io::poller::Key;

impl ClientWorker {
    pub(super) fn apply(
        &mut self,
        cx: &mut WorkerContext<'_>,
        rules: &ClientRules,
        change: &ClientChange,
    ) {
        self.sends_sources = rules.sends_sources;
        self.proxy.set_logins(rules.logins.clone());
        self.apply_servers(cx, &change.dialled);
        if !self.stopped {
            self.apply_forwards(cx, &change.forwards);
            self.reverse
                .set_header_targets(rules.header_targets.clone());
            if self.index == 0 {
                self.reverse
                    .set_forwards(cx, &rules.reverse, change.reverse_server);
            }
        }
    }

    /// Watches the listener of a forward, unless accepting pauses.
    pub(super) fn watch(&mut self, cx: &WorkerContext<'_>, number: ForwardNumber) {
        let Some(forward) = self.forwards.get(&number) else {
            return;
        };
        let added = cx
            .poller
            .add_listener(&*forward.listener, Key::Listener(number));
        if let Err(cause) = added {
            warn!(target: "quictun", %cause, "a listener cannot be watched: trying again");
            self.paused = Some(cx.now + EXHAUSTED_PAUSE);
        }
    }

    fn apply_forwards(&mut self, cx: &WorkerContext<'_>, change: &ForwardChange) {
        for number in &change.removed {
            let Some(forward) = self.forwards.remove(number) else {
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
            if let Some(forward) = self.forwards.get_mut(number) {
                forward.destination = destination.clone();
            }
        }
        for (number, forward) in &change.added {
            self.forwards.insert(*number, forward.clone());
            if self.paused.is_none() {
                self.watch(cx, *number);
            }
        }
    }

    /// Sets the servers, with the trust and the proofs of connections made from now on.
    fn apply_servers(&mut self, cx: &mut WorkerContext<'_>, dialled: &[DialledServer]) {
        for (index, server) in dialled.iter().enumerate() {
            let Some(rules) = &server.rules else {
                continue;
            };
            let (crypto, fallback) = (&rules.crypto, rules.fallback.as_ref());
            let prover = rules.prover.clone();
            let applied = if index < self.dialling.len() {
                cx.engine
                    .set_client_identity(ServerId(index), crypto, fallback, prover)
            } else {
                self.dialling.push(DialState::default());
                cx.engine.add_server(&ServerToDial {
                    crypto: crypto.clone(),
                    fallback: fallback.cloned(),
                    name: server.address.name().to_owned(),
                    prover,
                    // `set_places` puts it to use.
                    place: ServerPlace {
                        wanted: false,
                        ..ServerPlace::default()
                    },
                })
            };
            if let Err(cause) = applied {
                error!(target: "quictun", %cause, "cannot apply the new certificate and secret: new connections use the old ones");
            }
        }
        self.set_places(cx);
    }
}
