//! Emulates a device: splits super-packets and completes checksums.

use quictun_netstack::{Checksum, HEADER, Offload};

/// Processes a frame as its header demands. Returns the resulting packets with complete checksums.
pub(crate) fn on_the_wire(frame: &[u8]) -> Vec<Vec<u8>> {
    let offload = Offload::read(frame).expect("a valid header");
    let packet = &frame[HEADER..];
    let v6 = packet[0] >> 4 == 6;
    let tcp = if v6 { 40 } else { 20 };
    let headers = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
    let Some(cut) = offload.segment else {
        let mut packet = packet.to_vec();
        complete(&mut packet, tcp, offload.checksum);
        return vec![packet];
    };
    assert_eq!(cut.v6, v6);
    assert_eq!(usize::from(cut.headers), headers);
    assert_ne!(offload.checksum, Checksum::Complete, "checksum not partial");
    let payload = &packet[headers..];
    assert!(payload.len() > usize::from(cut.size), "nothing to split");
    let seq = u32::from_be_bytes(packet[tcp + 4..tcp + 8].try_into().unwrap());
    let pieces = payload.chunks(usize::from(cut.size));
    let last = pieces.len() - 1;
    let mut packets = Vec::new();
    for (number, piece) in pieces.enumerate() {
        let mut one = [&packet[..headers], piece].concat();
        let offset = u32::try_from(number * usize::from(cut.size)).unwrap();
        one[tcp + 4..tcp + 8].copy_from_slice(&seq.wrapping_add(offset).to_be_bytes());
        if number != last {
            // Only the last segment has FIN and PSH.
            one[tcp + 13] &= !0x09;
        }
        let length = u16::try_from(one.len()).unwrap();
        if v6 {
            one[4..6].copy_from_slice(&(length - 40).to_be_bytes());
        } else {
            one[2..4].copy_from_slice(&length.to_be_bytes());
            one[10..12].fill(0);
            let sum = !fold(sum(&one[..20]));
            one[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let partial = pseudo(&one, tcp);
        one[tcp + 16..tcp + 18].copy_from_slice(&partial.to_be_bytes());
        complete(&mut one, tcp, offload.checksum);
        packets.push(one);
    }
    packets
}

fn complete(packet: &mut [u8], tcp: usize, checksum: Checksum) {
    let Checksum::Partial { start, offset } = checksum else {
        return;
    };
    assert_eq!((usize::from(start), offset), (tcp, 16));
    let partial = u16::from_be_bytes([packet[tcp + 16], packet[tcp + 17]]);
    assert_eq!(partial, pseudo(packet, tcp), "wrong pseudo-header sum");
    let sum = !fold(sum(&packet[tcp..]));
    packet[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn pseudo(packet: &[u8], tcp: usize) -> u16 {
    let addresses = if tcp == 40 {
        &packet[8..40]
    } else {
        &packet[12..20]
    };
    fold(sum(addresses) + 6 + (packet.len() - tcp) as u64)
}

pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}
