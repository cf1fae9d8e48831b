//! The lines that a terminal shows once a server or a client has started.
//!
//! At a terminal they replace the log lines of the start. They show the listening address, the key, the targets of each
//! client, and the command for the client, ready to copy, in 80 columns.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use quictun_control::put;
use quictun_control::settings::HttpListen;
use quictun_trust::settings::{Access, ClientProof, NamedClient, Pin};

use crate::settings::Address;

/// Port that `quictun client` dials if none is given.
const PORT: u16 = 7500;

/// Number of clients listed.
const CLIENTS: usize = 8;

/// Number of forwards in the client's command.
const FORWARDS: usize = 3;

/// The facts that a server's lines show.
#[derive(Debug)]
pub(crate) struct ServerBanner {
    pub(crate) listen: SocketAddr,
    /// TCP port for TLS that clients have to know, because it is another one than the UDP port.
    pub(crate) tls_port: Option<u16>,
    /// The address under which other machines reach this one, or `None` if it has none.
    pub(crate) own_address: Option<IpAddr>,
    pub(crate) pin: Pin,
    pub(crate) access: Access,
    pub(crate) http: Option<HttpListen>,
}

impl ServerBanner {
    pub(crate) fn text(&self) -> String {
        let mut out = format!("quictun server listens on UDP {}\n\n", self.listen);
        let mut line = |name: &str, text: &str| {
            put!(out, "  {name:8} {text}\n");
        };
        line("key", &self.pin.to_string());
        let clients = self.access.clients();
        for client in clients.iter().take(CLIENTS) {
            line("client", &format!("{}: {}", client.name, targets(client)));
        }
        if let Some(more @ 1..) = clients.len().checked_sub(CLIENTS) {
            line("", &format!("and {more} more clients"));
        }
        // The command does not read the flags of this process.
        let address = match self.listen.port() {
            PORT => String::new(),
            _ => format!(" --address {}", self.server()),
        };
        line(
            "invite",
            &format!("quictun invite NAME --allow HOST:PORT{address}"),
        );
        if let Some(http) = &self.http {
            line("status", &format!("quictun status (HTTP at {http})"));
        }
        for (client, secret) in with_secrets(clients).take(1) {
            self.write_command(client, secret, &mut out);
        }
        out.push_str("\nCtrl-C ends it.\n");
        out
    }

    fn write_command(&self, client: &NamedClient, secret: &Path, out: &mut String) {
        let name = secret.file_name().map_or(secret, Path::new);
        let (secret, name) = (secret.display(), name.display());
        let (server, pin) = (self.server(), self.pin);
        let tls_port = self.tls_port.map(|port| format!(" --tls-port {port}"));
        let tls_port = tls_port.unwrap_or_default();
        put!(
            out,
            "\nOn the client, with a copy of {secret}:\n\n  quictun client --server {server}{tls_port} \\\n    --pin {pin} \\\n    --psk-file {name}"
        );
        let exact = client
            .allow
            .iter()
            .filter_map(|rule| forward(&rule.to_string()));
        let mut forwards: Vec<String> = exact.take(FORWARDS).collect();
        if forwards.is_empty() {
            forwards.push("PORT:TARGET".to_owned());
        }
        for forward in forwards {
            put!(out, " \\\n    -L {forward}");
        }
        out.push('\n');
    }

    /// Returns the argument of `--server`.
    fn server(&self) -> String {
        let ip = self.listen.ip();
        let ip = if ip.is_unspecified() {
            self.own_address
        } else {
            Some(ip)
        };
        let host = match ip {
            Some(IpAddr::V4(ip)) => ip.to_string(),
            Some(IpAddr::V6(ip)) => format!("[{ip}]"),
            None => "THIS-HOST".to_owned(),
        };
        match self.listen.port() {
            PORT => host,
            port => format!("{host}:{port}"),
        }
    }
}

/// Formats the lines of a client: each listener and its target.
pub(crate) fn client(servers: &[Address], forwards: &[(String, String)]) -> String {
    let servers: Vec<String> = servers.iter().map(Address::to_string).collect();
    let mut out = format!("quictun client, to {}\n\n", servers.join(" or "));
    let width = forwards.iter().map(|(listen, _)| listen.len()).max();
    let width = width.unwrap_or_default();
    for (listen, to) in forwards {
        put!(out, "  {listen:width$}  leads to  {to}\n");
    }
    out.push_str("\nCtrl-C ends it.\n");
    out
}

