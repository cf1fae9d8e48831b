//! Invariants of a stack that hold for every sequence of frames and operations. The functions panic if one is broken.
//!
//! The fuzz target in `fuzz/` calls [`packets`], and so do the tests, with bytes from [`SplitMix`]. This module is not
//! part of the crate's interface.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::craft::EmptySegment;
use crate::datagram::{self, Datagram};
use crate::event::{Event, StackFlowId, StackRead};
use crate::offload::{FRAME_MAX, HEADER, Offload};
use crate::segment::{ACK, FIN, RST, SYN, Segment, SynOptions, UDP, ip_payload};
use crate::stack::Stack;
use crate::wire_state::after;

/// Runs a stack with frames, pauses and user operations that the bytes of `script` determine. Returns the number of
/// frames.
pub fn packets(start: Instant, script: impl Iterator<Item = u8>) -> u64 {
    let mut script = ByteScript(script);
    let mut fuzzed = FuzzedStack::new(start);
    while let Some(choice) = script.byte() {
        fuzzed.step(choice, &mut script);
        assert!(fuzzed.stack.is_bounded(), "{:?}", fuzzed.stack.usage());
    }
    fuzzed.finish();
    fuzzed.frames
}

/// Pseudo-random bytes from a seed.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator; the same seed always yields the same bytes.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for SplitMix {
    type Item = u8;

    /// Returns the most significant byte of the next number of `SplitMix64`.
    fn next(&mut self) -> Option<u8> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed >> 56).to_be_bytes()[7])
    }
}

struct ByteScript<I>(I);

impl<I: Iterator<Item = u8>> ByteScript<I> {
    fn byte(&mut self) -> Option<u8> {
        self.0.next()
    }

    fn number(&mut self) -> u32 {
        let mut next = || self.0.next().unwrap_or(0);
        u32::from_be_bytes([next(), next(), next(), next()])
    }

    /// Picks one of several values.
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte().unwrap_or(0)) % all.len()]
    }
}

/// One application, with its view of the connection.
struct FuzzedPeer {
    from: SocketAddr,
    to: SocketAddr,
    next: u32,
    heard: u32,
    /// The sequence number of its last SYN.
    began: u32,
}

struct FuzzedStack {
    now: Instant,
    stack: Stack,
    peers: Vec<FuzzedPeer>,
    known: Vec<StackFlowId>,
    frames: u64,
    buffer: Box<[u8; FRAME_MAX]>,
}

impl FuzzedStack {
    fn new(start: Instant) -> Self {
        let config = Config {
            window: 64 * 1024,
            memory: 512 * 1024,
            max_flows: 12,
            max_opening: 8,
            ..Config::default()
        };
        let stack = Stack::new(config, 1, start).expect("invariant: the configuration is valid");
        let peer = |number: u16| {
            let (host, port) = (number % 3, 4000 + number);
            let [from, to] = if number.is_multiple_of(2) {
                [
                    format!("10.0.0.{}:{port}", host + 2),
                    "203.0.113.9:80".into(),
                ]
            } else {
                [
                    format!("[fd00::{}]:{port}", host + 2),
                    "[2001:db8::9]:80".into(),
                ]
            };
            FuzzedPeer {
                from: from.parse().expect("invariant: an address"),
                to: to.parse().expect("invariant: an address"),
                next: 0,
                heard: 0,
                began: 0,
            }
        };
        let buffer = vec![0; FRAME_MAX].into_boxed_slice().try_into();
        Self {
            now: start,
            stack,
            peers: (0..16).map(peer).collect(),
            known: Vec::new(),
            frames: 0,
            buffer: buffer.expect("invariant: the length is right"),
        }
    }

    fn step(&mut self, choice: u8, script: &mut ByteScript<impl Iterator<Item = u8>>) {
        match choice % 32 {
            0 => self.junk(script),
            1 => self.datagram(script),
            2..=19 => self.segment(script),
            20 => {
                let pauses = [1, 1000, 50_000, 1_100_000, 3_000_000, 40_000_000];
                self.now += Duration::from_micros(script.of(&pauses));
                self.stack.handle_timeout(self.now);
            }
            21..=25 => self.operate(script),
            _ => self.drain(),
        }
        // Drain regularly: a queue that is never read only shows that memory is finite.
        if self.frames.is_multiple_of(64) {
            self.drain();
        }
    }

    /// Sends random bytes, which sometimes begin like an IP header.
    fn junk(&mut self, script: &mut ByteScript<impl Iterator<Item = u8>>) {
        let length = usize::from(script.byte().unwrap_or(0));
        let mut frame: Vec<u8> = (0..length).map_while(|_| script.byte()).collect();
        if let Some(first) = frame.get_mut(HEADER) {
            *first = script.of(&[0x45, 0x60, *first]);
        }
        self.give(&mut frame);
    }

