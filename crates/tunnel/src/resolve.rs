//! Name resolution: with a deadline, a bound on what runs at once, and both address families in turn.
//!
//! The system's resolver blocks, so look-ups run on tokio's blocking threads. Make one [`Resolver`] for each class of
//! callers (the client's server name, the targets dialled on a server): names that a slow DNS server holds up use the
//! places of their own class only. A look-up that was given up still occupies its place until the system's
//! resolver returns, which bounds the threads too.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use quictun_wire::target::Family;
use tokio::sync::Semaphore;

/// Longer than one lost packet to a DNS server, which resolvers repeat after 1 to 5 s; shorter than people wait.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Look-ups of one class at once. Each holds a thread while a DNS server is silent.
pub const MAX_LOOKUPS: usize = 64;

/// Addresses kept of one answer: more are never tried before a dial gives up.
const MAX_ADDRESSES: usize = 32;

/// Longest DNS name in text form (RFC 1035 section 2.3.4), with a final dot.
const MAX_NAME: usize = 254;

type Lookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Resolves names for one class of callers.
#[derive(Clone)]
pub struct Resolver {
    places: Arc<Semaphore>,
    deadline: Duration,
    lookup: Lookup,
}

/// Why a name did not become addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Not something a resolver can be asked.
    #[error("{0:?} is not a host name")]
    BadName(String),
    /// The system's resolver says no.
    #[error("cannot resolve {host}: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// The resolver said nothing for too long.
    #[error("no answer for {host} within {deadline:?}: is the DNS server reachable?")]
    TimedOut {
        /// The name.
        host: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// Too many look-ups of this class are waiting for a slow resolver.
    #[error("{host} was not looked up: {MAX_LOOKUPS} look-ups wait for a slow DNS server")]
    Busy {
        /// The name.
        host: String,
    },
    /// The name has addresses, but none of the wanted family.
    #[error("{host} has no {} address", family_name(*family))]
    NoSuchFamily {
        /// The name or literal.
        host: String,
        /// What was wanted.
        family: Family,
    },
}

impl Resolver {
    /// A resolver over the system's, with places of its own.
    pub fn new() -> Self {
        let lookup = |host: &str, port| (host, port).to_socket_addrs().map(Iterator::collect);
        Self::with(Arc::new(lookup), DEADLINE, MAX_LOOKUPS)
    }

    fn with(lookup: Lookup, deadline: Duration, places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            deadline,
            lookup,
        }
    }

    /// Resolves `host` to addresses of `family`, best first, the two families in turn (RFC 8305 section 4).
    ///
    /// Literals are answered at once. Never empty.
    ///
    /// # Errors
    ///
    /// [`ResolveError`]; within [`DEADLINE`] in any case.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; a look-up under way keeps its place until the system's resolver returns.
    pub async fn resolve(
        &self,
        host: &str,
        port: u16,
        family: Family,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        if let Ok(literal) = host.parse::<IpAddr>() {
            return only(family, host, vec![SocketAddr::new(literal, port)]);
        }
        if host.is_empty() || host.len() > MAX_NAME || host.contains('\0') {
            return Err(ResolveError::BadName(host.to_owned()));
        }
        let end = tokio::time::Instant::now() + self.deadline;
        let busy = || ResolveError::Busy {
            host: host.to_owned(),
        };
        let place = tokio::time::timeout_at(end, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| busy())?
            .map_err(|_closed| busy())?;
        let (lookup, name) = (Arc::clone(&self.lookup), host.to_owned());
        let answer = tokio::task::spawn_blocking(move || {
            let answer = lookup(&name, port);
            drop(place);
            answer
        });
        let failed = |source| ResolveError::Lookup {
            host: host.to_owned(),
            source,
        };
        match tokio::time::timeout_at(end, answer).await {
            Ok(Ok(Ok(addresses))) => only(family, host, interleave(addresses)),
            Ok(Ok(Err(source))) => Err(failed(source)),
            // The runtime is shutting down.
            Ok(Err(join)) => Err(failed(io::Error::other(join))),
            Err(_) => Err(ResolveError::TimedOut {
                host: host.to_owned(),
                deadline: self.deadline,
            }),
        }
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("free_places", &self.places.available_permits())
            .finish_non_exhaustive()
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
        return Err(ResolveError::NoSuchFamily {
            host: host.to_owned(),
            family,
        });
    }
    Ok(wanted)
}

