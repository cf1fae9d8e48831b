//! The frames of QMux: those of RFC 9000 section 19 that draft-ietf-quic-qmux-02 section 4 permits, its own, and those of
//! the two extensions that its section 9 permits.

use bytes::{Buf, BufMut, Bytes};
use quictun_wire::varint;

use crate::error::Violation;

/// A frame. The numbers of streams are those on the wire: whether they are valid depends on the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A run of PADDING frames.
    Padding,
    /// `RESET_STREAM`; with `reliable_size`, `RESET_STREAM_AT`.
    ResetStream {
        stream: u64,
        code: u64,
        final_size: u64,
        reliable_size: Option<u64>,
    },
    StopSending {
        stream: u64,
        code: u64,
    },
    Stream {
        stream: u64,
        offset: u64,
        fin: bool,
        data: Bytes,
    },
    MaxData(u64),
    MaxStreamData {
        stream: u64,
        limit: u64,
    },
    MaxStreams {
        bidirectional: bool,
        limit: u64,
    },
    DataBlocked(u64),
    StreamDataBlocked {
        stream: u64,
        limit: u64,
    },
    StreamsBlocked {
        bidirectional: bool,
        limit: u64,
    },
    ConnectionClose {
        /// The peer's application closes, not its transport.
        application: bool,
        code: u64,
        reason: Bytes,
    },
    Datagram {
        data: Bytes,
        /// The length of the whole frame, which the limit of the receiver concerns.
        frame_len: usize,
    },
    TransportParameters(Bytes),
    Ping {
        sequence: u64,
        response: bool,
    },
}

const PADDING: u64 = 0x00;
const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const STREAM: u64 = 0x08;
const STREAM_LAST: u64 = 0x0f;
const STREAM_FIN: u64 = 0x01;
const STREAM_LEN: u64 = 0x02;
const STREAM_OFF: u64 = 0x04;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS_BIDI: u64 = 0x12;
const MAX_STREAMS_UNI: u64 = 0x13;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED_BIDI: u64 = 0x16;
const STREAMS_BLOCKED_UNI: u64 = 0x17;
const CONNECTION_CLOSE: u64 = 0x1c;
const APPLICATION_CLOSE: u64 = 0x1d;
/// `RESET_STREAM_AT`, a frame of draft-ietf-quic-reliable-stream-reset.
const RESET_STREAM_AT: u64 = 0x24;
const DATAGRAM: u64 = 0x30;
const DATAGRAM_LEN: u64 = 0x31;
/// `\xffQS0\r\n\r\n` on the wire.
const QX_TRANSPORT_PARAMETERS: u64 = 0x3f51_5330_0d0a_0d0a;
const QX_PING: u64 = 0x348c_6752_9ef8_c7bd;
const QX_PING_RESPONSE: u64 = 0x348c_6752_9ef8_c7be;

/// Largest number of streams of a kind (RFC 9000 section 4.6).
pub(crate) const STREAMS_MAX: u64 = 1 << 60;

/// Length of a type and four fields, the most that a frame has, bytes.
const FIELDS_LEN_MAX: usize = 5 * varint::MAX_LEN;

const TRUNCATED: Violation = Violation::encoding("a frame ends after its record");

impl Frame {
    /// Takes the next frame off the payload of a record. `None` if nothing is left.
    pub(crate) fn decode(input: &mut Bytes) -> Result<Option<Self>, Violation> {
        if input.is_empty() {
            return Ok(None);
        }
        let before = input.len();
        let kind = take_varint(input)?;
        if before - input.len() > varint_len(kind) {
            return Err(Violation::protocol(
                "the type of a frame is not in its shortest form",
            ));
        }
        Self::decode_fields(kind, before, input).map(Some)
    }

