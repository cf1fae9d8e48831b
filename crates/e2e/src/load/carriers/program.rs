//! The programs that run during an outage or an upgrade, and the applications on the far machine that they use.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use quictun_testbed::application::Application;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::payload::Payload;
use quictun_testbed::postgresql::Database;

use super::progress::ProgressCounter;
use super::{iperf3, psql, rsync, ssh};
use crate::load::machines::LinkedMachines;

/// The time limit for the end of a program.
pub(super) const DONE: Duration = Duration::from_mins(2);

/// The time limit for the first bytes of a program.
pub(super) const BEGUN: Duration = Duration::from_secs(20);

/// A program that people use through tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgramKind {
    /// A command that prints a number every 20 ms. The numbers must follow each other.
    Ssh,
    /// One query after the other in one transaction. Each answer must be the right one.
    Psql,
    /// A download of a file, which must equal the original.
    Rsync,
    /// Both directions at once. It does not look at the bytes.
    Iperf3,
}

impl ProgramKind {
    pub(super) const ALL: [Self; 4] = [Self::Ssh, Self::Psql, Self::Rsync, Self::Iperf3];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Psql => "psql",
            Self::Rsync => "rsync",
            Self::Iperf3 => "iperf3",
        }
    }

    /// Returns the flags that the client needs. iperf3 takes the first connection that arrives for the upload, and only
    /// one connection of the tunnel keeps the order of its flows.
    pub(super) fn client_flags(self) -> &'static [&'static str] {
        match self {
            Self::Iperf3 => &["--workers", "1", "--connections", "1"],
            Self::Ssh | Self::Psql | Self::Rsync => &[],
        }
    }
}

/// A program that runs on the near machine.
pub(super) trait RunningProgram {
    /// Returns a counter for each direction in which the program receives.
    fn counters(&self) -> Vec<ProgressCounter>;

    /// Brings the program to its end. Fails if it has failed, or if a byte is wrong or missing.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The applications on the far machine, and what the programs need on the near one.
pub(super) struct FarApplications<'a> {
    machines: &'a LinkedMachines,
    keys: SshKeys,
    sshd: Application,
    database: Option<Database>,
    file: PathBuf,
    payload: Payload,
    time: Duration,
}

impl<'a> FarApplications<'a> {
    /// Starts the applications that `programs` use. The transfers of rsync and iperf3 last for about `time`, at `rate`
    /// bytes per second.
    pub(super) fn start(
        machines: &'a LinkedMachines,
        programs: &[ProgramKind],
        rate: u64,
        time: Duration,
    ) -> Result<Self> {
        let keys = SshKeys::new()?;
        let sshd = machines
            .far
            .within(|| keys.sshd((Ipv4Addr::LOCALHOST, 0).into()))?;
        let needs = |program| programs.contains(&program);
        let database = needs(ProgramKind::Psql).then(|| Database::start(""));
        let database = database.transpose()?;
        let file = keys.home().path().join("file");
        let payload = Payload::new(7, (rate * time.as_secs()).min(rsync::BYTES_MAX));
        if needs(ProgramKind::Rsync) {
            payload.write_to(&mut File::create(&file)?)?;
        }
        Ok(Self {
            machines,
            keys,
            sshd,
            database,
            file,
            payload,
            time,
        })
    }

    /// Returns the target that a program uses.
    pub(super) fn target(&self, program: ProgramKind) -> Result<String> {
        Ok(match program {
            ProgramKind::Ssh | ProgramKind::Rsync => self.sshd.target(),
            ProgramKind::Psql => self.database()?.target(),
            ProgramKind::Iperf3 => iperf3::TARGET.to_owned(),
        })
    }

    fn database(&self) -> Result<&Database> {
        self.database.as_ref().context("invariant: psql is used")
    }

    /// Starts a program that reaches its target through a forward on `port`.
    pub(super) fn run(&self, program: ProgramKind, port: u16) -> Result<Box<dyn RunningProgram>> {
        let near = &self.machines.near;
        Ok(match program {
            ProgramKind::Ssh => Box::new(ssh::Ssh::start(near, &self.keys, port)?),
            ProgramKind::Psql => Box::new(psql::Psql::start(near, self.database()?, port)?),
            ProgramKind::Rsync => {
                let copied = (self.file.as_path(), self.payload);
                Box::new(rsync::Rsync::start(near, &self.keys, port, copied)?)
            }
            ProgramKind::Iperf3 => Box::new(iperf3::Iperf3::start(self.machines, port, self.time)?),
        })
    }

    /// Stops the applications that need an orderly end.
    pub(super) fn stop(self) -> Result<()> {
        self.database.map_or(Ok(()), Database::stop)
    }
}
