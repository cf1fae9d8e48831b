//! The outbound proxy of a client: the flags, and the variables that other programs use, too.

use std::path::PathBuf;

use quictun_tunnel::outbound_proxy::{
    Credentials, NoProxy, OutboundProtocol, OutboundProxy, ProxyLogin,
};
use quictun_tunnel::settings::{CarrierChoice, HostPort};

use crate::address::parse_server_at;
use crate::fault::Fault;
use crate::layers::{Layers, Origin};
use crate::options;
use crate::options::{InvalidValue, Maybe, One};
use crate::values::path;

/// The variables of the environment that name a proxy, in the order in which curl and others read them.
const VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// The variables that name its exceptions.
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// Hosts that no proxy of the environment leads to: this machine.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Ports of a proxy that is named without one.
const HTTP_PORT: u16 = 80;
const SOCKS_PORT: u16 = 1080;

/// Longest user and longest password, bytes (RFC 1929 section 2).
const MAX_TEXT: usize = 255;

options! {
    pub(crate) VIA: One<Via> = "via" "PROXY", by Via::parse, words &["auto", "none", "http://", "socks5h://"], default "auto", key "via";
        "Proxy through which TLS over TCP leads to the server: http://HOST:PORT or socks5h://HOST:PORT; auto: that of https_proxy or all_proxy in the environment, unless no_proxy names the server; none: no proxy"
    pub(crate) VIA_CREDENTIALS: Maybe<PathBuf> = "via-credentials" "FILE", by path, key "via_credentials";
        "File with the line USER:PASSWORD for the proxy of --via or of the environment"
}

/// The value of `--via`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// The variables of the environment name the proxy, if there is one.
    Environment,
    None,
    Proxy(ProxyAddress),
}

/// The address of a proxy, with the login in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyAddress {
    protocol: OutboundProtocol,
    at: HostPort,
    login: Option<Credentials>,
}

impl Via {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "auto" => Ok(Self::Environment),
            "none" => Ok(Self::None),
            _ => ProxyAddress::parse(text).map(Self::Proxy),
        }
    }
}

impl ProxyAddress {
    /// Parses `[SCHEME://][USER:PASSWORD@]HOST[:PORT][/]`. Messages do not repeat the login.
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (protocol, port) = match &*scheme.to_ascii_lowercase() {
            "http" => (OutboundProtocol::Http, HTTP_PORT),
            "socks" | "socks5" | "socks5h" => (OutboundProtocol::Socks5, SOCKS_PORT),
            "https" => {
                return Err("a proxy that is itself reached by TLS (https://) is not supported: name its port for http:// or socks5h://".into());
            }
            _ => {
                return Err("a proxy is http://HOST:PORT or socks5h://HOST:PORT, or none".into());
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, at) = match rest.rsplit_once('@') {
            Some((login, at)) => (Some(login_of(login)?), at),
            None => (None, rest),
        };
        let at = parse_server_at(at, port)?;
        Ok(Self {
            protocol,
            at,
            login,
        })
    }

    /// Hides the login in the text of an address.
    pub(crate) fn without_login(text: &str) -> String {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        match rest.rsplit_once('@') {
            Some((_, at)) => format!("{scheme}://{at}"),
            None => text.to_owned(),
        }
    }
}

