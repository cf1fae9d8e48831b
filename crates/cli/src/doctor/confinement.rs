//! Checks the kernel's means to confine a client or server once it listens.

use quictun_sys::confine::{KernelSupport, LANDLOCK_WHOLE, kernel_support};

use super::finding::{Finding, Severity};

const AREA: &str = "confinement";

pub(super) fn findings() -> Vec<Finding> {
    let kernel_support = kernel_support();
    vec![files(kernel_support), calls(kernel_support)]
}

fn files(kernel_support: KernelSupport) -> Finding {
    let finding = |found: String| Finding::ok(AREA, "files (Landlock)", found);
    match kernel_support.landlock {
        Some(version) => finding(format!("version {version}"))
            .note_if(
                version < LANDLOCK_WHOLE,
                "a client or server could be made to signal other processes of its user, or to bind TCP ports",
            )
            .remedy("Linux 6.12 or later"),
        None => finding("not there".to_owned())
            .with_severity(
                Severity::Note,
                "a client or server could be made to open what its user may open",
            )
            .remedy("Linux 5.13 or later with `landlock` in CONFIG_LSM or in the boot parameter lsm=; a user of its own for each"),
    }
}

fn calls(kernel_support: KernelSupport) -> Finding {
    let found = if kernel_support.seccomp {
        "there"
    } else {
        "not there"
    };
    Finding::ok(AREA, "system calls (seccomp)", found)
        .note_if(
            !kernel_support.seccomp,
            "a client or server could be made to start programs and to use all of the kernel",
        )
        .remedy("a kernel with CONFIG_SECCOMP_FILTER")
}
