//! Drops the rights of a client or server once it listens, and before it looks at the first datagram.
//!
//! Confinement drops, in this order: descriptors that the process has inherited and does not use, opening files
//! (Landlock), every capability, memory that other processes can read, and all system calls but those on a list (seccomp). A server has many targets, so connecting to any address stays
//! allowed. Code that needs files later asks the [`keeper`](crate::keeper).
//!
//! The C library opens the lists of name servers and hosts by itself, and those are replaced by other files while the
//! process runs. A rule for a file does not cover the file that replaces it, and a rule for `/etc` would give root's
//! process the secrets in it. So look-ups have threads of their own ([`enter_lookups`]): they may read all of `/etc`,
//! but they are not root.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use quictun_sys::confine::{
    self, AllowedPaths, CapabilitySet, ConfineError, Enforcement, FileAccess, ForbiddenAction,
    SyscallSet,
};
use tracing::{debug, warn};

/// The files that the process still opens by itself, and whether it is confined at all.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories in which the process creates files.
    pub writes: Vec<PathBuf>,
    /// True if the process sends datagrams from addresses of other hosts (`--tproxy`). It keeps the capabilities that the
    /// kernel asks for then: they permit nothing else, since the remaining system calls open no raw socket.
    pub answers_for_others: bool,
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

/// Drops every right that the [`Options`] does not keep. Other threads of the process keep their right to open files, so
/// there must be none but that of [`enter_lookups`].
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
    let kept = |done: Result<(), ConfineError>| done.map(|()| Enforcement::Full);
    // Not at the start of the process: the name of a configuration file or a key may be that of such a descriptor.
    let closed = quictun_sys::close_inherited_fds().map_err(ConfineError::from);
    log_layer("inherited descriptors", kept(closed));
    let files = FileAccess::Only(paths(options.writes));
    let landlock = confine::give_up_files(&files);
    log_layer("Landlock", landlock);
    let rights = if options.answers_for_others {
        confine::give_up_rights_but(CapabilitySet::NET_RAW.union(CapabilitySet::NET_BIND_SERVICE))
    } else {
        confine::give_up_rights()
    };
    log_layer("capabilities", kept(rights));
    log_layer("non-dumpable memory", kept(confine::hide_memory()));
    log_layer("seccomp", kept(confine::give_up_calls(SyscallSet::Tunnel)));
    debug!(target: "quictun", "confined: this process can no longer open files or start programs");
}

/// Drops the rights of the calling thread, and of all threads that it starts, to those that look-ups of names need.
/// [`enter`] must follow on another thread: it drops system calls for all threads.
///
/// A process of root has an unprivileged user here, if the system allows that and if that user can read the files.
/// Without such a user, the thread finds files that replace others only where that exposes no secret.
pub fn enter_lookups() {
    let is_root = rustix::process::geteuid().is_root() && !has_one_user();
    let reader = match is_root {
        false => Reader::User,
        true if others_may_read(&REPLACED) && confine::become_nobody().is_ok() => Reader::Nobody,
        true => Reader::Root,
    };
    let files = FileAccess::Only(AllowedPaths {
        read: lookup_paths(reader, Path::new(NAME_SERVERS)),
        ..AllowedPaths::default()
    });
    // A layer that is missing here is missing in `enter` as well, which logs it.
    if let Err(error) = confine::give_up_files(&files) {
        log_layer("Landlock", Err(error));
    }
    if let Err(error) = confine::give_up_rights() {
        log_layer("capabilities", Err(error));
    }
}

/// The user whose rights a thread for look-ups has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The user that owns no file.
    Nobody,
    /// The process's own user, which is not root.
    User,
    Root,
}

/// Returns whether this user namespace has a single user. That user is root only by name.
fn has_one_user() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ids = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    ids.eq(["1"])
}

/// Returns whether every user may read these files. A missing file does not count.
fn others_may_read(files: &[&str]) -> bool {
    const OTHERS_READ: u32 = 0o004;
    let modes = files
        .iter()
        .filter_map(|file| Some(std::fs::metadata(file).ok()?.mode()));
    modes.into_iter().all(|mode| mode & OTHERS_READ != 0)
}

