//! The network side of the stack: a TUN device with programs of this host behind it, or simulated programs in memory.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use quictun_netstack::{Checksum, HEADER, Offload};
use quictun_stackd::frames;
use quictun_sys::Tun;

use super::setup::Mode;

pub(crate) enum Wire {
    Tun(Tun),
    Memory(SimulatedPrograms),
}

impl frames::FrameDevice for Wire {
    fn read(&mut self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Tun(tun) => frames::FrameDevice::read(tun, frame),
            Self::Memory(programs) => Ok(programs.next(frame)),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Tun(tun) => frames::FrameDevice::write(tun, frame),
            Self::Memory(programs) => {
                programs.take(frame);
                Ok(())
            }
        }
    }
}

/// Simulated programs on a wire without loss and reordering: TCP without timers.
pub(crate) struct SimulatedPrograms {
    mode: Mode,
    bytes: u32,
    all: Vec<SimulatedProgram>,
    /// Programs that may have something to send.
    turns: VecDeque<usize>,
    /// The time of each request, and the nanoseconds until its answer.
    pub(crate) times: Vec<(Instant, u64)>,
}

#[derive(Clone, Debug, Default)]
struct SimulatedProgram {
    stage: ProgramState,
    queued: bool,
    /// The next byte to send, the first byte that is not acknowledged, and the bytes that may be in flight from there.
    next: u32,
    acknowledged: u32,
    window: u32,
    /// The next byte expected, and whether the acknowledgement for it is still due.
    expected: u32,
    ack_due: bool,
    /// Bytes of an answer that are still missing, and the time of the request.
    missing: u32,
    asked: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProgramState {
    #[default]
    New,
    Opening,
    Open,
}

impl SimulatedPrograms {
    pub(crate) fn new(mode: Mode, bytes: usize, count: usize) -> Self {
        let program = SimulatedProgram {
            queued: true,
            ..SimulatedProgram::default()
        };
        Self {
            mode,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            all: vec![program; count],
            turns: (0..count).collect(),
            times: Vec::with_capacity(TIMES),
        }
    }

    fn next(&mut self, frame: &mut [u8]) -> Option<usize> {
        while let Some(number) = self.turns.pop_front() {
            let program = &mut self.all[number];
            let port = FIRST_PORT + u16::try_from(number).unwrap_or(u16::MAX);
            let (flags, length) = if program.stage == ProgramState::New {
                program.stage = ProgramState::Opening;
                (SYN, 0)
            } else if program.may_send(self.mode, self.bytes) {
                if self.mode == Mode::Call {
                    (program.missing, program.asked) = (self.bytes, Some(Instant::now()));
                }
                (ACK | PUSH, self.bytes)
            } else if program.ack_due {
                (ACK, 0)
            } else {
                program.queued = false;
                continue;
            };
            program.ack_due = false;
            self.turns.push_back(number);
            let written = write(frame, port, program.next, program.expected, flags, length);
            program.next = program.next.wrapping_add(length + u32::from(flags == SYN));
            return Some(written);
        }
        None
    }

    fn take(&mut self, frame: &[u8]) {
        let Some(segment) = Segment::parse(frame) else {
            return;
        };
        let number = usize::from(segment.port.wrapping_sub(FIRST_PORT));
        let Some(program) = self.all.get_mut(number) else {
            return;
        };
        if segment.flags & SYN != 0 {
            program.expected = segment.seq.wrapping_add(1);
            (program.stage, program.ack_due) = (ProgramState::Open, true);
        } else if segment.length > 0 && segment.seq == program.expected {
            program.expected = segment.seq.wrapping_add(segment.length);
            program.ack_due = true;
            program.missing = program.missing.saturating_sub(segment.length);
            if program.missing == 0
                && let Some(asked) = program.asked.take()
            {
                let time = asked.elapsed().as_nanos();
                self.times
                    .push((asked, u64::try_from(time).unwrap_or(u64::MAX)));
            }
        }
        program.acknowledged = segment.ack;
        program.window = segment.window;
        if !std::mem::replace(&mut program.queued, true) {
            self.turns.push_back(number);
        }
    }
}

impl SimulatedProgram {
    fn may_send(&self, mode: Mode, bytes: u32) -> bool {
        let under_way = self.next.wrapping_sub(self.acknowledged);
        let fits = self.stage == ProgramState::Open && under_way + bytes <= self.window;
        match mode {
            Mode::Read => fits,
            Mode::Write => false,
            Mode::Call => fits && self.asked.is_none(),
        }
    }
}

struct Segment {
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u32,
    length: u32,
}

impl Segment {
    fn parse(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(HEADER..)?;
        let tcp: &[u8; 16] = packet.get(IP..)?.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let headers = IP + usize::from(tcp[12] >> 4) * 4;
        Some(Self {
            port: word(2),
            seq: long(4),
            ack: long(8),
            flags: tcp[13],
            window: u32::from(word(14)),
            length: u32::try_from(packet.len().checked_sub(headers)?).ok()?,
        })
    }
}

/// Writes a frame with `length` bytes of payload. Returns the length of the frame.
fn write(frame: &mut [u8], port: u16, seq: u32, ack: u32, flags: u8, length: u32) -> usize {
    let payload = usize::try_from(length).unwrap_or(0);
    let total = IP + TCP + payload;
    let offload = Offload {
        checksum: Checksum::Partial {
            start: 20,
            offset: 16,
        },
        segment: None,
    };
    frame[..HEADER].copy_from_slice(&offload.to_bytes());
    let packet = &mut frame[HEADER..HEADER + total];
    packet.fill(0);
    packet[0] = 0x45;
    let size = u16::try_from(total).unwrap_or(u16::MAX);
    packet[2..4].copy_from_slice(&size.to_be_bytes());
    (packet[8], packet[9]) = (64, 6);
    packet[12..16].copy_from_slice(&[10, 77, 0, 2]);
    packet[16..20].copy_from_slice(&[10, 77, 0, 1]);
    let sum: u32 = packet[..IP]
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u32::from(u16::from_be_bytes(*pair)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !u16::try_from(sum).unwrap_or_default();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut packet[IP..];
    tcp[..2].copy_from_slice(&port.to_be_bytes());
    tcp[2..4].copy_from_slice(&TARGET_PORT.to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    (tcp[12], tcp[13]) = (5 << 4, flags);
    tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    HEADER + total
}

const FIRST_PORT: u16 = 10_000;
const TARGET_PORT: u16 = 5201;

/// Bytes of the headers, without options.
const IP: usize = 20;
const TCP: usize = 20;

/// Capacity for times. Only the used part costs memory. Without it, moving a million times to a larger buffer would
/// stop all programs for a tenth of a second, by far the longest time of all.
const TIMES: usize = 1 << 23;

const SYN: u8 = 0x02;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;
