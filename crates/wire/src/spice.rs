//! Recognises SPICE in the first bytes of a flow and reads its session's data for the REST interface (PROTOCOL section
//! 9).
//!
//! Both byte strings are hostile: the flow's applications choose their content. Every length is checked against the
//! available bytes. A malformed message ends the parsing; data found before it stays valid. Byte layout: the SPICE link
//! messages (`REDQ`), then mini-headers (type `u16`, size `u32`), little-endian.

use std::fmt::Write as _;

/// Number of bytes of each direction that the parser reads at most.
pub const MAX_HEAD: usize = 1024;

const MAGIC: &[u8] = b"REDQ";
/// Length of the header before a link message, bytes: magic, major and minor version, size.
const LINK_HEADER_LEN: usize = 16;

const MSG_MAIN_INIT: u16 = 103;
const MSG_MAIN_NAME: u16 = 113;
const MSG_MAIN_UUID: u16 = 114;

/// Data from the first bytes of a SPICE channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spice {
    /// Protocol version of the client, hexadecimal `major.minor`.
    pub version: String,
    /// Session id, eight hexadecimal digits in wire order; 0 on the client's first channel until the server has
    /// assigned one.
    pub session_id: String,
    /// The type of the channel that the flow carries.
    pub channel_type: Channel,
    /// Name of the virtual machine. Set on the main channel only.
    pub server_name: Option<String>,
    /// UUID of the virtual machine, 8-4-4-4-12 in lower case. Set on the main channel only.
    pub server_uuid: Option<String>,
}

/// A SPICE channel type, such as display or inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel(u8);

/// The channel that controls the whole session.
const MAIN: Channel = Channel(1);

/// Names of the channel types, by number. Type 0 does not exist.
const NAMES: [&str; 12] = [
    UNKNOWN,
    "main",
    "display",
    "inputs",
    "cursor",
    "playback",
    "record",
    "tunnel",
    "smartcard",
    "usbredir",
    "port",
    "webdav",
];
const UNKNOWN: &str = "unknown";

/// Looks for a SPICE channel in the first bytes that a flow's client and server sent.
///
/// Returns `None` if the client does not speak SPICE, or has not sent 21 bytes yet. The server's name and UUID arrive
/// later: call again with more bytes.
pub fn classify(from_client: &[u8], from_server: &[u8]) -> Option<Spice> {
    let client = &from_client[..from_client.len().min(MAX_HEAD)];
    let server = &from_server[..from_server.len().min(MAX_HEAD)];
    if !client.starts_with(MAGIC) {
        return None;
    }
    let mut spice = Spice {
        version: format!("{:x}.{:x}", client.get(4)?, client.get(8)?),
        session_id: hex(client.get(16..20)?),
        channel_type: Channel(*client.get(20)?),
        server_name: None,
        server_uuid: None,
    };
    if spice.channel_type == MAIN {
        read_main(server, &mut spice);
    }
    Some(spice)
}

impl Channel {
    /// Returns the name in the SPICE protocol, or `unknown` for an unlisted type.
    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).unwrap_or(&UNKNOWN)
    }

    /// Returns the name as quic-tun spells it: `webdev` and `unknow` are quic-tun's typing errors.
    pub fn compat_name(self) -> &'static str {
        match self.name() {
            "webdav" => "webdev",
            UNKNOWN => "unknow",
            name => name,
        }
    }
}

/// Skips the server's link reply and reads messages until all three are found or another message arrives.
fn read_main(server: &[u8], spice: &mut Spice) {
    let Some(mut rest) = after_link_reply(server) else {
        return;
    };
    let mut init_seen = false;
    while !(init_seen && spice.server_name.is_some() && spice.server_uuid.is_some()) {
        let Some((kind, payload, after)) = split_message(rest) else {
            return;
        };
        let understood = match kind {
            MSG_MAIN_INIT => payload.get(..4).map(|id| {
                spice.session_id = hex(id);
                init_seen = true;
            }),
            MSG_MAIN_NAME => name(payload).map(|name| spice.server_name = Some(name)),
            MSG_MAIN_UUID => uuid(payload).map(|uuid| spice.server_uuid = Some(uuid)),
            _ => None,
        };
        if understood.is_none() {
            return;
        }
        rest = after;
    }
}

/// Returns the bytes after link header, link reply and a link status of 0 (success).
fn after_link_reply(server: &[u8]) -> Option<&[u8]> {
    let (size, _) = split_u32(server.get(12..)?)?;
    let (status, rest) = split_u32(server.get(LINK_HEADER_LEN.checked_add(size)?..)?)?;
    (status == 0).then_some(rest)
}

/// Splits off a message: its type, its payload, the remaining bytes. Returns `None` if the message is incomplete.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<2>()?;
    let (size, rest) = split_u32(rest)?;
    let (payload, after) = rest.split_at_checked(size)?;
    Some((u16::from_le_bytes(*kind), payload, after))
}

fn split_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

/// Reads a text with a length prefix that counts the final NUL.
fn name(payload: &[u8]) -> Option<String> {
    let (len, rest) = split_u32(payload)?;
    let text = rest.get(..len.checked_sub(1)?)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn uuid(payload: &[u8]) -> Option<String> {
    let digits = hex(payload.get(..16)?);
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    Some(parts.join("-"))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").unwrap_or_default();
            text
        })
}

#[cfg(test)]
mod tests;
