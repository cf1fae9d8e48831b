//! One DNS query, as the socket of a flow.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;

use quictun_engine::Socket;
use quictun_netstack::Datagram;
use quictun_wire::dns::{AnswerReader, Query};

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) number: u64,
    pub(crate) datagram: Datagram,
}

/// Replies to send to programs, shared by all queries.
pub(crate) type Replies = Rc<RefCell<VecDeque<Reply>>>;

/// The application's side of a query's flow. It sends the query, and finishes when it has the answer.
#[derive(Debug)]
pub(crate) struct QuerySocket {
    number: u64,
    asked: Datagram,
    query: Query,
    outgoing: Vec<u8>,
    sent: usize,
    answer: AnswerReader,
    replied: bool,
    replies: Replies,
}

impl QuerySocket {
    pub(crate) fn new(number: u64, asked: Datagram, query: Query, replies: Replies) -> Self {
        Self {
            number,
            asked,
            outgoing: query.framed(),
            query,
            sent: 0,
            answer: AnswerReader::default(),
            replied: false,
            replies,
        }
    }

    pub(crate) fn client(&self) -> SocketAddr {
        self.asked.client
    }

    fn reply(&mut self, payload: Vec<u8>) {
        if !std::mem::replace(&mut self.replied, true) {
            let datagram = Datagram {
                client: self.asked.client,
                target: self.asked.target,
                payload,
            };
            let number = self.number;
            let reply = Reply { number, datagram };
            self.replies.borrow_mut().push_back(reply);
        }
    }
}

impl Socket for QuerySocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let rest = &self.outgoing[self.sent..];
        let length = rest.len().min(into.capacity() - into.len());
        into.extend_from_slice(&rest[..length]);
        self.sent += length;
        match length {
            // A server may treat the end of the request as the end of the connection, so the end follows the answer.
            0 if self.replied => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            length => Ok(length),
        }
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        for chunk in chunks {
            self.answer.push(chunk);
        }
        if let Some(message) = self.answer.message() {
            let payload = self.query.reply(message);
            self.reply(payload);
        }
        Ok(chunks.iter().map(|chunk| chunk.len()).sum())
    }

    fn finish(&mut self) -> io::Result<()> {
        // The server has finished; without an answer the query fails.
        let failure = self.query.failure();
        self.reply(failure);
        Ok(())
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}

impl Drop for QuerySocket {
    fn drop(&mut self) {
        let failure = self.query.failure();
        self.reply(failure);
    }
}
