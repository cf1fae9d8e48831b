//! Tests of parts of super-packets. A plain segmenter cuts each part further into single packets, and the tests compare
//! them with the packets that the same segmenter cuts from the whole.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and sums that the strategies keep small"
)]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// The properties of a super-packet.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "choices that combine freely")]
struct SuperPacket {
    v6: bool,
    tcp: bool,
    tags: usize,
    options: usize,
    jumbo: bool,
    payload: usize,
    size: usize,
    flags: u8,
    classic_ecn: bool,
    class: u8,
    identification: u16,
    sequence: u32,
}

fn supers() -> impl Strategy<Value = SuperPacket> {
    let kinds = (any::<[bool; 4]>(), 0..3usize, 0..=10usize);
    let lengths = (1..70_000usize, 1..3000usize);
    let fields = (any::<u8>(), any::<u8>(), any::<u16>(), any::<u32>());
    (kinds, lengths, fields).prop_map(|(kinds, (payload, size), fields)| {
        let ([v6, tcp, jumbo, classic_ecn], tags, options) = kinds;
        let (flags, class, identification, sequence) = fields;
        // Only a TCP super-packet can be longer than the IP length field allows.
        let payload = if tcp { payload } else { payload.min(60_000) };
        let size = size.max(payload.div_ceil(4000));
        let jumbo = v6 && tcp && jumbo;
        SuperPacket {
            v6,
            tcp,
            tags,
            options,
            jumbo,
            payload,
            size,
            flags,
            classic_ecn,
            class,
            identification,
            sequence,
        }
    })
}

impl SuperPacket {
    fn frame(&self) -> Frame {
        let mut bytes = vec![0; 12];
        for _ in 0..self.tags {
            bytes.extend([0x81, 0, 0, 7]);
        }
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        let network = bytes.len();
        let transport = if self.tcp {
            self.tcp()
        } else {
            vec![0, 1, 0, 2, 0, 0, 0, 0]
        };
        let length = transport.len() + self.payload;
        let protocol = if self.tcp { TCP } else { UDP };
        bytes.extend(if self.v6 {
            self.ipv6(length, protocol)
        } else {
            self.ipv4(length, protocol)
        });
        let at = bytes.len();
        bytes.extend(&transport);
        bytes.extend((0..self.payload).map(|index| (index % 251) as u8));
        let (kind, offset) = match (self.tcp, self.v6) {
            (true, false) => (VnetHeader::GSO_TCPV4, TCP_CHECKSUM),
            (true, true) => (VnetHeader::GSO_TCPV6, TCP_CHECKSUM),
            (false, _) => (VnetHeader::GSO_UDP_L4, UDP_CHECKSUM),
        };
        if !self.tcp {
            put(&mut bytes, at + UDP_LENGTH, length);
        }
        let protocol_of = if self.v6 {
            Protocol::Ipv6
        } else {
            Protocol::Ipv4
        };
        let number = if self.tcp { TCP } else { UDP };
        let sum = pseudo_header(protocol_of, &bytes[network..], number, length);
        put(&mut bytes, at + offset, usize::from(sum));
        let ecn = if self.tcp && self.classic_ecn {
            VnetHeader::GSO_ECN
        } else {
            0
        };
        let header = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: kind | ecn,
            hdr_len: (at + transport.len()) as u16,
            gso_size: self.size as u16,
            csum_start: at as u16,
            csum_offset: offset as u16,
        };
        Frame::new(header, Bytes::from(bytes)).expect("valid super-packet")
    }

    fn tcp(&self) -> Vec<u8> {
        let mut header = vec![0; 20 + self.options * 4];
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[12] = ((5 + self.options) << 4) as u8;
        header[13] = self.flags;
        header
    }

    fn ipv4(&self, length: usize, protocol: u8) -> Vec<u8> {
        let mut header = vec![0x45, self.class, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        // BIG TCP: the length field is 0.
        put(
            &mut header,
            2,
            Some(20 + length).filter(|all| *all <= 0xffff).unwrap_or(0),
        );
        put(&mut header, 4, usize::from(self.identification));
        let sum = !sum(&header);
        put(&mut header, 10, usize::from(sum));
        header
    }

    fn ipv6(&self, length: usize, protocol: u8) -> Vec<u8> {
        let mut header = vec![
            0x60 | self.class >> 4,
            self.class << 4,
            0,
            0,
            0,
            0,
            protocol,
            64,
        ];
        header.extend([0xfd; 16]);
        header.extend([0xfe; 16]);
        let is_big = length > 0xffff;
        put(
            &mut header,
            4,
            if is_big || self.jumbo { 0 } else { length },
        );
        if self.jumbo {
            header[6] = 0;
            header.extend([protocol, 0, 0xc2, 4]);
            header.extend((length as u32 + 8).to_be_bytes());
        }
        header
    }
}

