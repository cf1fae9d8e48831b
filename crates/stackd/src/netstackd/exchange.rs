//! The client's calls and the handling of their answers. [`super::remote`] explains the whole.

use std::rc::Rc;

use bytes::Bytes;
use quictun_ipc::{Allocation, Channel, Message};
use quictun_netstack::{Event, FlowEnding, StackFlowId};

use super::message::{
    self, CALLS, END, FINISH, LATER, LISTEN, MORE, OK, RECV, RECV_DATAGRAMS, REPLIES_MAX, SEND,
    SEND_DATAGRAMS,
};
use super::remote::{
    AHEAD, DATAGRAMS_MANY, FinishState, PIECE_MIN, PIECES, RemoteFlow, RemoteStack,
};

impl RemoteStack {
    pub(super) async fn listen(self: Rc<Self>) {
        let mut items = self.client.stream(Message::new(LISTEN), AHEAD);
        while let Some(Ok(item)) = items.next().await {
            let Some(event) = message::decode_event(&item) else {
                break;
            };
            self.handle(event);
        }
        self.over.set(true);
    }

    fn handle(self: &Rc<Self>, event: Event) {
        match event {
            Event::Offered { flow, .. } => {
                let known = self.flows.borrow_mut().insert(flow, RemoteFlow::default());
                if known.is_some() {
                    // An honest stack never offers a flow twice.
                    self.over.set(true);
                    return;
                }
                self.events.borrow_mut().push_back(event);
            }
            Event::Open(_) => self.events.borrow_mut().push_back(event),
            Event::Readable(id) => {
                if let Some(mut flow) = self.flow(id) {
                    flow.more = true;
                }
                self.fetch(id);
            }
            Event::Writable(id) => {
                if let Some(mut flow) = self.flow(id) {
                    flow.room = true;
                }
                self.write_more(id);
            }
            Event::Ended { flow: id, ending } => {
                let Some(mut flow) = self.flow(id) else {
                    return;
                };
                flow.ended = true;
                flow.failed |= ending != FlowEnding::Finished;
                let dropped = flow.dropped;
                drop(flow);
                if dropped {
                    self.flows.borrow_mut().remove(&id);
                }
                self.events.borrow_mut().push_back(event);
            }
        }
    }

    /// Receives more of a flow's bytes, if there are any and there is space to keep them.
    pub(super) fn fetch(self: &Rc<Self>, id: StackFlowId) {
        let most = self.most();
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        let wanted = flow.more && !flow.end && !flow.failed && !flow.ended;
        if !wanted || flow.receiving || flow.received.len() >= PIECES {
            return;
        }
        let length = flow.piece().min(most);
        let Some(buffer) = self.reserve(id, &mut flow, length) else {
            return;
        };
        flow.receiving = true;
        // Notifications that arrive from now on count again.
        flow.more = false;
        drop(flow);
        self.spawn(CALLS, self.clone().receive(id, buffer));
    }

