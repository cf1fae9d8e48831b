//! Streams over a [`Channel`]: one end writes without pause, the other reads and compares.

use std::time::Instant;

use crate::channel::{Channel, is_closed};
use crate::error::PerfError;
use crate::meter::{Clock, Measured, Meter};
use crate::pattern::Pattern;

/// Bytes of one write or read: what iperf3 does, and half of a second-level cache.
const CHUNK: usize = 128 * 1024;

/// Writes `share` bytes, or until the receiver has seen enough.
pub(crate) fn send(
    channel: &mut Channel,
    seed: u64,
    clock: &Clock,
    share: Option<u64>,
) -> Result<Measured, PerfError> {
    let mut pattern = Pattern::new(seed);
    let mut meter = Meter::new(clock);
    let (mut offset, mut path) = (0, None);
    // A first write may take long; the receiver counts from its first byte, and closes when its time is over.
    clock.begin(Instant::now());
    while share != Some(offset) {
        let left = share.map_or(u64::MAX, |share| share - offset);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        match channel.write(pattern.at(offset, most)) {
            Ok(taken) => {
                offset += taken as u64;
                if !meter.add(Instant::now(), taken as u64) && path.is_none() {
                    path = channel.path();
                }
            }
            // The receiver's time ends after ours; then it closes.
            Err(error) if is_closed(&error) && share.is_none() => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if share.is_none() {
        if !meter.may_be_over(Instant::now()) {
            return Err(PerfError::Cut);
        }
    } else {
        channel.finish().map_err(failed)?;
        // The receiver answers the end with its own, once it has everything.
        match channel.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(PerfError::Cut),
            Err(error) => return Err(failed(error)),
        }
    }
    let mut measured = meter.finish();
    measured.path = path.or_else(|| channel.path());
    Ok(measured)
}

/// Reads and compares until `share` bytes have come, or the time is over.
pub(crate) fn receive(
    channel: &mut Channel,
    seed: u64,
    clock: &Clock,
    share: Option<u64>,
    began: Instant,
) -> Result<Measured, PerfError> {
    let pattern = Pattern::new(seed);
    let mut meter = Meter::new(clock);
    let mut buffer = vec![0; CHUNK];
    let (mut offset, mut first_us) = (0, None);
    loop {
        let read = channel.read(&mut buffer).map_err(failed)?;
        let now = Instant::now();
        if read == 0 {
            break;
        }
        first_us.get_or_insert_with(|| micros_since(began, now));
        if let Some(offset) = pattern.differs(offset, &buffer[..read]) {
            return Err(PerfError::Corrupt { offset });
        }
        offset += read as u64;
        if !meter.add(now, read as u64) {
            break;
        }
    }
    if share.is_some_and(|share| share != offset)
        || (share.is_none() && !meter.is_over(Instant::now()))
    {
        return Err(PerfError::Cut);
    }
    if share.is_some() {
        channel.finish().map_err(failed)?;
    }
    let mut measured = meter.finish();
    measured.first_us = first_us;
    Ok(measured)
}

/// From one moment to another, as the report has it.
pub(crate) fn micros_since(began: Instant, now: Instant) -> u64 {
    let elapsed = now.saturating_duration_since(began).as_micros();
    u64::try_from(elapsed).unwrap_or(u64::MAX)
}

/// What a broken flow means.
pub(crate) fn failed(error: std::io::Error) -> PerfError {
    if is_closed(&error) {
        PerfError::Cut
    } else {
        PerfError::Io {
            what: "on a flow",
            source: error,
        }
    }
}
