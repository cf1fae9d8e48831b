//! A disk of its own for the files of a process: slow, full or hanging.
//!
//! The disk is a file system in a file (a loop device). The kernel can freeze it: then every call that writes, creates or
//! syncs a file waits, as on a disk that does not answer. That needs root.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use quictun_testbed::program;
use quictun_testbed::tunnel::Home;

/// Size of the disk, bytes.
const SIZE: u64 = 32 << 20;

/// Size of a write that fills the disk.
const BLOCK: usize = 64 << 10;

/// The state of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum DiskFault {
    /// A sync takes up to 4 s.
    Slow,
    /// The disk has no room.
    Full,
    /// The disk does not answer for 30 s.
    Hang,
}

impl DiskFault {
    /// Time for which a write or sync waits.
    pub(crate) fn wait(self) -> Duration {
        match self {
            Self::Slow => Duration::from_secs(4),
            Self::Full => Duration::ZERO,
            Self::Hang => Duration::from_secs(30),
        }
    }
}

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct LoopDisk {
    /// The directory of the image, which is removed last.
    _home: Home,
    mounted: PathBuf,
}

impl LoopDisk {
    /// Makes and mounts a disk. Fails without root.
    pub(crate) fn new() -> Result<Self> {
        let home = Home::new()?;
        let (image, mounted) = (home.path().join("image"), home.path().join("disk"));
        File::create(&image)?.set_len(SIZE)?;
        std::fs::create_dir(&mounted)?;
        program::run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))
            .context("this needs mkfs.ext4: apt-get install -y e2fsprogs")?;
        let mut mount = Command::new("mount");
        program::run(mount.args(["-o", "loop"]).arg(&image).arg(&mounted))?;
        Ok(Self {
            _home: home,
            mounted,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mounted
    }

    /// Returns whether a disk can be made here.
    pub(crate) fn is_possible() -> bool {
        Self::new()
            .and_then(|disk| disk.freeze(Duration::ZERO))
            .is_ok()
    }

    /// Freezes the disk for this time.
    pub(crate) fn freeze(&self, time: Duration) -> Result<()> {
        let turn = |flag| program::run(Command::new("fsfreeze").arg(flag).arg(&self.mounted));
        turn("--freeze")?;
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        turn("--unfreeze").map(drop)
    }

    /// Takes all room, until the returned file is removed.
    pub(crate) fn fill(&self) -> Result<PathBuf> {
        let path = self.mounted.join("filler");
        let mut filler = File::create(&path)?;
        // The second size takes the last blocks.
        for size in [BLOCK, 512] {
            let block = vec![0; size];
            let full = loop {
                let written = filler.write_all(&block).and_then(|()| filler.sync_data());
                if let Err(error) = written {
                    break error;
                }
            };
            ensure!(
                full.kind() == ErrorKind::StorageFull,
                "filling the disk: {full}"
            );
        }
        Ok(path)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        // If it fails, the disk goes with the mount namespace.
        program::run(umount.arg("--lazy").arg(&self.mounted)).ok();
    }
}
