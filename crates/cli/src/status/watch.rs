//! `quictun status --watch`: asks a process at each interval, and shows its answers with the rates between them.
//!
//! On a terminal the page is live: one thread asks, one reads keys, one waits for signals, and the main thread draws
//! the results. Otherwise, [`printer`] prints pages or objects one after another.

use std::io::{self, IsTerminal as _, Read as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use quictun_args::fault::Exit;
use quictun_control::settings::HttpListen;
use quictun_sys::Signals;
use rustix::process::{Signal, getpid, kill_process};

use super::answers::{Answer, ask};
use crate::exit::ProgramError;
use controls::Controls;
use keys::Key;
use terminal::Terminal;
use view::StatusView;

mod controls;
#[cfg(test)]
mod fake;
mod keys;
mod line;
mod minute;
mod page;
mod printer;
mod terminal;
mod view;

/// The settings of `--watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchOptions {
    pub(super) interval: Duration,
    /// The terminal may get colours.
    pub(super) colour: bool,
    /// The terminal can position the cursor, not only print lines.
    pub(super) addressable: bool,
}

/// Capacity of the channel of events. Keys that are typed ahead need most of it.
const EVENTS_MAX: usize = 64;

/// Longest wait of the signal thread before it waits again.
const LONG: Duration = Duration::from_hours(1);

/// Longest time between two drawings: while no answer comes, the page shows for how long.
const TICK: Duration = Duration::from_secs(1);

enum Event {
    /// An answer, or the reason why there is none.
    Answer(Result<Box<Answer>, String>),
    Key(Key),
    /// No keys will come any more, because the terminal has been closed.
    NoKeys,
    Signal(Signal),
}

/// Watches until the user or the reader of the output ends it.
pub(super) fn main(at: &HttpListen, json: bool, watch: WatchOptions) -> Result<Exit, ProgramError> {
    if json {
        printer::objects(at, watch.interval)?;
    } else if !(watch.addressable && io::stdout().is_terminal()) {
        printer::pages(at, watch.interval)?;
    } else {
        // If the first request fails, the user gets the error as from `quictun status`, instead of a waiting page.
        let first = ask(at).map_err(anyhow::Error::from)?;
        return live(at, watch, first);
    }
    Ok(Exit::Ok)
}

/// Shows the page until a key or a signal ends it.
fn live(at: &HttpListen, watch: WatchOptions, first: Answer) -> Result<Exit, ProgramError> {
    let held = [
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::HUP,
        Signal::TSTP,
        Signal::CONT,
        Signal::WINCH,
    ];
    // The signals are blocked before the first thread starts, so that no thread takes one.
    let signals = Signals::hold(&held)?;
    let (events, happens) = sync_channel(EVENTS_MAX);
    wait_for_signals(signals, events.clone())?;
    if io::stdin().is_terminal() {
        read_keys(events.clone())?;
    }
    let asker = AnswerThread::start(at.clone(), events)?;
    let mut live = LiveView {
        terminal: Terminal::enter(watch.colour)?,
        view: StatusView::default(),
        controls: Controls::default(),
        begin: Instant::now(),
        interval: watch.interval,
        asker,
    };
    live.view.learn(Ok(first), Duration::ZERO);
    live.run(&happens)
}

struct LiveView {
    terminal: Terminal,
    view: StatusView,
    controls: Controls,
    begin: Instant,
    interval: Duration,
    asker: AnswerThread,
}

impl LiveView {
    fn run(&mut self, happens: &Receiver<Event>) -> Result<Exit, ProgramError> {
        let mut next = self.interval;
        loop {
            // A panic of the asking thread has restored the terminal, so nothing may be drawn after it.
            self.asker.check()?;
            self.draw()?;
            let now = self.begin.elapsed();
            if now >= next && self.asker.ask() {
                next = now.max(next + self.interval);
            }
            let wait = if self.asker.waits {
                TICK
            } else {
                next.saturating_sub(now)
            };
            let mut event = match happens.recv_timeout(wait.min(TICK)) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("all threads that report events have ended").into());
                }
            };
            // Handles all pending events before the next drawing.
            while let Some(happened) = event {
                if let Some(exit) = self.handle(happened)? {
                    return Ok(exit);
                }
                event = happens.try_recv().ok();
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let size = Terminal::size();
        let now = self.begin.elapsed();
        let lines = page::screen(&self.view, &mut self.controls, size, now);
        self.terminal.draw(&lines)
    }

    /// Handles an event. Returns the exit code if the event ends the program.
    fn handle(&mut self, event: Event) -> io::Result<Option<Exit>> {
        match event {
            Event::Answer(answer) => {
                self.asker.waits = false;
                self.view
                    .learn(answer.map(|answer| *answer), self.begin.elapsed());
            }
            Event::Key(Key::Quit) | Event::NoKeys | Event::Signal(Signal::INT) => {
                return Ok(Some(Exit::Ok));
            }
            Event::Key(key) => {
                if key == Key::Redraw {
                    self.terminal.forget();
                }
                self.controls.press(key);
            }
            Event::Signal(Signal::TSTP) => {
                self.terminal.suspend()?;
                // The SIGCONT that continues the process arrives as an event.
                kill_process(getpid(), Signal::STOP)?;
            }
            Event::Signal(Signal::CONT) => self.terminal.resume()?,
            Event::Signal(Signal::WINCH) => self.terminal.forget(),
            Event::Signal(_) => return Ok(Some(Exit::Interrupted)),
        }
        Ok(None)
    }
}

/// The thread that asks the process, one round for each request.
struct AnswerThread {
    go: SyncSender<()>,
    thread: JoinHandle<()>,
    /// A round is in progress.
    waits: bool,
}

impl AnswerThread {
    fn start(at: HttpListen, events: SyncSender<Event>) -> io::Result<Self> {
        let (go, told) = sync_channel::<()>(1);
        let thread = Builder::new().name("ask".to_owned()).spawn(move || {
            while told.recv().is_ok() {
                let answer = ask(&at).map(Box::new).map_err(|error| error.brief(&at));
                if events.send(Event::Answer(answer)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            go,
            thread,
            waits: false,
        })
    }

    /// Fails if the thread has ended, which it does only if it panics.
    fn check(&self) -> Result<(), ProgramError> {
        if self.thread.is_finished() {
            let ended = anyhow!("the thread that asks the process has ended");
            return Err(ProgramError::Because(ended, Exit::Crashed));
        }
        Ok(())
    }

    /// Starts a round, unless one is in progress. Returns whether it started one.
    fn ask(&mut self) -> bool {
        let told = !self.waits && self.go.try_send(()).is_ok();
        self.waits |= told;
        told
    }
}

fn wait_for_signals(signals: Signals, events: SyncSender<Event>) -> io::Result<()> {
    Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            match signals.wait(LONG) {
                Ok(None) => {}
                Ok(Some(came)) if events.send(Event::Signal(came.signal)).is_ok() => {}
                Ok(Some(_)) | Err(_) => return,
            }
        }
    })?;
    Ok(())
}

fn read_keys(events: SyncSender<Event>) -> io::Result<()> {
    Builder::new().name("keys".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let mut read = [0; 256];
        loop {
            match io::stdin().lock().read(&mut read) {
                Ok(0) => break,
                Ok(length) => bytes.extend(&read[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            for key in keys::take(&mut bytes) {
                if events.send(Event::Key(key)).is_err() {
                    return;
                }
            }
        }
        if events.send(Event::NoKeys).is_err() {
            // The page has ended already.
        }
    })?;
    Ok(())
}
