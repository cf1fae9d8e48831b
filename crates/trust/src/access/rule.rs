//! One rule: a pattern of targets.
//!
//! | rule | targets that it names |
//! | --- | --- |
//! | `HOST:PORT` | a name as written, in any case, at that port; or one address |
//! | `CIDR:PORT`, `[v6/len]:PORT` | every address of the network, however the target names it |
//! | `*:PORT`, `HOST:*`, `*:*` | any host, any port |
//! | `udp:HOST:PORT` and so on | the same hosts and ports, for datagrams; no other rule names those |
//! | `unix:/path` | that path, byte for byte |
//! | `unix:/dir/*` | any path below that directory, at any depth; links in it lead no further |
//! | `*` | any host, any port, any Unix socket |
//!
//! Some addresses are closed (see `super::closed`): link-local ones, metadata services, and this server's own HTTP
//! interface. A name, `*` or a network that contains them does not open them. Only a rule for the address itself does,
//! or one for a network inside a link-local range.
//!
//! A name that resolves to a loopback, unspecified or private address can be reached by a rule with this very name or
//! with the address, but not by `*`.
//!
//! If at least one rule of a client names hosts (a name or `*`), other names are looked up as well: they may resolve to
//! an address that a rule names. Rules with only addresses and networks cause no look-ups.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quictun_wire::target::{Target, TargetError, is_port_range};
use thiserror::Error;

use super::closed::ClosedReason;

/// A pattern of targets: `HOST:PORT`, `CIDR:PORT`, `*:PORT`, `HOST:*`, `unix:/path`, `unix:/dir/*`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRule {
    /// The rule as it was written, which is also how it is shown.
    text: String,
    pub(super) rule: Rule,
    /// The rule is for UDP, and for nothing else.
    pub(super) datagrams: bool,
}

/// The hosts that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleHosts<'a> {
    /// The rule is `*` or `*:PORT`.
    Any,
    /// The host with this name, in lower case.
    Name(&'a str),
    /// The addresses that share these first bits.
    Network(IpAddr, u8),
}

impl TargetRule {
    /// Returns the hosts that the rule names, or `None` if it names Unix sockets only.
    pub fn hosts(&self) -> Option<RuleHosts<'_>> {
        match &self.rule {
            Rule::Everything => Some(RuleHosts::Any),
            Rule::Tcp { host, .. } => Some(match host {
                HostPattern::Any => RuleHosts::Any,
                HostPattern::Name(name) => RuleHosts::Name(name),
                HostPattern::Network(net) => RuleHosts::Network(net.addr(), net.prefix_len()),
            }),
            Rule::UnixPath(_) | Rule::UnixBelow(_) => None,
        }
    }
}

impl FromStr for TargetRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let udp = text.strip_prefix("udp:");
        let udp = udp.filter(|rest| rest.contains(':'));
        Ok(Self {
            text: text.to_owned(),
            rule: udp.map_or_else(|| Rule::parse(text), Rule::parse_address)?,
            datagrams: udp.is_some(),
        })
    }
}

impl fmt::Display for TargetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Everything,
    Tcp {
        host: HostPattern,
        port: PortPattern,
    },
    UnixPath(String),
    /// The directory, with its slash at the end.
    UnixBelow(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    Any,
    /// The name in lower case, without a dot at the end.
    Name(String),
    /// Never an IPv4 network in IPv6 form.
    Network(IpNet),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortPattern {
    Any,
    Just(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleMatch {
    No,
    /// The rule names the Unix socket, or the name should be resolved: its address may be one that the rule permits.
    Yes,
    /// The path begins with the rule's directory, but may leave it again.
    NonCanonicalPath,
}

/// The reasons why a text is not a rule. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The text has no colon.
    #[error(
        "a port is missing: write HOST:PORT, NETWORK/BITS:PORT, [IPV6]:PORT, *:PORT, HOST:*, unix:/PATH, unix:/DIRECTORY/* or *"
    )]
    MissingPort,
    /// The text is a URL such as `https://db.example/`. The error holds it and the rule that the author may mean.
    #[error("{url:?} is an address of the web, not a target: write {instead:?}")]
    Url {
        /// The URL as given.
        url: String,
        /// The rule made of the URL's host and port.
        instead: String,
    },
    /// The port is 0, above 65535, or not a number.
    #[error("bad port {0:?}: {advice}", advice = port_advice(.0))]
    BadPort(String),
    /// The `*` stands for a part only, as in `*.example.com` or `unix:/run/*.sock`.
    #[error(
        "'*' stands for a whole host, a whole port or all of a directory: list the others one by one"
    )]
    PartialWildcard,
    /// The host is neither a name nor an address, or the path is invalid.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The network is invalid, as in `10.0.0.0/33` or `db/8`.
    #[error("{0:?} is not a network: write ADDRESS/BITS, as in 10.0.0.0/8 or [fd00::/8]")]
    BadNetwork(String),
    /// The network has host bits, as in `10.1.2.3/8`: either its length or its address is a mistake.
    #[error("{network:?} has bits set behind its prefix: write {instead:?}")]
    HostBits {
        /// The network as given.
        network: String,
        /// The network that contains it.
        instead: String,
    },
    /// A directory rule contains `..`, `.` or a doubled slash.
    #[error("{0:?} contains '.', '..' or a doubled slash: write the plain path of the directory")]
    NonCanonicalDirectory(String),
}

