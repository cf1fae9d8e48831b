//! Credit of a connection that this side has given to the peer, for carriers that account for it themselves
//! (RFC 9000 section 4.1, RFC 9113 section 5.2).

/// Credit that this side has given to the peer.
#[derive(Debug)]
pub struct ReceiveCredit {
    /// Number of bytes beyond `taken` that the peer should be able to send.
    window: u64,
    /// The largest limit, or window, that the protocol can state.
    most: u64,
    /// Number of bytes that the peer may send in total, as announced.
    limit: u64,
    /// Number of bytes that have arrived, or that ended streams have counted.
    received: u64,
    /// Number of bytes that were read or dropped.
    taken: u64,
    /// The window has grown, which was not announced.
    urgent: bool,
}

impl ReceiveCredit {
    /// Creates the credit with which a connection begins. No window exceeds `most` bytes.
    pub fn new(limit: u64, most: u64) -> Self {
        let limit = limit.min(most);
        Self {
            window: limit,
            most,
            limit,
            received: 0,
            taken: 0,
            urgent: false,
        }
    }

    /// Returns the number of bytes that the peer may send beyond those that were taken.
    pub fn granted(&self) -> u64 {
        self.limit - self.taken
    }

    /// Returns the number of bytes beyond those taken that the peer should be able to send.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Sets the window. Growth is announced at once; a smaller window takes effect as bytes are taken.
    pub fn set_window(&mut self, window: u64) {
        let window = window.min(self.most);
        self.urgent |= window > self.window;
        self.window = window;
    }

    /// Notes that `bytes` arrive. Returns false if they exceed the limit.
    pub fn note_received(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit - self.received;
        if fits {
            self.received += bytes;
        }
        fits
    }

    /// Notes that `bytes` were read or dropped.
    pub fn note_taken(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Returns by how much the limit is to grow, if half of the window is used or the window has grown.
    pub fn wanted(&self) -> Option<u64> {
        let more = (self.taken + self.window).checked_sub(self.limit)?;
        let due = more > 0 && (self.urgent || more >= self.window / 2);
        due.then_some(more)
    }

    /// Notes that a limit which is higher by `more` is announced.
    pub fn note_announced(&mut self, more: u64) {
        self.limit += more;
        self.urgent = false;
    }

    /// Returns the limit, as announced.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}
