//! Memory that two processes share: a sealed memfd, mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use thiserror::Error;

use crate::doorbell::Doorbell;
use crate::layout::{HEADER, HeaderError, Layout, Side};
use crate::ring::{Cursors, RingMemory};
use crate::slot::Slot;

/// What must be sealed: the region keeps its length, so that no access faults, and nobody adds seals that stop the other.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The file system of memfds with ordinary pages; huge ones may run out at the first access, which ends the process.
const TMPFS: i64 = 0x0102_1994;

/// Why there is no region.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system refused.
    #[error("{0} shared memory")]
    System(&'static str, #[source] std::io::Error),
    /// The descriptor is not of memory that stays as it is.
    #[error(
        "the peer's shared memory is not a memfd sealed against shrinking, growing and further seals"
    )]
    Unsealed,
    /// The file's length, which comes first, is not what the header says.
    #[error("the peer's shared memory has {found} bytes, its header says {expected}")]
    Length {
        /// Of the file.
        found: u64,
        /// By the header.
        expected: u64,
    },
    /// What is asked for, or what the peer wrote, is no region.
    #[error("the shared memory's header")]
    Header(#[from] HeaderError),
}

#[derive(Debug)]
pub(crate) struct Region {
    fd: OwnedFd,
    layout: Layout,
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access to it is by atomics, by volatile
// accesses or by the copies of `bytes`, from any thread.
unsafe impl Send for Region {}
// SAFETY: as above; nothing here hands out a plain reference to its bytes.
unsafe impl Sync for Region {}

impl Region {
    /// New memory, all zero but for its header.
    pub(crate) fn create(layout: Layout) -> Result<Self, RegionError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("quictun-shmq", flags).map_err(system("making"))?;
        rustix::fs::ftruncate(&fd, layout.len() as u64).map_err(system("sizing"))?;
        rustix::io::pwrite(&fd, &layout.to_header(), 0).map_err(system("writing to"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(system("sealing"))?;
        Self::map(fd, layout)
    }

    /// The memory of a peer, who may have sent anything.
    pub(crate) fn open(fd: OwnedFd) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| RegionError::Unsealed)?;
        let kind = rustix::fs::fstatfs(&fd).map_err(system("looking at"))?;
        if !seals.contains(SEALS) || kind.f_type != TMPFS {
            return Err(RegionError::Unsealed);
        }
        let mut header = [0; HEADER];
        let read = rustix::io::pread(&fd, &mut header, 0).map_err(system("reading"))?;
        let layout = Layout::from_header(&header)?;
        let found = rustix::fs::fstat(&fd)
            .map_err(system("looking at"))?
            .st_size;
        let found = u64::try_from(found).unwrap_or_default();
        let expected = layout.len() as u64;
        if read != HEADER || found != expected {
            return Err(RegionError::Length { found, expected });
        }
        Self::map(fd, layout)
    }

    fn map(fd: OwnedFd, layout: Layout) -> Result<Self, RegionError> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody. The file is as long as
        // the mapping and sealed so, in `create` by us and in `open` as was checked.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                layout.len(),
                protection,
                flags,
                &fd,
                0,
            )
        };
        let base = base.map_err(system("mapping"))?;
        let base = NonNull::new(base.cast()).ok_or(RegionError::Unsealed)?;
        Ok(Self { fd, layout, base })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn doorbell(&self, side: Side) -> &Doorbell {
        let at: NonNull<Doorbell> = self.at(Layout::doorbell(side));
        // SAFETY: inside the mapping and aligned (the layout's assertions); it consists of atomics, which both processes
        // may change, and any bits are a value of it.
        unsafe { at.as_ref() }
    }

    /// The ring that `side` writes messages into.
    pub(crate) fn ring(self: &Arc<Self>, side: Side) -> RegionRing {
        RegionRing {
            cursors: self.at(Layout::cursors(side)),
            slots: self.at(Layout::slots(side)),
            _region: self.clone(),
        }
    }

    /// The first byte of the arena that `side` writes payloads into.
    pub(crate) fn arena(&self, side: Side) -> NonNull<u8> {
        self.at(self.layout.arena(side))
    }

    /// `offset` comes from the layout, which is inside the mapping and aligned for what lies there.
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: the layout's offsets are not beyond its length, which is that of the mapping.
        unsafe { self.base.add(offset) }.cast()
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and who has pointers into it (`RegionRing`, `Channel`) holds the region.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.len()) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RegionRing {
    cursors: NonNull<Cursors>,
    slots: NonNull<[Slot; crate::SLOTS]>,
    _region: Arc<Region>,
}

// SAFETY: it points into the region, which any thread may use, and keeps it mapped.
unsafe impl Send for RegionRing {}

impl RingMemory for RegionRing {
    #[inline(always)]
    fn cursors(&self) -> &Cursors {
        // SAFETY: inside the mapping, which lives as long as `_region`, and aligned; it consists of atomics, which both
        // processes may change, and any bits are a value of it.
        unsafe { self.cursors.as_ref() }
    }

    #[inline(always)]
    fn slots(&self) -> &[Slot] {
        // SAFETY: as `cursors`; there are `SLOTS` of them.
        unsafe { self.slots.as_ref() }
    }
}

fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> RegionError {
    move |error| RegionError::System(doing, error.into())
}
