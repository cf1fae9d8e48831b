//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian.

/// Appends a section header, with which every file begins.
pub(crate) fn section_header(out: &mut Vec<u8>) {
    const ORDER: u32 = 0x1a2b_3c4d;
    const USER_APPLICATION: u16 = 4;
    block(out, 0x0a0d_0d0a, |out| {
        out.extend(ORDER.to_le_bytes());
        out.extend(1u16.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(u64::MAX.to_le_bytes());
        option(out, USER_APPLICATION, b"quictun-sim");
        option(out, 0, b"");
    });
}

/// Appends an interface of IP packets whose timestamps are nanoseconds.
pub(crate) fn interface(out: &mut Vec<u8>, name: &str) {
    const LINKTYPE_RAW: u16 = 101;
    const NAME: u16 = 2;
    const TIME_RESOLUTION: u16 = 9;
    block(out, 1, |out| {
        out.extend(LINKTYPE_RAW.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        option(out, NAME, name.as_bytes());
        option(out, TIME_RESOLUTION, &[9]);
        option(out, 0, b"");
    });
}

/// Appends TLS secrets, which must precede the packets that need them.
pub(crate) fn secrets(out: &mut Vec<u8>, key_log: &str) {
    const TLS_KEY_LOG: u32 = 0x544c_534b;
    block(out, 10, |out| {
        out.extend(TLS_KEY_LOG.to_le_bytes());
        out.extend(length(key_log.len()).to_le_bytes());
        padded(out, key_log.as_bytes());
    });
}

/// Appends a packet of `original` bytes, of which `parts` are the first ones.
pub(crate) fn packet(
    out: &mut Vec<u8>,
    interface: usize,
    nanos: u64,
    parts: [&[u8]; 2],
    original: usize,
    comment: Option<&str>,
) {
    const COMMENT: u16 = 1;
    block(out, 6, |out| {
        out.extend(length(interface).to_le_bytes());
        let [low, high] = [nanos & u64::from(u32::MAX), nanos >> 32];
        for half in [high, low] {
            out.extend(u32::try_from(half).unwrap_or(u32::MAX).to_le_bytes());
        }
        out.extend(length(parts[0].len() + parts[1].len()).to_le_bytes());
        out.extend(length(original).to_le_bytes());
        out.extend_from_slice(parts[0]);
        out.extend_from_slice(parts[1]);
        pad(out, parts[0].len() + parts[1].len());
        if let Some(comment) = comment {
            option(out, COMMENT, comment.as_bytes());
            option(out, 0, b"");
        }
    });
}

fn block(out: &mut Vec<u8>, kind: u32, content: impl FnOnce(&mut Vec<u8>)) {
    const FRAME: usize = 12;
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    content(out);
    let total = length(out.len() - start + FRAME - 8).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&total);
    out.extend(total);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    pad(out, bytes.len());
}

fn pad(out: &mut Vec<u8>, length: usize) {
    out.extend(std::iter::repeat_n(0, length.next_multiple_of(4) - length));
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
