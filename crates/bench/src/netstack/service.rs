//! The services on the connections of a measurement.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Sends back what it reads: port 7 (RFC 862).
    Echo,
    /// Reads and discards: port 9 (RFC 863).
    Discard,
    /// Writes as much as there is room for: port 19 (RFC 864).
    Generate,
}

impl Service {
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Generate => 19,
        }
    }

    pub(crate) fn of(port: u16) -> Self {
        let all = [Self::Echo, Self::Generate];
        let known = all.into_iter().find(|service| service.port() == port);
        known.unwrap_or(Self::Discard)
    }
}
