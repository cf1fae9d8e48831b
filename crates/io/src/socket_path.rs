//! Makes room at the path of a Unix socket, and names the obstacle if that is not possible.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

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
