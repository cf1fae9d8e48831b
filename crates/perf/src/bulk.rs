//! Streams over a [`Channel`]: one end writes without pause, the other reads and compares.

use std::time::Instant;

use crate::channel::Channel;
use crate::error::{PerfError, is_closed};
use crate::meter::{Measurement, Meter, micros_since};
use crate::path::Path;
use crate::pattern::Pattern;
use crate::threads::Job;

/// Bytes of one write or read: the same as iperf3, and half of a second-level cache.
const CHUNK: usize = 128 * 1024;

/// Writes `share` bytes, or without a share until the receiver has seen enough.
pub(crate) fn send(
    channel: &mut Channel,
    job: Job<'_>,
    share: Option<u64>,
) -> Result<Measurement, PerfError> {
    let mut meter = Meter::new(job.clock);
    let mut path = None;
    // The first write may take long. The receiver counts from its first byte, and closes when its time is over.
    job.clock.begin(Instant::now());
    let how = write(channel, job.seed, share, &mut meter, &mut path);
    let mut measured = meter.finish();
    measured.path = path.or_else(|| channel.path());
    measured.ended(how)
}

fn write(
    channel: &mut Channel,
    seed: u64,
    share: Option<u64>,
    meter: &mut Meter<'_>,
    path: &mut Option<Path>,
) -> Result<(), PerfError> {
    let mut pattern = Pattern::new(seed);
    let mut offset = 0;
    while share != Some(offset) {
        if channel.is_stopped() {
            let enough = share.is_none() && meter.may_be_over(Instant::now());
            return if enough { Ok(()) } else { Err(PerfError::Cut) };
        }
        let left = share.map_or(u64::MAX, |share| share - offset);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        match channel.write(pattern.at(offset, most)) {
            Ok(taken) => {
                offset += taken as u64;
                if !meter.add(Instant::now(), taken as u64) && path.is_none() {
                    *path = channel.path();
                }
            }
            // The receiver's time ends after the sender's; then the receiver closes.
            Err(error) if is_closed(&error) && share.is_none() => break,
            Err(error) => return Err(PerfError::flow(error)),
        }
    }
    if share.is_none() {
        let enough = meter.may_be_over(Instant::now());
        return if enough { Ok(()) } else { Err(PerfError::Cut) };
    }
    channel.finish().map_err(PerfError::flow)?;
    // The receiver closes its direction too, once it has read everything.
    match channel.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(PerfError::Cut),
        Err(error) => Err(PerfError::flow(error)),
    }
}

/// Reads and compares until `share` bytes have arrived, or until the time is over.
pub(crate) fn receive(
    channel: &mut Channel,
    job: Job<'_>,
    share: Option<u64>,
) -> Result<Measurement, PerfError> {
    let mut meter = Meter::new(job.clock);
    let mut first = None;
    let how = read(channel, job.seed, share, &mut meter, &mut first);
    let mut measured = meter.finish();
    measured.first_us = first.map(|first| micros_since(job.began, first));
    measured.ended(how)
}

fn read(
    channel: &mut Channel,
    seed: u64,
    share: Option<u64>,
    meter: &mut Meter<'_>,
    first: &mut Option<Instant>,
) -> Result<(), PerfError> {
    let pattern = Pattern::new(seed);
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        if channel.is_stopped() {
            return Err(PerfError::Cut);
        }
        let read = channel.read(&mut buffer).map_err(PerfError::flow)?;
        let now = Instant::now();
        if read == 0 {
            break;
        }
        first.get_or_insert(now);
        if let Some(offset) = pattern.differs(offset, &buffer[..read]) {
            return Err(PerfError::Corrupt(offset));
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
        channel.finish().map_err(PerfError::flow)?;
    }
    Ok(())
}
