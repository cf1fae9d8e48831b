//! Targets that get a PROXY header before the application's bytes (PROTOCOL section 5.10).
//!
//! | rule | targets that it names |
//! | --- | --- |
//! | `ADDRESS:PORT`, `[V6]:PORT` | that address at that port; `localhost` stands for 127.0.0.1 |
//! | `NETWORK/BITS:PORT` | every address of the network at that port |
//! | `ADDRESS:*`, `*:PORT` | any port, any address |
//! | `unix:/path` | the socket to which that path leads |
//! | `*` | every target |
//!
//! A target that expects the header parses the first bytes as one. So a target that a rule names must never be reached
//! without it, and the decision is made on the address or socket that is dialled, in every spelling. For the same
//! reason rules name neither hosts nor directories: the address behind a host's name could be dialled as such, and a
//! link from elsewhere could lead to a socket in the directory.
//!
//! Listeners at one port of this host cannot be distinguished by address, since one socket may accept connections to
//! all addresses. A rule for one address of this host, or for a network, therefore applies to all addresses of this
//! host at that port.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use super::address::{is_this_host, readings};
use super::own_http::is_local;
use super::rule::{HostPattern, Rule, RuleError, single_address};

/// A pattern of targets that get the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// The rule as it was written, which is also how it is shown.
    text: String,
    rule: Rule,
}

/// The reasons why a text is not such a rule. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderRuleError {
    /// The rule has a host's name in place of an address.
    #[error(
        "{0:?} is a name, whose address could be dialled without the header: write the address, ADDRESS:PORT or NETWORK/BITS:PORT, or *:PORT for every target at that port"
    )]
    Name(String),
    /// The rule names a directory of Unix sockets.
    #[error(
        "{0:?} is a directory, to whose sockets links may lead from elsewhere: write unix:/PATH for each socket"
    )]
    Directory(String),
    /// The text is not a rule of any kind.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

/// An address or a socket that is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialAddress<'a> {
    /// The address and port of a TCP target.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(&'a str),
}

impl DialAddress<'_> {
    /// Returns the address, or `None` for a Unix socket.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(address),
            Self::Unix(_) => None,
        }
    }
}

/// All targets of a process that get the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderTargets(Vec<HeaderRule>);

impl FromStr for HeaderRule {
    type Err = HeaderRuleError;

    fn from_str(text: &str) -> Result<Self, HeaderRuleError> {
        let mut rule = Rule::parse(text)?;
        match &mut rule {
            Rule::Tcp { host, .. } if *host == HostPattern::Name("localhost".to_owned()) => {
                *host = HostPattern::Network(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
            }
            Rule::Tcp {
                host: HostPattern::Name(name),
                ..
            } => return Err(HeaderRuleError::Name(name.clone())),
            Rule::UnixBelow(directory) => {
                return Err(HeaderRuleError::Directory(directory.clone()));
            }
            Rule::Everything | Rule::Tcp { .. } | Rule::UnixPath(_) => {}
        }
        Ok(Self {
            text: text.to_owned(),
            rule,
        })
    }
}

impl fmt::Display for HeaderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl HeaderTargets {
    /// Creates the set of targets that at least one of these rules names.
    pub fn new(rules: Vec<HeaderRule>) -> Self {
        Self(rules)
    }

    /// Returns whether this address or socket gets the header (PROTOCOL HEADER-1).
    ///
    /// If needed, asks the kernel whether an address belongs to this host, and which file a path leads to.
    pub fn names(&self, dialled: DialAddress<'_>) -> bool {
        match dialled {
            DialAddress::Tcp(address) => self.names_address(address),
            DialAddress::Unix(path) => self.rules().any(|rule| match rule {
                Rule::Everything => true,
                Rule::UnixPath(named) => is_same_socket(Path::new(named), Path::new(path)),
                Rule::Tcp { .. } | Rule::UnixBelow(_) => false,
            }),
        }
    }

    /// Returns the rules as they were written, in their order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|rule| rule.text.as_str())
    }