/// Returns the sum of all words, as RFC 1071 adds them.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|two| {
        u32::from(u16::from_be_bytes([
            two[0],
            two.get(1).copied().unwrap_or(0),
        ]))
    });
    words.fold(0, |sum, word| u32::from(fold(sum + word))) as u16
}

/// Cuts `frame`, which is of kind `like`, into the packets that it stands for, in the plainest way. Fills in and checks
/// all checksums.
fn packets(like: &SuperPacket, header: VnetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let network = 14 + 4 * like.tags;
    let option = frame[network] >> 4 == 6 && frame[network + 6] == 0;
    let ip = if like.v6 { 40 } else { 20 };
    let at = network + ip + if option { 8 } else { 0 };
    assert_eq!(usize::from(header.csum_start), at);
    let transport = if like.tcp { 20 + 4 * like.options } else { 8 };
    assert_eq!(usize::from(header.hdr_len), at + transport);
    let payload = &frame[at + transport..];
    let size = match header.gso_type {
        VnetHeader::GSO_NONE => payload.len(),
        _ => usize::from(header.gso_size),
    };
    let pieces: Vec<&[u8]> = payload.chunks(size).collect();
    let each = |(index, piece): (usize, &&[u8])| {
        let mut packet = frame[network..network + ip].to_vec();
        let mut head = frame[at..at + transport].to_vec();
        let length = head.len() + piece.len();
        if like.v6 {
            packet[6] = if like.tcp { TCP } else { UDP };
            put(&mut packet, 4, length);
        } else {
            put(&mut packet, 2, 20 + length);
            let first = word(&packet, 4);
            put(
                &mut packet,
                4,
                usize::from(first.wrapping_add(index as u16)),
            );
            put(&mut packet, 10, 0);
            let sum = !sum(&packet);
            put(&mut packet, 10, usize::from(sum));
        }
        if like.tcp {
            let sequence = u32::from_be_bytes(head[4..8].try_into().expect("four bytes"));
            let sequence = sequence.wrapping_add((index * size) as u32);
            head[4..8].copy_from_slice(&sequence.to_be_bytes());
            if index + 1 < pieces.len() {
                head[13] &= !(FIN | PSH);
            }
            if index > 0 && header.gso_type & VnetHeader::GSO_ECN != 0 {
                head[13] &= !CWR;
            }
        } else {
            put(&mut head, UDP_LENGTH, length);
        }
        // The kernel does the same: the field holds the pseudo-header's sum, computed with the length of the whole.
        let checksum_at = usize::from(header.csum_offset);
        let whole = transport + payload.len();
        let pseudo = word(&head, checksum_at);
        let (whole, length) = (whole as u32, length as u32);
        let less = u32::from(!fold((whole >> 16) + (whole & 0xffff)));
        let adjusted = fold(u32::from(pseudo) + less + length);
        put(&mut head, checksum_at, usize::from(adjusted));
        let mut segment = [&head[..], piece].concat();
        let sum = !sum(&segment);
        put(&mut segment, checksum_at, usize::from(sum));
        packet.extend(segment);
        assert_checksums(like, &packet);
        packet
    };
    pieces.iter().enumerate().map(each).collect()
}

/// Checks what a receiver verifies.
fn assert_checksums(like: &SuperPacket, packet: &[u8]) {
    let ip = if like.v6 { 40 } else { 20 };
    let (protocol, number) = match (like.v6, like.tcp) {
        (true, true) => (Protocol::Ipv6, TCP),
        (true, false) => (Protocol::Ipv6, UDP),
        (false, true) => (Protocol::Ipv4, TCP),
        (false, false) => (Protocol::Ipv4, UDP),
    };
    let length = packet.len() - ip;
    let pseudo = pseudo_header(protocol, packet, number, length);
    let all = u32::from(pseudo) + u32::from(sum(&packet[ip..]));
    assert_eq!(fold(all), 0xffff, "transport checksum");
    if !like.v6 {
        assert_eq!(sum(&packet[..20]), 0xffff, "header checksum");
    }
}

