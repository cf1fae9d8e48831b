//! Offload features of a network device, as `ethtool -k` shows them and `-K` sets them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::syscall_result::check;

/// Limit on the number of features. The kernel has about 64 of them.
const MAX_FEATURES: usize = 1024;

/// Length of a feature's name in bytes: `ETH_GSTRING_LEN`.
const NAME: usize = 32;

/// The ioctl request. libc's constant has the type that glibc takes.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// The string set of feature names: `ETH_SS_FEATURES`.
const FEATURES: u32 = 4;

const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;

/// The features of one device.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    device: [u8; libc::IFNAMSIZ],
    /// Names of the features; the index is the feature's number.
    names: Vec<String>,
}

impl Ethtool {
    /// Opens a device of the calling thread's network namespace. Fails with `NotFound` if the name is too long for a
    /// device, and with the error `ENODEV` if there is no device of this name.
    pub fn open(device: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        // One byte stays zero: it ends the name.
        name[..libc::IFNAMSIZ - 1]
            .get_mut(..device.len())
            .ok_or(io::ErrorKind::NotFound)?
            .copy_from_slice(device.as_bytes());
        let mut ethtool = Self {
            socket: socket(AddressFamily::INET, SocketType::DGRAM, None)?,
            device: name,
            names: Vec::new(),
        };
        ethtool.names = ethtool.feature_names()?;
        Ok(ethtool)
    }

    /// Returns whether a feature (for example `tx-tcp-segmentation`) is on; `None` if the kernel does not know it.
    pub fn feature(&self, name: &str) -> io::Result<Option<bool>> {
        Ok(self.states(name)?.map(|[_, _, active, _]| active))
    }

    /// Returns whether a feature of this device can be switched on and off.
    pub fn can_change(&self, name: &str) -> io::Result<bool> {
        let states = self.states(name)?;
        Ok(states.is_some_and(|[available, _, _, never_changed]| available && !never_changed))
    }

    /// Returns whether a feature is available, requested, active, and never changed.
    fn states(&self, name: &str) -> io::Result<Option<[bool; 4]>> {
        let Some(number) = self.number(name) else {
            return Ok(None);
        };
        // struct ethtool_gfeatures: command, number of blocks, then four words per block of 32 features.
        let blocks = self.blocks();
        let mut buffer = vec![0; 2 + 4 * blocks];
        buffer[0] = GET_FEATURES;
        buffer[1] = u32::try_from(blocks).unwrap_or_default();
        self.call(&mut buffer)?;
        let block = 2 + 4 * (number / 32);
        Ok(Some([0, 1, 2, 3].map(|state| {
            buffer[block + state] & (1 << (number % 32)) != 0
        })))
    }

    /// Switches features on or off. Features that the kernel does not know are skipped. Fails with `PermissionDenied`
    /// without `CAP_NET_ADMIN`, and with `Unsupported` if a feature of this device is fixed to the other value.
    pub fn set_features(&self, features: &[(&str, bool)]) -> io::Result<()> {
        // struct ethtool_sfeatures: command, number of blocks, then per block which features are valid and which are
        // on.
        let blocks = self.blocks();
        let mut buffer = vec![0; 2 + 2 * blocks];
        buffer[0] = SET_FEATURES;
        buffer[1] = u32::try_from(blocks).unwrap_or_default();
        for (name, on) in features {
            if let Some(number) = self.number(name) {
                let (block, bit) = (2 + 2 * (number / 32), 1 << (number % 32));
                buffer[block] |= bit;
                buffer[block + 1] |= if *on { bit } else { 0 };
            }
        }
        self.call(&mut buffer)?;
        for (name, on) in features {
            if self.feature(name)?.is_some_and(|is_on| is_on != *on) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "{name} cannot be switched {}",
                        if *on { "on" } else { "off" }
                    ),
                ));
            }
        }
        Ok(())
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    fn blocks(&self) -> usize {
        self.names.len().div_ceil(32)
    }

    fn feature_names(&self) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, 64-bit mask of the requested sets, their lengths.
        let mut info = [GET_SET_INFO, 0, 0, 0, 0];
        let mask = (1_u64 << FEATURES).to_ne_bytes();
        let (low, high) = mask.split_at(4);
        info[2] = u32::from_ne_bytes(low.try_into().unwrap_or_default());
        info[3] = u32::from_ne_bytes(high.try_into().unwrap_or_default());
        self.call(&mut info)?;
        let count = usize::try_from(info[4]).unwrap_or(usize::MAX);
        if count > MAX_FEATURES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel reports an implausible number of features",
            ));
        }
        // struct ethtool_gstrings: command, set, count, names.
        let mut strings = vec![0; 3 + count * NAME / 4];
        strings[0] = GET_STRINGS;
        strings[1] = FEATURES;
        strings[2] = info[4];
        self.call(&mut strings)?;
        let bytes: Vec<u8> = strings[3..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let name = |field: &[u8]| {
            let end = field.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
        };
        Ok(bytes.chunks_exact(NAME).map(name).collect())
    }

    /// Runs one `SIOCETHTOOL`. `buffer` must be as long as the structure that the kernel writes for the command in its
    /// first word.
    fn call(&self, buffer: &mut [u32]) -> io::Result<()> {
        let mut request = libc::ifreq {
            ifr_name: self.device.map(|byte| libc::c_char::from_ne_bytes([byte])),
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: buffer.as_mut_ptr().cast(),
            },
        };
        // SAFETY: `request` is a live `ifreq` with a name that ends in a zero. `ifru_data` points at `buffer`, which is
        // alive and borrowed mutably for the call. Each caller in this file makes it as long as its command's structure
        // for the counts in it. The kernel writes no more than these counts allow: one 32-bit length for the one
        // requested set, `blocks` blocks, or `count` names. If its own count differs, it refuses; for names, it writes
        // as many as it counted, which is the number that it returned a moment before and that never changes.
        let done = unsafe {
            libc::ioctl(
                self.socket.as_fd().as_raw_fd(),
                SIOCETHTOOL,
                &raw mut request,
            )
        };
        check(done)
    }
}