fn port_advice(port: &str) -> &'static str {
    if is_port_range(port) {
        "a rule has one port or all, not a range: write a rule for each port, or * for all"
    } else {
        "write a number from 1 to 65535, or *"
    }
}

impl Rule {
    pub(super) fn parse(text: &str) -> Result<Self, RuleError> {
        if text == "*" {
            return Ok(Self::Everything);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return parse_unix(path);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let (url, instead) = (text.to_owned(), of_url(scheme, rest));
            return Err(RuleError::Url { url, instead });
        }
        // The prefix is the same as in a target; "tcp:80" alone is a host named tcp.
        let address = text
            .strip_prefix("tcp:")
            .filter(|rest| rest.contains(':'))
            .unwrap_or(text);
        Self::parse_address(address)
    }

    /// Parses `HOST:PORT`, or one of the patterns in its place.
    fn parse_address(address: &str) -> Result<Self, RuleError> {
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => return Err(RuleError::MissingPort),
        };
        Ok(Self::Tcp {
            host: parse_host(host)?,
            port: parse_port(port)?,
        })
    }

    /// Returns whether this rule names a Unix socket, or a host by its name, as far as that is known before look-up.
    ///
    /// Address literals are for [`Rule::names_address`] and [`Rule::is_wildcard_for`].
    pub(super) fn reach(&self, target: &Target) -> RuleMatch {
        match (self, target) {
            (Self::Everything, _) => RuleMatch::Yes,
            (Self::UnixPath(path), Target::Unix { path: asked }) if path == asked => RuleMatch::Yes,
            (Self::UnixBelow(dir), Target::Unix { path }) if path.starts_with(dir) => {
                if is_plain(path) {
                    RuleMatch::Yes
                } else {
                    RuleMatch::NonCanonicalPath
                }
            }
            (Self::Tcp { host, port }, _) => {
                let Some((name, asked)) = target.host_and_port() else {
                    return RuleMatch::No;
                };
                let network = matches!(host, HostPattern::Network(_)) && port.names(asked);
                if network || self.names_host(name, asked) || self.is_wildcard_for(asked) {
                    RuleMatch::Yes
                } else {
                    RuleMatch::No
                }
            }
            _ => RuleMatch::No,
        }
    }

    /// Returns whether this rule names an address, alone or in a network, rather than a name or a wildcard.
    ///
    /// `addr` must be in canonical form, as all addresses in rules are.
    pub(super) fn names_address(&self, port: u16, addr: IpAddr) -> bool {
        self.network_for(port)
            .is_some_and(|net| net.contains(&addr))
    }

    /// Returns whether this rule names an address that is closed to other rules: the address itself or, for a
    /// link-local address, a network that lies completely in a link-local range.
    pub(super) fn opens(&self, port: u16, addr: IpAddr, closed: ClosedReason) -> bool {
        self.network_for(port).is_some_and(|net| {
            let is_link_local = || LINK_LOCAL.iter().any(|range| range.contains(&net));
            let narrow = single_address(net).is_some()
                || (closed == ClosedReason::LinkLocal && is_link_local());
            narrow && net.contains(&addr)
        })
    }

    pub(super) fn names_path(&self, path: &str) -> bool {
        matches!(self, Self::UnixPath(named) if named == path)
    }

    /// Returns whether this rule names the path of a Unix socket.
    pub(super) fn names_socket(&self, path: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::UnixPath(named) => named == path,
            Self::UnixBelow(directory) => path.starts_with(directory) && is_plain(path),
            Self::Tcp { .. } => false,
        }
    }

    /// Returns the directory that a path of this rule must not leave by links. `None` if the rule has none.
    pub(super) fn directory(&self) -> Option<&str> {
        match self {
            Self::UnixBelow(directory) => Some(directory.as_str()).filter(|it| *it != "/"),
            Self::Everything | Self::Tcp { .. } | Self::UnixPath(_) => None,
        }
    }

    pub(super) fn network_for(&self, port: u16) -> Option<IpNet> {
        match self {
            Self::Tcp {
                host: HostPattern::Network(net),
                port: ports,
            } if ports.names(port) => Some(*net),
            _ => None,
        }
    }

    pub(super) fn names_hosts(&self) -> bool {
        match self {
            Self::Everything => true,
            Self::Tcp { host, .. } => !matches!(host, HostPattern::Network(_)),
            Self::UnixPath(_) | Self::UnixBelow(_) => false,
        }
    }

    /// Returns whether this rule has exactly the target's name, in any case, with or without the final dot.
    pub(super) fn names_host(&self, host: &str, port: u16) -> bool {
        matches!(
            self,
            Self::Tcp { host: HostPattern::Name(name), port: ports }
                if name.eq_ignore_ascii_case(without_root(host)) && ports.names(port)
        )
    }

    pub(super) fn is_wildcard_for(&self, port: u16) -> bool {
        match self {
            Self::Everything => true,
            Self::Tcp {
                host: HostPattern::Any,
                port: ports,
            } => ports.names(port),
            _ => false,
        }
    }
}

