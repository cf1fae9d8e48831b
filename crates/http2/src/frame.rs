//! Frames (RFC 9113 sections 4.1 and 6): their heads, and the payloads of those with fixed fields.

use bytes::{Buf, BufMut};

use crate::error::{BrokenRule, ErrorCode};

/// Length of a frame's head, bytes.
pub(crate) const HEAD_LEN: usize = 9;

/// Maximum length of a payload that this side takes, bytes: the least that HTTP/2 permits (`SETTINGS_MAX_FRAME_SIZE`).
pub(crate) const PAYLOAD_MAX: usize = 16 * 1024;

/// Credit with which the connection and each stream begin (section 6.9.2), bytes.
pub(crate) const WINDOW_INITIAL: u32 = 65_535;

/// Most credit that either side may have (section 6.9.1), bytes.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Size of the table of fields with which each direction begins (section 6.5.2), bytes.
const TABLE_INITIAL: u32 = 4096;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    Goaway,
    WindowUpdate,
    Continuation,
    Unknown,
}

impl FrameType {
    fn from_u8(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::Goaway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }

    fn to_u8(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Headers => 1,
            Self::Priority => 2,
            Self::RstStream => 3,
            Self::Settings => 4,
            Self::PushPromise => 5,
            Self::Ping => 6,
            Self::Goaway => 7,
            Self::WindowUpdate => 8,
            Self::Continuation => 9,
            Self::Unknown => 0xff,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) length: usize,
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    /// Number of the stream, or 0 for the connection.
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Decodes a head, and checks what is wrong whatever the state: the length, and whether the frame belongs to a stream.
    pub(crate) fn decode(bytes: [u8; HEAD_LEN]) -> Result<Self, BrokenRule> {
        let mut input = &bytes[..];
        let length = usize::try_from(input.get_uint(3)).unwrap_or(usize::MAX);
        let head = Self {
            length,
            kind: FrameType::from_u8(input.get_u8()),
            flags: input.get_u8(),
            stream: input.get_u32() & NUMBER_MASK,
        };
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), BrokenRule> {
        let size = |fits: bool| {
            let rule = "a frame has a length that its type does not permit";
            let violation = BrokenRule::new(ErrorCode::FRAME_SIZE_ERROR, rule);
            fits.then_some(()).ok_or(violation)
        };
        size(self.length <= PAYLOAD_MAX)?;
        let of_stream = match self.kind {
            FrameType::Data | FrameType::Continuation => Some(true),
            FrameType::Headers => {
                let priority = if self.has(PRIORITY) { PRIORITY_LEN } else { 0 };
                size(self.length >= usize::from(self.has(PADDED)) + priority)?;
                Some(true)
            }
            FrameType::Priority => {
                size(self.length == PRIORITY_LEN)?;
                Some(true)
            }
            FrameType::RstStream => {
                size(self.length == 4)?;
                Some(true)
            }
            FrameType::Settings => {
                size(self.length.is_multiple_of(6))?;
                size(self.length == 0 || self.flags & ACK == 0)?;
                Some(false)
            }
            FrameType::Ping => {
                size(self.length == 8)?;
                Some(false)
            }
            FrameType::Goaway => {
                size(self.length >= 8)?;
                Some(false)
            }
            FrameType::WindowUpdate => {
                size(self.length == 4)?;
                None
            }
            FrameType::PushPromise => {
                return Err(BrokenRule::protocol("a client sends PUSH_PROMISE"));
            }
            FrameType::Unknown => None,
        };
        match of_stream {
            Some(true) if self.stream == 0 => Err(BrokenRule::protocol("a frame names no stream")),
            Some(false) if self.stream != 0 => Err(BrokenRule::protocol(
                "a frame of the connection names a stream",
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_uint(self.length as u64, 3);
        out.put_u8(self.kind.to_u8());
        out.put_u8(self.flags);
        out.put_u32(self.stream);
    }
}

/// Mask of a stream's number, and of the credit of `WINDOW_UPDATE`. The bit above is reserved.
pub(crate) const NUMBER_MASK: u32 = (1 << 31) - 1;

/// Length of the fields of a priority, bytes (section 6.3).
const PRIORITY_LEN: usize = 5;

/// The settings of a peer that concern this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) initial_window_size: Option<u32>,
    pub(crate) max_frame_size: Option<usize>,
    /// The peer has named a table of fields that is smaller than the one of the beginning.
    pub(crate) reduces_table: bool,
}

/// Decodes the settings of a payload whose length is a multiple of six (RFC 9113 section 6.5.2). Of a repeated one, the
/// last counts.
pub(crate) fn settings(payload: &[u8]) -> Result<Settings, BrokenRule> {
    let mut known = Settings::default();
    for mut setting in payload.chunks_exact(6) {
        let (id, value) = (setting.get_u16(), setting.get_u32());
        match id {
            0x1 => known.reduces_table |= value < TABLE_INITIAL,
            0x2 if value > 1 => return Err(BrokenRule::protocol("ENABLE_PUSH is not 0 or 1")),
            0x4 if value > WINDOW_MAX => {
                let rule = "INITIAL_WINDOW_SIZE is too large";
                return Err(BrokenRule::new(ErrorCode::FLOW_CONTROL_ERROR, rule));
            }
            0x4 => known.initial_window_size = Some(value),
            0x5 if !(1 << 14..1 << 24).contains(&value) => {
                return Err(BrokenRule::protocol("MAX_FRAME_SIZE is out of range"));
            }
            0x5 => known.max_frame_size = usize::try_from(value).ok(),
            _ => {}
        }
    }
    Ok(known)
}

/// Removes the padding of a payload, and its priority. `None` if the padding is longer than the rest.
pub(crate) fn unpadded<'a>(head: &FrameHead, mut payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut padding = 0;
    if head.has(PADDED) {
        padding = usize::from(*payload.split_off_first()?);
    }
    if head.kind == FrameType::Headers && head.has(PRIORITY) {
        payload.split_off(..PRIORITY_LEN)?;
    }
    let length = payload.len().checked_sub(padding)?;
    Some(&payload[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(length: u8, kind: u8, flags: u8, stream: u8) -> Result<FrameHead, ErrorCode> {
        let head = FrameHead::decode([0, 0, length, kind, flags, 0, 0, 0, stream]);
        head.map_err(|violation| violation.code)
    }

    #[test]
    fn a_head_survives_its_encoding() {
        let head = decode(8, 6, ACK, 0).expect("a ping");
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 8, 6, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn lengths_and_streams_are_checked_by_type() {
        let (size, protocol) = (ErrorCode::FRAME_SIZE_ERROR, ErrorCode::PROTOCOL_ERROR);
        let wrong = [
            ((4, 2, 0, 1), size),
            ((5, 3, 0, 1), size),
            ((5, 4, 0, 0), size),
            ((6, 4, ACK, 0), size),
            ((7, 6, 0, 0), size),
            ((7, 7, 0, 0), size),
            ((3, 8, 0, 0), size),
            ((0, 0, 0, 0), protocol),
            ((0, 1, 0, 0), protocol),
            ((4, 3, 0, 0), protocol),
            ((0, 4, 0, 1), protocol),
            ((8, 6, 0, 1), protocol),
            ((8, 7, 0, 1), protocol),
            ((4, 5, 0, 1), protocol),
            ((0, 9, 0, 0), protocol),
        ];
        for ((length, kind, flags, stream), code) in wrong {
            let result = decode(length, kind, flags, stream);
            assert_eq!(result, Err(code), "{kind} of {length} bytes on {stream}");
        }
        assert!(decode(4, 8, 0, 0).is_ok() && decode(4, 8, 0, 1).is_ok());
        assert!(decode(9, 99, 0, 7).is_ok(), "an unknown type");
        let longest = |high, low| FrameHead::decode([0, high, low, 0, 0, 0, 0, 0, 1]);
        assert!(longest(0x40, 0).is_ok());
        assert_eq!(longest(0x40, 1).map_err(|it| it.code), Err(size));
    }

    #[test]
    fn padding_and_priority_are_removed() {
        let head = |flags| decode(10, 1, flags, 1).expect("a head");
        assert_eq!(unpadded(&head(0), b"block"), Some(&b"block"[..]));
        assert_eq!(unpadded(&head(PADDED), b"\x02block__"), Some(&b"block"[..]));
        assert_eq!(
            unpadded(&head(PADDED | PRIORITY), b"\x0112345block_"),
            Some(&b"block"[..])
        );
        assert_eq!(unpadded(&head(PADDED), b"\x06block"), None);
        assert_eq!(unpadded(&head(PADDED), b""), None);
        assert_eq!(unpadded(&head(PRIORITY), b"1234"), None);
        assert_eq!(unpadded(&head(PADDED), b"\x05block"), Some(&b""[..]));
    }

    #[test]
    fn settings_have_ranges() {
        let one = |id: u16, value: u32| {
            let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
            settings(&payload).map_err(|violation| violation.code)
        };
        let window = |value| Settings {
            initial_window_size: Some(value),
            ..Settings::default()
        };
        assert_eq!(one(4, 0x7fff_ffff), Ok(window(0x7fff_ffff)));
        assert_eq!(one(4, 0x8000_0000), Err(ErrorCode::FLOW_CONTROL_ERROR));
        let frame_size = one(5, 16384).map(|it| it.max_frame_size);
        assert_eq!(frame_size, Ok(Some(16384)));
        for (id, value) in [(5, 16383), (5, 1 << 24), (2, 2)] {
            assert_eq!(
                one(id, value),
                Err(ErrorCode::PROTOCOL_ERROR),
                "{id}: {value}"
            );
        }
        assert_eq!(
            one(0x99, 7),
            Ok(Settings::default()),
            "unknown ones are ignored"
        );
    }
}
