//! The flags of `quictun server`, `quictun client` and `quictun status`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quictun_control::settings::{HttpListen, LogFormat, Phrases};
use quictun_trust::settings::{HeaderRule, Offer, Pin};
use quictun_tunnel::settings::{Address, Forward, ListenOn, Reverse};

use super::certificate::CERTIFICATE;
use crate::address::{Wildcard, parse_address, parse_forward_listen, parse_listen_or_port};
use crate::control::{
    COMPAT_JSON, ControlFlags, LOG_LEVEL, NO_CONFINE, Verbosity, parse_http, parse_mode, parse_name,
};
use crate::options;
use crate::options::{InvalidValue, Many, Maybe, One, Section, Switch, Table};
use crate::outbound_proxy::{VIA, VIA_CREDENTIALS};
use crate::values::{number, parsed, path, switch, text, time_between};
use crate::{forward, transport, tun_flags};

/// Parses the address of a listener for flows in TLS, or `off`, which is `None`.
fn listen_tls(text: &str) -> Result<Option<SocketAddr>, InvalidValue> {
    if text == "off" {
        return Ok(None);
    }
    parse_listen_or_port(text).map(Some)
}

/// Parses the address of a proxy that the client runs.
fn proxy_listen(text: &str) -> Result<ListenOn, InvalidValue> {
    if text.contains("://") {
        // The text may hold a password.
        return Err("this is a proxy elsewhere, and --proxy LISTEN runs one: give --via to connect to the server through it".into());
    }
    parse_forward_listen(text)
}

/// Prefix of the environment variables.
const PREFIX: &str = "QUICTUN_";

/// Flags of `quictun server`.
pub static SERVER: Table = Table {
    prefix: PREFIX,
    sections: &[
        &SERVER_TUNNEL,
        &SERVER_TRUST,
        &CERTIFICATE,
        &GENERAL,
        &LOGS,
        &transport::SERVER,
        &transport::CARRIERS_OF_SERVER,
        &transport::BOTH,
    ],
};

/// Flags of `quictun client`.
pub static CLIENT: Table = Table {
    prefix: PREFIX,
    sections: &[
        &CLIENT_TUNNEL,
        &CLIENT_TRUST,
        &GENERAL,
        &LOGS,
        &transport::CLIENT,
        &transport::CARRIERS_OF_CLIENT,
        &transport::BOTH,
    ],
};

/// Flags of `quictun connect`: those of a client that concern its server.
pub static CONNECT: Table = Table {
    prefix: PREFIX,
    sections: &[
        &Section {
            heading: "Tunnel",
            options: &[
                &SERVER_TO_DIAL,
                &TLS_PORT,
                &VIA,
                &VIA_CREDENTIALS,
                &tun_flags::SERVER_ADDRESS,
                &OFFER,
            ],
        },
        &CLIENT_TRUST,
        &Section {
            heading: "General",
            options: &[&CONFIG, &NO_CONFINE],
        },
        &Section {
            heading: "Logs",
            options: &[&VERBOSE, &LOG_LEVEL],
        },
        &transport::BOTH,
    ],
};

/// Flags of `quictun join`.
pub static JOIN: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Data path",
        options: &[&transport::CARRIER, &VIA, &VIA_CREDENTIALS],
    }],
};

/// Flags of `quictun doctor` about the way to a server.
pub static DOCTOR: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Way to a server",
        options: &[&VIA, &VIA_CREDENTIALS],
    }],
};

/// Flags of `quictun status`.
pub static STATUS: Table = Table {
    prefix: PREFIX,
    sections: &[
        &Section {
            heading: "Which process",
            options: &[&ASKED_CONFIG, &ASKED_HTTP],
        },
        &Section {
            heading: "Watching",
            options: &[&WATCH_INTERVAL],
        },
    ],
};

/// Flags of `quictun reconnect`.
pub static RECONNECT: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Which process",
        options: &[&ASKED_CONFIG, &ASKED_HTTP],
    }],
};

