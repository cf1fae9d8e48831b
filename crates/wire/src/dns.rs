//! Questions to a name server, as far as one has to look at them to carry them over a stream.
//!
//! A program sends a datagram. [`Query::parse`] reads it, [`Query::framed`] is what goes to the server (RFC 7766), and
//! what comes back is collected by [`Answer`]. [`Query::reply`] makes of it what the program is sent, and
//! [`Query::failure`] what it is told where no answer came.

/// A question that a program asked in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    message: Vec<u8>,
    /// Where the question ends.
    end: usize,
    /// Longest answer that the program takes in a datagram.
    limit: usize,
}

/// Why a datagram is not a question that could be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// It is cut off, or its names are no names.
    #[error("the datagram is no DNS message")]
    Malformed,
    /// It is an answer, or asks for none or several things.
    #[error("the DNS message does not ask one question")]
    NoQuestion,
}

/// A message that arrives over a stream, length first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer(Vec<u8>);

impl Query {
    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// It makes no sense, or too much of it.
    pub fn parse(message: &[u8]) -> Result<Self, QueryError> {
        let header: &[u8; HEADER] = message.first_chunk().ok_or(QueryError::Malformed)?;
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[2] & ANSWER != 0 || [count(4), count(6), count(8)] != [1, 0, 0] {
            return Err(QueryError::NoQuestion);
        }
        if u16::try_from(message.len()).is_err() {
            return Err(QueryError::Malformed);
        }
        let end = skip_name(message, HEADER)
            .and_then(|at| at.checked_add(4))
            .filter(|end| *end <= message.len())
            .ok_or(QueryError::Malformed)?;
        let limit = announced_limit(message, end, count(10)).ok_or(QueryError::Malformed)?;
        Ok(Self {
            message: message.to_vec(),
            end,
            limit,
        })
    }

    /// The question as a stream carries it.
    pub fn framed(&self) -> Vec<u8> {
        // It was parsed: its length fits.
        let length = u16::try_from(self.message.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], &self.message].concat()
    }

    /// What the program is sent for an answer: the answer; where it is longer than the program takes, a hint to
    /// ask over TCP; where it answers something else, a failure.
    pub fn reply(&self, answer: &[u8]) -> Vec<u8> {
        let answers =
            |header: &[u8; HEADER]| header[..2] == self.message[..2] && header[2] & ANSWER != 0;
        match answer.first_chunk() {
            Some(header) if answers(header) && answer.len() <= self.limit => answer.to_vec(),
            Some(header) if answers(header) => self.bare(header[2] | TRUNCATED, header[3]),
            _ => self.failure(),
        }
    }

    /// What the program is told where there is no answer: that the server failed.
    pub fn failure(&self) -> Vec<u8> {
        self.bare(self.message[2] | ANSWER, SERVER_FAILURE)
    }

    /// The question with these flags, and nothing behind it.
    fn bare(&self, high: u8, low: u8) -> Vec<u8> {
        let mut message = self.message[..self.end].to_vec();
        message[2] = high;
        message[3] = low;
        message[6..HEADER].fill(0);
        message
    }
}

impl Answer {
    /// Takes what has arrived; more than one message is ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (2 + usize::from(u16::MAX)).saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The message, once it is whole.
    pub fn message(&self) -> Option<&[u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

/// What an EDNS record (RFC 6891) among the additional ones says; 512 without one.
fn announced_limit(message: &[u8], mut at: usize, records: u16) -> Option<usize> {
    for _ in 0..records {
        at = skip_name(message, at)?;
        // Kind, class, lifetime, length.
        let &[k0, k1, c0, c1, _, _, _, _, l0, l1] = message.get(at..)?.first_chunk()?;
        if u16::from_be_bytes([k0, k1]) == EDNS {
            let announced = usize::from(u16::from_be_bytes([c0, c1]));
            return Some(announced.max(LIMIT));
        }
        at += 10 + usize::from(u16::from_be_bytes([l0, l1]));
    }
    Some(LIMIT)
}

/// Where what follows a name begins. Questions have nothing before them that a name could point to.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..64 => at += 1 + usize::from(length),
            POINTER.. => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
        if at - start > NAME_MAX {
            return None;
        }
    }
}

/// RFC 1035 section 4.1.1: number, flags, four counts.
const HEADER: usize = 12;
const ANSWER: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
const SERVER_FAILURE: u8 = 2;
/// RFC 1035 section 4.1.4.
const POINTER: u8 = 0xc0;
/// RFC 1035 section 3.1.
const NAME_MAX: usize = 255;
/// RFC 1035 section 4.2.1.
const LIMIT: usize = 512;
/// RFC 6891 section 6.1.1.
const EDNS: u16 = 41;

#[cfg(test)]
mod tests;
