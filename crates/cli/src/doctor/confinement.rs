//! The kernel's means to confine a client or server once it listens.

use quictun_sys::confine::{LANDLOCK_WHOLE, Offered, offered};

use super::finding::{Finding, State};

const AREA: &str = "confinement";

pub(super) fn findings() -> Vec<Finding> {
    let offered = offered();
    vec![files(offered), calls(offered)]
}

fn files(offered: Offered) -> Finding {
    let finding = |found: String| Finding::ok(AREA, "files (Landlock)", found);
    match offered.landlock {
        Some(version) => finding(format!("version {version}"))
            .note_if(
                version < LANDLOCK_WHOLE,
                "a client or server could be made to signal other processes of its user, or to bind TCP ports",
            )
            .remedy("Linux 6.12 or later"),
        None => finding("not there".to_owned())
            .but(
                State::Note,
                "a client or server could be made to open what its user may open",
            )
            .remedy("Linux 5.13 or later with `landlock` in CONFIG_LSM or in the boot parameter lsm=; a user of its own for each"),
    }
}

fn calls(offered: Offered) -> Finding {
    let found = if offered.seccomp {
        "there"
    } else {
        "not there"
    };
    Finding::ok(AREA, "system calls (seccomp)", found)
        .note_if(
            !offered.seccomp,
            "a client or server could be made to start programs and to use all of the kernel",
        )
        .remedy("a kernel with CONFIG_SECCOMP_FILTER")
}
