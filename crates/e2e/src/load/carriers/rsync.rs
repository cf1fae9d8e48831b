//! rsync, which copies a file from the far machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, installed};

use super::program::{DONE, RunningProgram};
use super::progress::ProgressCounter;

/// The largest file in bytes.
pub(super) const BYTES_MAX: u64 = 1_000_000_000;

pub(super) struct Rsync {
    program: Program,
    payload: Payload,
    copy: PathBuf,
}

impl Rsync {
    /// Copies a file that holds this payload.
    pub(super) fn start(
        near: &Machine,
        keys: &SshKeys,
        port: u16,
        (file, payload): (&Path, Payload),
    ) -> Result<Self> {
        let rsync = installed("rsync", "rsync")?;
        let copy = keys.home().path().join("copy");
        if copy.exists() {
            std::fs::remove_file(&copy)?;
        }
        let options = keys.options();
        let quoted = options.iter().map(|option| format!(" '{option}'"));
        let ssh = format!("ssh -p {port}{}", quoted.collect::<String>());
        let mut rsync = near.command(&rsync);
        rsync.args(["--inplace", "--whole-file", "-e", &ssh]);
        let from = format!("{}:{}", keys.user_at("127.0.0.1"), file.display());
        let program = Program::start("rsync", rsync.arg(from).arg(&copy))?;
        Ok(Self {
            program,
            payload,
            copy,
        })
    }
}

impl RunningProgram for Rsync {
    fn counters(&self) -> Vec<ProgressCounter> {
        let (copy, all) = (self.copy.clone(), self.payload.bytes);
        vec![Box::new(move || {
            let written = copy.metadata().map_or(0, |copy| copy.len());
            Ok((written < all).then_some(written))
        })]
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let status = self.program.wait_end(DONE)?;
        ensure!(status.success(), "{status}: {:?}", self.program.lines());
        self.program.silence();
        self.payload.read_to_end_of(&mut File::open(&self.copy)?)
    }
}
