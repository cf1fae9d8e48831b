//! Name resolution with a deadline, a limit on concurrent look-ups, and alternating address families.
//!
//! The system's resolver blocks, so look-ups run on threads of their own (`crate::lookup_threads`). Make one [`Resolver`] for each class of
//! callers (the client's server name, the targets dialled on a server). Names on a slow DNS server then occupy only the
//! places of their own class. Within a class the callers share the places fairly (`quictun_trust::shares`) and wait in
//! turns (`crate::fair_queue`). An abandoned look-up still occupies its place, and counts for its caller, until the
//! system's resolver returns. This also limits the number of threads.
//!
//! Names that the machine knows by itself have separate places. A caller that asks a silent DNS server therefore cannot
//! block the look-up of `localhost`.

mod hosts;
mod places;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use quictun_wire::target::Family;

use crate::lookup_threads;
use hosts::Hosts;
use places::LookupPlaces;
use quictun_sys::device_index;
use quictun_trust::shares::Holder;

use crate::zone;

/// Time limit of a look-up. It survives one lost packet to a DNS server, which resolvers repeat after 1 to 5 s, and is
/// shorter than people wait.
const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum number of concurrent look-ups of one class. Each occupies a thread while a DNS server is silent.
const MAX_LOOKUPS: usize = 64;

/// Maximum number of concurrent look-ups of names in the hosts file. Each takes microseconds.
const MAX_LOCAL: usize = 16;

/// Maximum number of addresses from one answer. A dial gives up before it has tried more.
const MAX_ADDRESSES: usize = 32;

/// Maximum length of a DNS name in text form (RFC 1035 section 2.3.4), with a final dot.
const MAX_NAME: usize = 254;

type LookupFn = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Resolver {
    places: LookupPlaces,
    local: LookupPlaces,
    hosts: Arc<Hosts>,
    deadline: Duration,
    lookup: LookupFn,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("{0:?} is not a host name")]
    BadName(String),
    #[error("the zone of {0} is not one of this machine: {1}")]
    Zone(String, String),
    #[error("cannot resolve {0}: {1}")]
    Lookup(String, #[source] io::Error),
    #[error("no answer for {0} within {1:?}: is the DNS server reachable?")]
    TimedOut(String, Duration),
    /// Too many look-ups of this class, or of this caller, are waiting for a slow resolver.
    #[error("{0} was not looked up within {1:?}: other look-ups wait for a slow DNS server")]
    Busy(String, Duration),
    #[error("{0} has no {family} address", family = family_name(*.1))]
    NoSuchFamily(String, Family),
}

impl Resolver {
    pub(crate) fn new() -> Self {
        let lookup = |host: &str, port| (host, port).to_socket_addrs().map(Iterator::collect);
        Self::with(Arc::new(lookup), DEADLINE, MAX_LOOKUPS, Hosts::of_system())
    }

    fn with(lookup: LookupFn, deadline: Duration, places: usize, hosts: Hosts) -> Self {
        Self {
            places: LookupPlaces::new(places),
            local: LookupPlaces::new(MAX_LOCAL),
            hosts: Arc::new(hosts),
            deadline,
            lookup,
        }
    }

    /// Like [`Resolver::resolve`], for an absolute name: the search domains of this machine are not appended to it.
    /// Names in the hosts file are found there, as nsswitch.conf configures.
    pub(crate) async fn resolve_absolute(
        &self,
        holder: &Holder,
        host: &str,
        port: u16,
        family: Family,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        // The C library does not find a name with a final dot in the hosts file.
        let is_literal = host.parse::<IpAddr>().is_ok();
        if is_literal || host.is_empty() || host.ends_with('.') || self.hosts.know(host).await {
            return self.resolve(holder, host, port, family).await;
        }
        self.resolve(holder, &format!("{host}."), port, family)
            .await
    }

    /// Resolves `host` for `holder` to addresses of `family`, best first, with alternating families (RFC 8305 section
    /// 4).
    ///
    /// Returns address literals at once. The result is never empty.
    ///
    /// # Errors
    ///
    /// Returns [`ResolveError`], within [`DEADLINE`] in any case.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: a caller that waits for a place leaves the queue. A look-up under way keeps its place until the
    /// system's resolver returns.
    pub(crate) async fn resolve(
        &self,
        holder: &Holder,
        host: &str,
        port: u16,
        family: Family,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        if let Some(scoped) = zone::parse(host, port, device_index) {
            let at = scoped.map_err(|why| ResolveError::Zone(host.to_owned(), why))?;
            return only(family, host, vec![at]);
        }
        if let Ok(literal) = host.parse::<IpAddr>() {
            return only(family, host, vec![SocketAddr::new(literal, port)]);
        }
        if host.is_empty() || host.len() > MAX_NAME || host.contains('\0') {
            return Err(ResolveError::BadName(host.to_owned()));
        }
        let end = tokio::time::Instant::now() + self.deadline;
        let places = if self.hosts.know(host).await {
            &self.local
        } else {
            &self.places
        };
        let place = tokio::time::timeout_at(end, places.place(holder))
            .await
            .ok()
            .flatten()
            .ok_or_else(|| ResolveError::Busy(host.to_owned(), self.deadline))?;
        let (lookup, name) = (Arc::clone(&self.lookup), host.to_owned());
        let answer = lookup_threads::run(move || {
            let answer = lookup(&name, port);
            drop(place);
            answer
        });
        let failed = |cause| ResolveError::Lookup(host.to_owned(), cause);
        match tokio::time::timeout_at(end, answer).await {
            Ok(Some(Ok(addresses))) => only(family, host, interleave(addresses)),
            Ok(Some(Err(source))) => Err(failed(source)),
            Ok(None) => Err(failed(io::Error::other("there is no thread for a look-up"))),
            Err(_) => Err(ResolveError::TimedOut(host.to_owned(), self.deadline)),
        }
    }
}

fn only(
    family: Family,
    host: &str,
    addresses: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, ResolveError> {
    let wanted: Vec<_> = addresses
        .into_iter()
        .filter(|address| family.allows(address.ip()))
        .take(MAX_ADDRESSES)
        .collect();
    if wanted.is_empty() {
        return Err(ResolveError::NoSuchFamily(host.to_owned(), family));
    }
    Ok(wanted)
}

/// Keeps the resolver's order (RFC 6724) within each family and alternates the families, starting with that of the
/// first address. A host whose IPv6 is broken costs one attempt then, not all attempts.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (leading, following): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_ipv6);
    let mut following = following.into_iter();
    let mut result = Vec::new();
    for address in leading {
        result.push(address);
        result.extend(following.next());
    }
    result.extend(following);
    result
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::Any => "IP",
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