    /// Sends a segment that is close to what the stack expects.
    fn segment(&mut self, script: &mut ByteScript<impl Iterator<Item = u8>>) {
        let peers = self.peers.len();
        let peer = &mut self.peers[usize::from(script.byte().unwrap_or(0)) % peers];
        let flags = script.of(&[
            ACK,
            ACK,
            ACK,
            ACK,
            ACK,
            ACK,
            ACK,
            ACK,
            SYN,
            SYN,
            ACK | FIN,
            ACK | 8,
            ACK | RST,
            RST,
            0,
            SYN | ACK,
            SYN | FIN,
            0xff,
        ]);
        if flags == SYN {
            peer.began = script.number();
            peer.next = peer.began.wrapping_add(1);
        }
        let near = |script: &mut ByteScript<_>| {
            let far = [
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                u32::MAX,
                1000,
                0u32.wrapping_sub(1000),
                60_000,
                70_000,
                1 << 31,
            ];
            script.of(&far)
        };
        let base = if flags == SYN { peer.began } else { peer.next };
        let seq = base.wrapping_add(near(script));
        let length = script.of(&[0usize, 0, 0, 1, 1, 10, 100, 1460, 8000, 20_000, 60_000]);
        let bare = EmptySegment {
            from: peer.from,
            to: peer.to,
            seq,
            ack: peer.heard.wrapping_add(near(script)),
            flags,
            window: script.of(&[65_535, 65_535, 1000, 1, 0]),
            options: SynOptions {
                mss: script.of(&[Some(1460), Some(0), Some(1), Some(65_535), None]),
                window_scale: script.of(&[Some(7), Some(0), Some(14), Some(255), None]),
                sack_permitted: script.of(&[true, false]),
            },
        };
        if seq == peer.next && flags & RST == 0 {
            let space = u32::try_from(length).unwrap_or(0) + u32::from(flags & FIN != 0);
            peer.next = peer.next.wrapping_add(space);
        }
        let mut frame = bare.frame().frame().to_vec();
        lengthen(&mut frame, length);
        // Mark the checksum as verified.
        frame[..HEADER].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        if script.byte().unwrap_or(0) < 16 {
            let at = usize::from(script.byte().unwrap_or(0)) % frame.len();
            frame[at] ^= script.byte().unwrap_or(1);
        }
        self.give(&mut frame);
    }

    /// Sends a datagram that is nearly valid.
    fn datagram(&mut self, script: &mut ByteScript<impl Iterator<Item = u8>>) {
        let peers = self.peers.len();
        let peer = &self.peers[usize::from(script.byte().unwrap_or(0)) % peers];
        let (from, mut to) = (peer.from, peer.to);
        to.set_port(script.of(&[53, 53, 443, 123]));
        let length = script.of(&[0usize, 1, 12, 100, 4096, 20_000, 65_487]);
        let datagram = Datagram {
            // Built like an answer, which travels in the other direction.
            client: to,
            target: from,
            payload: vec![7; length],
        };
        let Some(frame) = datagram.frame() else {
            return;
        };
        let cut = script.of(&[0, 0, 8, 1240, 32_000]);
        let mut frames = fragments(&frame, cut, script.byte().unwrap_or(0).into());
        if script.byte().unwrap_or(0) < 64 {
            let at = usize::from(script.byte().unwrap_or(0)) % frames.len();
            frames.rotate_left(at);
        }
        if script.byte().unwrap_or(0) < 64 {
            let at = usize::from(script.byte().unwrap_or(0));
            let number = at % frames.len();
            let frame = &mut frames[number];
            let at = at % frame.len();
            frame[at] ^= script.byte().unwrap_or(1);
        }
        // A datagram in thousands of fragments would take the whole script.
        for frame in frames.iter_mut().take(100) {
            self.give(frame);
        }
        match script.byte().unwrap_or(0) {
            ..128 => {
                while let Some(length) = self.stack.next_datagram_len() {
                    let asked = self
                        .stack
                        .poll_datagram()
                        .expect("invariant: it has a length");
                    assert!(asked.payload.len() == length && length <= 65_507);
                    self.stack.send_datagram(&asked);
                }
            }
            128..160 => self.stack.refuse_datagram(self.now, from, to),
            _ => {}
        }
    }

    fn give(&mut self, frame: &mut [u8]) {
        self.frames += 1;
        self.stack.handle_frame(self.now, frame);
    }