/// Keeps the resolver's order (RFC 6724) within each family and lets the families take turns, that of the first
/// address first: a host whose IPv6 is broken costs one attempt, not all of them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc;
    use std::time::Instant;

    fn run<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let output = runtime.block_on(future);
        // Does not wait for look-ups that were given up.
        runtime.shutdown_background();
        output
    }

    fn addresses(text: &str) -> Vec<SocketAddr> {
        text.split_whitespace()
            .map(|ip| SocketAddr::new(ip.parse().expect("an address"), 22))
            .collect()
    }

    fn fixed(text: &'static str) -> Resolver {
        Resolver::with(Arc::new(move |_, _| Ok(addresses(text))), DEADLINE, 1)
    }

    fn check_order(given: &'static str, family: Family, expected: &str) {
        let got = run(fixed(given).resolve("name", 22, family)).expect("addresses");
        assert_eq!(got, addresses(expected), "{given} as {family:?}");
    }

    #[test]
    fn families_take_turns_and_the_first_stays_first() {
        check_order(
            "::1 ::2 ::3 1.1.1.1 1.1.1.2",
            Family::Any,
            "::1 1.1.1.1 ::2 1.1.1.2 ::3",
        );
        check_order(
            "1.1.1.1 1.1.1.2 1.1.1.3 ::1",
            Family::Any,
            "1.1.1.1 ::1 1.1.1.2 1.1.1.3",
        );
        check_order(
            "::1 1.1.1.1 1.1.1.2 1.1.1.3",
            Family::Any,
            "::1 1.1.1.1 1.1.1.2 1.1.1.3",
        );
        check_order("::1 1.1.1.1 ::2 1.1.1.2", Family::V4, "1.1.1.1 1.1.1.2");
        check_order("::1 1.1.1.1 ::2 1.1.1.2", Family::V6, "::1 ::2");
    }

    #[test]
    fn an_endless_answer_is_cut() {
        let many = Resolver::with(
            Arc::new(|_, _| Ok(addresses("1.1.1.1").repeat(1000))),
            DEADLINE,
            1,
        );
        assert_eq!(
            run(many.resolve("name", 22, Family::Any))
                .expect("addresses")
                .len(),
            MAX_ADDRESSES
        );
    }

    #[test]
    fn literals_are_answered_without_a_look_up() {
        let resolver = Resolver::with(Arc::new(|_, _| panic!("looked up")), DEADLINE, 0);
        for literal in ["127.0.0.1", "::1"] {
            let got = run(resolver.resolve(literal, 22, Family::Any)).expect("a literal");
            assert_eq!(got, addresses(literal));
        }
        let error = run(resolver.resolve("::1", 22, Family::V4)).expect_err("wrong family");
        assert_eq!(error.to_string(), "::1 has no IPv4 address");
    }

    #[test]
    fn what_no_resolver_can_be_asked_is_refused() {
        let resolver = Resolver::with(Arc::new(|_, _| panic!("looked up")), DEADLINE, 0);
        for bad in [String::new(), "a\0b".to_owned(), "a".repeat(MAX_NAME + 1)] {
            assert!(
                matches!(run(resolver.resolve(&bad, 22, Family::Any)), Err(ResolveError::BadName(name)) if name == bad)
            );
        }
    }

    #[test]
    fn the_resolvers_answer_is_passed_on_with_the_name() {
        let resolver = Resolver::with(
            Arc::new(|_, _| Err(io::Error::other("no such name"))),
            DEADLINE,
            1,
        );
        let error =
            run(resolver.resolve("nowhere.example", 22, Family::Any)).expect_err("no such name");
        assert_eq!(
            error.to_string(),
            "cannot resolve nowhere.example: no such name"
        );
        let error =
            run(fixed("").resolve("empty.example", 22, Family::Any)).expect_err("no address");
        assert_eq!(error.to_string(), "empty.example has no IP address");
    }

    /// A resolver whose look-ups wait until the sender sends or is gone.
    fn held(deadline: Duration, places: usize) -> (Resolver, mpsc::Sender<()>) {
        let (release, held) = mpsc::channel();
        let held = Mutex::new(held);
        let lookup = move |_: &str, _| {
            held.lock()
                .expect("not poisoned")
                .recv()
                .map_err(io::Error::other)?;
            Ok(addresses("1.1.1.1"))
        };
        (Resolver::with(Arc::new(lookup), deadline, places), release)
    }

    #[test]
    fn a_silent_resolver_is_given_up_at_the_deadline() {
        let (resolver, release) = held(Duration::from_millis(20), 1);
        let begun = Instant::now();
        let error =
            run(resolver.resolve("slow.example", 22, Family::Any)).expect_err("nobody answers");
        assert!(matches!(error, ResolveError::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(20));
        drop(release);
    }

    #[test]
    fn a_look_up_that_was_given_up_keeps_its_place_until_it_ends() {
        let (resolver, release) = held(Duration::from_millis(20), 1);
        run(async {
            let first = resolver
                .resolve("slow.example", 22, Family::Any)
                .await
                .expect_err("nobody answers");
            assert!(matches!(first, ResolveError::TimedOut { .. }), "{first}");
            let second = resolver
                .resolve("other.example", 22, Family::Any)
                .await
                .expect_err("no place");
            assert!(matches!(second, ResolveError::Busy { .. }), "{second}");
            let another_class = fixed("1.1.1.1")
                .resolve("third.example", 22, Family::Any)
                .await;
            assert!(another_class.is_ok());
            release.send(()).expect("the first look-up waits");
            let place = resolver.places.acquire().await.expect("open");
            drop(place);
            release.send(()).expect("the resolver waits");
            assert!(
                resolver
                    .resolve("fast.example", 22, Family::Any)
                    .await
                    .is_ok()
            );
        });
    }

    #[test]
    fn the_systems_resolver_knows_localhost() {
        let got = run(Resolver::new().resolve("localhost", 22, Family::Any)).expect("localhost");
        assert!(
            got.iter()
                .all(|address| address.ip().is_loopback() && address.port() == 22)
        );
    }
}