    fn names_address(&self, dialled: SocketAddr) -> bool {
        let (address, port) = (dialled.ip(), dialled.port());
        let zone = match dialled {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let named = |address| {
            let mut rules = self.rules();
            rules.any(|rule| rule.is_wildcard_for(port) || rule.names_address(port, address))
        };
        if readings(address).any(named) {
            return true;
        }
        let networks = || self.rules().filter_map(|rule| rule.network_for(port));
        // The kernel is not asked unless a rule has this port.
        networks().next().is_some()
            && is_of_this_host(address, zone)
            && networks().any(|network| {
                let single = single_address(network);
                single.is_none_or(|address| is_of_this_host(address, 0))
            })
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().map(|rule| &rule.rule)
    }
}

fn is_of_this_host(address: IpAddr, zone: u32) -> bool {
    is_this_host(address) || readings(address).any(|address| is_local(address, zone))
}

/// Returns whether two paths lead to the same socket, including through links, mounts and dots. If the system does not
/// let this process examine the path of a rule, the path may lead anywhere, so the result is `true`.
fn is_same_socket(named: &Path, path: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    named == path
        || match (file(named), file(path)) {
            (Ok(named), Ok(path)) => named == path,
            (Err(error), _) => !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
            (Ok(_), Err(_)) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(rules: &[&str]) -> HeaderTargets {
        let rules = rules.iter().map(|rule| rule.parse().expect(rule));
        HeaderTargets::new(rules.collect())
    }

    fn names(rules: &[&str], address: &str) -> bool {
        let address = DialAddress::Tcp(address.parse().expect("an address"));
        targets(rules).names(address)
    }

    // PROTOCOL HEADER-1.
    #[test]
    fn an_address_is_named_in_every_spelling_and_at_its_port_alone() {
        for (rule, address) in [
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("192.0.2.7:80", "[::ffff:192.0.2.7]:80"),
            ("192.0.2.7:80", "[64:ff9b::192.0.2.7]:80"),
            ("192.0.2.7:80", "[2002:c000:207::1]:80"),
            ("[::ffff:192.0.2.7]:80", "192.0.2.7:80"),
            ("192.0.2.0/24:80", "192.0.2.200:80"),
            ("192.0.2.0/24:80", "[64:ff9b::192.0.2.200]:80"),
            ("[2001:db8::/32]:80", "[2001:db8::1]:80"),
            ("tcp:192.0.2.7:80", "192.0.2.7:80"),
            ("*:80", "198.51.100.1:80"),
            ("192.0.2.7:*", "192.0.2.7:5432"),
            ("*", "[2001:db8::1]:1"),
        ] {
            assert!(names(&[rule], address), "{rule} {address}");
        }
        for (rule, address) in [
            ("192.0.2.7:80", "192.0.2.7:81"),
            ("192.0.2.7:80", "192.0.2.8:80"),
            ("192.0.2.0/24:80", "192.0.3.1:80"),
            ("[2001:db8::/32]:80", "192.0.2.1:80"),
            ("*:80", "192.0.2.7:443"),
            ("unix:/run/a", "192.0.2.7:80"),
        ] {
            assert!(!names(&[rule], address), "{rule} {address}");
        }
        assert!(!names(&[], "127.0.0.1:80"));
        assert!(names(&["192.0.2.7:80", "192.0.2.8:80"], "192.0.2.8:80"));
    }

    // PROTOCOL HEADER-1.
    #[test]
    fn one_address_of_this_host_stands_for_all_of_them_at_its_port() {
        for rule in [
            "127.0.0.1:80",
            "localhost:80",
            "[::1]:80",
            "0.0.0.0:80",
            "10.0.0.0/8:80",
        ] {
            for address in [
                "127.0.0.1:80",
                "127.9.9.9:80",
                "0.0.0.0:80",
                "[::]:80",
                "[::1]:80",
                "[::ffff:127.0.0.1]:80",
                "[::ffff:0.0.0.0]:80",
                "[64:ff9b::127.0.0.1]:80",
            ] {
                assert!(names(&[rule], address), "{rule} {address}");
            }
            for address in ["127.0.0.1:81", "192.0.2.1:80", "[2001:db8::1]:80"] {
                assert!(!names(&[rule], address), "{rule} {address}");
            }
        }
        // A rule for another host's address does not apply to this host.
        assert!(!names(&["192.0.2.7:80"], "127.0.0.1:80"));
    }

    #[test]
    fn names_and_directories_are_refused_with_the_remedy() {
        for (rule, part) in [
            ("db.internal:5432", "*:PORT"),
            ("db.internal:*", "ADDRESS:PORT"),
            ("LocalHost.example:80", "ADDRESS:PORT"),
            ("unix:/run/web/*", "unix:/PATH"),
            ("192.0.2.7", "a port is missing"),
            ("http://192.0.2.7/", "192.0.2.7:80"),
        ] {
            let why = rule.parse::<HeaderRule>().expect_err(rule).to_string();
            assert!(why.contains(part), "{rule}: {why}");
        }
    }

    // PROTOCOL HEADER-1.
    #[test]
    fn a_unix_socket_is_named_by_every_path_that_leads_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        let rule = format!("unix:{}", path("web.sock"));
        let targets = targets(&[&rule]);
        // The socket does not exist yet.
        assert!(targets.names(DialAddress::Unix(&path("web.sock"))));
        assert!(!targets.names(DialAddress::Unix(&path("other.sock"))));
        let listen = |name: &str| std::os::unix::net::UnixListener::bind(path(name)).expect(name);
        let _listeners = [listen("web.sock"), listen("other.sock")];
        std::os::unix::fs::symlink(path("web.sock"), path("link.sock")).expect("a link");
        fs::hard_link(path("web.sock"), path("second.sock")).expect("a second name");
        fs::create_dir(path("x")).expect("made");
        for name in [
            "web.sock",
            "link.sock",
            "second.sock",
            "./web.sock",
            "x/../web.sock",
        ] {
            assert!(targets.names(DialAddress::Unix(&path(name))), "{name}");
        }
        for name in ["other.sock", "none.sock"] {
            assert!(!targets.names(DialAddress::Unix(&path(name))), "{name}");
        }
        // No socket can be at a path through a file that is not a directory.
        fs::write(path("file"), "").expect("a file");
        let rule = format!("unix:{}", path("file/web.sock"));
        let through_a_file = self::targets(&[&rule]);
        assert!(!through_a_file.names(DialAddress::Unix(&path("other.sock"))));
        assert!(self::targets(&["*"]).names(DialAddress::Unix("/run/a")));
        assert!(!self::targets(&["*:80"]).names(DialAddress::Unix("/run/a")));
    }
}