/// Returns the narrowest rule that names a target.
pub(super) fn narrowest_rule(target: &Target) -> String {
    match target {
        Target::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
        Target::Tcp { host, port, .. } => format!("{host}:{port}"),
        Target::Udp { .. } | Target::Unix { .. } => target.to_string(),
    }
}

impl PortPattern {
    fn names(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Just(just) => just == port,
        }
    }
}

/// Link-local networks: RFC 3927, the same behind NAT64 (RFC 6052), and RFC 4291.
const LINK_LOCAL: [IpNet; 3] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xa9fe, 0),
        112,
    )),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
    )),
];

/// Returns the address of a network that has only one.
pub(super) fn single_address(net: IpNet) -> Option<IpAddr> {
    (net.prefix_len() == net.max_prefix_len()).then_some(net.addr())
}

fn parse_unix(path: &str) -> Result<Rule, RuleError> {
    let Some(dir) = path.strip_suffix("/*") else {
        if path.contains('*') {
            return Err(RuleError::PartialWildcard);
        }
        Target::parse(&format!("unix:{path}"))?;
        return Ok(Rule::UnixPath(path.to_owned()));
    };
    if dir.contains('*') {
        return Err(RuleError::PartialWildcard);
    }
    Target::parse(&format!("unix:{dir}/"))?;
    if !dir.is_empty() && !is_plain(dir) {
        return Err(RuleError::NonCanonicalDirectory(dir.to_owned()));
    }
    Ok(Rule::UnixBelow(format!("{dir}/")))
}

/// Returns whether a path has no `.`, no `..` and no empty component, and so stays where its text says.
fn is_plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|relative| {
        relative
            .split('/')
            .all(|component| !matches!(component, "" | "." | ".."))
    })
}

/// Returns host and port of the part of a URL after its scheme, with the scheme's default port if it names none.
fn of_url(scheme: &str, rest: &str) -> String {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    let host = if host.is_empty() { "HOST" } else { host };
    if has_port {
        return host.to_owned();
    }
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => "80",
        "https" | "wss" => "443",
        "ssh" | "sftp" => "22",
        _ => "PORT",
    };
    format!("{host}:{port}")
}

fn parse_host(host: &str) -> Result<HostPattern, RuleError> {
    if host == "*" {
        return Ok(HostPattern::Any);
    }
    if host.contains('*') {
        return Err(RuleError::PartialWildcard);
    }
    if host.contains('/') {
        return parse_network(host).map(HostPattern::Network);
    }
    // A rule names only hosts that a target can have; any port will do for this check.
    match Target::parse(&format!("tcp:{host}:1"))? {
        Target::Tcp { host, .. } => Ok(match host.parse::<IpAddr>() {
            Ok(addr) => HostPattern::Network(addr.to_canonical().into()),
            Err(_) => HostPattern::Name(without_root(&host).to_owned()),
        }),
        Target::Udp { .. } | Target::Unix { .. } => {
            Err(TargetError::RelativePath(host.to_owned()).into())
        }
    }
}

/// Removes the final dot for comparison: `db.example.` and `db.example` are the same name.
fn without_root(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn parse_network(text: &str) -> Result<IpNet, RuleError> {
    let bad = || RuleError::BadNetwork(text.to_owned());
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let (addr, len) = inner.unwrap_or(text).split_once('/').ok_or_else(bad)?;
    let addr: IpAddr = addr.parse().map_err(|_| bad())?;
    let digits = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
    let len: u8 = len.parse().ok().filter(|_| digits).ok_or_else(bad)?;
    if addr.is_ipv6() != inner.is_some() {
        return Err(bad());
    }
    let net = IpNet::new(addr, len).map_err(|_| bad())?;
    let base = net.trunc();
    if base != net {
        let instead = match base {
            IpNet::V4(_) => base.to_string(),
            IpNet::V6(_) => format!("[{base}]"),
        };
        return Err(RuleError::HostBits {
            network: text.to_owned(),
            instead,
        });
    }
    // ::ffff:10.0.0.0/104 is 10.0.0.0/8. A shorter prefix contains IPv6 addresses only.
    match base.addr().to_canonical() {
        v4 @ IpAddr::V4(_) if addr.is_ipv6() && len >= 96 => {
            IpNet::new(v4, len - 96).map_err(|_| bad())
        }
        _ => Ok(base),
    }
}

fn parse_port(port: &str) -> Result<PortPattern, RuleError> {
    if port == "*" {
        return Ok(PortPattern::Any);
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number != 0 => Ok(PortPattern::Just(number)),
        _ => Err(RuleError::BadPort(port.to_owned())),
    }
}
