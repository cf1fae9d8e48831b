//! Memory that is accepted as a region, and memory that is rejected.

use std::os::fd::OwnedFd;

use quictun_shmq::{Channel, HeaderError, RegionError};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::peer::both;

/// Opens a changed copy of a region's file that is sealed with `seals`, and returns the error.
fn altered(seals: SealFlags, change: impl Fn(&OwnedFd)) -> RegionError {
    let honest = Channel::create(4096, 3).expect("open a region");
    let length = rustix::fs::fstat(honest.memory())
        .expect("read the length")
        .st_size;
    let mut header = [0; 64];
    rustix::io::pread(honest.memory(), &mut header, 0).expect("read the header");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = rustix::fs::memfd_create("copy", flags).expect("create a memfd");
    rustix::fs::ftruncate(&copy, u64::try_from(length).expect("a valid length")).expect("resize");
    rustix::io::pwrite(&copy, &header, 0).expect("write the header");
    change(&copy);
    rustix::fs::fcntl_add_seals(&copy, seals).expect("add the seals");
    Channel::open(copy).expect_err("the altered region is rejected")
}

const ALL: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

#[test]
fn memory_that_could_change_its_length_is_refused() {
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        let error = altered(ALL.difference(missing), |_| ());
        assert!(
            matches!(error, RegionError::Unsealed),
            "{missing:?}: {error:?}"
        );
    }
    let (pipe, _writer) = rustix::pipe::pipe().expect("create a pipe");
    assert!(matches!(Channel::open(pipe), Err(RegionError::Unsealed)));
}

#[test]
fn a_header_that_is_not_ours_is_refused() {
    let poke = |at: u64, byte: u8| {
        altered(ALL, |fd| {
            rustix::io::pwrite(fd, &[byte], at).expect("write a byte");
        })
    };
    assert!(matches!(
        poke(0, 0),
        RegionError::Header(HeaderError::Magic)
    ));
    assert!(matches!(
        poke(8, 9),
        RegionError::Header(HeaderError::Version(9))
    ));
    assert!(matches!(
        poke(16, 13),
        RegionError::Header(HeaderError::Fields)
    ));
    assert!(matches!(
        poke(32, 1),
        RegionError::Header(HeaderError::Arena(4097))
    ));
}

#[test]
fn a_length_other_than_the_headers_is_refused() {
    for more in [-4096, 4096] {
        let error = altered(ALL, |fd| {
            let length = rustix::fs::fstat(fd).expect("read the length").st_size + more;
            rustix::fs::ftruncate(fd, u64::try_from(length).expect("a valid length"))
                .expect("change the length");
        });
        assert!(matches!(error, RegionError::Length { .. }), "{error:?}");
    }
}

#[test]
fn a_region_cannot_be_truncated() {
    let (one, _other) = both(4096);
    assert!(rustix::fs::ftruncate(one.memory(), 0).is_err());
    assert!(rustix::fs::fcntl_add_seals(one.memory(), SealFlags::WRITE).is_err());
}
