//! The connection: its life and its limits.

mod receive;
mod resets;
mod streams;
mod transmit;

pub use transmit::SLOT_MIN;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_flow::{ReceiveCredit, StreamId, WriteEnd};

use crate::credit::SendCredit;
use crate::error::{BrokenRule, ErrorCode};
use crate::event::{End, Event, Events};
use crate::flood::FloodMeter;
use crate::frame::{PAYLOAD_MAX, WINDOW_INITIAL, WINDOW_MAX};
use crate::hpack::Decoder;
use crate::recv::RecvPart;
use crate::send::SendPart;

use receive::{FrameReader, HeaderBlock};

/// Most streams that a peer may have open at once, which is the least that RFC 9113 section 6.5.2 recommends. A browser
/// opens a few for each page.
pub const STREAMS_MAX: u32 = 100;

/// Length of the heads of requests that may wait beyond the streams that are permitted now, bytes. A client that does not
/// know the limit yet sends several requests at once, of a third of a kilobyte each.
const WAITING_HEADS_MAX: usize = 32 * 1024;

/// Maximum number of resets of streams at once, by either side. A reset after an answer is the usual end of a tunnel, and
/// is not counted. Each of the others has cost a request, which may have begun a look-up or a dial (CVE-2023-44487).
/// Chosen for a browser that gives up all its streams twice.
const RESETS_BURST: u32 = 2 * STREAMS_MAX;

/// Time after which one more reset is permitted. Chosen arbitrarily, to permit 20 requests in vain each second.
const RESET_EVERY: Duration = Duration::from_millis(50);

/// Maximum number of frames at once that move nothing: PING, SETTINGS, GOAWAY, PRIORITY, unknown ones, DATA and
/// CONTINUATION without content, `WINDOW_UPDATE` for streams whose sending part has ended, and all but DATA for streams
/// that have ended, or that GOAWAY has excluded. Chosen for a client that pings with each request, and for the last
/// updates of as many streams as it may have.
const IDLE_FRAMES_BURST: u32 = 1000;

/// Time after which one more frame that moves nothing is permitted. Chosen arbitrarily, to permit 100 requests each
/// second with a PING.
const IDLE_FRAME_EVERY: Duration = Duration::from_millis(10);

/// Maximum number of answers to PING and SETTINGS, and of resets of streams that this side sends nothing else on, which
/// wait for the transport. A peer that reads its answers leaves none waiting. Chosen above the burst of resets.
const REPLIES_MAX: usize = 256;

/// Maximum number of streams that this side remembers as reset. It ignores their last frames. Chosen for all streams that
/// a peer may have open, and those that it opens before it learns of the resets.
const RESET_STREAMS_KEPT: usize = 2 * STREAMS_MAX as usize;

/// The limits with which a connection begins.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of bytes that the peer may send beyond those that were read.
    pub window: u64,
    /// Number of bytes that the peer may send on one stream beyond those that its application has taken, at most.
    pub stream_window: u64,
    /// Number of streams that the peer may have open, up to [`STREAMS_MAX`]. Further ones wait until some have ended, if the
    /// peer has not acknowledged this limit yet. Otherwise they are refused.
    pub streams: u32,
    /// Number of bytes that wait to be written to the transport at most.
    pub kept: u64,
}

/// A server's side of an HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    state: State,
    config: Config,
    reader: FrameReader,
    /// The peer's first frame has begun.
    greeted: bool,
    /// A block of fields that is not complete.
    block: Option<HeaderBlock>,
    decoder: Decoder,
    streams: BTreeMap<StreamId, Stream>,
    /// Number of streams that have not ended in both directions.
    open: u32,
    /// Streams that were opened and not accepted, and the length of their heads, bytes.
    opened: VecDeque<StreamId>,
    opened_heads: usize,
    /// The largest number of a stream that the peer has opened.
    last_stream: u32,
    events: Events,
    send_credit: SendCredit,
    receive_credit: ReceiveCredit,
    /// The peer's settings: the credit of new streams, and the length of the longest payload.
    peer_window: u32,
    peer_payload_max: usize,
    /// The peer has reduced its table of fields, and the next block tells that this side uses none.
    table_reduced: bool,
    resets: FloodMeter,
    idle_frames: FloodMeter,
    /// Frames that answer the peer, in order.
    replies: VecDeque<ReplyFrame>,
    /// Streams that this side has reset, oldest first.
    reset_streams: VecDeque<u32>,
    settings_due: bool,
    /// Time at which SETTINGS left, until their acknowledgement.
    settings_sent: Option<Instant>,
    /// The peer opens no more streams, or is told that no more are served.
    leaving: Option<Leaving>,
    /// Streams with data, in turn.
    ready: VecDeque<StreamId>,
    /// Streams with frames other than DATA.
    control: VecDeque<StreamId>,
    /// Streams whose writes were refused, in turn.
    waiting: VecDeque<StreamId>,
    /// Time since which no stream has been open.
    idle_since: Option<Instant>,
}

