//! A transfer whose connection is killed in the middle. Its flow continues on the next connection, and the application
//! notices only a pause.

use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::apps;
use super::middlebox::Middlebox;

/// Sends `bytes` bytes to the echo and checks the answer, while `middlebox` kills the connection after a third of them.
/// Returns the longest time after that in which the application got no byte.
pub(super) fn measure(echo: SocketAddr, bytes: u64, middlebox: &Middlebox) -> Result<Duration> {
    let mut stream = super::connect(echo)?;
    let mut writer = stream.try_clone()?;
    let writing = std::thread::spawn(move || -> std::io::Result<()> {
        apps::send_pattern(&mut writer, bytes)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut still = Duration::ZERO;
    let mut latest = None;
    let received = apps::receive_told(&mut stream, None, |received| {
        let now = Instant::now();
        match latest.replace(now) {
            Some(latest) => still = still.max(now.saturating_duration_since(latest)),
            None if received < bytes / 3 => latest = None,
            None => middlebox.cut(),
        }
    });
    let received = received.context("cannot finish the transfer whose connection was killed")?;
    writing.join().ok().context("the writing thread failed")??;
    ensure!(received == bytes, "{received} of {bytes} bytes came back");
    ensure!(
        middlebox.dropped() != [0, 0],
        "the transfer was over before its connection was killed"
    );
    Ok(still)
}
