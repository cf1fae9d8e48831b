//! Answers to datagrams that belong to no connection: Retry, version negotiation, stateless resets.

use std::collections::VecDeque;

use super::datagrams::from_library;
use crate::datagrams::Datagrams;

/// Limit for answers that wait while the socket is busy. More would belong to a flood, which needs no answers.
const MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Responses {
    queue: VecDeque<(Datagrams, Vec<u8>)>,
    /// Memory that the answers take, in bytes.
    held: usize,
}

impl Responses {
    /// Appends an answer, or drops it in a flood.
    pub(super) fn push(&mut self, transmit: &quinn_proto::Transmit, mut bytes: Vec<u8>) {
        if self.queue.len() < MAX {
            bytes.truncate(transmit.size);
            self.held += bytes.capacity();
            self.queue.push_back((from_library(transmit), bytes));
        }
    }

    pub(super) fn pop(&mut self, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let (datagrams, bytes) = self.queue.pop_front()?;
        self.held -= bytes.capacity();
        *buffer = bytes;
        Some(datagrams)
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }
}
