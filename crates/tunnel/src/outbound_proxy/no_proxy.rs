//! The servers that are reached without an outbound proxy, in the form of `no_proxy`.

use std::net::IpAddr;

use ipnet::IpNet;

/// A list of hosts, domains and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<Exception>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    /// A host, or a domain with all hosts in it, in lower case.
    Domain(String),
    Network(IpNet),
}

impl NoProxy {
    /// Parses a list whose entries are separated by commas or white space. An entry is `*`, a host, a domain with or
    /// without a dot before it, an address, or a network such as `10.0.0.0/8`. A port after a host is ignored.
    pub fn parse(list: &str) -> Self {
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        let entries = entries.filter(|entry| !entry.is_empty());
        Self(entries.filter_map(Exception::parse).collect())
    }

    /// Returns whether the host is in the list.
    pub fn has(&self, host: &str) -> bool {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let address = name.split('%').next().unwrap_or_default();
        let address: Option<IpAddr> = address.parse().ok();
        self.0.iter().any(|exception| match exception {
            Exception::All => true,
            Exception::Domain(domain) => name.strip_suffix(&**domain).is_some_and(|before| {
                address.is_none() && (before.is_empty() || before.ends_with('.'))
            }),
            Exception::Network(network) => {
                address.is_some_and(|address| network.contains(&address))
            }
        })
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some((network, bits)) = entry.split_once('/') {
            let network: IpAddr = network.parse().ok()?;
            let network = IpNet::new(network, bits.parse().ok()?).ok()?;
            return Some(Self::Network(network));
        }
        let inner = entry
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        let bare = inner.unwrap_or(entry);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Network(address.into()));
        }
        let host = bare.split(':').next().unwrap_or_default();
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Self::Network(address.into()));
        }
        let host = host.strip_prefix('*').unwrap_or(host);
        let domain = host.trim_matches('.').to_ascii_lowercase();
        (!domain.is_empty()).then_some(Self::Domain(domain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_domains_and_networks_are_exceptions() {
        let list = "localhost, .example.com intern.example:8443,*.wild.test,10.0.0.0/8,192.0.2.7,[2001:db8::1],fd00::/8,x/99";
        let list = NoProxy::parse(list);
        for host in [
            "localhost",
            "example.com",
            "a.b.EXAMPLE.com.",
            "intern.example",
            "x.wild.test",
            "10.255.0.1",
            "192.0.2.7",
            "2001:db8::1",
            "fd12::9%eth0",
        ] {
            assert!(list.has(host), "{host}");
        }
        for host in [
            "notexample.com",
            "example.com.evil.test",
            "11.0.0.1",
            "192.0.2.8",
            "2001:db8::2",
            "fe80::1%eth0",
            "",
        ] {
            assert!(!list.has(host), "{host}");
        }
    }

    #[test]
    fn a_star_excepts_everything_and_an_empty_list_nothing() {
        let (all, none) = (NoProxy::parse("a,*"), NoProxy::parse(" ,"));
        for host in ["server.example", "192.0.2.1", "::1"] {
            assert!(all.has(host) && !none.has(host));
        }
        assert!(NoProxy::parse("0.0.0.0/0").has("192.0.2.1"));
        assert!(!NoProxy::parse("0.0.0.0/0").has("::1"));
        assert!(NoProxy::parse("::/0").has("::1"));
    }
}
