//! `quictun connect`: one flow on standard input and output.
//!
//! One end of a socket pair serves as the flow's application. Two threads copy between the other end and standard input
//! and output. The flow cannot use these streams directly: they may be files, or other programs may share them that do
//! not expect them to become non-blocking.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread::Builder;

use anyhow::Context as _;
use quictun_args::fault::Exit;
use quictun_sys::restore_default;
use quictun_tunnel::client;
use quictun_tunnel::failure::Failure;
use quictun_tunnel::settings::ClientSettings;
use quictun_wire::target::Target;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::exit::{self, ProgramError, say};

const PROGRAM: &str = "quictun connect";

/// Bytes copied at once: the capacity of a pipe.
const COPY: usize = 64 << 10;

/// The target of the flow, and the settings to reach its server.
#[derive(Debug)]
pub struct ConnectPlan {
    /// The target of the flow.
    pub target: Target,
    /// The settings of the client that opens the flow.
    pub settings: ClientSettings,
}

pub(crate) fn main(plan: ConnectPlan) -> ExitCode {
    exit::report(PROGRAM, run(plan)).into()
}

fn run(plan: ConnectPlan) -> Result<(), ProgramError> {
    let (ours, application) = UnixStream::pair().context("cannot make a socket pair")?;
    let again = ours.try_clone().context("cannot duplicate a socket")?;
    let (input, output) = take_over().context("cannot take over standard input and output")?;
    let (written, copied) = channel();
    let start = move || {
        let input = move || copy_input(input, ours);
        Builder::new().name("input".to_owned()).spawn(input)?;
        let output = move || {
            // The receiver is gone only if this process is already ending with an error.
            written.send(copy_output(again, output)).ok();
        };
        Builder::new().name("output".to_owned()).spawn(output)?;
        Ok(application)
    };
    let ended = client::connect(plan.settings, &plan.target, start);
    if let Err(Failure::Interrupted) = ended {
        return Ok(ended?);
    }
    // Some received bytes may still be on their way to standard output. A signal from here on ends the program.
    restore_default(&[Signal::INT, Signal::TERM]).context("cannot reset signal handlers")?;
    let copied = copied.recv();
    ended?;
    let copied = copied.context("the thread that writes standard output failed")?;
    Ok(copied.context("cannot write to standard output")?)
}

#[expect(
    clippy::exit,
    reason = "nothing else ends the flow without ending the input"
)]
fn copy_input(mut input: File, mut to: UnixStream) {
    match copy(&mut input, &mut to) {
        // The shutdown may fail because the flow is over already.
        Ok(()) => to.shutdown(Shutdown::Write).unwrap_or_default(),
        Err(CopyError::Writing(_)) => {}
        // A FIN would mean to the target that the input was complete.
        Err(CopyError::Reading(error)) => {
            say(&format!("{PROGRAM}: standard input: {error}"));
            std::process::exit(Exit::Failure as i32);
        }
    }
}

fn copy_output(mut from: UnixStream, mut output: File) -> io::Result<()> {
    match copy(&mut from, &mut output) {
        // The client itself reports how the flow has ended.
        Ok(()) | Err(CopyError::Reading(_)) => Ok(()),
        Err(CopyError::Writing(error)) => {
            // Once nothing reads, the client resets the flow as soon as more bytes arrive.
            from.shutdown(Shutdown::Read)?;
            Err(error)
        }
    }
}

/// Moves standard input and output into files of their own and leaves `/dev/null` in their place. No other descriptor
/// of this process may keep them open: the program that reads this process's output must see its end when the flow has
/// finished in that direction.
fn take_over() -> io::Result<(File, File)> {
    let taken = (own(io::stdin())?, own(io::stdout())?);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(taken)
}

/// Duplicates a stream into a file without a buffer.
fn own(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

#[derive(Debug)]
enum CopyError {
    Reading(io::Error),
    Writing(io::Error),
}

/// Copies until the end of the input. `std::io::copy` is not used: it may make system calls that a confined process is
/// denied.
fn copy(
    from: &mut (impl io::Read + AsFd),
    to: &mut (impl io::Write + AsFd),
) -> Result<(), CopyError> {
    let mut buffer = vec![0; COPY];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => write_all(to, &buffer[..read]).map_err(CopyError::Writing)?,
            Err(error) => {
                patient(error, from.as_fd(), PollFlags::IN).map_err(CopyError::Reading)?;
            }
        }
    }
}

fn write_all(to: &mut (impl io::Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => patient(error, to.as_fd(), PollFlags::OUT)?,
        }
    }
    Ok(())
}

/// Waits until `stream` is ready if the error only says that it is not. Programs that share the stream may have made it
/// non-blocking.
fn patient(error: io::Error, stream: BorrowedFd<'_>, ready: PollFlags) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock => match poll(&mut [PollFd::from_borrowed_fd(stream, ready)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        },
        _ => Err(error),
    }
}