/// Flags of `quictun drain`.
pub static DRAIN: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Which process",
        options: &[&ASKED_CONFIG, &ASKED_STATE_DIR],
    }],
};

static SERVER_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        &LISTEN,
        &LISTEN_TLS,
        &HTTPS_PROXY,
        &ALLOW,
        &LISTEN_FOR,
        &REVERSE_GRACE,
        &PROXY_PROTOCOL,
        &TAKE_OVER,
        &RELOAD,
    ],
};

static SERVER_TRUST: Section = Section {
    heading: "Trust",
    options: &[&STATE_DIR, &SERVER_CERT, &SERVER_KEY, &SERVER_CA],
};

static CLIENT_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        &SERVER_TO_DIAL,
        &TLS_PORT,
        &VIA,
        &VIA_CREDENTIALS,
        &FORWARD,
        &PROXY,
        &PROXY_USERS,
        &REVERSE,
        &REDIRECT,
        &TPROXY,
        &SEND_APP_ADDRESSES,
        &PROXY_PROTOCOL,
        &CLIENT_STATE_DIR,
        &TAKE_OVER,
        &RELOAD,
        &tun_flags::TUN,
        &tun_flags::ROUTE,
        &tun_flags::EXCLUDE,
        &tun_flags::FAIL_OPEN,
        &tun_flags::CONFIRM,
        &tun_flags::TUN_FD,
        &tun_flags::ONE_PROCESS,
        &tun_flags::NETSTACK_FD,
        &tun_flags::FOR_COMMAND,
        &tun_flags::SERVER_ADDRESS,
        &tun_flags::DNS,
        &OFFER,
    ],
};

static CLIENT_TRUST: Section = Section {
    heading: "Trust",
    options: &[&PIN, &CLIENT_CA, &CLIENT_CERT, &CLIENT_KEY, &PSK_FILE],
};

static GENERAL: Section = Section {
    heading: "General",
    options: &[
        &CONFIG,
        &HTTP,
        &HTTP_MODE,
        &HTTP_NAME,
        &COMPAT_JSON,
        &NO_CONFINE,
    ],
};

static LOGS: Section = Section {
    heading: "Logs",
    options: &[&VERBOSE, &QUIET, &LOG_LEVEL, &LOG_FORMAT, &LOG_OUTPUT],
};

