//! Calls with a payload: both sides touch every byte of it, and neither copies it.
//!
//! The client writes words into a buffer of its arena. The server reads them in place and answers with their sum. For
//! comparison, two threads share plain memory: one writes it, the other copies it. The comparison gives the time of the
//! copy alone, and the time of both steps. The latter is longer if cache lines reach the reader faster than they return
//! to the next writer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_ipc::{Client, Executor, Message, WaitPolicy, cycles};
use quictun_lab::{put, stats};
use serde_json::{Value, json};

use super::peer::{PAYLOAD, ServerProcess};
use crate::machine::{bind, ratio};
use crate::spread;

pub(crate) const SIZES: [u32; 4] = [1, 64, 4096, 65536];

/// Calls in flight: enough to keep both sides busy, and few enough that all buffers fit into a cache.
const UNDER_WAY: usize = 4;

/// Number of calls in a timed window. The median of the windows is published, as is the median of the plain copies. If
/// the host sometimes takes a processor away for a millisecond, that affects few windows or copies.
const WINDOW: u64 = 32;

/// Payloads of up to this many bytes are carried in the message itself.
const INLINE: u32 = 32;

const ARENA: u32 = 1 << 20;

/// Number of buffers of the two threads, and number of copies in a run.
const BUFFERS: usize = 4;
const COPIES: usize = 640;

#[derive(Clone, Debug)]
pub(crate) struct PayloadRow {
    pub(crate) bytes: u32,
    /// Cycles per call in the median window: median, minimum and maximum of the runs.
    pub(crate) cycles: [f64; 3],
    /// Medians of the same work on plain memory of two threads, or `None` if it is too short to be measured.
    pub(crate) plain: Option<CopyBaseline>,
}

/// Cycles that two threads take for the same number of bytes: one writes them, the other copies them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyBaseline {
    pub(crate) copy: f64,
    /// Cycles from one copy to the next. Neither thread ever sleeps.
    pub(crate) both: f64,
}

impl PayloadRow {
    /// Returns bytes per nanosecond, which is the same as 10^9 bytes per second.
    pub(crate) fn rate(&self, cycles_per_ns: f64) -> f64 {
        f64::from(self.bytes) * cycles_per_ns / self.cycles[0]
    }

    pub(crate) fn shares(&self) -> Option<[f64; 2]> {
        let plain = self.plain?;
        Some([plain.copy, plain.both].map(|cycles| cycles / self.cycles[0]))
    }
}

pub(crate) fn measure(
    cores: [usize; 2],
    policy: WaitPolicy,
    repeats: usize,
    run: Duration,
) -> Result<Vec<PayloadRow>> {
    let (peer, client, mut executor) = ServerProcess::with_client(cores[1], policy, ARENA)?;
    let mut rows = Vec::new();
    for bytes in SIZES {
        let mut calls = 4 * WINDOW;
        let start = std::time::Instant::now();
        while start.elapsed() < run / 4 {
            calls *= 2;
            once(&client, &mut executor, bytes, calls)?;
        }
        let mut runs = Vec::new();
        let (mut copies, mut both) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            runs.push(once(&client, &mut executor, bytes, calls)?);
            if bytes > 64 {
                let plain = plain(cores, bytes as usize)?;
                copies.push(plain.copy);
                both.push(plain.both);
            }
        }
        rows.push(PayloadRow {
            bytes,
            cycles: spread::of(&runs),
            plain: stats::median(&copies)
                .zip(stats::median(&both))
                .map(|(copy, both)| CopyBaseline { copy, both }),
        });
    }
    drop((client, executor));
    peer.end()?;
    Ok(rows)
}

/// Makes `calls` calls. Returns the ticks per call in the median window.
fn once(client: &Client, executor: &mut Executor, bytes: u32, calls: u64) -> Result<f64> {
    let left = Rc::new(Cell::new(calls));
    let answered = Rc::new(Cell::new(0_u64));
    let marks = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..UNDER_WAY {
        let (client, left) = (client.clone(), left.clone());
        let (answered, marks) = (answered.clone(), marks.clone());
        executor.spawner().spawn(1, async move {
            while let Some(rest) = left.get().checked_sub(1) {
                left.set(rest);
                let sum = if bytes <= INLINE {
                    carried(&client, bytes, rest).await
                } else {
                    by_reference(&client, bytes, rest).await
                };
                if sum != Some(expected(bytes, rest)) {
                    return;
                }
                answered.set(answered.get() + 1);
                if answered.get() % WINDOW == 0 {
                    marks.borrow_mut().push(cycles());
                }
            }
        });
    }
    executor.run();
    ensure!(
        answered.get() == calls,
        "{} of {calls} calls with {bytes} bytes got the right answer",
        answered.get()
    );
    window(&marks.borrow()).context("too few calls")
}

/// Returns the ticks per call in the median of the windows between marks.
fn window(marks: &[u64]) -> Option<f64> {
    let windows = marks.windows(2);
    let ticks = windows.map(|marks| ratio(marks[1].saturating_sub(marks[0]), WINDOW));
    stats::median(&ticks.collect::<Vec<_>>())
}

/// Carries `bytes` bytes in the message, all of them the lowest byte of `seed`. Returns the sum that the server
/// computed.
async fn carried(client: &Client, bytes: u32, seed: u64) -> Option<u64> {
    let payload = [seed.to_le_bytes()[0]; INLINE as usize];
    let message = Message::new(PAYLOAD).with_bytes(payload.get(..bytes as usize)?);
    let answer = client.call(message.ok()?).await.ok()?;
    Some(answer.arg())
}

