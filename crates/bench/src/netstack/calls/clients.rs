//! Programs on this host that talk to the application through the stack, with a socket and a thread for each
//! connection.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context as _, Result};
use quictun_sys::NetNamespace;

use super::setup::{Mode, Setup};
use crate::netstack::load::connect;

/// The target of the connections; any address behind the device would do.
const TARGET: ([u8; 4], u16) = ([10, 77, 0, 1], 5201);

pub(crate) struct ClientThreads {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<Vec<u64>>>,
}

impl ClientThreads {
    /// Connects the clients one after the other and starts their traffic, as the mode demands. While `counting` is set,
    /// the times of the answers are kept.
    pub(crate) fn start(
        network: &NetNamespace,
        setup: &Setup,
        counting: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut clients = Self {
            streams: Vec::new(),
            threads: Vec::new(),
        };
        for _ in 0..setup.connections {
            let stream = connect(network, TARGET.into())?;
            stream.set_nodelay(true)?;
            clients.streams.push(stream);
        }
        for stream in &clients.streams {
            let (stream, setup) = (stream.try_clone().context("duplicating a socket")?, *setup);
            let counting = counting.clone();
            let work = move || work(stream, &setup, &counting);
            let thread = thread::Builder::new()
                .spawn(work)
                .context("starting a thread")?;
            clients.threads.push(thread);
        }
        Ok(clients)
    }

    /// Stops the clients. Returns the nanoseconds from each counted request to its answer.
    pub(crate) fn stop(self) -> Vec<u64> {
        for stream in &self.streams {
            // If the other side closed first, there is nothing left to shut down.
            drop(stream.shutdown(Shutdown::Both));
        }
        let times = self.threads.into_iter().filter_map(|one| one.join().ok());
        times.flatten().collect()
    }
}

fn work(mut stream: TcpStream, setup: &Setup, counting: &AtomicBool) -> Vec<u64> {
    let mut times = Vec::new();
    let mut message = vec![7; setup.bytes];
    let mut room = vec![0; 64 * 1024];
    loop {
        let (from, counts) = (Instant::now(), counting.load(Ordering::Relaxed));
        let went_on = match setup.mode {
            Mode::Read => stream.write_all(&message).is_ok(),
            Mode::Write => matches!(stream.read(&mut room), Ok(1..)),
            Mode::Call => {
                stream.write_all(&message).is_ok() && stream.read_exact(&mut message).is_ok()
            }
        };
        if !went_on {
            return times;
        }
        if setup.mode == Mode::Call && counts {
            let time = from.elapsed().as_nanos();
            times.push(u64::try_from(time).unwrap_or(u64::MAX));
        }
    }
}
