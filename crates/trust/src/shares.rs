//! Shares places between clients: a client that wants many does not keep others from having a few.
//!
//! The rule is the dynamic threshold of Choudhury and Hahne (IEEE/ACM Transactions on Networking 6(2), 1998), which
//! switches use for the buffers that their ports share. A holder gets another place only while it holds fewer than
//! `weight` times the number of free places. A single holder gets at most `weight / (1 + weight)` of all places, and
//! each later holder gets that part of the remaining ones. If N holders want all they can get, each gets `weight / (1 +
//! N * weight)`. Holders are not known in advance, and a place is never taken back. A holder above its threshold gets
//! no place until enough of its own places, or of others', are free.
//!
//! These places are shared:
//!
//! | places | of | weight |
//! | --- | --- | --- |
//! | dials under way (`dial` of `quictun-tunnel`) | one worker | 1 |
//! | look-ups asked of the control plane (`lookups` of `quictun-tunnel`) | the process | 1 |
//! | look-ups that the system works on (`resolve` of `quictun-tunnel`) | the process | 1 |
//! | descriptors of flows, of clients' listeners and of their TCP connections (`crate::descriptors`) | the process | 4 |
//! | descriptors of strangers' TCP connections (`crate::descriptors`) | the process | 1 |
//! | connections to a client's proxy without a request (`proxy` of `quictun-tunnel`) | one worker | 4 |
//! | associations of a client's proxy (`proxy` of `quictun-tunnel`) | one worker | 4 |
//!
//! PROTOCOL LIMIT-2. The holder is the named client if it is known, and the remote address otherwise.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The party for which a place is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A client that the configuration names.
    Client(Arc<str>),
    /// All clients at an address. Of an IPv6 address only the first 64 bits count.
    Address(IpAddr),
    /// The process itself, on its own behalf.
    Own,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(name) => f.write_str(name),
            Self::Address(v4 @ IpAddr::V4(_)) => v4.fmt(f),
            Self::Address(v6 @ IpAddr::V6(_)) => write!(f, "{v6}/64"),
            Self::Own => f.write_str("this process"),
        }
    }
}

/// A number of places, and how many of them each holder has.
#[derive(Debug)]
pub struct Shares {
    places: usize,
    weight: usize,
    taken: usize,
    held: HashMap<Holder, usize>,
}

impl Holder {
    /// Returns the holder at this address. A host commonly has a whole IPv6 /64, and would otherwise count as many
    /// holders.
    pub fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & PREFIX).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl Shares {
    /// Creates this number of places, all of them free.
    pub fn new(places: usize, weight: usize) -> Self {
        Self {
            places,
            weight,
            taken: 0,
            held: HashMap::new(),
        }
    }

    /// Takes a place. Returns false if the holder gets none now.
    pub fn take(&mut self, holder: &Holder) -> bool {
        let free = self.places.saturating_sub(self.taken);
        let held = self.held.get(holder).copied().unwrap_or(0);
        if held >= free.saturating_mul(self.weight) {
            return false;
        }
        self.take_above(holder);
        true
    }

    /// Takes a place regardless of the limits, because the holder will soon give back another one in exchange.
    pub fn take_above(&mut self, holder: &Holder) {
        self.taken += 1;
        *self.held.entry(holder.clone()).or_default() += 1;
    }

    /// Gives back a place that the holder got from [`Shares::take`].
    pub fn give_back(&mut self, holder: &Holder) {
        let Some(held) = self.held.get_mut(holder) else {
            debug_assert!(false, "{holder:?} holds nothing");
            return;
        };
        self.taken -= 1;
        *held -= 1;
        if *held == 0 {
            self.held.remove(holder);
        }
    }
}

/// Places that the threads of a process share. It is cheap to clone.
///
/// A client with one connection runs in one worker. If the places were divided between workers, it could not reach most
/// of them.
#[derive(Clone, Debug)]
pub struct CommonShares(Arc<Mutex<Shares>>);

impl CommonShares {
    /// Creates this number of places, all of them free.
    pub fn new(places: usize, weight: usize) -> Self {
        Self(Arc::new(Mutex::new(Shares::new(places, weight))))
    }

    /// Takes a place, which is given back when the returned value is dropped. `None` if the holder gets none now.
    pub fn place(&self, holder: &Holder) -> Option<SharePlace> {
        self.take(holder).then(|| self.taken_by(holder))
    }

    /// Takes a place regardless of the limits, see [`Shares::take_above`]. It is given back when the returned value is
    /// dropped.
    pub fn place_above(&self, holder: &Holder) -> SharePlace {
        self.take_above(holder);
        self.taken_by(holder)
    }

