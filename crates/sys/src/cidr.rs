//! Networks, as routes name them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address and how many of its bits count: `192.0.2.0/24`, `2001:db8::/32`; a bare address counts whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

/// What is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Neither an address nor an address and a length.
    #[error("{0:?} is no network: write ADDRESS/BITS, as in 192.0.2.0/24 or 2001:db8::/32")]
    Malformed(String),
    /// Bits behind the length are set: somebody meant another network.
    #[error("{given:?} has bits behind its length: did you mean {meant}?")]
    HostBits {
        /// As it was written.
        given: String,
        /// Without those bits.
        meant: Cidr,
    },
}

impl Cidr {
    /// All of IPv4.
    pub const ALL_V4: Self = Self {
        address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        length: 0,
    };
    /// All of IPv6.
    pub const ALL_V6: Self = Self {
        address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        length: 0,
    };

    /// The network's first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether it is IPv6.
    pub fn is_v6(self) -> bool {
        self.address.is_ipv6()
    }

    /// Whether it is a whole family.
    pub fn is_all(self) -> bool {
        self.length == 0
    }

    /// Whether it contains all of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.is_v6() == other.is_v6()
            && self.length <= other.length
            && Self::around(other.address, self.length) == self
    }

    /// The network of so many bits that an address is in.
    pub fn around(address: IpAddr, length: u8) -> Self {
        let length = length.min(Self::from(address).length);
        let kept = |bits: u32| bits - u32::from(length);
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(kept(32)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(kept(128)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        };
        Self { address, length }
    }
}

impl From<IpAddr> for Cidr {
    /// That address alone.
    fn from(address: IpAddr) -> Self {
        let length = if address.is_ipv6() { 128 } else { 32 };
        Self { address, length }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let malformed = || CidrError::Malformed(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let whole = Self::from(address);
        let Some(length) = length else {
            return Ok(whole);
        };
        let length: u8 = length.parse().map_err(|_| malformed())?;
        if length > whole.length {
            return Err(malformed());
        }
        let meant = Self::around(address, length);
        if meant.address != address {
            let given = text.to_owned();
            return Err(CidrError::HostBits { given, meant });
        }
        Ok(meant)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("128.0.0.0/1", "128.0.0.0/1"),
        ] {
            let network: Cidr = text.parse().expect("a network");
            assert_eq!(network.to_string(), written);
        }
        assert_eq!("0.0.0.0/0".parse(), Ok(Cidr::ALL_V4));
        assert_eq!("::/0".parse(), Ok(Cidr::ALL_V6));
    }

    #[test]
    fn what_is_none_is_refused_with_what_was_meant() {
        for text in [
            "",
            "/",
            "192.0.2.0/33",
            "::/129",
            "192.0.2/24",
            "a/8",
            "::/-1",
            "1.2.3.4/",
        ] {
            let refused = text.parse::<Cidr>();
            assert_eq!(refused, Err(CidrError::Malformed(text.to_owned())));
        }
        for (text, meant) in [
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("1.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1/64", "2001:db8::/64"),
        ] {
            let error = text.parse::<Cidr>().expect_err("bits too many");
            assert!(
                error
                    .to_string()
                    .ends_with(&format!("did you mean {meant}?"))
            );
        }
    }
}
