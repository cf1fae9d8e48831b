//! A TCP connection that carries bytes in both directions, for one end.
//!
//! The sender and the receiver decide when a segment leaves and what is acknowledged. They count full segments; here a
//! segment has a content, which may be shorter. An empty content is the FIN.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::segment::SEGMENT;
use super::tampering::{Tampering, TcpCut};
use super::{SegmentKind, TcpReceiver, TcpSegment, TcpSender};
use crate::socket::{AppEnd, AppRead};

/// Longest content of a segment: that of the shortest MTU in the tests, 1328 bytes, as if the path had reported it.
const CONTENT_MAX: usize = 1276;

/// Time without an acknowledgement after which an end gives up: the `TCP_USER_TIMEOUT` that the tunnel sets.
const USER_TIMEOUT: Duration = Duration::from_millis(4500);

/// One end of a connection. `app` is the system's end of the socket that the engine has.
#[derive(Debug)]
pub(crate) struct ByteStream {
    connection: u32,
    app: AppEnd,
    pub(crate) state: StreamState,
    sender: TcpSender,
    receiver: TcpReceiver,
    /// Contents of the segments from the first one that was not acknowledged.
    kept: VecDeque<Bytes>,
    /// Contents by segment number that the engine has not received.
    arrived: BTreeMap<u64, Bytes>,
    /// Number of the next segment for the engine.
    next: u64,
    /// Time since which the peer acknowledges nothing, although something was sent.
    waits_since: Option<Instant>,
    sent_fin: bool,
    read_fin: bool,
    tampering: Tampering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// The handshake is not over.
    Opening,
    Open,
    /// Both directions have ended, or the connection was reset.
    Over,
}

impl ByteStream {
    /// Creates one end of connection number `connection`. `dials` is true for the end that sends the SYN.
    pub(crate) fn new(
        now: Instant,
        connection: u32,
        app: AppEnd,
        dials: bool,
        tampering: Tampering,
    ) -> Self {
        let ends = (connection, connection);
        let mut sender = TcpSender::new(Some(0), ends);
        if !dials {
            sender.skip_handshake();
        }
        Self {
            connection,
            app,
            state: StreamState::Opening,
            sender,
            receiver: TcpReceiver::new(ends),
            kept: VecDeque::new(),
            arrived: BTreeMap::new(),
            next: 0,
            waits_since: dials.then_some(now),
            sent_fin: false,
            read_fin: false,
            tampering,
        }
    }

    pub(crate) fn handle_segment(&mut self, now: Instant, kind: SegmentKind, bytes: Bytes) {
        match kind {
            SegmentKind::Syn => return self.receiver.handle_syn(),
            SegmentKind::SynAck => {
                self.sender.handle_syn_ack(now);
                self.waits_since = self.waits_since.filter(|_| !self.kept.is_empty());
            }
            SegmentKind::Ack { below, sack } => {
                let before = self.sender.acked();
                self.sender.handle_ack(now, below, &sack);
                for _ in before..self.sender.acked() {
                    self.kept.pop_front();
                    self.waits_since = (!self.kept.is_empty()).then_some(now);
                }
            }
            SegmentKind::Data { sequence, .. } => {
                self.receiver.handle_data(now, sequence, SEGMENT);
                let number = sequence / u64::from(SEGMENT);
                if number >= self.next {
                    self.arrived.entry(number).or_insert(bytes);
                }
            }
            SegmentKind::Reset => return self.fail(),
        }
        if self.state == StreamState::Opening {
            self.state = StreamState::Open;
        }
    }

    /// Ends the connection as a reset by the peer does.
    pub(crate) fn fail(&mut self) {
        self.app.abort();
        self.state = StreamState::Over;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let patience = self.waits_since.map(|since| since + USER_TIMEOUT);
        let timers = [self.sender.next_timeout(), self.receiver.next_timeout()];
        timers.into_iter().chain([patience]).flatten().min()
    }

    /// Does the work that is due, and passes the segments to send to `out`.
    pub(crate) fn run(&mut self, now: Instant, mut out: impl FnMut(TcpSegment, Bytes)) {
        if self
            .waits_since
            .is_some_and(|since| since + USER_TIMEOUT <= now)
        {
            return self.fail();
        }
        self.deliver();
        self.receiver.run(now, |segment| out(segment, Bytes::new()));
        while self.state != StreamState::Over {
            self.take(now);
            if self.app.is_reset() {
                self.state = StreamState::Over;
                return out(reset(self.connection), Bytes::new());
            }
            let Some(mut segment) = self.sender.poll_segment(now) else {
                break;
            };
            let mut bytes = Bytes::new();
            if let SegmentKind::Data { sequence, length } = &mut segment.kind {
                let place = *sequence / u64::from(SEGMENT) - self.sender.acked();
                let content = usize::try_from(place).ok();
                bytes = content
                    .and_then(|place| self.kept.get(place).cloned())
                    .expect("invariant: contents stay until they are acknowledged");
                *length = u32::try_from(bytes.len()).expect("invariant: at most a segment");
            }
            out(segment, bytes);
        }
        if self.sent_fin && self.read_fin && self.kept.is_empty() {
            self.state = StreamState::Over;
        }
    }

    /// Gives the engine what has arrived in order, as far as its socket has room.
    fn deliver(&mut self) {
        let arrived = self.receiver.received() / u64::from(SEGMENT);
        if self.is_cut() {
            return;
        }
        while self.next < arrived
            && let Some(mut entry) = self.arrived.first_entry()
        {
            let bytes = entry.get_mut();
            if bytes.is_empty() {
                self.read_fin = true;
                self.app.finish();
            } else {
                let most = match self.tampering.cut {
                    Some((left, _)) => left.min(bytes.len()),
                    None => bytes.len(),
                };
                match self.app.write(&bytes[..most]) {
                    // The engine has closed the socket: its system answers with a reset.
                    None => return self.app.reset(),
                    Some(taken) => {
                        drop(bytes.split_to(taken));
                        if let Some((left, _)) = &mut self.tampering.cut {
                            *left -= taken;
                        }
                    }
                }
                if !bytes.is_empty() {
                    self.is_cut();
                    return;
                }
            }
            entry.remove();
            self.next += 1;
        }
    }

    /// Ends the connection if a middlebox does so here. Returns whether it has.
    fn is_cut(&mut self) -> bool {
        let Some((0, cut)) = self.tampering.cut else {
            return false;
        };
        if self.state == StreamState::Open && !std::mem::replace(&mut self.read_fin, true) {
            match cut {
                TcpCut::Reset => self.fail(),
                TcpCut::Fin => self.app.finish(),
            }
        }
        true
    }

    /// Takes the content of one segment from the engine, if the sender has room for it.
    fn take(&mut self, now: Instant) {
        if self.sent_fin || !self.sender.has_room() {
            return;
        }
        let most = self.tampering.content_max.unwrap_or(CONTENT_MAX);
        let mut bytes = Vec::with_capacity(most);
        match self.app.read(Some(&mut bytes), most) {
            AppRead::Bytes(_) => {}
            AppRead::Fin => self.sent_fin = true,
            AppRead::Blocked | AppRead::Reset => return,
        }
        self.sender.add_segment();
        self.kept.push_back(bytes.into());
        self.waits_since.get_or_insert(now);
    }
}

/// Returns the reset of a connection.
pub(crate) fn reset(connection: u32) -> TcpSegment {
    TcpSegment {
        from: connection,
        connection,
        kind: SegmentKind::Reset,
    }
}