fn cut(like: &SuperPacket, frame: &Frame, run: Range<usize>, marked: bool) -> Vec<Vec<u8>> {
    let mut scratch = [0; HEADERS_MAX];
    let part = part(frame, run, marked, &mut scratch);
    let bytes = [part.headers, part.rest].concat();
    if part.header.gso_type == VnetHeader::GSO_NONE {
        assert_eq!(part.header.gso_size, 0);
    }
    let network = frame.shape.network;
    assert!(bytes.len() - network <= 0xffff);
    if like.v6 {
        assert_eq!(
            usize::from(word(&bytes, network + 4)),
            bytes.len() - network - 40
        );
    } else {
        assert_eq!(
            usize::from(word(&bytes, network + 2)),
            bytes.len() - network
        );
        assert_eq!(
            sum(&bytes[network..network + 20]),
            0xffff,
            "header checksum of the part"
        );
    }
    packets(like, part.header, &bytes)
}

proptest! {
    #[test]
    fn parts_of_a_super_packet_give_the_same_packets_as_the_whole(
        like in supers(),
        at in any::<prop::sample::Index>(),
        many in any::<prop::sample::Index>(),
    ) {
        let frame = like.frame();
        let whole = packets(&like, frame.header, &frame.bytes);
        prop_assert_eq!(whole.len(), frame.segments());
        for (index, packet) in whole.iter().enumerate() {
            prop_assert_eq!(packet.len(), frame.wire_length(index));
        }
        let start = at.index(whole.len());
        let most = (whole.len() - start).min(frame.segments_max());
        let run = start..start + 1 + many.index(most);
        // If the whole has a jumbo option, its part is not the same frame, but stands for the same packets.
        prop_assert_eq!(&cut(&like, &frame, run.clone(), false), &whole[run.clone()]);
    }

    #[test]
    fn marking_changes_only_the_ecn_field_and_checksum(like in supers(), at in any::<prop::sample::Index>()) {
        let frame = like.frame();
        let start = at.index(frame.segments());
        let run = start..(start + 3).min(start + frame.segments_max()).min(frame.segments());
        let plain = cut(&like, &frame, run.clone(), false);
        let marked = cut(&like, &frame, run, true);
        prop_assert_eq!(marked.len(), plain.len());
        for (mut packet, plain) in marked.into_iter().zip(plain) {
            if like.v6 {
                prop_assert_eq!(packet[1] & 0x30, 0x30);
                packet[1] = plain[1];
            } else {
                prop_assert_eq!(packet[1] & 3, 3);
                packet[1] = plain[1];
                packet[10..12].copy_from_slice(&plain[10..12]);
            }
            prop_assert_eq!(packet, plain);
        }
    }

    #[test]
    fn any_bytes_are_segmented_without_panic(
        head in prop::collection::vec(any::<u8>(), 14),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        crate::check::segments(&[head, bytes].concat());
    }

    #[test]
    fn a_damaged_super_packet_is_segmented_without_panic(
        like in supers(),
        damage in prop::collection::vec((0..90usize, any::<u8>()), 0..4),
        header in prop::collection::vec((0..14usize, any::<u8>()), 0..3),
        length in 0..200usize,
    ) {
        let frame = like.frame();
        let h = frame.header;
        let mut bytes = vec![h.flags, h.gso_type];
        for word in [h.hdr_len, h.gso_size, h.csum_start, h.csum_offset, 1, 2] {
            bytes.extend(word.to_le_bytes());
        }
        for (at, value) in header {
            bytes[at] = value;
        }
        bytes.extend(frame.bytes.iter().take(length));
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(14 + at) {
                *byte = value;
            }
        }
        crate::check::segments(&bytes);
    }
}

#[test]
fn a_packet_without_segmentation_is_unchanged() {
    for bytes in [&b""[..], b"short", &[0xff; 60], &[0x45; 14]] {
        let frame = Frame::new(VnetHeader::default(), Bytes::copy_from_slice(bytes)).expect("cut");
        let mut scratch = [0; HEADERS_MAX];
        let part = part(&frame, 0..1, true, &mut scratch);
        assert_eq!([part.headers, part.rest].concat(), bytes);
        assert_eq!(part.header, VnetHeader::default());
    }
}
