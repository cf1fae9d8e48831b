//! A stream of items that the client pulls, one answer after the other.
//!
//! Each item is the answer to a call of its own, made before the item is wanted. While there are more items, `ahead`
//! calls are under way. A stream is therefore bounded on both sides, the server keeps no state for it, and dropping it
//! ends it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use quictun_shmq::{ChannelError, Message};

use crate::client::{Call, Client};
use crate::message::LAST;

/// Largest number of a stream's calls under way.
pub const MAX_AHEAD: usize = 256;

/// The items that a server returns for a request, in order; see [`Client::stream`].
#[must_use = "no call is made until the next item is requested"]
#[derive(Debug)]
pub struct Items<'a> {
    client: &'a Client,
    request: Message,
    /// Number of the next call, sent as its [`Message::arg`].
    number: u64,
    /// Calls under way, in the order of their numbers.
    calls: VecDeque<Call<'a>>,
    ahead: usize,
    over: bool,
}

impl Client {
    /// Returns the server's items for a request: its answers to calls with the numbers ([`Message::arg`]) 0, 1, 2 and
    /// so on, up to the answer with the flag [`LAST`]. `ahead` calls are under way at a time, at most [`MAX_AHEAD`].
    /// The server also receives a few calls with numbers beyond the last item, and answers them with [`LAST`] again.
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
    /// Returns the next item, or `None` after the last. Dropping the future loses no item. After an error there are no
    /// more items.
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
        // A call under way is polled only when it is the first: its answer is returned only once.
        for (place, call) in self.calls.iter_mut().enumerate() {
            if place > 0 && call.is_under_way() {
                continue;
            }
            let polled = Pin::new(call).poll(context);
            if place > 0 {
                // The call was just started, or could not be; the first call reports an error.
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
