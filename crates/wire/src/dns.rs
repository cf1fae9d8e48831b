//! Carries DNS queries over a stream, and parses only as much of them as that needs.
//!
//! A program sends a datagram. [`Query::parse`] reads it. [`Query::framed`] is the form that goes to the name server
//! (RFC 7766). [`AnswerReader`] collects the bytes that come back. [`Query::reply`] turns the answer into a datagram
//! for the program, and [`Query::failure`] is the datagram if no answer came.

/// A query that a program sent in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    message: Vec<u8>,
    /// Offset of the first byte after the question.
    end: usize,
    /// The longest answer that the program accepts in a datagram, bytes.
    limit: usize,
}

/// The reason why a datagram cannot be forwarded as a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The message is truncated, or a name in it is malformed.
    #[error("the datagram is not a DNS message")]
    Malformed,
    /// The message is an answer, or does not hold exactly one question.
    #[error("the DNS message does not have exactly one question")]
    NoQuestion,
}

/// A message that arrives over a stream with a length prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerReader(Vec<u8>);

impl Query {
    /// Parses a datagram.
    ///
    /// # Errors
    ///
    /// Fails if the message is malformed, or is not a query with exactly one question.
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

    /// Returns the query with the length prefix that a stream needs.
    pub fn framed(&self) -> Vec<u8> {
        // `parse` has checked that the length fits.
        let length = u16::try_from(self.message.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], &self.message].concat()
    }

    /// Returns the datagram for the program: the answer, if it fits. If the answer exceeds the program's limit, the
    /// datagram is a truncated message, after which programs ask over TCP. If the answer belongs to another query, the
    /// datagram is a failure.
    pub fn reply(&self, answer: &[u8]) -> Vec<u8> {
        let answers =
            |header: &[u8; HEADER]| header[..2] == self.message[..2] && header[2] & ANSWER != 0;
        match answer.first_chunk() {
            Some(header) if answers(header) && answer.len() <= self.limit => answer.to_vec(),
            Some(header) if answers(header) => self.bare(header[2] | TRUNCATED, header[3]),
            _ => self.failure(),
        }
    }

    /// Returns the datagram for the program if there is no answer: a server failure (SERVFAIL).
    pub fn failure(&self) -> Vec<u8> {
        self.bare(self.message[2] | ANSWER, SERVER_FAILURE)
    }

    /// Returns the question with these flags and without any other records.
    fn bare(&self, high: u8, low: u8) -> Vec<u8> {
        let mut message = self.message[..self.end].to_vec();
        message[2] = high;
        message[3] = low;
        message[6..HEADER].fill(0);
        message
    }
}

impl AnswerReader {
    /// Appends received bytes. Ignores bytes beyond the longest possible message.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (2 + usize::from(u16::MAX)).saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the message once it is complete.
    pub fn message(&self) -> Option<&[u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

/// Returns the limit announced by an EDNS record (RFC 6891) in the additional section, or 512 without one.
fn announced_limit(message: &[u8], mut at: usize, records: u16) -> Option<usize> {
    for _ in 0..records {
        at = skip_name(message, at)?;
        // Type, class, time to live, length.
        let &[k0, k1, c0, c1, _, _, _, _, l0, l1] = message.get(at..)?.first_chunk()?;
        if u16::from_be_bytes([k0, k1]) == EDNS {
            let announced = usize::from(u16::from_be_bytes([c0, c1]));
            return Some(announced.max(LIMIT));
        }
        at += 10 + usize::from(u16::from_be_bytes([l0, l1]));
    }
    Some(LIMIT)
}

/// Returns the offset after a name. A question's name cannot be compressed, because no earlier name exists to point to.
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

/// Length of the header, bytes (RFC 1035 section 4.1.1): id, flags, four counts.
const HEADER: usize = 12;
const ANSWER: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
const SERVER_FAILURE: u8 = 2;
/// First byte of a compression pointer (RFC 1035 section 4.1.4).
const POINTER: u8 = 0xc0;
/// Maximum length of a name, bytes (RFC 1035 section 3.1).
const NAME_MAX: usize = 255;
/// Maximum length of a message over UDP without EDNS, bytes (RFC 1035 section 4.2.1).
const LIMIT: usize = 512;
/// Type number of the OPT record (RFC 6891 section 6.1.1).
const EDNS: u16 = 41;

#[cfg(test)]
mod tests;
