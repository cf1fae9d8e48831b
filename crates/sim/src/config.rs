//! Engine configurations as a starting point for tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::{
    CarrierChoice, ClientRole, EngineConfig, ServerPlace, ServerRole, ServerToDial, Transport,
};
use quictun_wire::alpn;

use crate::seed::Random;
pub use crate::tls::SERVER_NAME;
use crate::tls::{self, OfferedKeyExchange};

/// Largest UDP payload that engines probe for: an Ethernet frame minus the headers of IPv6 and UDP.
pub const PATH_MTU: u16 = 1452;

/// The proof of the only client that simulated servers know. See [`ServerRole::identify`] for when they ask for it.
pub const PROOF: [u8; 32] = [7; 32];

/// The name of the client that presents [`PROOF`].
pub const KNOWN: &str = "known";

/// Both protocols, in the order in which the programs prefer them.
pub const BOTH: &[&[u8]] = &[alpn::NATIVE, alpn::COMPAT];

/// Only the protocol `quictun/1`.
pub const NATIVE: &[&[u8]] = &[alpn::NATIVE];

/// Only the protocol `quic-tun`.
pub const COMPAT: &[&[u8]] = &[alpn::COMPAT];

/// Returns the configuration of a server that speaks both protocols.
pub fn server(seed: u64) -> EngineConfig<ServerRole> {
    let role = ServerRole {
        crypto: tls::server(BOTH),
        max_connections: 1000,
        max_handshakes: 256,
        retry_above: 64,
        always_retry: false,
        https_proxy: false,
        identify: false,
        open_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
    };
    engine(role, seed, 1)
}

/// Returns the configuration of a server whose certificate no client trusts.
pub fn impostor(seed: u64) -> EngineConfig<ServerRole> {
    let mut config = server(seed);
    config.role.crypto = tls::impostor(BOTH);
    config
}

/// Returns the configuration of a client that speaks both protocols and prefers `quictun/1`.
pub fn client(seed: u64) -> EngineConfig<ClientRole> {
    client_speaking(BOTH, seed)
}

/// Returns the configuration of a client that offers the given protocols, in order of preference.
pub fn client_speaking(protocols: &[&[u8]], seed: u64) -> EngineConfig<ClientRole> {
    let role = ClientRole {
        servers: vec![ServerToDial {
            crypto: tls::client(protocols, OfferedKeyExchange::Classical),
            fallback: None,
            name: SERVER_NAME.to_owned(),
            prover: None,
            carrier: CarrierChoice::Quic,
            place: ServerPlace::default(),
        }],
        connections: 1,
        joiner: None,
        reverse: false,
        wait_timeout: Duration::from_secs(30),
        bond_ttl: Duration::ZERO,
        compat_streams: 80,
        surroundings: quictun_engine::Surroundings::default(),
    };
    engine(role, seed, 2)
}

/// Returns the token under which a client's host looks up the target of the reverse forward `id`.
pub fn reverse_token(id: u64) -> String {
    format!("reverse {id}")
}

/// Returns the configuration of a client as the programs use it: it speaks `quictun/1` and prefers a post-quantum key
/// exchange.
pub fn post_quantum_client(seed: u64) -> EngineConfig<ClientRole> {
    let mut config = client_speaking(NATIVE, seed);
    for server in &mut config.role.servers {
        server.crypto = tls::client(NATIVE, OfferedKeyExchange::PostQuantum);
        server.fallback = Some(tls::client(NATIVE, OfferedKeyExchange::Classical));
    }
    config
}

/// Returns the TLS configuration of a server of the original protocol, for hosts that are not engines.
pub fn compat_server_tls() -> Arc<rustls::ServerConfig> {
    tls::server(COMPAT)
}

/// Returns a TLS configuration for a client that the test drives itself.
pub fn client_tls(protocols: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    tls::client(protocols, OfferedKeyExchange::Classical)
}

fn engine<R>(role: R, seed: u64, purpose: u64) -> EngineConfig<R> {
    let mut random = Random::new(seed, purpose);
    EngineConfig {
        role,
        transport: Transport::new(Arc::new(|_: SocketAddr| PATH_MTU)),
        worker: 0,
        seed: random.bytes(),
        reset_key: [9; 32],
    }
}