    fn taken_by(&self, holder: &Holder) -> SharePlace {
        SharePlace {
            shares: self.clone(),
            holder: holder.clone(),
        }
    }

    /// Takes a place, see [`Shares::take`].
    pub fn take(&self, holder: &Holder) -> bool {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.take(holder)
    }

    /// Takes a place regardless of the limits, see [`Shares::take_above`].
    pub fn take_above(&self, holder: &Holder) {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.take_above(holder);
    }

    /// Gives back a place, see [`Shares::give_back`].
    pub fn give_back(&self, holder: &Holder) {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.give_back(holder);
    }
}

/// A place of a holder, until it is dropped.
#[derive(Debug)]
pub struct SharePlace {
    shares: CommonShares,
    holder: Holder,
}

impl Drop for SharePlace {
    fn drop(&mut self) {
        self.shares.give_back(&self.holder);
    }
}

/// The first 64 bits of an address: RFC 4291 section 2.5.4 gives a /64 to each link.
const PREFIX: u128 = u128::MAX << 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holder(number: u8) -> Holder {
        Holder::at([192, 0, 2, number].into())
    }

    /// Takes places until the holder gets no more, and returns their number.
    fn take_all(shares: &mut Shares, holder: &Holder) -> usize {
        std::iter::repeat_with(|| shares.take(holder))
            .take_while(|taken| *taken)
            .count()
    }

    #[test]
    fn each_holder_gets_half_of_the_places_that_earlier_holders_left() {
        let mut shares = Shares::new(64, 1);
        let got: Vec<_> = (0..8)
            .map(|number| take_all(&mut shares, &holder(number)))
            .collect();
        assert_eq!(got, [32, 16, 8, 4, 2, 1, 1, 0]);
    }

    #[test]
    fn a_weight_leaves_fewer_places_for_later_holders() {
        let mut shares = Shares::new(1000, 4);
        assert_eq!(take_all(&mut shares, &holder(1)), 800);
        assert_eq!(take_all(&mut shares, &holder(2)), 160);
        assert!(!shares.take(&holder(1)), "it is above its threshold");
    }

    #[test]
    fn holders_that_take_turns_get_equal_numbers_of_places() {
        for (weight, expected) in [(1, [20; 4]), (4, [24, 24, 24, 23])] {
            let mut shares = Shares::new(100, weight);
            let mut got = [0; 4];
            for _ in 0..100 {
                for (number, got) in (0..).zip(&mut got) {
                    *got += usize::from(shares.take(&holder(number)));
                }
            }
            assert_eq!(got, expected, "weight {weight}");
        }
    }

    #[test]
    fn a_single_place_goes_to_the_first_holder_and_no_places_serve_no_holder() {
        let mut shares = Shares::new(1, 1);
        assert!(shares.take(&holder(1)));
        assert!(!shares.take(&holder(2)));
        shares.give_back(&holder(1));
        assert!(shares.take(&holder(2)));
        assert!(!Shares::new(0, 4).take(&holder(1)));
    }

    #[test]
    fn a_returned_place_goes_to_another_holder_first() {
        let mut shares = Shares::new(16, 1);
        assert_eq!(take_all(&mut shares, &holder(1)), 8);
        assert_eq!(take_all(&mut shares, &holder(2)), 4);
        shares.give_back(&holder(1));
        assert!(!shares.take(&holder(1)), "7 held, 5 free");
        assert!(shares.take(&holder(2)), "4 held, 5 free");
    }

    #[test]
    fn an_ipv6_holder_is_a_64_bit_prefix_and_a_mapped_address_is_ipv4() {
        let at = |text: &str| Holder::at(text.parse().expect("an address"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    }

    proptest! {
        #[test]
        fn places_are_neither_lost_nor_invented(
            places in 0..40_usize,
            weight in 1..6_usize,
            steps in proptest::collection::vec((0..5_u8, any::<bool>()), 0..200),
        ) {
            let mut shares = Shares::new(places, weight);
            let mut held = [0_usize; 5];
            for (number, take) in steps {
                let own = &mut held[usize::from(number)];
                if take {
                    *own += usize::from(shares.take(&holder(number)));
                } else if *own > 0 {
                    *own -= 1;
                    shares.give_back(&holder(number));
                }
                prop_assert!(held.iter().sum::<usize>() <= places);
                prop_assert_eq!(shares.taken, held.iter().sum::<usize>());
            }
            for (number, held) in (0..).zip(held) {
                for _ in 0..held {
                    shares.give_back(&holder(number));
                }
            }
            prop_assert!(shares.held.is_empty(), "a holder without places is still stored");
        }
    }
}