    /// Performs a random operation of the stack's user.
    fn operate(&mut self, script: &mut ByteScript<impl Iterator<Item = u8>>) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Offered { flow, .. } => {
                    self.known.push(flow);
                    match script.of(&[0, 0, 0, 0, 0, 1, 2]) {
                        0 => drop(self.stack.accept(self.now, flow)),
                        1 => drop(self.stack.refuse(flow)),
                        _ => {}
                    }
                }
                Event::Ended { flow, .. } => {
                    assert!(
                        self.stack.queued(flow).is_err(),
                        "an ended flow still exists"
                    );
                    self.known.retain(|known| *known != flow);
                }
                Event::Open(flow) | Event::Readable(flow) | Event::Writable(flow) => {
                    assert!(
                        self.known.contains(&flow),
                        "event before the offer or after the end"
                    );
                }
            }
        }
        if self.known.is_empty() {
            return;
        }
        let flow = self.known[usize::from(script.byte().unwrap_or(0)) % self.known.len()];
        let amount = script.of(&[0usize, 1, 10, 1000, 10_000, 100_000]);
        match script.of(&[0, 0, 0, 0, 1, 1, 1, 2, 3, 4]) {
            0 => {
                let read = self
                    .stack
                    .read(self.now, flow, |bytes| bytes.len().min(amount));
                if let Ok(StackRead::Data(taken)) = read {
                    assert!(taken <= amount);
                }
            }
            1 => {
                let written = self.stack.write(self.now, flow, &vec![7; amount]);
                assert!(written.is_ok_and(|written| written <= amount) || written.is_err());
            }
            2 => drop(self.stack.finish(self.now, flow)),
            3 => {
                if self.stack.reset(flow).is_ok() || self.stack.queued(flow).is_err() {
                    self.known.retain(|known| *known != flow);
                }
            }
            _ => drop(self.stack.accept(self.now, flow)),
        }
    }

    /// Checks everything that the stack sends: each packet is valid and comes from the address that was contacted.
    fn drain(&mut self) {
        let mut sent = 0;
        while let Some(length) = self.stack.poll_transmit(self.now, &mut self.buffer) {
            sent += 1;
            assert!(sent < 100_000, "the stack never stops sending");
            let frame = &self.buffer[..length];
            let offload = Offload::read(frame).expect("the stack's frames are valid");
            let packet = &frame[HEADER..];
            if datagram::is_udp(packet) {
                let ip = ip_payload(UDP, packet).expect("the stack's packets are valid");
                Datagram::parse(offload.checksum, &ip, &packet[ip.place.clone()])
                    .expect("the stack's datagrams are valid");
                continue;
            }
            let is_v4 = packet[0] >> 4 == 4;
            if packet[if is_v4 { 9 } else { 6 }] == if is_v4 { 1 } else { 58 } {
                assert!(
                    packet.len() >= if is_v4 { 56 } else { 96 },
                    "an error quotes a datagram"
                );
                continue;
            }
            let segment = Segment::parse(packet).expect("the stack's packets are valid");
            assert_eq!(segment.payload.end, packet.len());
            if let Some(cut) = offload.segment {
                assert!(segment.payload.len() > usize::from(cut.size) && cut.size >= 48);
                assert_eq!(cut.v6, segment.from.is_ipv6());
            }
            let ours = |peer: &&mut FuzzedPeer| peer.from == segment.to && peer.to == segment.from;
            let Some(peer) = self.peers.iter_mut().find(ours) else {
                continue;
            };
            let end = segment.seq.wrapping_add(segment.sequence_length());
            if segment.has(SYN) || after(end, peer.heard) {
                peer.heard = end;
            }
            if segment.has(ACK) && !segment.has(RST) {
                peer.next = segment.ack;
            }
        }
    }

    /// Ends all flows and checks that nothing is left.
    fn finish(&mut self) {
        self.drain();
        for flow in std::mem::take(&mut self.known) {
            let _gone = self.stack.reset(flow);
        }
        while let Some(event) = self.stack.poll_event() {
            if let Event::Offered { flow, .. } = event {
                let _gone = self.stack.reset(flow);
            }
        }
        self.drain();
        self.now += Duration::from_hours(1);
        self.stack.handle_timeout(self.now);
        assert_eq!(self.stack.usage().flows, 0, "flows are left behind");
        assert!(self.stack.is_bounded());
    }
}

/// Cuts the packet in a frame into fragments with `size` bytes each, as a kernel does. 0 leaves it whole.
pub fn fragments(frame: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let packet = &frame[HEADER..];
    let v6 = packet[0] >> 4 == 6;
    let (headers, payload) = packet.split_at(if v6 { 40 } else { 20 });
    if size == 0 || payload.is_empty() {
        return vec![frame.to_vec()];
    }
    let cut = |(index, part): (usize, &[u8])| {
        let offset = index * size;
        let more = offset + part.len() < payload.len();
        let offset = u16::try_from(offset).unwrap_or(u16::MAX);
        let mut cut = frame[..HEADER].to_vec();
        cut.extend_from_slice(headers);
        if v6 {
            cut.extend_from_slice(&[packet[6], 0]);
            cut.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
            cut.extend_from_slice(&u32::from(id).to_be_bytes());
            cut[HEADER + 6] = crate::segment::FRAGMENT;
        } else {
            cut[HEADER + 4..HEADER + 6].copy_from_slice(&id.to_be_bytes());
            let place = (offset / 8) | (u16::from(more) << 13);
            cut[HEADER + 6..HEADER + 8].copy_from_slice(&place.to_be_bytes());
        }
        cut.extend_from_slice(part);
        correct_length(&mut cut[HEADER..]);
        cut
    };
    payload.chunks(size).enumerate().map(cut).collect()
}

/// Adds a payload to a frame that has none.
fn lengthen(frame: &mut Vec<u8>, payload: usize) {
    frame.resize(frame.len() + payload, 0xa5);
    correct_length(&mut frame[HEADER..]);
}

/// Writes the length of a packet into its header.
fn correct_length(packet: &mut [u8]) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[10..12].fill(0);
        let sum = !crate::checksum::fold(crate::checksum::sum(&packet[..20]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    }
}
