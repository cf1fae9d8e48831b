//! Answers one after the other: a stream of items, which the client pulls.
//!
//! An item is the answer to a call of its own, made before it is wanted: `ahead` of them are under way while there are more.
//! So a stream is bounded on both sides by itself, the server keeps nothing of it, and one that is dropped ends.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use quictun_shmq::{ChannelError, Message};

use crate::client::{Call, Client};
use crate::message::LAST;

/// Items of a stream that are under way, at most.
pub const MAX_AHEAD: usize = 256;

/// The items that a server has for a request, in order; see [`Client::stream`].
#[must_use = "nothing is asked for until the next item is"]
#[derive(Debug)]
pub struct Items<'a> {
    client: &'a Client,
    request: Message,
    /// Number of the next call.
    number: u64,
    /// Calls under way, in the order of their numbers.
    calls: VecDeque<Call<'a>>,
    ahead: usize,
    over: bool,
}

impl Client {
    /// The server's items for the request: its answers to calls with the numbers ([`Message::arg`]) 0, 1, 2 and so on, up to
    /// the one that is the last ([`LAST`]). `ahead` calls are under way at a time, up to [`MAX_AHEAD`]; a server
    /// gets a few for numbers behind the last, and answers them with another last one.
    pub fn stream(&self, request: Message, ahead: usize) -> Items<'_> {
        let ahead = ahead.clamp(1, MAX_AHEAD);
        Items {
            client: self,
            request,
            number: 0,
            calls: VecDeque::with_capacity(ahead),
            ahead,
            over: false,
        }
    }
}

impl Items<'_> {
    /// The next item; nothing after the last. Dropping it loses none. After an error there are no more.
    pub async fn next(&mut self) -> Option<Result<Message, ChannelError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, ChannelError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        while self.calls.len() < self.ahead {
            let call = self.client.call(self.request.with_arg(self.number));
            self.calls.push_back(call);
            self.number += 1;
        }
        // Those that are under way are asked in their turn only: an answer is given once.
        for (place, call) in self.calls.iter_mut().enumerate() {
            if place > 0 && call.is_under_way() {
                continue;
            }
            let polled = Pin::new(call).poll(context);
            if place > 0 {
                // It has just begun, or could not: the first one will tell.
                continue;
            }
            if let Poll::Ready(answer) = polled {
                let is_last = |answer: &Message| answer.flags() & LAST != 0;
                self.over = answer.as_ref().map_or(true, is_last);
                self.calls.pop_front();
                if !self.over {
                    return Poll::Ready(Some(answer));
                }
                self.calls.clear();
                return Poll::Ready(answer.err().map(Err));
            }
        }
        Poll::Pending
    }
}
