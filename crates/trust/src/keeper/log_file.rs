//! Opens files for appending at a path at which other users may have put something else.
//!
//! A process opens its log again whenever a program rotates it. The directory of the log may belong to another user, who
//! must choose neither the file that a process of root appends to, nor let the process wait:
//!
//! * A symbolic link on the way counts only if it belongs to root or to the user of this process.
//! * The file has no second name.
//! * A pipe without a reader is an error, and is not waited for.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Largest number of symbolic links on the way to a file, as in Linux.
const MAX_LINKS: usize = 40;

/// The type of the proc file system, whose links to open files (`/proc/self/fd/1`) have no path that leads there.
const PROC: i64 = 0x9fa0;

/// The user that Linux shows as the owner of files of users that a user namespace does not contain.
const UNKNOWN_USER: u32 = 65534;

/// Opens a file for appending, and creates it with this mode if it is missing. Errors have the system's numbers.
pub(crate) fn append(path: &Path, mode: u32) -> io::Result<File> {
    Ok(open(path, Mode::from_raw_mode(mode))?)
}

/// Replaces the text of an error of [`append`] by the reason, if the system's text would not help.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let why = match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => {
            "a symbolic link on the way belongs to neither root nor this user, or leads in a circle: give the path without links"
        }
        Some(Errno::MLINK) => {
            "the file has a second name (a hard link), through which it may belong to another program: remove one name"
        }
        Some(Errno::NXIO) => {
            "it is a socket, or a pipe that no program reads: start its reader first"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

fn open(path: &Path, mode: Mode) -> Result<File, Errno> {
    let root = || openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut rest: VecDeque<OsString> = names(path).collect();
    let mut directory = if path.is_absolute() {
        root()?
    } else {
        openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?
    };
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let is_last = rest.is_empty();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match openat(&directory, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return open_last(&directory, &name, mode),
            found => found?,
        };
        let is = fstat(&found)?;
        if FileType::from_raw_mode(is.st_mode) != FileType::Symlink {
            if is_last {
                return open_last(&directory, &name, mode);
            }
            directory = found;
            continue;
        }
        links += 1;
        if links > MAX_LINKS || !is_trusted(is.st_uid) {
            return Err(Errno::LOOP);
        }
        if is_last && fstatfs(&directory)?.f_type == PROC {
            return open_in(&directory, &name, OFlags::empty(), mode);
        }
        let target = readlinkat(&found, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        if target.is_absolute() {
            directory = root()?;
        }
        for name in names(target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(name);
        }
    }
    Err(Errno::ISDIR)
}

/// Returns the names on a path, without those that lead nowhere else.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect::<Vec<_>>().into_iter()
}

/// Returns whether links of this user are followed. The namespace of `quictun run` does not contain root.
fn is_trusted(owner: u32) -> bool {
    let user = geteuid();
    owner == 0 || owner == user.as_raw() || (owner == UNKNOWN_USER && !user.is_root())
}

fn open_last(directory: &OwnedFd, name: &OsStr, mode: Mode) -> Result<File, Errno> {
    let file = open_in(directory, name, OFlags::NOFOLLOW, mode)?;
    let is = fstat(&file)?;
    if FileType::from_raw_mode(is.st_mode) == FileType::RegularFile && is.st_nlink > 1 {
        return Err(Errno::MLINK);
    }
    Ok(file)
}

