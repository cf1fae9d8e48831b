//! The configurations of a server with a new self-signed certificate, and of a client that trusts only this server.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::{
    CarrierChoice, ClientRole, EngineConfig, ServerPlace, ServerRole, ServerToDial, Transport,
};
use quictun_wire::alpn;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const NAME: &str = "server.example";

/// Largest UDP payload to try: an Ethernet frame minus the headers of IPv6 and UDP.
const PATH_MTU: u16 = 1452;

/// The configurations of a server and of its client.
type EnginePair = (EngineConfig<ServerRole>, EngineConfig<ClientRole>);

pub(crate) fn engine_pair() -> Result<EnginePair, Box<dyn Error>> {
    let credentials = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = credentials.cert.der().clone();
    let key = PrivateKeyDer::try_from(credentials.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    server.alpn_protocols = vec![alpn::NATIVE.to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![alpn::NATIVE.to_vec()];
    let server = ServerRole {
        crypto: Arc::new(server),
        max_connections: 100,
        max_handshakes: 16,
        retry_above: 8,
        always_retry: false,
        https_proxy: false,
        // Every client may open flows.
        identify: false,
        open_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
    };
    let client = ClientRole {
        servers: vec![ServerToDial {
            crypto: Arc::new(client),
            fallback: None,
            name: NAME.to_owned(),
            prover: None,
            carrier: CarrierChoice::Quic,
            place: ServerPlace::default(),
        }],
        connections: 1,
        joiner: None,
        reverse: false,
        wait_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
        compat_streams: 80,
        surroundings: quictun_engine::Surroundings::default(),
    };
    Ok((engine(server)?, engine(client)?))
}

fn engine<R>(role: R) -> Result<EngineConfig<R>, Box<dyn Error>> {
    let (mut seed, mut reset_key) = ([0; 32], [0; 32]);
    aws_lc_rs::rand::fill(&mut seed)?;
    aws_lc_rs::rand::fill(&mut reset_key)?;
    let mut transport = Transport::new(Arc::new(|_: SocketAddr| PATH_MTU));
    // mio sends one datagram in each call.
    transport.max_segments = 1;
    Ok(EngineConfig {
        role,
        transport,
        worker: 0,
        seed,
        reset_key,
    })
}
