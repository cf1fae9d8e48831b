//! Faults: hosts that crash, stop or sleep, addresses that change, links that deliver nothing.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_engine::{ClientRole, EngineConfig, ServerRole};
use quictun_link::Outage;

use crate::host::Host;
use crate::host_engine::HostEngine;
use crate::network::{HostId, Network};
use crate::node::NodeKind;

impl Network {
    /// Replaces a server's whole host, applications included, by a new one that starts with `config`.
    pub fn replace(&mut self, id: HostId, config: EngineConfig<ServerRole>) {
        self.nodes[id.0].kind = NodeKind::Guest(Box::new(Host::server(config)));
        self.note(id.0, "is restarted".to_owned());
    }

    /// Kills the server process with all its sockets and starts the next process with `config`. The applications keep
    /// running.
    pub fn kill_server(&mut self, id: HostId, config: EngineConfig<ServerRole>) {
        self.restart(id, HostEngine::new_server(config));
    }

    /// Kills the client process and starts the next one, as [`Network::kill_server`] does for a server.
    pub fn kill_client(&mut self, id: HostId, config: EngineConfig<ClientRole>) {
        #[cfg(feature = "evidence")]
        let config = self.evidence.log_keys(config);
        self.restart(id, HostEngine::new_client(config));
    }

    /// Hands the flows of a server over to the next process, which starts with `config`. The old process must have
    /// detached them before, by `detach_all`, and have closed its connections. If the next process does not commit, the
    /// old one goes on.
    pub fn hand_over(&mut self, id: HostId, config: EngineConfig<ServerRole>, commits: bool) {
        let now = self.now;
        self.host(id).hand_over_server(now, config, commits);
        self.note_handed_over(id, commits);
    }

    /// Hands the flows of a client over, as [`Network::hand_over`] does for a server. The next process has another port. The
    /// connections of the old one are not closed, as after its death.
    pub fn hand_over_client(
        &mut self,
        id: HostId,
        config: EngineConfig<ClientRole>,
        commits: bool,
    ) {
        #[cfg(feature = "evidence")]
        let config = self.evidence.log_keys(config);
        let now = self.now;
        self.host(id).hand_over_client(now, config, commits);
        self.note_handed_over(id, commits);
        if commits {
            self.rebind(id);
        }
    }

    fn note_handed_over(&mut self, id: HostId, commits: bool) {
        let how = if commits { "hands over" } else { "rolls back" };
        self.note(id.0, how.to_owned());
    }

    fn restart(&mut self, id: HostId, engine: HostEngine) {
        self.host(id).restart(engine);
        self.note(id.0, "dies and begins anew".to_owned());
    }

    /// Stops a host's process for `time`. Datagrams for it are queued.
    pub fn stop(&mut self, id: HostId, time: Duration) {
        let until = self.now + time;
        self.host(id).stop_until(until, true);
        self.note(id.0, format!("stands still for {time:?}"));
    }

    /// Suspends a host and its applications for `time`. Datagrams for it are lost. Its clock continues, so that all
    /// timers that expired meanwhile fire when it wakes up.
    pub fn sleep(&mut self, id: HostId, time: Duration) {
        let until = self.now + time;
        self.host(id).stop_until(until, false);
        self.note(id.0, format!("sleeps for {time:?}"));
    }

    /// Gives a host another address. Datagrams to the old address are lost.
    pub fn move_host(&mut self, id: HostId) {
        let address = self.addresses.next();
        self.readdress(id, address, "moves to");
    }

    /// Makes the NAT in front of a host forget its mapping and allocate another port of the same address. Datagrams to
    /// the old port are lost.
    pub fn rebind(&mut self, id: HostId) {
        let address = self.addresses.beside(self.address(id));
        self.readdress(id, address, "is now at");
    }

    /// Makes a middlebox drop everything from and to the host's current port, until the host has another one.
    pub fn drop_port(&mut self, id: HostId) {
        let address = self.address(id);
        self.addresses.withdraw(address);
        self.note(id.0, format!("is cut off at {address}"));
    }

    fn readdress(&mut self, id: HostId, address: SocketAddr, how: &str) {
        self.addresses.assign(address, id.0);
        self.nodes[id.0].address = address;
        self.note(id.0, format!("{how} {address}"));
    }

    /// Drops every packet in one direction of a link for `time`.
    pub fn black_hole(&mut self, from: HostId, to: HostId, time: Duration) {
        let now = self.now - self.start;
        let outage = Outage {
            from: now,
            until: now + time,
        };
        self.set_link(from, to, |link| link.outages.push(outage));
        let to = self.name(to);
        self.note(from.0, format!("does not reach {to} for {time:?}"));
    }
}