/// Parses `USER:PASSWORD` with percent-encoded bytes (RFC 3986 sections 2.1 and 3.2.1).
fn login_of(text: &str) -> Result<Credentials, InvalidValue> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text: &str| percent_decoded(text).filter(|it| it.len() <= MAX_TEXT);
    match (decoded(user), decoded(password)) {
        (Some(user), Some(password)) if !user.is_empty() => Ok(Credentials { user, password }),
        _ => Err("the login before @ is malformed: write USER:PASSWORD with %40 for @ and %25 for %, or leave it out and give --via-credentials FILE".into()),
    }
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(16 * high + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// Reads the outbound proxy of a client with this carrier. `takes_host` means that a device of the client takes the packets
/// of the whole host, those to a proxy included.
pub(crate) fn outbound_proxy(
    layers: &Layers<'_>,
    carrier: CarrierChoice,
    takes_host: bool,
) -> Result<Option<OutboundProxy>, Fault> {
    let file = layers.readable(&VIA_CREDENTIALS)?;
    let is_useless = carrier == CarrierChoice::Quic || takes_host;
    let (proxy, named_by, except) = match layers.get(&VIA)? {
        Via::None => return Ok(None),
        Via::Environment if is_useless => return Ok(None),
        Via::Environment => match of_environment(layers)? {
            Some(found) => found,
            None => return Ok(None),
        },
        Via::Proxy(_) if carrier == CarrierChoice::Quic => {
            return Err(layers.fault(
                &VIA,
                "QUIC does not pass through a proxy: leave out --carrier quic, or take --via none",
            ));
        }
        Via::Proxy(_) if takes_host => {
            return Err(layers.fault(&VIA, "the device takes the packets to the proxy, too: leave out --via, or run single programs with `quictun run`"));
        }
        Via::Proxy(proxy)
            if proxy.login.is_some() && layers.setting(&VIA).origin == Origin::Flag =>
        {
            let why = "every user of this machine can read a password on the command line";
            return Err(layers
                .fault(&VIA, why)
                .next("--via-credentials FILE, with the line USER:PASSWORD in it"));
        }
        Via::Proxy(proxy) => (proxy, layers.what(&VIA), NoProxy::default()),
    };
    let login = match (file, proxy.login) {
        (Some(file), _) => ProxyLogin::File(file),
        (None, Some(login)) => ProxyLogin::Given(login),
        (None, None) => ProxyLogin::None,
    };
    Ok(Some(OutboundProxy {
        protocol: proxy.protocol,
        at: proxy.at,
        login,
        except,
        named_by,
    }))
}

/// Returns the proxy that the environment names, the variable, and the exceptions.
fn of_environment(layers: &Layers<'_>) -> Result<Option<(ProxyAddress, String, NoProxy)>, Fault> {
    let inputs = layers.inputs();
    let given = |name: &str| inputs.variable(name).map(|value| (name.to_owned(), value));
    let Some((name, text)) = VARIABLES.into_iter().find_map(given) else {
        return Ok(None);
    };
    let proxy = ProxyAddress::parse(text).map_err(|InvalidValue(why)| {
        Fault::usage(&name, why).next("--via none connects without a proxy")
    })?;
    let exceptions = EXCEPTIONS
        .into_iter()
        .find_map(|name| inputs.variable(name));
    let exceptions = exceptions.unwrap_or_default();
    let except = NoProxy::parse(&format!("{THIS_MACHINE},{exceptions}"));
    Ok(Some((proxy, name, except)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ProxyAddress {
        ProxyAddress::parse(text).unwrap_or_else(|InvalidValue(why)| panic!("{text}: {why}"))
    }

    #[test]
    fn a_proxy_has_a_protocol_an_address_and_perhaps_a_login() {
        use OutboundProtocol::{Http, Socks5};
        for (text, protocol, at) in [
            ("http://proxy.example:3128", Http, "proxy.example:3128"),
            ("HTTP://proxy.example/", Http, "proxy.example:80"),
            ("proxy.example:8080", Http, "proxy.example:8080"),
            ("socks5://[2001:db8::1]", Socks5, "[2001:db8::1]:1080"),
            ("socks5h://192.0.2.1:9050", Socks5, "192.0.2.1:9050"),
        ] {
            let found = parsed(text);
            assert_eq!((found.protocol, &*found.at.to_string()), (protocol, at));
            assert_eq!(found.login, None);
        }
        let login = parsed("http://an%40n:wo:n%25@p:1").login.expect("a login");
        assert_eq!(
            (&login.user[..], &login.password[..]),
            (&b"an@n"[..], &b"wo:n%"[..])
        );
    }

    #[test]
    fn a_wrong_address_is_one_error_that_does_not_show_the_login() {
        for (text, why) in [
            ("https://ann:wonder@proxy.example:443", "not supported"),
            (
                "socks4://ann:wonder@proxy.example",
                "http://HOST:PORT or socks5h://HOST:PORT",
            ),
            ("http://ann:wonder@", "HOST:PORT"),
            ("http://ann:wonder@proxy.example:x", "port"),
            ("http://ann:wond%er@proxy.example", "malformed"),
            ("http://:wonder@proxy.example", "malformed"),
        ] {
            let InvalidValue(found) = ProxyAddress::parse(text).expect_err(text);
            assert!(found.contains(why) && !found.contains("wond"), "{found}");
        }
        let shown = ProxyAddress::without_login("http://ann:won@der@proxy.example:1");
        assert_eq!(shown, "http://proxy.example:1");
        assert_eq!(ProxyAddress::without_login("none"), "none");
    }
}
