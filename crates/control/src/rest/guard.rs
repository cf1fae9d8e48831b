//! Refuses requests that a web page causes a browser to make.
//!
//! The interface has no password, and a browser on the same machine can reach it. A page from any site could therefore
//! read it: by a name of its own that it resolves to 127.0.0.1 later (DNS rebinding), or by a request to the address
//! itself. But a browser always reveals the site: the `Host` header has the name from the address bar, and `Origin` and
//! `Sec-Fetch-Site` show the origin of the page. The guard accepts
//!
//! * hosts that are an address, `localhost`, or a name from the configuration: no page can have these as a name of its
//!   own;
//! * a request without `Origin`, or whose origin is the host itself;
//! * a request without `Sec-Fetch-Site`, or whose values all say that no other site has caused it, or with which a
//!   person follows a link. Case does not count, and a value that the guard does not know is that of another site.
//!
//! A Unix socket is not guarded. Browsers cannot reach it, and a proxy in front of it passes on host names of its own.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};
use thiserror::Error;

/// The reason why a request is refused. Each message says what would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum RequestRefusal {
    #[error(
        "the Host header is neither an address, nor localhost, nor a configured name: add the name with --http-name (quictun-server, quictun-client: --httpd-name)"
    )]
    Host,
    #[error("the Origin header names another site: pages of other sites may not read this")]
    Origin,
    #[error("the Sec-Fetch-Site header names a page of another site: it may not read this")]
    Site,
}

#[derive(Clone, Debug)]
pub(super) enum RequestGuard {
    Unix,
    /// A TCP listener that answers to addresses, to `localhost`, and to these names in lower case.
    Tcp(Vec<String>),
}

impl RequestGuard {
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let Self::Tcp(names) = self else {
            return Ok(());
        };
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            // Every browser sends this header.
            (None, _) => None,
            (Some(host), None) => Some(host.to_str().map_err(|_| RequestRefusal::Host)?),
            (Some(_), Some(_)) => return Err(RequestRefusal::Host),
        };
        let asked = uri.authority().map(axum::http::uri::Authority::as_str);
        for host in [host, asked].into_iter().flatten() {
            if !is_ours(host, names) {
                return Err(RequestRefusal::Host);
            }
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| is_same(origin, host)) {
            return Err(RequestRefusal::Origin);
        }
        let own = says_only(headers, "sec-fetch-site", &["same-origin", "none"]);
        let follows_link = || says_only(headers, "sec-fetch-mode", &["navigate"]) == Some(true);
        if own == Some(false) && !follows_link() {
            return Err(RequestRefusal::Site);
        }
        Ok(())
    }
}

/// Returns whether each value of a header is one of these words, in any case. Returns `None` if the request does not
/// have the header.
fn says_only(headers: &HeaderMap, name: &str, words: &[&str]) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let is_word = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        words
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    };
    Some(values.all(is_word))
}

/// Returns true if `host`, with or without a port, cannot be the name of another site's page.
fn is_ours(host: &str, names: &[String]) -> bool {
    let Some(name) = without_port(host) else {
        return false;
    };
    let literal = match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => matches!(name.parse(), Ok(IpAddr::V4(_))),
    };
    // The name `localhost.` is the same as `localhost`.
    let name = name.strip_suffix('.').unwrap_or(name);
    literal
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Removes the port from `host:80` or `[::1]:80`. Returns `None` if the text after the name is not a port.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let port = port.strip_prefix(':').unwrap_or(port);
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(name)
}

