//! Drops the rights of a client or server once it listens, and before it looks at the first datagram.
//!
//! Confinement drops, in this order: opening files (Landlock), every capability, memory that other processes can read,
//! and all system calls but those on a list (seccomp). A server has many targets, so connecting to any address stays
//! allowed. Code that needs files later asks the [`keeper`](crate::keeper).

use std::io;
use std::path::{Path, PathBuf};

use quictun_sys::confine::{
    self, AllowedPaths, ConfineError, Enforcement, FileAccess, ForbiddenAction, SyscallSet,
};
use tracing::{debug, warn};

/// The files that the process still opens by itself, and whether it is confined at all.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories in which the process creates files.
    pub writes: Vec<PathBuf>,
    /// The reason why the process is not confined, or `None` if it is.
    pub off: Option<OffReason>,
}

/// The reason why a process is not confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffReason {
    /// The user has switched confinement off.
    Requested,
    /// The process serves a device by itself.
    OneProcess,
}

/// Drops every right that the [`Options`] does not keep. The process must have one thread, because other threads would
/// keep their right to open files.
///
/// A kernel with fewer layers of confinement is not an error: one log line names each missing layer.
pub fn enter(options: Options) {
    match options.off {
        None => {}
        Some(OffReason::Requested) => {
            warn!(target: "quictun", "UNSAFE: this process is not confined, so a fault in it exposes everything that its user may access: remove --no-confine");
            return;
        }
        Some(OffReason::OneProcess) => {
            warn!(target: "quictun", "this process is not confined, because it serves a device by itself: remove --one-process");
            return;
        }
    }
    let files = FileAccess::Only(paths(options.writes));
    let landlock = confine::give_up_files(&files);
    log_layer("Landlock", landlock);
    let kept = |done: Result<(), ConfineError>| done.map(|()| Enforcement::Full);
    log_layer("capabilities", kept(confine::give_up_rights()));
    log_layer("non-dumpable memory", kept(confine::hide_memory()));
    log_layer("seccomp", kept(confine::give_up_calls(SyscallSet::Tunnel)));
    debug!(target: "quictun", "confined: this process can no longer open files or start programs");
}

/// Tries the operations that a confined process must not be able to do. It tries them in this process, after confining
/// it for good if `confine` is true.
///
/// `outside` is a directory to which the process's user may write, but a server does not.
pub fn attempts(outside: &Path, confine: bool) -> Vec<ForbiddenAction> {
    enter(Options {
        writes: Vec::new(),
        off: (!confine).then_some(OffReason::Requested),
    });
    confine::attempts(outside)
}

fn log_layer(layer: &'static str, kept: Result<Enforcement, ConfineError>) {
    match kept {
        Ok(Enforcement::Full) => {}
        Ok(Enforcement::Partial) => {
            warn!(target: "quictun", layer, "this kernel confines the process only in part: a newer kernel does so completely");
        }
        Ok(Enforcement::None) => {
            warn!(target: "quictun", layer, "this kernel lacks a layer of confinement: the process continues without it");
        }
        Err(error) => {
            let cause = crate::error_chain(&error);
            warn!(target: "quictun", layer, cause, "a layer of confinement is missing: the process continues without it");
        }
    }
}

/// Returns the paths that stay readable while the process runs: the C library reads them to look names up, and a reload
/// reads them too.
fn paths(writes: Vec<PathBuf>) -> AllowedPaths {
    let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
    read.extend(name_server_directory(
        Path::new(NAME_SERVERS),
        rustix::process::geteuid().is_root(),
    ));
    AllowedPaths {
        read,
        write: writes,
        // An old service manager listens on this kind of socket for the message that the process is ready.
        abstract_sockets: std::env::var_os("NOTIFY_SOCKET")
            .is_some_and(|socket| socket.as_encoded_bytes().starts_with(b"@")),
    }
}

/// Returns the directory in which a new list of name servers would appear. A Landlock rule for a file does not cover
/// the file that replaces it.
///
/// If the list is a symbolic link, this is the directory of the link's target. For root the result is never `/etc`,
/// which holds secrets, so root has to restart the process after a change there. Other users cannot read those secrets
/// anyway.
fn name_server_directory(list: &Path, is_root: bool) -> Option<PathBuf> {
    let target: io::Result<PathBuf> = list.canonicalize();
    let directory = target.ok()?.parent()?.to_owned();
    (!is_root || directory != Path::new("/etc")).then_some(directory)
}

const NAME_SERVERS: &str = "/etc/resolv.conf";

/// Files of the C library's resolver, the libraries that it loads, and the system's certificates.
const READABLE: &[&str] = &[
    NAME_SERVERS,
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    // Certificate authorities that this system trusts.
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/connman",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_list_of_name_servers_is_found_beside_the_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (list, link) = (directory.path().join("list"), directory.path().join("link"));
        std::fs::write(&list, "nameserver 192.0.2.53\n").expect("written");
        std::os::unix::fs::symlink(&list, &link).expect("linked");
        let real = directory.path().canonicalize().expect("there");
        for is_root in [false, true] {
            for path in [&list, &link] {
                assert_eq!(name_server_directory(path, is_root), Some(real.clone()));
            }
        }
        let missing = directory.path().join("missing");
        assert_eq!(name_server_directory(&missing, false), None);
    }

    #[test]
    fn root_does_not_read_all_of_etc_for_its_name_servers() {
        let beside = Path::new("/etc/hostname");
        if beside
            .canonicalize()
            .is_ok_and(|path| path.parent() == Some(Path::new("/etc")))
        {
            assert_eq!(name_server_directory(beside, true), None);
            assert_eq!(name_server_directory(beside, false), Some("/etc".into()));
        }
    }
}