/// A stream with its two parts.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct Stream {
    recv: RecvPart,
    send: SendPart,
    /// The answer may have no content.
    is_head: bool,
    /// The request was refused.
    is_refused: bool,
    /// The sending part has ended.
    local_ended: bool,
    /// Both parts have ended, as far as the peer is concerned.
    closed: bool,
    /// The application reads no more. The peer gets this code once this side has ended its part.
    stopped: Option<ErrorCode>,
    /// The stream is in a queue of streams with data, and of streams with other frames.
    scheduled: bool,
    has_control: bool,
}

#[derive(Debug)]
enum State {
    Open,
    /// GOAWAY with this code and this text is the last frame.
    Closing(ErrorCode, Bytes),
    Closed,
}

/// A frame that answers one of the peer's.
#[derive(Clone, Copy, Debug)]
enum ReplyFrame {
    Settings,
    Ping([u8; 8]),
    /// A stream is reset that is not in the table, or on which this side has sent its end.
    Reset(u32, ErrorCode),
    /// A stream that is not in the table had too large a list of fields.
    TooLarge(u32),
}

/// How the connection approaches its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// The peer has sent GOAWAY.
    ByPeer,
    /// GOAWAY is to be sent, to a peer that may open streams until it has it.
    Due,
    /// The streams up to this one are served.
    After(u32),
}

/// Length to which a reason for a close is cut, bytes. It is for people, and has to fit a short slot.
const REASON_MAX: usize = 256;