/// Carries consecutive words from `seed` on in a buffer. Returns the sum that the server computed.
async fn by_reference(client: &Client, bytes: u32, seed: u64) -> Option<u64> {
    let buffer = client.reserve(bytes)?;
    client.with_channel(|channel| {
        channel.fill_lines(&buffer, |line| {
            let first = seed.wrapping_add(8 * line as u64);
            std::array::from_fn(|at| first.wrapping_add(at as u64))
        });
    });
    let mut call = std::pin::pin!(client.call_with(Message::new(PAYLOAD), buffer));
    let answer = call.as_mut().await.ok()?;
    client.release(call.buffer()?);
    Some(answer.arg())
}

fn expected(bytes: u32, seed: u64) -> u64 {
    if bytes <= INLINE {
        return u64::from(bytes) * u64::from(seed.to_le_bytes()[0]);
    }
    let words = u64::from(bytes / 8);
    words
        .wrapping_mul(seed)
        .wrapping_add(words * (words - 1) / 2)
}

/// Measures plain memory of two threads; the one on the other core writes. Returns medians of many copies.
fn plain(cores: [usize; 2], bytes: usize) -> Result<CopyBaseline> {
    let (give, given) = sync_channel::<Vec<u8>>(BUFFERS);
    let (back, again) = sync_channel::<Vec<u8>>(BUFFERS);
    let writer = std::thread::spawn(move || -> Result<()> {
        bind(cores[1])?;
        let mut value = 0_u8;
        while let Some(mut buffer) = look(&again) {
            value = value.wrapping_add(1);
            buffer.fill(value);
            if give.send(buffer).is_err() {
                break;
            }
        }
        Ok(())
    });
    for _ in 0..BUFFERS {
        back.send(vec![0; bytes])?;
    }
    let mut target = vec![0; bytes];
    let mut times = Vec::with_capacity(COPIES);
    let mut marks = Vec::new();
    for at in 0..COPIES {
        let buffer = look(&given).context("the thread on the other core ended")?;
        let start = cycles();
        target.copy_from_slice(&buffer);
        times.push(cycles() - start);
        std::hint::black_box(&target);
        back.send(buffer)?;
        if (at as u64).is_multiple_of(WINDOW) {
            marks.push(start);
        }
    }
    drop((given, back));
    writer
        .join()
        .map_err(|_| anyhow::anyhow!("the thread on core {} panicked", cores[1]))??;
    times.sort_unstable();
    Ok(CopyBaseline {
        copy: ratio(times.get(COPIES / 2).copied().unwrap_or(1), 1),
        both: window(&marks).context("too few copies")?,
    })
}

/// Returns the next item, or `None` if there are no more. It spins instead of sleeping, because data that a core has
/// written may be evicted from its cache while the core sleeps.
fn look<T>(from: &Receiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(one) => return Some(one),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

pub(crate) fn table(rows: &[PayloadRow], cycles_per_ns: f64) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = concat!(
        "\nCalls with a payload on two cores: both sides touch every byte, neither copies it\n",
        "   bytes     cycles         least..most   Gbyte/s    plain copy     ratio   write and copy     ratio\n",
    )
    .to_owned();
    let shown = |value: Option<f64>, digits| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for row in rows {
        let [median, least, most] = row.cycles;
        let shares = row.shares();
        put!(
            text,
            "{:>8} {median:>10.0} {:>19} {:>9.3} {:>13} {:>9} {:>16} {:>9}\n",
            row.bytes,
            format!("{least:.0}..{most:.0}"),
            row.rate(cycles_per_ns),
            shown(row.plain.map(|plain| plain.copy), 0),
            shown(shares.map(|shares| shares[0]), 2),
            shown(row.plain.map(|plain| plain.both), 0),
            shown(shares.map(|shares| shares[1]), 2),
        );
    }
    text
}

pub(crate) fn csv(rows: &[PayloadRow], cycles_per_ns: f64) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\npayload_bytes,cycles_median,cycles_min,cycles_max,gbyte_per_s,copy_cycles,share_of_copy,\
         write_and_copy_cycles,share_of_write_and_copy\n",
    );
    let shown = |value: Option<f64>, digits| {
        value.map_or(String::new(), |value| format!("{value:.digits$}"))
    };
    for row in rows {
        let [median, least, most] = row.cycles;
        let copy = shown(row.plain.map(|plain| plain.copy), 1);
        let both = shown(row.plain.map(|plain| plain.both), 1);
        let [of_copy, of_both] = [0, 1].map(|at| shown(row.shares().map(|shares| shares[at]), 3));
        let rate = row.rate(cycles_per_ns);
        put!(
            text,
            "{},{median:.1},{least:.1},{most:.1},{rate:.4},{copy},{of_copy},{both},{of_both}\n",
            row.bytes
        );
    }
    text
}

pub(crate) fn json(rows: &[PayloadRow], cycles_per_ns: f64) -> Vec<Value> {
    let one = |row: &PayloadRow| {
        json!({
            "bytes": row.bytes,
            "cycles": spread::json(row.cycles),
            "gbyte_per_s": row.rate(cycles_per_ns),
            "copy_cycles": row.plain.map(|plain| plain.copy),
            "share_of_copy": row.shares().map(|shares| shares[0]),
            "write_and_copy_cycles": row.plain.map(|plain| plain.both),
            "share_of_write_and_copy": row.shares().map(|shares| shares[1]),
        })
    };
    rows.iter().map(one).collect()
}