    fn decode_fields(kind: u64, before: usize, input: &mut Bytes) -> Result<Self, Violation> {
        Ok(match kind {
            PADDING => {
                let run = input.iter().take_while(|byte| **byte == 0).count();
                input.advance(run);
                Self::Padding
            }
            RESET_STREAM | RESET_STREAM_AT => decode_reset(kind == RESET_STREAM_AT, input)?,
            STOP_SENDING => Self::StopSending {
                stream: take_varint(input)?,
                code: take_varint(input)?,
            },
            STREAM..=STREAM_LAST => decode_stream(kind, input)?,
            MAX_DATA => Self::MaxData(take_varint(input)?),
            MAX_STREAM_DATA => Self::MaxStreamData {
                stream: take_varint(input)?,
                limit: take_varint(input)?,
            },
            MAX_STREAMS_BIDI | MAX_STREAMS_UNI => Self::MaxStreams {
                bidirectional: kind == MAX_STREAMS_BIDI,
                limit: take_stream_count(input)?,
            },
            DATA_BLOCKED => Self::DataBlocked(take_varint(input)?),
            STREAM_DATA_BLOCKED => Self::StreamDataBlocked {
                stream: take_varint(input)?,
                limit: take_varint(input)?,
            },
            STREAMS_BLOCKED_BIDI | STREAMS_BLOCKED_UNI => Self::StreamsBlocked {
                bidirectional: kind == STREAMS_BLOCKED_BIDI,
                limit: take_stream_count(input)?,
            },
            CONNECTION_CLOSE | APPLICATION_CLOSE => {
                let code = take_varint(input)?;
                if kind == CONNECTION_CLOSE {
                    take_varint(input)?;
                }
                Self::ConnectionClose {
                    application: kind == APPLICATION_CLOSE,
                    code,
                    reason: take_prefixed(input)?,
                }
            }
            DATAGRAM | DATAGRAM_LEN => {
                let data = if kind == DATAGRAM {
                    input.split_to(input.len())
                } else {
                    take_prefixed(input)?
                };
                let frame_len = before - input.len();
                Self::Datagram { data, frame_len }
            }
            QX_TRANSPORT_PARAMETERS => Self::TransportParameters(take_prefixed(input)?),
            QX_PING | QX_PING_RESPONSE => Self::Ping {
                sequence: take_varint(input)?,
                response: kind == QX_PING_RESPONSE,
            },
            0x01..=0x03 | 0x06 | 0x07 | 0x18..=0x1b | 0x1e => {
                return Err(Violation::encoding("QMux prohibits this frame of QUIC"));
            }
            _ => return Err(Violation::encoding("the type of a frame is unknown")),
        })
    }

    /// Returns a length that the encoded frame does not exceed, bytes. For a datagram it is exact.
    pub(crate) fn len_max(&self) -> usize {
        match self {
            Self::Stream {
                stream,
                offset,
                data,
                ..
            } => stream_header_len(*stream, *offset) + data.len(),
            Self::Datagram { data, .. } => 1 + varint_len(data.len() as u64) + data.len(),
            Self::ConnectionClose { reason: bytes, .. } | Self::TransportParameters(bytes) => {
                FIELDS_LEN_MAX + bytes.len()
            }
            _ => FIELDS_LEN_MAX,
        }
    }

    /// Appends the frame. A DATAGRAM frame has its length.
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Padding => out.put_u8(0),
            Self::ResetStream {
                stream,
                code,
                final_size,
                reliable_size,
            } => {
                let fields = [*stream, *code, *final_size];
                match reliable_size {
                    None => put_fields(out, RESET_STREAM, &fields),
                    Some(size) => {
                        put_fields(out, RESET_STREAM_AT, &fields);
                        put_varint(out, *size);
                    }
                }
            }
            Self::StopSending { stream, code } => put_fields(out, STOP_SENDING, &[*stream, *code]),
            Self::Stream {
                stream,
                offset,
                fin,
                data,
            } => {
                put_stream_header(out, *stream, *offset, data.len(), *fin);
                out.put_slice(data);
            }
            Self::MaxData(limit) => put_fields(out, MAX_DATA, &[*limit]),
            Self::MaxStreamData { stream, limit } => {
                put_fields(out, MAX_STREAM_DATA, &[*stream, *limit]);
            }
            Self::MaxStreams {
                bidirectional,
                limit,
            } => {
                let kind = if *bidirectional {
                    MAX_STREAMS_BIDI
                } else {
                    MAX_STREAMS_UNI
                };
                put_fields(out, kind, &[*limit]);
            }
            Self::DataBlocked(limit) => put_fields(out, DATA_BLOCKED, &[*limit]),
            Self::StreamDataBlocked { stream, limit } => {
                put_fields(out, STREAM_DATA_BLOCKED, &[*stream, *limit]);
            }
            Self::StreamsBlocked {
                bidirectional,
                limit,
            } => {
                let kind = if *bidirectional {
                    STREAMS_BLOCKED_BIDI
                } else {
                    STREAMS_BLOCKED_UNI
                };
                put_fields(out, kind, &[*limit]);
            }
            Self::ConnectionClose {
                application,
                code,
                reason,
            } => {
                if *application {
                    put_fields(out, APPLICATION_CLOSE, &[*code]);
                } else {
                    // The type of the frame at fault is not stated (RFC 9000 section 19.19).
                    put_fields(out, CONNECTION_CLOSE, &[*code, PADDING]);
                }
                put_prefixed(out, reason);
            }
            Self::Datagram { data, .. } => {
                put_varint(out, DATAGRAM_LEN);
                put_prefixed(out, data);
            }
            Self::TransportParameters(parameters) => {
                put_varint(out, QX_TRANSPORT_PARAMETERS);
                put_prefixed(out, parameters);
            }
            Self::Ping { sequence, response } => {
                let kind = if *response { QX_PING_RESPONSE } else { QX_PING };
                put_fields(out, kind, &[*sequence]);
            }
        }
    }
}

