//! The path of a Unix socket: resolves it below a directory, makes room at it, and names the obstacle if that is not
//! possible.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The path of a Unix socket, for one connect or bind.
///
/// Links in a path may be changed at any time. A path that must stay below a directory is therefore resolved once, to a
/// descriptor, and the socket is reached through `/proc/self/fd`.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _resolved: Option<OwnedFd>,
}

impl SocketPath {
    /// Resolves the path of a socket that exists. With `below`, links in the path must not lead out of that directory;
    /// absolute links count as leading out of it. Links in the path of the directory itself may lead anywhere.
    ///
    /// # Errors
    ///
    /// The system's error; `EXDEV` if a link leads out of the directory. Before Linux 5.6 a directory is always an error.
    pub fn existing(path: &Path, below: Option<&Path>) -> io::Result<Self> {
        let Some(below) = below else {
            return Ok(Self::unresolved(path));
        };
        let socket = open_below(below, relative(path, below)?, OFlags::empty())?;
        Ok(Self {
            path: through(&socket),
            _resolved: Some(socket),
        })
    }

    /// Resolves the path of a socket that is to be made, as [`SocketPath::existing`] does.
    pub fn new(path: &Path, below: Option<&Path>) -> io::Result<Self> {
        let Some(below) = below else {
            return Ok(Self::unresolved(path));
        };
        let relative = relative(path, below)?;
        let name = relative.file_name().ok_or(ErrorKind::InvalidInput)?;
        let parent = relative.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = open_below(below, parent.unwrap_or(Path::new(".")), OFlags::DIRECTORY)?;
        Ok(Self {
            path: through(&parent).join(name),
            _resolved: Some(parent),
        })
    }

    fn unresolved(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            _resolved: None,
        }
    }

    /// Returns the path to pass to the system.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn relative<'a>(path: &'a Path, below: &Path) -> io::Result<&'a Path> {
    let relative = path.strip_prefix(below);
    relative.map_err(|_| ErrorKind::InvalidInput.into())
}

fn open_below(directory: &Path, relative: &Path, kind: OFlags) -> io::Result<OwnedFd> {
    let (flags, none) = (OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let directory = openat(CWD, directory, flags | OFlags::DIRECTORY, none)?;
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(directory, relative, flags | kind, none, stay)?)
}

fn through(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// The obstacle at the path of a Unix socket. It stays untouched.
///
/// [`make_room`] returns it inside an [`io::Error`] of the kind `AddrInUse`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathOccupied {
    /// A file that is not a socket.
    #[error("a {kind} is in the way")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the file: `file`, `directory` or the like.
        kind: &'static str,
    },
    /// A socket on which a program listens.
    #[error("another program listens there")]
    Program {
        /// Path of the socket.
        path: PathBuf,
    },
}

impl PathOccupied {
    /// Finds the obstacle in an error of [`make_room`].
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns the commands that show the obstacle and remove it.
    pub fn remedy(&self) -> String {
        match self {
            Self::File { path, kind } => {
                let path = quoted(path);
                let remove = if *kind == DIRECTORY { "rmdir" } else { "rm" };
                format!(
                    "`ls -ld {path}` shows it; `{remove} {path}` removes it if it is not needed, or choose another path"
                )
            }
            Self::Program { path } => format!(
                "`ss -lxp src {}` shows which program; stop it, or choose another path",
                quoted(path)
            ),
        }
    }
}

const DIRECTORY: &str = "directory";

/// Makes room for a socket: removes a socket file on which no program listens, and nothing else.
///
/// # Errors
///
/// [`PathOccupied`], with the kind `AddrInUse`, or an error of the system.
pub fn make_room(path: &Path) -> io::Result<()> {
    check_length(path)?;
    let kind = match std::fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let path = path.to_owned();
    let in_the_way = |what| Err(io::Error::new(ErrorKind::AddrInUse, what));
    if kind.is_socket() {
        return match try_connect(&path) {
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
            // On any other outcome a program may still use the socket, so it stays.
            _ => in_the_way(PathOccupied::Program { path }),
        };
    }
    let kind = if kind.is_dir() {
        DIRECTORY
    } else if kind.is_symlink() {
        "symbolic link"
    } else if kind.is_file() {
        "file"
    } else {
        "device or pipe"
    };
    in_the_way(PathOccupied::File { path, kind })
}

/// Longest path of a Unix socket, bytes: `sun_path` holds 108, one of them the final NUL.
const MAX_PATH: usize = 107;