/// Returns the source address of packets along the default route. No packet is sent to find it.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation (RFC 5737), which the default route matches.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

fn targets(client: &NamedClient) -> String {
    let list = |rules: Vec<String>| rules.join(", ");
    let listen = list(client.listen.iter().map(ToString::to_string).collect());
    let allow = list(client.allow.iter().map(ToString::to_string).collect());
    match (allow.is_empty(), listen.is_empty()) {
        (true, true) => "no target yet: allow some with --allow HOST:PORT".to_owned(),
        (true, false) => format!("may have us listen on {listen}"),
        (false, true) => allow,
        (false, false) => format!("{allow}; may have us listen on {listen}"),
    }
}

/// Returns the clients of which a secret is the proof, with the files of their secrets.
pub(crate) fn with_secrets(clients: &[NamedClient]) -> impl Iterator<Item = (&NamedClient, &Path)> {
    let secrets = clients.iter().flat_map(|client| {
        let proofs = client.proofs.iter();
        proofs.map(move |proof| (client, proof))
    });
    secrets.filter_map(|(client, proof)| match proof {
        ClientProof::PskFile(path) => Some((client, path.as_path())),
        ClientProof::Pin(_) | ClientProof::CertificateName => None,
    })
}

/// Returns the forward to the target of a rule, or `None` if the rule does not name exactly one target.
fn forward(rule: &str) -> Option<String> {
    let (host, port) = rule.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    if rule.contains(['*', '/']) || rule.starts_with("unix:") {
        return None;
    }
    let local = match port {
        22 => 2222,
        1..=1023 => 8000 + port,
        _ => port,
    };
    Some(format!("{local}:{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::HostPort;

    fn named(name: &str, secret: Option<&str>, rules: &[&str]) -> NamedClient {
        NamedClient {
            name: name.to_owned(),
            proofs: secret
                .map(|path| ClientProof::PskFile(path.into()))
                .into_iter()
                .collect(),
            allow: rules
                .iter()
                .map(|rule| rule.parse().expect("a rule"))
                .collect(),
            listen: Vec::new(),
            limits: quictun_trust::settings::ClientLimits::default(),
            names_sources: false,
        }
    }

    #[test]
    fn a_server_shows_its_address_the_targets_of_clients_and_the_command_for_the_client() {
        let rules = [
            "127.0.0.1:22",
            "db.example:5432",
            "10.0.0.0/8:80",
            "[::1]:443",
        ];
        let clients = vec![
            named("default", Some("/var/lib/quictun/client.psk"), &rules),
            named("backup", None, &[]),
        ];
        let access = Access::Named { clients, ca: None };
        let http = HttpListen::Tcp(([127, 0, 0, 1], 8086).into());
        let banner = ServerBanner {
            listen: "[::]:7500".parse().expect("an address"),
            tls_port: None,
            own_address: Some(Ipv4Addr::new(198, 51, 100, 7).into()),
            pin: Pin([0; 32]),
            access,
            http: Some(http),
        };
        let text = banner.text();
        assert_eq!(text, include_str!("banner/server.txt"));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let elsewhere = ServerBanner {
            listen: "[::]:443".parse().expect("an address"),
            own_address: None,
            tls_port: Some(8443),
            ..banner
        };
        let text = elsewhere.text();
        let server = "--server THIS-HOST:443 --tls-port 8443 ";
        assert!(text.contains(server), "{text}");
        assert!(
            text.contains("--allow HOST:PORT --address THIS-HOST:443\n"),
            "{text}"
        );
    }

    #[test]
    fn a_client_shows_the_target_of_each_listener() {
        let server = Address::At(HostPort {
            host: "example.net".to_owned(),
            port: 7500,
        });
        let pair = |listen: &str, to: &str| (listen.to_owned(), to.to_owned());
        let forwards = [
            pair("127.0.0.1:2222", "tcp:127.0.0.1:22"),
            pair("unix:/run/a", "tcp:db:5432"),
        ];
        assert_eq!(
            client(&[server], &forwards),
            "quictun client, to example.net:7500\n\n  \
             127.0.0.1:2222  leads to  tcp:127.0.0.1:22\n  \
             unix:/run/a     leads to  tcp:db:5432\n\nCtrl-C ends it.\n"
        );
    }
}