fn decode_reset(partial: bool, input: &mut Bytes) -> Result<Frame, Violation> {
    let (stream, code) = (take_varint(input)?, take_varint(input)?);
    let final_size = take_varint(input)?;
    let reliable_size = if partial {
        Some(take_varint(input)?)
    } else {
        None
    };
    if reliable_size > Some(final_size) {
        return Err(Violation::encoding(
            "the reliable size of a reset exceeds the final size",
        ));
    }
    Ok(Frame::ResetStream {
        stream,
        code,
        final_size,
        reliable_size,
    })
}

fn decode_stream(kind: u64, input: &mut Bytes) -> Result<Frame, Violation> {
    let stream = take_varint(input)?;
    let offset = if kind & STREAM_OFF == 0 {
        0
    } else {
        take_varint(input)?
    };
    let data = if kind & STREAM_LEN == 0 {
        input.split_to(input.len())
    } else {
        take_prefixed(input)?
    };
    if offset + data.len() as u64 > varint::MAX {
        return Err(Violation::encoding(
            "a stream is longer than 2^62 - 1 bytes",
        ));
    }
    let fin = kind & STREAM_FIN != 0;
    Ok(Frame::Stream {
        stream,
        offset,
        fin,
        data,
    })
}

/// Appends all of a STREAM frame but its data.
pub(crate) fn put_stream_header(
    out: &mut impl BufMut,
    stream: u64,
    offset: u64,
    data_len: usize,
    fin: bool,
) {
    let off = if offset > 0 { STREAM_OFF } else { 0 };
    put_fields(out, STREAM | STREAM_LEN | off | u64::from(fin), &[stream]);
    if offset > 0 {
        put_varint(out, offset);
    }
    put_varint(out, data_len as u64);
}

/// Returns the length of [`put_stream_header`]'s bytes for data of at most 16 383 bytes, which may be one byte less.
pub(crate) fn stream_header_len(stream: u64, offset: u64) -> usize {
    let off = if offset > 0 { varint_len(offset) } else { 0 };
    1 + varint_len(stream) + off + 2
}

fn put_fields(out: &mut impl BufMut, kind: u64, fields: &[u64]) {
    put_varint(out, kind);
    for field in fields {
        put_varint(out, *field);
    }
}

fn put_prefixed(out: &mut impl BufMut, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

pub(crate) fn put_varint(out: &mut impl BufMut, value: u64) {
    out.put_slice(varint::shortest(value, &mut [0; varint::MAX_LEN]));
}

pub(crate) fn varint_len(value: u64) -> usize {
    varint::shortest(value, &mut [0; varint::MAX_LEN]).len()
}

fn take_varint(input: &mut Bytes) -> Result<u64, Violation> {
    let (value, rest) = varint::decode(input).ok_or(TRUNCATED)?;
    let used = input.len() - rest.len();
    input.advance(used);
    Ok(value)
}

fn take_prefixed(input: &mut Bytes) -> Result<Bytes, Violation> {
    let length = usize::try_from(take_varint(input)?).unwrap_or(usize::MAX);
    if length > input.len() {
        return Err(TRUNCATED);
    }
    Ok(input.split_to(length))
}

fn take_stream_count(input: &mut Bytes) -> Result<u64, Violation> {
    let count = take_varint(input)?;
    if count > STREAMS_MAX {
        return Err(Violation::encoding("a number of streams exceeds 2^60"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
