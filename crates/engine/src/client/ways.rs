//! The ways to a server: the addresses at which each carrier is tried, and their order.
//!
//! QUIC leads to the server itself. TLS over TCP does too, unless an outbound proxy stands between: its addresses are
//! then those of the proxy, which resolves the server's name.

use std::net::SocketAddr;
use std::time::Duration;

use super::race::RACE_STEP;
use crate::report::CarrierKind;

/// One way to reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) address: SocketAddr,
    pub(super) carrier: CarrierKind,
    /// The address is that of an outbound proxy.
    pub(super) through_proxy: bool,
    /// Head start over the next candidate.
    pub(super) head_start: Duration,
}

impl Candidate {
    /// Returns the only candidate.
    pub(super) fn alone(address: SocketAddr, carrier: CarrierKind) -> Self {
        Self {
            address,
            carrier,
            through_proxy: false,
            head_start: Duration::ZERO,
        }
    }

    /// Returns whether both are the same way.
    pub(super) fn is_same_way(&self, other: &Self) -> bool {
        (self.address, self.carrier) == (other.address, other.carrier)
    }
}

/// The carriers that a race tries, and the head start of the first one at each address.
pub(super) type CarrierOrder = (&'static [CarrierKind], Duration);

/// All ways to a server.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    order: CarrierOrder,
    quic: Vec<SocketAddr>,
    tls: Vec<SocketAddr>,
    through_proxy: bool,
}

impl Ways {
    /// Returns the ways that lead to the server's own addresses.
    pub(super) fn direct(addresses: &[SocketAddr], order: CarrierOrder) -> Self {
        Self {
            order,
            quic: addresses.to_vec(),
            tls: addresses.to_vec(),
            through_proxy: false,
        }
    }

    /// Returns the ways of which TLS leads through a proxy. An address of the proxy is none of the server's.
    pub(super) fn through_proxy(
        addresses: &[SocketAddr],
        proxy: &[SocketAddr],
        order: CarrierOrder,
    ) -> Self {
        let own = addresses.iter().filter(|address| !proxy.contains(address));
        Self {
            order,
            quic: own.copied().collect(),
            tls: proxy.to_vec(),
            through_proxy: true,
        }
    }

    /// Returns whether no way leads to the server.
    pub(super) fn is_empty(&self) -> bool {
        self.order.0.iter().all(|kind| self.at(*kind).is_empty())
    }

    /// Returns whether a way leads to this address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.quic.contains(&address) || self.tls.contains(&address)
    }

    /// Returns the candidates of a race. The addresses of one carrier are [`RACE_STEP`] apart.
    pub(super) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let (carriers, head_start) = self.order;
        let steps = self.quic.len().max(self.tls.len());
        (0..steps).flat_map(move |step| {
            let there = carriers
                .iter()
                .filter_map(move |&carrier| Some((carrier, *self.at(carrier).get(step)?)));
            let last = there.clone().count().saturating_sub(1);
            there.enumerate().map(move |(place, (carrier, address))| {
                let earlier = if place == 0 {
                    Duration::ZERO
                } else {
                    head_start
                };
                Candidate {
                    address,
                    carrier,
                    through_proxy: self.through_proxy && carrier == CarrierKind::Tls,
                    head_start: if place == last {
                        RACE_STEP.saturating_sub(earlier)
                    } else {
                        head_start
                    },
                }
            })
        })
    }

    fn at(&self, carrier: CarrierKind) -> &[SocketAddr] {
        match carrier {
            CarrierKind::Quic => &self.quic,
            CarrierKind::Tls => &self.tls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CarrierKind::{Quic, Tls};

    const BOTH: CarrierOrder = (&[Quic, Tls], Duration::from_millis(100));

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 7500).into()
    }

    /// Returns the candidates with the time at which each begins, and whether it leads through a proxy.
    fn tried(ways: &Ways) -> Vec<(u128, SocketAddr, CarrierKind, bool)> {
        let mut at = Duration::ZERO;
        let each = ways.candidates().map(|it| {
            let begins = at.as_millis();
            at += it.head_start;
            (begins, it.address, it.carrier, it.through_proxy)
        });
        each.collect()
    }

    #[test]
    fn each_carrier_has_its_head_start_and_addresses_stay_a_step_apart() {
        let ways = Ways::direct(&[address(1), address(2)], BOTH);
        let expected = [
            (0, address(1), Quic, false),
            (100, address(1), Tls, false),
            (250, address(2), Quic, false),
            (350, address(2), Tls, false),
        ];
        assert_eq!(tried(&ways), expected);
    }

    #[test]
    fn tls_leads_to_the_proxy_once_and_quic_to_each_address_of_the_server() {
        let (servers, proxy) = ([address(1), address(2)], [address(9)]);
        let ways = Ways::through_proxy(&servers, &proxy, BOTH);
        let expected = [
            (0, address(1), Quic, false),
            (100, address(9), Tls, true),
            (250, address(2), Quic, false),
        ];
        assert_eq!(tried(&ways), expected);
    }

    #[test]
    fn a_name_that_only_the_proxy_resolves_leaves_the_way_by_tls() {
        let ways = Ways::through_proxy(&[], &[address(9)], BOTH);
        assert_eq!(tried(&ways), [(0, address(9), Tls, true)]);
        assert!(!ways.is_empty());
        let quic_only = (&[Quic][..], Duration::ZERO);
        assert!(Ways::through_proxy(&[], &[address(9)], quic_only).is_empty());
        // The address at which a connection has fallen silent may be the proxy's.
        let silent = Ways::through_proxy(&[address(9)], &[address(9)], BOTH);
        assert_eq!(tried(&silent), [(0, address(9), Tls, true)]);
    }
}