    async fn receive(self: Rc<Self>, id: StackFlowId, buffer: Allocation) {
        let asked = buffer.len();
        let answer = self
            .call(
                message::flow_message(RECV, id),
                buffer,
                |channel, (answer, buffer)| {
                    let length =
                        u32::try_from(answer.arg() & u64::from(u32::MAX)).unwrap_or_default();
                    let mut bytes = Vec::new();
                    channel.append_back(buffer, 0, length.min(buffer.len()), &mut bytes);
                    Bytes::from(bytes)
                },
            )
            .await;
        let Some((answer, bytes)) = answer.filter(|(answer, _)| answer.op() == OK) else {
            // An event reports how the flow ended. After it, a read reports the end.
            if let Some(mut flow) = self.flow(id) {
                flow.receiving = false;
            }
            self.events.borrow_mut().push_back(Event::Readable(id));
            return;
        };
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        flow.receiving = false;
        flow.more |= answer.arg() & MORE != 0;
        flow.end |= answer.arg() & END != 0;
        flow.note_received(asked, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let news = flow.end || !bytes.is_empty();
        if !bytes.is_empty() {
            flow.received.push_back(bytes);
        }
        drop(flow);
        if news {
            self.events.borrow_mut().push_back(Event::Readable(id));
        }
        self.fetch(id);
    }

    pub(super) async fn send(self: Rc<Self>, id: StackFlowId, buffer: Allocation) {
        let answer = self
            .call(
                message::flow_message(SEND, id),
                buffer,
                |channel, (answer, buffer)| {
                    let taken = u32::try_from(answer.arg()).unwrap_or_default();
                    let taken = taken.min(buffer.len());
                    let mut rest = Vec::new();
                    channel.append_back(buffer, taken, buffer.len() - taken, &mut rest);
                    Bytes::from(rest)
                },
            )
            .await;
        let Some((_, rest)) = answer.filter(|(answer, _)| answer.op() == OK) else {
            return;
        };
        if let Some(mut flow) = self.flow(id) {
            flow.sending = false;
            flow.rest = rest;
        }
        self.write_more(id);
    }

    pub(super) fn write_more(self: &Rc<Self>, id: StackFlowId) {
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        if flow.sending || flow.failed || flow.ended || !flow.accepted {
            return;
        }
        if !flow.rest.is_empty() {
            if !flow.room {
                return;
            }
            let length = u32::try_from(flow.rest.len()).unwrap_or(u32::MAX);
            let Some(buffer) = self.reserve(id, &mut flow, length) else {
                return;
            };
            let rest = std::mem::take(&mut flow.rest);
            let part = rest.len().min(buffer.len() as usize);
            self.client
                .with_channel(|channel| channel.write(&buffer, 0, &rest[..part]));
            flow.rest = rest.slice(part..);
            (flow.sending, flow.room) = (true, false);
            drop(flow);
            self.spawn(CALLS, self.clone().send(id, buffer));
        } else if flow.finish == FinishState::Wanted {
            (flow.sending, flow.room) = (true, false);
            drop(flow);
            self.spawn(CALLS, self.clone().end(id));
        } else if std::mem::take(&mut flow.waiting) {
            flow.room = false;
            drop(flow);
            self.events.borrow_mut().push_back(Event::Writable(id));
        }
    }

    async fn end(self: Rc<Self>, id: StackFlowId) {
        let Ok(answer) = self.client.call(message::flow_message(FINISH, id)).await else {
            return;
        };
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        flow.sending = false;
        if answer.op() != LATER {
            flow.finish = FinishState::Done;
        } else if flow.room {
            drop(flow);
            self.write_more(id);
        }
    }

    /// Ends a flow for which no event will arrive.
    pub(super) fn fail(&self, id: StackFlowId) {
        if let Some(mut flow) = self.flow(id)
            && !flow.ended
        {
            flow.failed = true;
            let ending = FlowEnding::Reset;
            let event = Event::Ended { flow: id, ending };
            self.events.borrow_mut().push_back(event);
        }
    }

    /// Makes a call with a buffer. Returns the answer, and the buffer again.
    async fn call_with(
        &self,
        message: Message,
        buffer: Allocation,
    ) -> Option<(Message, Allocation)> {
        let mut call = self.client.call_with(message, buffer);
        let answer = (&mut call).await;
        let back = call.buffer();
        Some((answer.ok()?, back?))
    }

    /// Receives datagrams until enough of them wait for the engine.
    pub(super) async fn receive_datagrams(self: Rc<Self>, mut buffer: Allocation) {
        while self.datagrams.borrow().len() < DATAGRAMS_MANY {
            let message = Message::new(RECV_DATAGRAMS);
            let Some((answer, back)) = self.call_with(message, buffer).await else {
                return;
            };
            let length = self.take_length(answer.arg()).min(u64::from(back.len()));
            let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
            self.client
                .with_channel(|channel| channel.read_back(&back, 0, &mut bytes));
            let mut rest = bytes.as_slice();
            let all = std::iter::from_fn(|| message::next_datagram(&mut rest));
            self.datagrams.borrow_mut().extend(all);
            buffer = back;
        }
        self.unused.borrow_mut().push(buffer);
    }

    /// Sends the datagrams that wait, until there are none. Those that arrive during a call share the next one.
    pub(super) async fn send_datagrams(self: Rc<Self>, mut buffer: Allocation) {
        loop {
            let bytes = self.take_replies();
            if bytes.is_empty() {
                break;
            }
            self.client
                .with_channel(|channel| channel.write(&buffer, 0, &bytes));
            let message = Message::new(SEND_DATAGRAMS).with_arg(bytes.len() as u64);
            let Some((answer, back)) = self.call_with(message, buffer).await else {
                return;
            };
            self.take_length(answer.arg());
            buffer = back;
        }
        *self.reply_buffer.borrow_mut() = Some(buffer);
    }

    /// Returns the length in an answer, and notes how many datagrams the stack has dropped since the answer before. Calls that
    /// end in one turn continue in any order, so an older answer may come later.
    pub(super) fn take_length(&self, argument: u64) -> u64 {
        let (length, total) = message::length_and_dropped(argument);
        let more = total.wrapping_sub(self.dropped_before.get());
        if i32::try_from(more).is_ok() {
            self.dropped_before.set(total);
            self.dropped.set(self.dropped.get() + u64::from(more));
        }
        length
    }

    /// Takes as many datagrams as have room in one call.
    fn take_replies(&self) -> Vec<u8> {
        let mut replies = self.replies.borrow_mut();
        let mut bytes = Vec::new();
        while let Some(next) = replies.front()
            && (bytes.is_empty()
                || bytes.len() + message::datagram_len(next.payload.len()) <= REPLIES_MAX)
        {
            message::append_datagram(&mut bytes, next);
            replies.pop_front();
        }
        self.reply_bytes.set(self.reply_bytes.get() - bytes.len());
        bytes
    }

    /// Allocates room for at most `length` bytes of a flow. If there is none, queues the flow behind those that wait
    /// already.
    pub(super) fn reserve(
        &self,
        id: StackFlowId,
        flow: &mut RemoteFlow,
        length: u32,
    ) -> Option<Allocation> {
        let mut wanted = length;
        loop {
            if let Some(buffer) = self.client.reserve(wanted) {
                return Some(buffer);
            }
            if wanted <= PIECE_MIN {
                if !std::mem::replace(&mut flow.starved, true) {
                    self.starved.borrow_mut().push_back(id);
                }
                return None;
            }
            wanted = (wanted / 2).max(PIECE_MIN);
        }
    }

    /// Makes a call with a buffer, inspects the answer with `look`, and frees the buffer. Returns `None` if the other
    /// process is gone.
    pub(super) async fn call<T>(
        self: &Rc<Self>,
        message: Message,
        buffer: Allocation,
        look: impl FnOnce(&Channel, (&Message, &Allocation)) -> T,
    ) -> Option<(Message, T)> {
        let (answer, buffer) = self.call_with(message, buffer).await?;
        let found = self
            .client
            .with_channel(|channel| look(channel, (&answer, &buffer)));
        self.client.release(buffer);
        self.feed_starved();
        Some((answer, found))
    }

    /// Lets flows that wait for room continue, until there is no more room.
    fn feed_starved(self: &Rc<Self>) {
        // Only flows that wait now: a flow that has to wait again is queued behind them.
        let waiting = self.starved.borrow().len();
        for _ in 0..waiting {
            let next = self.starved.borrow_mut().pop_front();
            let Some(next) = next else {
                return;
            };
            let Some(mut flow) = self.flow(next) else {
                continue;
            };
            flow.starved = false;
            drop(flow);
            self.fetch(next);
            self.write_more(next);
            if self.flow(next).is_some_and(|flow| flow.starved) {
                return;
            }
        }
    }
}
