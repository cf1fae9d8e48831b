//! Remedies for a system that does not let this process make namespaces.

use std::fs;

use quictun_sys::ContainError;

use quictun_args::fault::Fault;

/// Settings that forbid user namespaces: each file, the value that forbids them, and the command that permits them.
const SWITCHES: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sysctl user.max_user_namespaces=10000",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

/// Converts the error into a fault, with the two ways to get the privilege.
pub(crate) fn explain(error: &ContainError) -> Fault {
    let fault = Fault::failure("namespaces", error);
    if !matches!(error, ContainError::Forbidden(_)) {
        return fault;
    }
    let forbids = |(path, value, _): &&(&str, &str, &str)| {
        fs::read_to_string(path).is_ok_and(|text| text.trim() == *value)
    };
    fault.next(match SWITCHES.iter().find(forbids) {
        Some((path, value, command)) => {
            format!("run it as root, or let users make namespaces: `{command}` ({path} is {value})")
        }
        None => "run it as root, or let users make namespaces; in a container that takes \
                 --privileged, or --cap-add SYS_ADMIN,NET_ADMIN,NET_RAW and a seccomp profile that \
                 permits unshare and mount"
            .to_owned(),
    })
}
