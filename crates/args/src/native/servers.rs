//! The servers of a client: one or more `--server` options, or `[[server]]` tables in its file.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use quictun_trust::settings::{CertificateFiles, ClientIdentity, Offer, Pin, ServerTrust};
use quictun_tunnel::settings::{Address, RemoteServer, SERVERS_MAX};

use super::flags;
use crate::fault::Fault;
use crate::file::Fields;
use crate::layers::{Layers, check_readable};
use crate::options::InvalidValue;
use crate::values::number;

/// The keys of a `[[server]]` table. A key that a table lacks has the value given outside the tables, for all servers.
pub(super) const KEYS: [&str; 7] = [
    "address", "tls_port", "pin", "ca", "cert", "key", "psk_file",
];

/// Returns the addresses of the servers, in the order given.
pub(super) fn addresses(layers: &Layers<'_>) -> Result<Vec<Address>, Fault> {
    let option = &flags::SERVER_TO_DIAL;
    let addresses = layers.get(option)?;
    if addresses.is_empty() {
        let fault = layers.fault(option, "the server to dial is missing");
        return Err(
            // `quictun connect` and `quictun run` need the same flags.
            fault.next("-c FILE with the file that `quictun join` wrote, or --server HOST --pin sha256:...")
        );
    }
    if addresses.len() > SERVERS_MAX {
        let why = format!("{} servers: at most {SERVERS_MAX}", addresses.len());
        return Err(layers.fault(option, why));
    }
    for (n, address) in addresses.iter().enumerate() {
        if addresses[..n].iter().any(|before| is_same(before, address)) {
            let why = format!("two servers have the address {address}: keep one of them");
            return Err(layers.fault(option, why));
        }
    }
    Ok(addresses)
}

fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::At(one), Address::At(other)) => {
            one.host.eq_ignore_ascii_case(&other.host) && one.port == other.port
        }
        (Address::Service(one), Address::Service(other)) => one.owner() == other.owner(),
        _ => false,
    }
}

/// Returns the first server, and the others. `trust` and `identity` apply to servers whose tables do not override them.
pub(super) fn servers(
    layers: &Layers<'_>,
    addresses: Vec<Address>,
    trust: Result<ServerTrust, Fault>,
    identity: &ClientIdentity,
) -> Result<(RemoteServer, Vec<RemoteServer>), Fault> {
    let tls_port = layers.get(&flags::TLS_PORT)?;
    if tls_port.is_some() && addresses.iter().all(|address| address.at().is_none()) {
        return Err(layers.fault(&flags::TLS_PORT, NAMED_BY_RECORDS));
    }
    let defaults = ServerDefaults {
        trust,
        identity,
        tls_port,
    };
    let mut servers = if let Some((path, tables)) = layers.tables(&flags::SERVER_TO_DIAL) {
        let pairs = addresses.into_iter().zip(tables);
        let read = pairs.map(|(at, table)| defaults.of_table(layers, path, at, table));
        read.collect::<Result<Vec<_>, _>>()?
    } else {
        let trust = defaults.trust?;
        let all = addresses.into_iter().map(|server| RemoteServer {
            tls_port: tls_port.filter(|_| server.at().is_some()),
            server,
            trust: trust.clone(),
            identity: identity.clone(),
        });
        all.collect()
    };
    let others = servers.split_off(1);
    let first = servers
        .pop()
        .expect("invariant: addresses() gives one at least");
    Ok((first, others))
}

/// The error for a TCP port of a service.
const NAMED_BY_RECORDS: &str = "is for a server that is named by its host: the records of a service name its TCP ports, so leave it out";

/// The values of servers whose tables give none.
struct ServerDefaults<'a> {
    trust: Result<ServerTrust, Fault>,
    identity: &'a ClientIdentity,
    tls_port: Option<u16>,
}

impl ServerDefaults<'_> {
    fn of_table(
        &self,
        layers: &Layers<'_>,
        path: &Path,
        server: Address,
        table: &Fields,
    ) -> Result<RemoteServer, Fault> {
        let what = format!("{}: server {server}", path.display());
        let fault = |why: &str| Fault::usage(&what, why);
        let file = |key: &str| -> Result<Option<PathBuf>, Fault> {
            let Some(path) = table.get(key).and_then(|texts| texts.last()) else {
                return Ok(None);
            };
            let path = PathBuf::from(path);
            check_readable(layers.inputs().files, &what, &path)?;
            Ok(Some(path))
        };
        let own_pins = table.get("pin").map_or(&[][..], Vec::as_slice);
        let pins = own_pins.iter().map(|pin| Pin::from_str(pin));
        let pins = pins.collect::<Result<Vec<_>, _>>();
        let pins = pins.map_err(|error| Fault::usage(&what, error))?;
        let system = table.get("ca").is_some_and(|ca| ca.iter().eq(["system"]));
        let ca = if system {
            Some(None)
        } else {
            file("ca")?.map(Some)
        };
        let trust = match (pins.is_empty(), ca, &self.trust) {
            (false, None, _) => ServerTrust::Pins(pins),
            (true, Some(ca), _) => ServerTrust::Authorities(ca),
            (false, Some(_), _) => {
                return Err(fault("pin contradicts ca: keep one of them"));
            }
            (true, None, Ok(defaults)) => defaults.clone(),
            (true, None, Err(_)) => {
                return Err(fault(
                    "neither a pin nor an authority identifies it: add pin or ca to its table, or above all tables for all of them",
                ));
            }
        };
        let certificate = match (file("cert")?, file("key")?) {
            (Some(cert), Some(key)) => Some(CertificateFiles { cert, key }),
            (None, None) => self.identity.certificate.clone(),
            (Some(_), None) => return Err(fault("cert needs its private key: add key")),
            (None, Some(_)) => return Err(fault("key needs its certificate: add cert")),
        };
        let tls_port = match table.get("tls_port").and_then(|texts| texts.last()) {
            None => self.tls_port.filter(|_| server.at().is_some()),
            Some(_) if server.at().is_none() => {
                return Err(fault(&format!("tls_port {NAMED_BY_RECORDS}")));
            }
            Some(text) => {
                let port = number(text, 1..=u16::MAX);
                let wrong = |InvalidValue(why)| fault(&format!("tls_port: {why}"));
                Some(port.map_err(wrong)?)
            }
        };
        let psk_file = file("psk_file")?;
        if psk_file.is_some() && layers.get(&flags::OFFER)? == Offer::Compat {
            return Err(fault(
                "quic-tun's protocol carries no proof of a secret: offer native or both",
            ));
        }
        Ok(RemoteServer {
            server,
            tls_port,
            trust,
            identity: ClientIdentity {
                certificate,
                psk_file: psk_file.or_else(|| self.identity.psk_file.clone()),
            },
        })
    }
}