/// The life of a connection.
impl Http2 {
    /// Begins a connection on a transport that can be written to.
    pub fn new(now: Instant, config: Config) -> Self {
        // Every connection begins with the same credit, also if its window is smaller.
        let mut receive_credit = ReceiveCredit::new(WINDOW_INITIAL.into(), WINDOW_MAX.into());
        receive_credit.set_window(config.window);
        Self {
            state: State::Open,
            config: Config {
                streams: config.streams.min(STREAMS_MAX),
                ..config
            },
            reader: FrameReader::default(),
            greeted: false,
            block: None,
            decoder: Decoder::default(),
            streams: BTreeMap::new(),
            open: 0,
            opened: VecDeque::new(),
            opened_heads: 0,
            last_stream: 0,
            events: Events::default(),
            send_credit: SendCredit::new(config.kept),
            receive_credit,
            peer_window: WINDOW_INITIAL,
            peer_payload_max: PAYLOAD_MAX,
            table_reduced: false,
            resets: FloodMeter::new(RESETS_BURST, RESET_EVERY),
            idle_frames: FloodMeter::new(IDLE_FRAMES_BURST, IDLE_FRAME_EVERY),
            replies: VecDeque::new(),
            reset_streams: VecDeque::new(),
            settings_due: true,
            settings_sent: None,
            leaving: None,
            ready: VecDeque::new(),
            control: VecDeque::new(),
            waiting: VecDeque::new(),
            idle_since: Some(now),
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop() {
            if let Event::Readable(id) = event
                && let Some(stream) = self.streams.get_mut(&id)
            {
                stream.recv.noted = false;
            }
            return Some(event);
        }
        self.next_writable().map(Event::Writable)
    }

    /// Tells the peer that no further streams are served (GOAWAY). The connection ends once its streams have.
    pub fn drain(&mut self) {
        if self.is_open() && !matches!(self.leaving, Some(Leaving::After(_))) {
            self.leaving = Some(Leaving::Due);
        }
    }

    /// Ends the connection. Streams without an answer get `answer`, a head in the form of HTTP/1.1. The others are reset.
    pub fn close(&mut self, code: ErrorCode, mut reason: Bytes, answer: &[u8]) {
        if !self.is_open() {
            return;
        }
        for id in self.ids() {
            let is_answered = |stream: &Stream| stream.send.is_answered();
            if self.streams.get(&id).is_some_and(is_answered) {
                self.reset(id, ErrorCode::CANCEL);
            } else if self.write(id, &mut answer.to_vec().into()) == WriteEnd::Taken {
                self.finish(id);
            }
        }
        reason.truncate(REASON_MAX);
        self.state = State::Closing(code, reason);
    }

    /// Returns whether the connection has ended, by either side. What has arrived can still be read.
    pub fn is_closed(&self) -> bool {
        !self.is_open()
    }

    /// Returns whether nothing is left to write. After a close, the transport can be shut down then.
    pub fn is_idle(&self) -> bool {
        match self.state {
            State::Open => !self.has_frames(),
            State::Closing(..) => false,
            State::Closed => true,
        }
    }

    /// Returns the time since which no stream has been open, if none is.
    pub fn idle_since(&self) -> Option<Instant> {
        self.idle_since
    }

    /// Returns the memory of fields and frames that have arrived in part, and of the table of fields, bytes.
    pub fn held(&self) -> usize {
        let block = self.block.as_ref().map_or(0, HeaderBlock::len);
        self.reader.held() + block + self.decoder.held() + self.opened_heads
    }

    fn ids(&self) -> Vec<StreamId> {
        self.streams.keys().copied().collect()
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Ends the connection because the peer has broken a rule.
    fn fail(&mut self, violation: BrokenRule) {
        if self.is_open() {
            self.state = State::Closing(
                violation.code,
                Bytes::from_static(violation.rule.as_bytes()),
            );
            self.events.push(Event::Lost(End::Violation(violation)));
        }
    }

    /// Ends a connection on which no more streams are to come, if none is open.
    fn end_if_done(&mut self) {
        let done = matches!(self.leaving, Some(Leaving::ByPeer | Leaving::After(_)));
        if done && self.open == 0 && self.is_open() {
            self.state = State::Closing(ErrorCode::NO_ERROR, Bytes::new());
            self.events.push(Event::Lost(End::Done));
        }
    }

    /// Notes a reset that may belong to a flood.
    fn count_reset(&mut self, now: Instant) -> Result<(), BrokenRule> {
        let rule = "too many streams are reset";
        let counted = self.resets.take(now).then_some(());
        counted.ok_or(BrokenRule::calm(rule))
    }

    /// Notes a frame that moves nothing.
    fn count_idle_frame(&mut self, now: Instant) -> Result<(), BrokenRule> {
        let rule = "too many frames move nothing";
        let counted = self.idle_frames.take(now).then_some(());
        counted.ok_or(BrokenRule::calm(rule))
    }

    fn reply(&mut self, reply: ReplyFrame) -> Result<(), BrokenRule> {
        if self.replies.len() == REPLIES_MAX {
            return Err(BrokenRule::calm("too many answers wait to be read"));
        }
        self.replies.push_back(reply);
        Ok(())
    }
}

/// Limits for tests and small programs: a window of 1 MiB, and 256 KiB on each of 100 streams.
impl Default for Config {
    fn default() -> Self {
        Self {
            window: 1 << 20,
            stream_window: 1 << 18,
            streams: STREAMS_MAX,
            kept: 1 << 18,
        }
    }
}

/// Returns the id of the stream with this number, which a client has opened.
fn id_of(stream: u32) -> StreamId {
    // The numbers of QUIC's streams have two bits for their kind, and those of HTTP/2 one.
    StreamId::from_number(u64::from(stream >> 1) << 2)
        .expect("invariant: the two bits of its kind are clear")
}

/// Returns the number of a stream that a client has opened.
fn number_of(id: StreamId) -> u32 {
    u32::try_from(id.index() << 1 | 1).unwrap_or(u32::MAX)
}
