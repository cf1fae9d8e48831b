//! The engine of a host, in either role.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use quictun_engine::report::{
    BondReport, ConnectionReport, FlowReport, RestartCost, ServerId, Totals,
};
#[cfg(feature = "evidence")]
use quictun_engine::{BondedFlow, FlowResources, MemoryUsage};
use quictun_engine::{
    ClientEngine, ClientRole, ConnectionId, Datagrams, Engine, EngineConfig, EngineEvent, FlowId,
    ServerEngine, ServerRole,
};
#[cfg(feature = "evidence")]
use quictun_flow::ResumeError;
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::handover::{HandedBond, HandedHolder};

use crate::socket::MemSocket;

/// The engine of a host.
#[derive(Debug)]
pub enum HostEngine {
    /// The engine of a client.
    Client(ClientEngine<MemSocket>),
    /// The engine of a server.
    Server(ServerEngine<MemSocket>),
}

impl HostEngine {
    pub(crate) fn new_client(config: EngineConfig<ClientRole>) -> Self {
        Self::Client(Engine::client(config).expect("invariant: the simulation's TLS suits QUIC"))
    }

    pub(crate) fn new_server(config: EngineConfig<ServerRole>) -> Self {
        Self::Server(Engine::server(config).expect("invariant: the simulation's TLS suits QUIC"))
    }

    /// Returns the engine of a client. Panics if the host is a server.
    pub fn client(&mut self) -> &mut ClientEngine<MemSocket> {
        match self {
            Self::Client(engine) => engine,
            Self::Server(_) => panic!("this host is a server"),
        }
    }

    /// Returns the engine of a server. Panics if the host is a client.
    pub fn server(&mut self) -> &mut ServerEngine<MemSocket> {
        match self {
            Self::Server(engine) => engine,
            Self::Client(_) => panic!("this host is a client"),
        }
    }

    /// Returns the application's socket of a flow.
    pub(crate) fn socket(&self, flow: FlowId) -> Option<&MemSocket> {
        match self {
            Self::Client(engine) => engine.socket(flow),
            Self::Server(engine) => engine.socket(flow),
        }
    }

    /// Takes a bond and its flows over from another engine. A client's bond has the number of its server as address.
    pub(crate) fn take_over(
        &mut self,
        now: Instant,
        bond: &HandedBond,
        sockets: Vec<MemSocket>,
    ) -> Vec<FlowId> {
        match (self, &bond.holder) {
            (Self::Client(engine), HandedHolder::Server { address, .. }) => {
                let server = address.parse().expect("invariant: the number of a server");
                engine.take_over(now, bond, ServerId(server), sockets)
            }
            (Self::Client(_), _) => panic!("this bond is a server's"),
            (Self::Server(engine), _) => engine.take_over(now, bond, sockets),
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Client(engine) => engine.next_timeout(),
            Self::Server(engine) => engine.next_timeout(),
        }
    }

    /// Returns the next event of the engine.
    pub fn poll_event(&mut self) -> Option<EngineEvent> {
        match self {
            Self::Client(engine) => engine.poll_event().map(Into::into),
            Self::Server(engine) => engine.poll_event().map(Into::into),
        }
    }
}

/// Makes functions that call the function of the same name of the engine.
macro_rules! delegate {
    ($($visible:vis fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        impl HostEngine {
            $(
                /// Calls the engine's function of this name.
                $visible fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                    match self {
                        Self::Client(engine) => engine.$name($($argument),*),
                        Self::Server(engine) => engine.$name($($argument),*),
                    }
                }
            )*
        }
    };
}

delegate! {
    pub(crate) fn handle_datagram(&mut self, now: Instant, remote: SocketAddr, local_ip: Option<IpAddr>, ecn: Option<u8>, data: BytesMut);
    pub(crate) fn handle_timeout(&mut self, now: Instant);
    pub(crate) fn handle_socket(&mut self, now: Instant, id: FlowId, readable: bool, writable: bool, failed: bool);
    pub(crate) fn handle_carrier_socket(&mut self, now: Instant, id: ConnectionId, readable: bool, writable: bool, failed: bool);
    pub(crate) fn handle_dialed(&mut self, now: Instant, id: FlowId, result: Result<(MemSocket, String), FlowCode>);
    pub(crate) fn drive(&mut self, now: Instant);
    pub(crate) fn transmit_over_tcp(&mut self, now: Instant);
    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams>;
    pub fn drain(&mut self);
    pub fn detach_all(&mut self, now: Instant);
    pub fn close_detached(&mut self, now: Instant);
    pub fn restart_cost(&mut self) -> RestartCost;
    pub fn close(&mut self, now: Instant);
    pub fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode);
    pub fn totals(&mut self) -> Totals;
    pub fn connection_reports(&mut self) -> Vec<ConnectionReport>;
    pub fn bond_reports(&mut self) -> Vec<BondReport>;
    pub fn flow_reports(&mut self) -> Vec<FlowReport>;
    pub fn is_drained(&mut self) -> bool;
    pub fn unconfirmed(&mut self) -> usize;
}

#[cfg(feature = "evidence")]
delegate! {
    pub fn break_connection(&mut self, now: Instant, id: ConnectionId);
    pub fn forget_connection(&mut self, now: Instant, id: ConnectionId, mute: bool);
    pub fn flow_resources(&mut self) -> FlowResources;
    pub fn memory_usage(&mut self) -> MemoryUsage;
    pub fn bonded_flows(&mut self) -> Vec<BondedFlow>;
    pub fn check_number(&mut self, bond: [u8; 16], number: u64, next: u64) -> Option<Result<(), ResumeError>>;
}