fn open_in(directory: &OwnedFd, name: &OsStr, more: OFlags, mode: Mode) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let at_once = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(directory, name, flags | at_once | more, mode)?;
    // Only the opening must not wait. The writer has a thread of its own.
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Write as _};
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    use std::path::PathBuf;

    use super::*;

    /// A directory of another user, and beside it the file of root that the user wants root to write to.
    struct Places(tempfile::TempDir);

    impl Places {
        fn new() -> Self {
            let base = tempfile::tempdir().expect("a directory");
            fs::create_dir(base.path().join("log")).expect("a directory");
            fs::write(base.path().join("precious"), "precious").expect("a file");
            Self(base)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Makes a link that belongs to another user. Returns false if this process has no right to do so.
        fn foreign_link(&self, target: &str, name: &str) -> bool {
            symlink(target, self.at(name)).expect("a link");
            lchown(self.at(name), Some(54321), None).is_ok()
        }

        fn is_refused(&self, name: &str) {
            let error = append(&self.at(name), 0o640).expect_err(name);
            assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP), "{name}");
            let content = fs::read(self.at("precious")).expect("a file");
            assert_eq!(content, b"precious", "{name}");
        }
    }

    // SECURITY-MODEL, local user: the log is opened again as root.
    #[test]
    fn links_of_another_user_lead_to_no_file() {
        let places = Places::new();
        if !places.foreign_link("../precious", "log/server.log") {
            let test = "keeper::log_file::tests::links_of_another_user_lead_to_no_file";
            return quictun_skip::skipped(test, "needs root");
        }
        places.is_refused("log/server.log");
        // A link that leads nowhere must not create a file there, and one in the place of a directory counts as well.
        assert!(places.foreign_link("../created", "log/other.log"));
        places.is_refused("log/other.log");
        assert!(!places.at("created").exists());
        assert!(places.foreign_link("..", "log/directory"));
        places.is_refused("log/directory/precious");
        // A link of root that leads through a foreign one.
        symlink("log/directory/precious", places.at("own")).expect("a link");
        places.is_refused("own");
    }

    #[test]
    fn own_links_lead_to_their_file_and_missing_files_are_made() {
        let places = Places::new();
        symlink("log/new.log", places.at("own")).expect("a link");
        symlink(places.at("log"), places.at("directory")).expect("a link");
        for name in ["own", "directory/new.log", "log/../log/./new.log"] {
            let mut file = append(&places.at(name), 0o640).expect(name);
            file.write_all(b"x").expect("room");
        }
        let made = places.at("log/new.log");
        assert_eq!(fs::read(&made).expect("a file"), b"xxx");
        let mode = fs::metadata(&made).expect("a file").permissions().mode();
        assert_eq!(mode & 0o7177, 0o040 & mode, "{mode:o}");
        symlink("circle", places.at("circle")).expect("a link");
        places.is_refused("circle");
        let kind = |name: &str| append(&places.at(name), 0o640).expect_err(name).kind();
        assert_eq!(kind("log"), ErrorKind::IsADirectory);
        assert_eq!(kind("missing/x.log"), ErrorKind::NotFound);
        assert_eq!(kind("precious/x.log"), ErrorKind::NotADirectory);
    }

    #[test]
    fn a_second_name_and_a_pipe_without_a_reader_are_refused_with_words() {
        let places = Places::new();
        fs::hard_link(places.at("precious"), places.at("log/server.log")).expect("a name");
        let made = std::process::Command::new("mkfifo")
            .arg(places.at("pipe"))
            .status();
        assert!(made.expect("mkfifo runs").success());
        let _listener =
            std::os::unix::net::UnixListener::bind(places.at("socket")).expect("a socket");
        for (name, words) in [
            ("log/server.log", "second name"),
            ("pipe", "no program reads"),
            ("socket", "no program reads"),
        ] {
            let error = explain(append(&places.at(name), 0o640).expect_err(name));
            assert!(error.to_string().contains(words), "{name}: {error}");
        }
        let reader = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(places.at("pipe"));
        let _reader = reader.expect("both ends");
        append(&places.at("pipe"), 0o640).expect("a reader");
    }

    // `--log-output /dev/stdout`, as in containers: the name leads to whatever is open there.
    #[test]
    fn links_to_open_files_are_followed() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        let path = PathBuf::from(format!("/dev/fd/{number}"));
        let mut file = append(&path, 0o640).expect("the pipe");
        file.write_all(b"line").expect("room");
        drop((file, writer));
        assert_eq!(io::read_to_string(reader).expect("a text"), "line");
    }
}