/// Returns the paths that a thread for look-ups may read: the directories in which new lists appear, and in which the
/// directories of such lists appear.
fn lookup_paths(reader: Reader, name_servers: &Path) -> Vec<PathBuf> {
    let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
    // The target of a symbolic link.
    let list = name_servers.canonicalize().ok();
    let directory = list.as_deref().and_then(Path::parent);
    let above = directory.and_then(Path::parent);
    match reader {
        Reader::Nobody => {
            read.extend(["/etc", "/run"].map(PathBuf::from));
            read.extend(directory.into_iter().chain(above).map(Path::to_owned));
            // Everything would be too much, even of what every user may read.
            read.retain(|path| path != Path::new("/"));
        }
        Reader::User => {
            read.push("/etc".into());
            read.extend(directory.map(Path::to_owned));
        }
        Reader::Root => read.extend(name_server_directory(name_servers)),
    }
    read
}

/// Tries the operations that a confined process must not be able to do. It tries them in this process, after confining
/// it for good if `confine` is true.
///
/// `outside` is a directory to which the process's user may write, but a server does not.
pub fn attempts(outside: &Path, confine: bool) -> Vec<ForbiddenAction> {
    enter(Options {
        writes: Vec::new(),
        answers_for_others: false,
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

/// Returns the paths that stay readable while the process runs. A reload reads some of them.
fn paths(writes: Vec<PathBuf>) -> AllowedPaths {
    AllowedPaths {
        read: READABLE.iter().map(PathBuf::from).collect(),
        write: writes,
        // An old service manager listens on this kind of socket for the message that the process is ready.
        abstract_sockets: std::env::var_os("NOTIFY_SOCKET")
            .is_some_and(|socket| socket.as_encoded_bytes().starts_with(b"@")),
    }
}

/// Returns the directory in which a new list of name servers would appear, for root. If the list is a symbolic link, this
/// is the directory of the link's target. It is never `/etc`, which holds secrets.
fn name_server_directory(list: &Path) -> Option<PathBuf> {
    let target: io::Result<PathBuf> = list.canonicalize();
    let directory = target.ok()?.parent()?.to_owned();
    (directory != Path::new("/etc")).then_some(directory)
}

/// Files that other programs replace while the process runs.
const REPLACED: [&str; 3] = [NAME_SERVERS, "/etc/hosts", "/etc/nsswitch.conf"];

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
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_new_list_of_name_servers_is_found_beside_the_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (list, link) = (directory.path().join("list"), directory.path().join("link"));
        std::fs::write(&list, "nameserver 192.0.2.53\n").expect("written");
        std::os::unix::fs::symlink(&list, &link).expect("linked");
        let real = directory.path().canonicalize().expect("there");
        for reader in [Reader::Nobody, Reader::User, Reader::Root] {
            for path in [&list, &link] {
                assert!(lookup_paths(reader, path).contains(&real), "{reader:?}");
            }
        }
        let missing = directory.path().join("missing");
        assert!(!lookup_paths(Reader::User, &missing).contains(&real));
    }

    #[test]
    fn root_does_not_read_all_of_etc_for_its_name_servers() {
        let beside = Path::new("/etc/hostname");
        for (reader, reads) in [
            (Reader::Nobody, true),
            (Reader::User, true),
            (Reader::Root, false),
        ] {
            let read = lookup_paths(reader, beside);
            assert_eq!(read.contains(&"/etc".into()), reads, "{reader:?}");
            assert!(!read.contains(&"/".into()), "{reader:?}");
        }
        assert!(!paths(Vec::new()).read.contains(&"/etc".into()));
    }

    #[test]
    fn a_thread_for_look_ups_reads_a_new_file_of_etc_but_none_of_roots_own() {
        if !rustix::process::geteuid().is_root() || has_one_user() {
            let why = "only root can become another user";
            return quictun_skip::skipped("confinement::tests::a_thread_for_look_ups", why);
        }
        let (confined, is_confined) = channel();
        let (give, given) = channel::<PathBuf>();
        let reader = std::thread::spawn(move || {
            enter_lookups();
            confined.send(rustix::process::geteuid()).expect("it waits");
            given
                .iter()
                .map(|path| std::fs::read(path).is_ok())
                .collect::<Vec<_>>()
        });
        let user = is_confined.recv().expect("it is confined");
        assert!(!user.is_root() && rustix::process::geteuid().is_root());
        let files: Vec<_> = [0o644, 0o600]
            .into_iter()
            .map(|mode| {
                let mut file = tempfile::Builder::new();
                let file = file.permissions(std::fs::Permissions::from_mode(mode));
                file.tempfile_in("/etc").expect("a file in /etc")
            })
            .collect();
        for file in &files {
            give.send(file.path().to_owned()).expect("it reads");
        }
        drop(give);
        assert_eq!(reader.join().expect("it ran"), [true, false]);
    }
}
