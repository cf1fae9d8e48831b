//! What a client or server gives up once it listens, and before it looks at the first datagram.
//!
//! Entering confinement takes, in this order: every capability, opening files (Landlock), being read by other processes, and all
//! system calls but those on a list (seccomp). Targets are many, so connecting stays possible to any address. What needs
//! files later asks the [`keeper`](crate::keeper).

use std::io;
use std::path::{Path, PathBuf};

use quictun_sys::confine::{self, Attempt, Calls, ConfineError, Files, Kept, Paths};
use tracing::{debug, warn};

/// What the process still opens by itself, and whether it is confined at all.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Directories in which it makes files.
    pub writes: Vec<PathBuf>,
    /// Why it is not confined; `None`: it is.
    pub off: Option<Off>,
}

/// Why a process is not confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// The user wants it so.
    Asked,
    /// It serves a device in its own process.
    OneProcess,
}

/// Gives up what [`Plan`] does not keep. The process must have one thread: others would keep their files.
///
/// A kernel that offers less is no error: one line for each layer says what is missing.
pub fn enter(plan: Plan) {
    match plan.off {
        None => {}
        Some(Off::Asked) => {
            warn!(target: "quictun", "UNSAFE: this process is not confined, a fault in it opens all that its user may: take --no-confine away");
            return;
        }
        Some(Off::OneProcess) => {
            warn!(target: "quictun", "this process is not confined, because it serves a device by itself: take --one-process away");
            return;
        }
    }
    let files = Files::Only(paths(plan.writes));
    let landlock = confine::give_up_files(&files);
    tell("Landlock", landlock);
    let kept = |done: Result<(), ConfineError>| done.map(|()| Kept::Wholly);
    tell("capabilities", kept(confine::give_up_rights()));
    tell("non-dumpable memory", kept(confine::hide_memory()));
    tell("seccomp", kept(confine::give_up_calls(Calls::Tunnel)));
    debug!(target: "quictun", "confined: this process can open no file and start no program any more");
}

/// Tries what a confined process must not be able to do, in this process, which ends up confined where `confine`.
///
/// `outside` is a directory to which its user may write, and a server does not.
pub fn attempts(outside: &Path, confine: bool) -> Vec<Attempt> {
    enter(Plan {
        writes: Vec::new(),
        off: (!confine).then_some(Off::Asked),
    });
    confine::attempts(outside)
}

fn tell(layer: &'static str, kept: Result<Kept, ConfineError>) {
    match kept {
        Ok(Kept::Wholly) => {}
        Ok(Kept::Partly) => {
            warn!(target: "quictun", layer, "this kernel confines the process in part: a newer one does it wholly");
        }
        Ok(Kept::NotAtAll) => {
            warn!(target: "quictun", layer, "this kernel lacks a layer of confinement: it goes on without");
        }
        Err(error) => {
            let cause = crate::error_chain(&error);
            warn!(target: "quictun", layer, cause, "a layer of confinement is missing: the process goes on without");
        }
    }
}

/// What is read for as long as the process runs: by the C library, to look names up, and at a reload.
fn paths(writes: Vec<PathBuf>) -> Paths {
    let mut read: Vec<PathBuf> = SHARED.iter().map(PathBuf::from).collect();
    read.extend(name_server_directory(
        Path::new(NAME_SERVERS),
        rustix::process::geteuid().is_root(),
    ));
    Paths {
        read,
        write: writes,
        // An old service manager is told there that the process is ready.
        abstract_sockets: std::env::var_os("NOTIFY_SOCKET")
            .is_some_and(|socket| socket.as_encoded_bytes().starts_with(b"@")),
    }
}

/// Where a new list of name servers would appear, since a rule for a file does not hold for the one that replaces it.
///
/// The directory of the list, or of what it is a link to. Root gets none that has secrets in it, and has to restart
/// after such a change; other users could not read the secrets there anyway.
fn name_server_directory(list: &Path, is_root: bool) -> Option<PathBuf> {
    let target: io::Result<PathBuf> = list.canonicalize();
    let directory = target.ok()?.parent()?.to_owned();
    (!is_root || directory != Path::new("/etc")).then_some(directory)
}

const NAME_SERVERS: &str = "/etc/resolv.conf";

/// Files of the C library's resolver, the libraries that it loads for it, and certificates of the system.
const SHARED: &[&str] = &[
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
    // Authorities that this system trusts.
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