fn is_same(origin: &HeaderValue, host: Option<&str>) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let of = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    of.zip(host)
        .is_some_and(|(of, host)| of.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], headers: &[(&'static str, &str)]) -> Result<(), RequestRefusal> {
        let guard = RequestGuard::Tcp(names.iter().map(|name| (*name).to_owned()).collect());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a header"));
        }
        guard.check(&Uri::from_static("/v1/tunnels"), &map)
    }

    #[test]
    fn a_host_is_an_address_localhost_or_a_configured_name() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8086",
            "192.0.2.1:80",
            "[::1]",
            "[::1]:8086",
            "[2001:db8::1]:1",
            "localhost",
            "LocalHost:8086",
            "localhost.:8086",
            "gateway.example:8086",
            "GATEWAY.example",
        ] {
            assert_eq!(
                check(&["gateway.example"], &[("host", host)]),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "",
            ":8086",
            "evil.example",
            "evil.example:8086",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "gateway.example.evil.example",
            "127.0.0.1:8086.evil.example",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "::1",
            "[::1",
            "[::1]evil.example",
            "[::1]:80:80",
            "[evil]",
            "user@127.0.0.1",
        ] {
            let found = check(&["gateway.example"], &[("host", host)]);
            assert_eq!(found, Err(RequestRefusal::Host), "{host}");
        }
        let twice = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(check(&[], &twice), Err(RequestRefusal::Host));
        assert_eq!(check(&[], &[]), Ok(()), "HTTP/1.0 has no Host header");
    }

    #[test]
    fn the_host_in_the_request_line_counts_too() {
        let guard = RequestGuard::Tcp(Vec::new());
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("127.0.0.1"));
        let evil = Uri::from_static("http://evil.example/v1/tunnels");
        assert_eq!(guard.check(&evil, &headers), Err(RequestRefusal::Host));
        let own = Uri::from_static("http://127.0.0.1:8086/v1/tunnels");
        assert_eq!(guard.check(&own, &headers), Ok(()));
    }

    #[test]
    fn an_origin_is_the_host_itself() {
        let with = |origin| check(&[], &[("host", "127.0.0.1:8086"), ("origin", origin)]);
        assert_eq!(with("http://127.0.0.1:8086"), Ok(()));
        assert_eq!(with("https://127.0.0.1:8086"), Ok(()));
        for origin in [
            "null",
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:80",
            "http://localhost:8086",
            "file://",
            "127.0.0.1:8086",
        ] {
            assert_eq!(with(origin), Err(RequestRefusal::Origin), "{origin}");
        }
        let no_host = check(&[], &[("origin", "http://127.0.0.1:8086")]);
        assert_eq!(no_host, Err(RequestRefusal::Origin));
    }

    #[test]
    fn a_page_of_another_site_does_not_read_but_a_link_may_be_followed() {
        let with = |site, mode| {
            let host = ("host", "127.0.0.1:8086");
            check(
                &[],
                &[host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)],
            )
        };
        assert_eq!(with("none", "navigate"), Ok(()));
        assert_eq!(with("same-origin", "cors"), Ok(()));
        assert_eq!(with("cross-site", "navigate"), Ok(()));
        for site in ["cross-site", "same-site"] {
            assert_eq!(with(site, "no-cors"), Err(RequestRefusal::Site));
            assert_eq!(with(site, "cors"), Err(RequestRefusal::Site));
        }
    }

    #[test]
    fn only_known_values_say_that_no_other_site_has_caused_a_request() {
        let with = |sites: &[&str], mode| {
            let host = [("host", "127.0.0.1:8086"), ("sec-fetch-mode", mode)];
            let sites = sites.iter().map(|site| ("sec-fetch-site", *site));
            check(&[], &host.into_iter().chain(sites).collect::<Vec<_>>())
        };
        for sites in [
            &["Cross-Site"][..],
            &["CROSS-SITE"],
            &["Same-Site"],
            &["cross-site;x"],
            &["\"same-origin\""],
            &["some-other-site"],
            &["same-origin, cross-site"],
            &["same-origin", "cross-site"],
            &["none", "Cross-Site"],
            &[""],
        ] {
            assert_eq!(with(sites, "cors"), Err(RequestRefusal::Site), "{sites:?}");
            assert_eq!(with(sites, "Navigate"), Ok(()), "{sites:?}");
        }
        for sites in [&["Same-Origin"][..], &["NONE"], &["same-origin", "none"]] {
            assert_eq!(with(sites, "cors"), Ok(()), "{sites:?}");
        }
        let modes = [
            ("host", "127.0.0.1:8086"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-mode", "cors"),
        ];
        assert_eq!(check(&[], &modes), Err(RequestRefusal::Site));
    }

    #[test]
    fn requests_on_a_unix_socket_need_no_host_check() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("status.example"));
        let found = RequestGuard::Unix.check(&Uri::from_static("/"), &headers);
        assert_eq!(found, Ok(()));
    }
}
