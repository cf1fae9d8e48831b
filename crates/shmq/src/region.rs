//! Shared memory between two processes: a sealed memfd and its mapping.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use thiserror::Error;

use crate::doorbell::Doorbell;
use crate::layout::{HEADER, HeaderError, Layout, RegionSide};
use crate::ring::{Cursors, RingMemory};
use crate::slot::Slot;

/// The seals that a region must have. They fix its length, so no access can fault, and prevent further seals, which
/// could block the other process.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The file-system magic of memfds with ordinary pages. Huge pages are refused: they may run out on first access, which
/// kills the process.
const TMPFS: i64 = 0x0102_1994;

/// An error that prevents a region from being created or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A system call failed.
    #[error("{0} shared memory failed")]
    System(&'static str, #[source] std::io::Error),
    /// The descriptor is not a memfd with the required seals.
    #[error(
        "the peer's shared memory is not an ordinary memfd sealed against shrinking, growing and further seals"
    )]
    Unsealed,
    /// The length of the file differs from the length in its header.
    #[error("the peer's shared memory has {found} bytes, but its header says {expected}")]
    Length {
        /// Length of the file, in bytes.
        found: u64,
        /// Length according to the header, in bytes.
        expected: u64,
    },
    /// The requested layout or the peer's header is invalid.
    #[error("invalid header of the shared memory")]
    Header(#[from] HeaderError),
}

#[derive(Debug)]
pub(crate) struct Region {
    fd: OwnedFd,
    layout: Layout,
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread. All access to it uses atomics, volatile accesses or the
// copy functions of `bytes`, which are valid from any thread.
unsafe impl Send for Region {}
// SAFETY: as above; no method returns a plain reference to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Creates new memory that is all zero except for its header.
    pub(crate) fn create(layout: Layout) -> Result<Self, RegionError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("quictun-shmq", flags).map_err(system("creating"))?;
        rustix::fs::ftruncate(&fd, layout.len() as u64).map_err(system("sizing"))?;
        rustix::io::pwrite(&fd, &layout.to_header(), 0).map_err(system("writing to"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(system("sealing"))?;
        Self::map(fd, layout)
    }

    /// Maps memory that an untrusted peer sent.
    pub(crate) fn open(fd: OwnedFd) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| RegionError::Unsealed)?;
        let kind = rustix::fs::fstatfs(&fd).map_err(system("inspecting"))?;
        if !seals.contains(SEALS) || kind.f_type != TMPFS {
            return Err(RegionError::Unsealed);
        }
        let mut header = [0; HEADER];
        let read = rustix::io::pread(&fd, &mut header, 0).map_err(system("reading"))?;
        let layout = Layout::from_header(&header)?;
        let found = rustix::fs::fstat(&fd)
            .map_err(system("inspecting"))?
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
        // SAFETY: a new mapping at an address that the kernel chooses does not affect any other memory. The file is as
        // long as the mapping and its length is sealed: `create` set it up this way, and `open` checked it.
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

    pub(crate) fn doorbell(&self, side: RegionSide) -> &Doorbell {
        let at: NonNull<Doorbell> = self.at(Layout::doorbell(side));
        // SAFETY: the doorbell is inside the mapping and aligned (the layout asserts both). It consists of atomics,
        // which both processes may change, and every bit pattern is a valid value.
        unsafe { at.as_ref() }
    }

    /// Returns the ring that `side` writes messages into.
    pub(crate) fn ring(self: &Arc<Self>, side: RegionSide) -> RegionRing {
        RegionRing {
            cursors: self.at(Layout::cursors(side)),
            slots: self.at(Layout::slots(side)),
            _region: self.clone(),
        }
    }

    /// Returns the first byte of the arena that `side` writes payloads into.
    pub(crate) fn arena(&self, side: RegionSide) -> NonNull<u8> {
        self.at(self.layout.arena(side))
    }

    /// Returns a pointer to the object at `offset`, which must come from the layout: inside the mapping and aligned for
    /// `T`.
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: the layout's offsets do not exceed its length, which is the length of the mapping.
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
        // SAFETY: this value owns the mapping, and every holder of pointers into it (`RegionRing`, `Channel`) keeps the
        // region alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.len()) };
        debug_assert!(unmapped.is_ok(), "cannot unmap the region");
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RegionRing {
    cursors: NonNull<Cursors>,
    slots: NonNull<[Slot; crate::SLOTS]>,
    _region: Arc<Region>,
}

// SAFETY: it points into the region, which any thread may use, and it keeps the region mapped.
unsafe impl Send for RegionRing {}

impl RingMemory for RegionRing {
    #[inline(always)]
    fn cursors(&self) -> &Cursors {
        // SAFETY: the cursors are inside the mapping, which lives as long as `_region`, and aligned. They consist of
        // atomics, which both processes may change, and every bit pattern is a valid value.
        unsafe { self.cursors.as_ref() }
    }

    #[inline(always)]
    fn slots(&self) -> &[Slot] {
        // SAFETY: as in `cursors`; the region holds `SLOTS` slots.
        unsafe { self.slots.as_ref() }
    }
}

fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> RegionError {
    move |error| RegionError::System(doing, error.into())
}