/// Checks that a Unix socket can have this path.
///
/// # Errors
///
/// Returns an error with the kind `InvalidInput` that states the limit.
pub fn check_length(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if length <= MAX_PATH {
        return Ok(());
    }
    let why = format!(
        "the path has {length} bytes, and that of a Unix socket at most {MAX_PATH}: choose a shorter one"
    );
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

/// Connects without waiting: a blocking connect to a listener whose queue is full could wait without limit.
fn try_connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Quotes a path so that a shell takes it as one word.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    if text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn remedy(path: &Path) -> String {
        let error = make_room(path).expect_err("the path is taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let what = PathOccupied::of(&error).expect("the obstacle");
        format!("{error}: {}", what.remedy())
    }

    // PROTOCOL AUTH-11.
    #[test]
    fn links_lead_no_path_out_of_its_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).expect(name);
        std::fs::create_dir_all(at("dir/sub")).expect("made");
        std::fs::create_dir(at("outside")).expect("made");
        let listeners = ["dir/in", "dir/sub/in", "outside/out"];
        let _listeners = listeners.map(|name| UnixListener::bind(at(name)).expect(name));
        link("../outside/out", "dir/file");
        link("../outside", "dir/away");
        link(at("outside").to_str().expect("text"), "dir/absolute");
        link("sub", "dir/other");
        link("sub/in", "dir/same");
        link("dir", "named");
        let reach = |below: &str, path: &str| -> io::Result<()> {
            let socket = SocketPath::existing(&at(path), Some(&at(below)))?;
            std::os::unix::net::UnixStream::connect(socket.path()).map(drop)
        };
        for path in ["dir/in", "dir/sub/in", "dir/other/in", "dir/same"] {
            reach("dir", path).expect(path);
        }
        // The directory of a rule may itself be a link.
        reach("named", "named/sub/in").expect("the rule names it");
        for path in ["dir/file", "dir/away/out", "dir/absolute/out"] {
            let refused = reach("dir", path).expect_err(path);
            assert_eq!(
                refused.raw_os_error(),
                Some(Errno::XDEV.raw_os_error()),
                "{path}"
            );
            // An exact rule says nothing of where links lead.
            let socket = SocketPath::existing(&at(path), None).expect("not resolved");
            std::os::unix::net::UnixStream::connect(socket.path()).expect(path);
        }
        let bind = |path: &str| -> io::Result<UnixListener> {
            UnixListener::bind(SocketPath::new(&at(path), Some(&at("dir")))?.path())
        };
        for (path, made) in [("dir/new", "dir/new"), ("dir/other/new", "dir/sub/new")] {
            let _listener = bind(path).expect(path);
            assert!(at(made).exists(), "{made}");
        }
        for path in ["dir/away/new", "dir/absolute/new", "dir/away/x/new"] {
            bind(path).expect_err(path);
        }
        assert!(!at("outside/new").exists());
        bind("dir/file").expect_err("a link is in the way");
    }

    #[test]
    fn an_occupied_path_is_kept_and_the_error_names_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = |name: &str| dir.path().join(name);
        let shown = |text: String| text.replace(&*dir.path().to_string_lossy(), "DIR");
        make_room(&place("nothing")).expect("a free path");
        let (fits, long) = ("x".repeat(MAX_PATH), "x".repeat(MAX_PATH + 1));
        make_room(Path::new(&fits)).expect("a free path");
        let error = make_room(Path::new(&long)).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "the path has 108 bytes, and that of a Unix socket at most 107: choose a shorter one"
        );
        std::fs::write(place("notes"), "precious").expect("a file");
        assert_eq!(
            shown(remedy(&place("notes"))),
            "a file is in the way: `ls -ld DIR/notes` shows it; `rm DIR/notes` removes it if it is not needed, or \
             choose another path"
        );
        std::fs::create_dir(place("my dir")).expect("a directory");
        assert_eq!(
            shown(remedy(&place("my dir"))),
            "a directory is in the way: `ls -ld 'DIR/my dir'` shows it; `rmdir 'DIR/my dir'` removes it if it is \
             not needed, or choose another path"
        );
        std::os::unix::fs::symlink("nowhere", place("link")).expect("a link");
        assert!(remedy(&place("link")).starts_with("a symbolic link is in the way"));
        let listener = UnixListener::bind(place("socket")).expect("a free path");
        assert_eq!(
            shown(remedy(&place("socket"))),
            "another program listens there: `ss -lxp src DIR/socket` shows which program; stop it, or choose another path"
        );
        let full: Vec<_> = std::iter::from_fn(|| try_connect(&place("socket")).ok()).collect();
        assert!(!full.is_empty(), "the queue accepted no connection");
        assert_eq!(try_connect(&place("socket")), Err(Errno::AGAIN));
        assert!(remedy(&place("socket")).starts_with("another program listens there"));
        drop(listener);
        make_room(&place("socket")).expect("the listener is gone");
        assert!(!place("socket").exists() && place("notes").exists() && place("my dir").exists());
    }
}
