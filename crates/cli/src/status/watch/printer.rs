//! Prints a page or a JSON object at each interval, if standard output is not a terminal.

use std::io::{self, ErrorKind, Write as _};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use quictun_control::settings::HttpListen;
use quictun_sys::pause_until;
use serde_json::json;

use super::page;
use super::view::StatusView;
use crate::status::answers::{ask, ask_json};

/// Prints pages until their reader closes the pipe.
///
/// # Errors
///
/// Fails if the first request gets no answer, or if the output cannot be written.
pub(super) fn pages(at: &HttpListen, interval: Duration) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut view = StatusView::default();
    view.learn(Ok(ask(at)?), begin.elapsed());
    let mut turns = Ticker::new(begin, interval);
    loop {
        let now = Timestamp::now();
        let page = page::printed(&view, begin.elapsed());
        if !print(&format!("{now:.0}\n{page}\n"))? {
            return Ok(());
        }
        turns.wait()?;
        let answer = ask(at).map_err(|error| error.brief(at));
        view.learn(answer, begin.elapsed());
    }
}

/// Prints JSON objects, one a line, until their reader closes the pipe.
///
/// # Errors
///
/// Fails if the first request gets no answer, or if the output cannot be written.
pub(super) fn objects(at: &HttpListen, interval: Duration) -> anyhow::Result<()> {
    let mut turns = Ticker::new(Instant::now(), interval);
    let mut answer = Ok(ask_json(at)?);
    loop {
        let now = format!("{:.3}", Timestamp::now());
        let mut object = json!({ "at": now });
        let fields = match answer {
            Ok(answer) => answer,
            Err(error) => json!({ "error": format!("{:#}", anyhow::Error::from(error)) }),
        };
        if let (Some(object), serde_json::Value::Object(fields)) = (object.as_object_mut(), fields)
        {
            object.extend(fields);
        }
        if !print(&format!("{object}\n"))? {
            return Ok(());
        }
        turns.wait()?;
        answer = ask_json(at);
    }
}

/// Paces the turns. If a turn takes longer than the interval, the next one follows at once.
struct Ticker {
    due: Instant,
    interval: Duration,
}

impl Ticker {
    fn new(due: Instant, interval: Duration) -> Self {
        Self { due, interval }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.due = (self.due + self.interval).max(Instant::now());
        pause_until(self.due)
    }
}

/// Prints the text. Returns false if the reader has closed the pipe.
fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}"),
        )),
        Ok(()) => Ok(true),
    }
}
