//! Things that go wrong: hosts that die, stand still or sleep, addresses that change, links on which nothing passes.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_engine::{ClientRole, Engine, EngineConfig, ServerRole};
use quictun_link::Outage;

use crate::host::Host;
use crate::machine::Machine;
use crate::network::{HostId, Network};

impl Network {
    /// Puts a restarted server, with nothing but `config`, in the place of another.
    pub fn replace(&mut self, id: HostId, config: EngineConfig<ServerRole>) {
        self.nodes[id.0].machine = Machine::Guest(Box::new(Host::server(config)));
        self.note(id.0, "is restarted".to_owned());
    }

    /// The process of a server dies, with all its sockets; the next one begins with `config`. The
    /// applications live on.
    pub fn kill_server(&mut self, id: HostId, config: EngineConfig<ServerRole>) {
        let engine = Engine::server(config).expect("invariant: the simulation's TLS suits QUIC");
        self.restart(id, engine);
    }

    /// The process of a client dies, as in [`Network::kill_server`].
    pub fn kill_client(&mut self, id: HostId, config: EngineConfig<ClientRole>) {
        #[cfg(feature = "evidence")]
        let config = self.evidence.log_keys(config);
        let engine = Engine::client(config).expect("invariant: the simulation's TLS suits QUIC");
        self.restart(id, engine);
    }

    fn restart(&mut self, id: HostId, engine: Engine<crate::MemSocket>) {
        self.host(id).restart(engine);
        self.note(id.0, "dies and begins anew".to_owned());
    }

    /// A process does nothing for a while; datagrams for it wait.
    pub fn stop(&mut self, id: HostId, time: Duration) {
        let until = self.now + time;
        self.host(id).stop_until(until, true);
        self.note(id.0, format!("stands still for {time:?}"));
    }

    /// A host sleeps for a while, with its applications: datagrams for it are lost. Its clock goes on, so that all its
    /// timers are due when it wakes up.
    pub fn sleep(&mut self, id: HostId, time: Duration) {
        let until = self.now + time;
        self.host(id).stop_until(until, false);
        self.note(id.0, format!("sleeps for {time:?}"));
    }

    /// Gives a host another address; datagrams for the old one are lost.
    pub fn move_host(&mut self, id: HostId) {
        let address = self.addresses.next();
        self.readdress(id, address, "moves to");
    }

    /// The translator before a host forgets it, and gives it another port of its address; datagrams for the old one are
    /// lost.
    pub fn rebind(&mut self, id: HostId) {
        let address = self.addresses.beside(self.address(id));
        self.readdress(id, address, "is now at");
    }

    /// A device on the way drops everything from and to a host's present port, until the host has another one.
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

    /// Nothing that enters one direction of a link comes out for a while.
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
