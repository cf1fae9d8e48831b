//! The kernel's check that the way to a packet's source address leads to the device at which the packet arrived
//! (`rp_filter`, IPv4 only).

use std::fs;

use crate::tun_device::NAME;

/// The setting that makes the check consider marks.
pub(super) const VALID_MARK: &str = "net/ipv4/conf/all/src_valid_mark";

const SETTINGS: &str = "/proc/sys/net/ipv4/conf";

/// Directories of settings that belong to no device at which packets arrive from outside.
const NOT_OUTSIDE: [&str; 4] = ["all", "default", "lo", NAME];

/// Returns whether the check considers marks, or cannot be examined.
pub(super) fn considers_marks() -> bool {
    let read = fs::read_to_string(format!("/proc/sys/{VALID_MARK}"));
    !read.is_ok_and(|text| text.trim() == "0")
}

/// Returns the sorted names of the devices that accept a packet only if the way to its source leads back to them. The
/// kernel applies the higher one of a device's setting and that of all devices: 1 is strict, 2 is loose.
pub(super) fn strict_devices() -> Vec<String> {
    let all = filter_of("all");
    let Ok(entries) = fs::read_dir(SETTINGS) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let strict =
        |name: &String| !NOT_OUTSIDE.contains(&&**name) && filter_of(name).max(all) == Some(1);
    let mut names: Vec<String> = names.filter(strict).collect();
    names.sort();
    names
}

fn filter_of(device: &str) -> Option<u8> {
    let text = fs::read_to_string(format!("{SETTINGS}/{device}/rp_filter")).ok()?;
    text.trim().parse().ok()
}
