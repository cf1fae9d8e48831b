//! What the kernel can take from a client or server once it listens.

use quictun_sys::confine::{LANDLOCK_WHOLE, Offered, offered};

use super::finding::{Finding, State};

const AREA: &str = "confinement";

pub(super) fn findings() -> Vec<Finding> {
    let offered = offered();
    vec![files(offered), calls(offered)]
}

fn files(offered: Offered) -> Finding {
    let what = "files (Landlock)";
    match offered.landlock {
        Some(version) if version >= LANDLOCK_WHOLE => {
            Finding::ok(AREA, what, format!("version {version}"))
        }
        Some(version) => Finding::ok(AREA, what, format!("version {version}"))
            .but(
                State::Note,
                "a client or server could be made to signal other processes of its user, or to bind TCP ports",
            )
            .remedy("Linux 6.12 or later"),
        None => Finding::ok(AREA, what, "not there")
            .but(
                State::Note,
                "a client or server could be made to open what its user may open",
            )
            .remedy("Linux 5.13 or later with `landlock` in CONFIG_LSM or in the boot parameter lsm=; a user of its own for each"),
    }
}

fn calls(offered: Offered) -> Finding {
    let what = "system calls (seccomp)";
    if offered.seccomp {
        return Finding::ok(AREA, what, "there");
    }
    Finding::ok(AREA, what, "not there")
        .but(
            State::Note,
            "a client or server could be made to start programs and to use all of the kernel",
        )
        .remedy("a kernel with CONFIG_SECCOMP_FILTER")
}