options! {
    pub(super) LISTEN: One<SocketAddr> = "listen" "ADDR", by parse_listen_or_port, default "[::]:7500", key "listen";
        "UDP address, or a port alone"
    pub(super) LISTEN_TLS: Many<Option<SocketAddr>> = "listen-tls" "ADDR|off", by listen_tls, words &["off"], key "listen_tls";
        "TCP address, or a port alone, for clients on networks without UDP; repeatable. Without it: that of --listen; off: none"
    pub(super) HTTPS_PROXY: Switch = "https-proxy" "BOOL", by switch, key "https_proxy";
        "Serve programs that use this server as an HTTPS proxy, on the TCP ports: clients log in with their name and secret"
    pub(super) TAKE_OVER: Switch = "take-over" "BOOL", by switch;
        "Take over from the process that runs with the same state directory: its flows continue in this one"
    pub(super) RELOAD: Switch = "reload" "BOOL", by switch;
        "Make the running process read its configuration again; if it is another build of quictun, take over from it in the background. Then exit"
    pub(super) CLIENT_STATE_DIR: Maybe<PathBuf> = "state-dir" "DIR", by path, key "state_dir";
        "Directory for the socket of --take-over; several clients on a host need one each. Without it: $XDG_RUNTIME_DIR/quictun, if that is set"
    pub(super) ALLOW: Many<String> = "allow" "RULE", by text;
        "Target that the client 'default' may reach; repeatable. A rule for UDP begins with udp:"
    pub(super) LISTEN_FOR: Many<String> = "listen-for" "RULE", by text;
        "Address on which the client 'default' may have this server listen; repeatable"
    pub(super) REVERSE_GRACE: One<Duration> = "reverse-grace" "DURATION", by |text| time_between(text, "0s", "24h"), default "30s", key "reverse_grace";
        "Time for which connections to a client's listeners wait while the client does not answer; after it, the listeners close until the client returns"
    pub(super) PROXY_PROTOCOL: Many<HeaderRule> = "proxy-protocol" "RULE", by parsed, key "proxy_protocol", reloads true;
        "Targets to which this side sends a PROXY header: ADDRESS:PORT, NETWORK/BITS:PORT, *:PORT or unix:/PATH; repeatable"
    pub(super) STATE_DIR: Maybe<PathBuf> = "state-dir" "DIR", by path, key "identity.state_dir", reloads true;
        "Directory for the key and secrets that the first run creates"
    pub(super) SERVER_CERT: Maybe<PathBuf> = "cert" "FILE", by path, key "identity.cert", reloads true;
        "Certificate chain, PEM; replaces the one that the first run creates"
    pub(super) SERVER_KEY: Maybe<PathBuf> = "key" "FILE", by path, key "identity.key", reloads true;
        "Private key of the certificate, PEM"
    pub(super) SERVER_CA: Maybe<PathBuf> = "ca" "FILE", by path, key "ca", reloads true;
        "CA certificates, PEM, for clients identified by the name in their certificate"

    pub(super) SERVER_TO_DIAL: Many<Address> = "server" "HOST[:PORT]", by parse_address, key "server", reloads true;
        "Server to connect to, at port 7500 unless given, or srv:DOMAIN for the servers in its SRV records; repeatable: new flows take the best one"
    pub(super) TLS_PORT: Maybe<u16> = "tls-port" "PORT", by |text| number(text, 1..=u16::MAX), key "tls_port", reloads true;
        "TCP port of the server, for networks without UDP, if it is another one than that of --server"
    pub(super) FORWARD: Many<Vec<Forward>> = "forward" "LISTEN=TARGET", by forward::parse, short 'L', reloads true;
        "Forward connections made to LISTEN to TARGET; repeatable. Two ranges of ports are a forward for each port: 8000-8010=10.0.0.5:9000-9010. udp:LISTEN=HOST:PORT forwards datagrams"
    pub(super) PROXY: Many<ListenOn> = "proxy" "LISTEN", by proxy_listen, short 'D', reloads true;
        "Run a proxy on LISTEN for SOCKS5, SOCKS4a and HTTP CONNECT; repeatable"
    pub(super) PROXY_USERS: Maybe<PathBuf> = "proxy-users" "FILE", by path, key "proxy_users", reloads true;
        "File with a line USER:PASSWORD for each user of the proxy; without it, only this machine may use the proxy"
    pub(super) REVERSE: Many<Vec<Reverse>> = "reverse" "LISTEN=TARGET", by forward::parse_reverse, short 'R', key "reverse", reloads true;
        "Make the server, the first one if there are several, listen on LISTEN, and forward connections made there to TARGET on this side; repeatable. udp:LISTEN=HOST:PORT forwards datagrams"
    pub(super) REDIRECT: Maybe<u16> = "redirect" "PORT", by |text| number(text, 1..=u16::MAX), key "redirect", reloads true;
        "Forward connections that nftables redirects to PORT to their original destination; `quictun doctor --redirect PORT` prints the rules"
    pub(super) TPROXY: Maybe<u16> = "tproxy" "PORT", by |text| number(text, 1..=u16::MAX), key "tproxy", reloads true;
        "Like --redirect, without rewriting addresses; see `quictun doctor --tproxy`; needs CAP_NET_ADMIN"
    pub(super) SEND_APP_ADDRESSES: Switch = "send-app-addresses" "BOOL", by switch, key "send_app_addresses", reloads true;
        "Send the addresses of local applications to the server, for its PROXY headers"
    pub(super) OFFER: One<Offer> = "offer" "WHICH", choice &[("native", Offer::Native), ("compat", Offer::Compat), ("both", Offer::Both)], default "native", key "offer", reloads true;
        "Protocols offered: native (quictun/1), compat (quic-tun) or both"
    pub(super) PIN: Many<Pin> = "pin" "PIN", by parsed, key "pin", also "pins", reloads true;
        "Pin of the server's public key, sha256:..., as the server prints it at start-up; repeatable"
    pub(super) CLIENT_CA: Maybe<PathBuf> = "ca" "FILE|system", by path, words &["system"], key "ca", reloads true;
        "CA certificates that the server's certificate must chain to, PEM, or the system's"
    pub(super) CLIENT_CERT: Maybe<PathBuf> = "cert" "FILE", by path, key "cert", reloads true;
        "This client's certificate chain, PEM"
    pub(super) CLIENT_KEY: Maybe<PathBuf> = "key" "FILE", by path, key "key", reloads true;
        "Private key of the certificate, PEM"
    pub(super) PSK_FILE: Maybe<PathBuf> = "psk-file" "FILE", by path, key "psk_file", reloads true;
        "File with the secret shared with the server"

    pub(super) CONFIG: Maybe<PathBuf> = "config" "FILE", by path, short 'c';
        "Configuration file, TOML"
    HTTP: One<Option<HttpListen>> = "http" "ADDR", by |text| parse_http(text, Wildcard::AsWritten), default "127.0.0.1:8086", key "control.http";
        "HTTP interface (/metrics, /v1/tunnels, ...), also unix:/PATH; off: none"
    HTTP_MODE: One<u32> = "http-mode" "MODE", by parse_mode, default "0600", key "control.http_mode";
        "Permissions of the Unix socket of --http, octal"
    HTTP_NAME: Many<String> = "http-name" "NAME", by parse_name, key "control.http_names";
        "Host name that --http answers to, besides addresses and localhost; repeatable"
    pub(super) VERBOSE: Switch = "verbose" "BOOL", by switch, short 'v';
        "Log more: same as --log-level debug"
    QUIET: Switch = "quiet" "BOOL", by switch, short 'q';
        "Log warnings and errors only: same as --log-level warn"
    LOG_FORMAT: One<LogFormat> = "log-format" "NAME", choice &[("text", LogFormat::Text), ("console", LogFormat::Console), ("json", LogFormat::Json)], default "text", key "log.format";
        "text, console (quic-tun's columns) or json"
    LOG_OUTPUT: Many<String> = "log-output" "PATHS", by text, words &["stdout", "stderr"], default "stderr", key "log.output";
        "stdout, stderr or files, separated by commas"

    pub ASKED_CONFIG: Maybe<PathBuf> = "config" "FILE", by path, short 'c';
        "Configuration file of the process; it names the interface or the directory at which the process is asked"
    pub ASKED_STATE_DIR: Maybe<PathBuf> = "state-dir" "DIR", by path;
        "State directory of the process; without it: the defaults of a server, of the system's service and of a client"
    pub ASKED_HTTP: One<Option<HttpListen>> = "http" "ADDR", by |text| parse_http(text, Wildcard::AsWritten), default "127.0.0.1:8086", key "control.http";
        "HTTP interface of the process, an address or unix:/PATH"
    pub WATCH_INTERVAL: One<Duration> = "interval" "TIME", by |text| time_between(text, "200ms", "1h"), default "1s";
        "With --watch: time between two queries"
}

pub(super) const CONTROL_FLAGS: ControlFlags = ControlFlags {
    http: &HTTP,
    http_mode: &HTTP_MODE,
    http_name: &HTTP_NAME,
    log_format: &LOG_FORMAT,
    log_output: &LOG_OUTPUT,
    verbosity: Some(Verbosity {
        more: &VERBOSE,
        less: &QUIET,
    }),
    phrases: Phrases::Own,
};
