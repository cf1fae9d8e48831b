//! The users of a client's proxy, and their passwords.
//!
//! Only digests are kept; the text that was read is erased. [`Logins::knows`] takes the same time whichever user or
//! password differs.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use quictun_wire::proxy::Credentials;
use thiserror::Error;

use crate::keeper::{self, ReadError};

/// Longest user name and longest password, bytes (RFC 1929 section 2).
const MAX_TEXT: usize = 255;

/// Maximum number of users, because each login is compared with all of them.
const MAX_USERS: usize = 1024;

/// Largest file that is read, bytes: it has room for all users and for comments.
const MAX_FILE: u64 = 1 << 20;

/// The users that a file names.
#[derive(Clone, PartialEq, Eq)]
pub struct Logins(Vec<[u8; SHA256_OUTPUT_LEN]>);

/// The reason why a file names no users.
#[derive(Debug, Error)]
pub enum LoginsError {
    /// The file cannot be read.
    #[error("cannot read the users of the proxy in {}", .0.display())]
    Read(PathBuf, #[source] ReadError),
    /// The line with this number is not `USER:PASSWORD`.
    #[error("{}, line {line}: write USER:PASSWORD, each of 1 to {MAX_TEXT} bytes", .0.display(), line = .1)]
    Line(PathBuf, usize),
    /// The file names no user.
    #[error("{} names no user: write a line USER:PASSWORD for each", .0.display())]
    NoUsers(PathBuf),
    /// The file names more than `MAX_USERS` users.
    #[error("{} names more than {MAX_USERS} users: is it the right file?", .0.display())]
    TooMany(PathBuf),
    /// The file names several users, and one is used.
    #[error("{} names several users: leave the line USER:PASSWORD of one", .0.display())]
    Several(PathBuf),
}

impl Logins {
    /// Reads a file with a line `USER:PASSWORD` for each user. Empty lines, and lines that begin with `#`, are ignored.
    pub fn load(path: &Path) -> Result<Self, LoginsError> {
        read(path, MAX_USERS, LoginsError::TooMany, digest).map(Self)
    }

    /// Returns true if the file has this user with this password.
    pub fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        if user.len() > MAX_TEXT || password.len() > MAX_TEXT {
            return false;
        }
        let asked = digest(user, password);
        // All users are compared, so that timing does not reveal a user's position.
        let same =
            |login: &&[u8; SHA256_OUTPUT_LEN]| verify_slices_are_equal(&login[..], &asked).is_ok();
        self.0.iter().filter(same).count() > 0
    }
}

/// Reads a file with one line `USER:PASSWORD`: the login at another proxy. Empty lines, and lines that begin with `#`,
/// are ignored.
pub fn load_one(path: &Path) -> Result<Credentials, LoginsError> {
    let credentials = |user: &[u8], password: &[u8]| Credentials {
        user: user.to_vec(),
        password: password.to_vec(),
    };
    let mut found = read(path, 1, LoginsError::Several, credentials)?;
    Ok(found.swap_remove(0))
}

/// Reads a file that names at least one user and at most `most`, and makes a `T` of each. `beyond` is the error if it
/// names more.
fn read<T>(
    path: &Path,
    most: usize,
    beyond: fn(PathBuf) -> LoginsError,
    make: impl Fn(&[u8], &[u8]) -> T,
) -> Result<Vec<T>, LoginsError> {
    let path = path.to_owned();
    let content = match keeper::read(&path, MAX_FILE) {
        Ok(content) => content,
        Err(cause) => return Err(LoginsError::Read(path, cause)),
    };
    let mut logins = Vec::new();
    for (number, line) in lines(&content) {
        let Some((user, password)) = parts(line) else {
            return Err(LoginsError::Line(path, number));
        };
        if logins.len() == most {
            return Err(beyond(path));
        }
        logins.push(make(user, password));
    }
    if logins.is_empty() {
        return Err(LoginsError::NoUsers(path));
    }
    Ok(logins)
}

/// Returns the lines of a file that name a user, with their numbers.
fn lines(content: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = content.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.map(|(line, number)| (number, line.strip_suffix(b"\r").unwrap_or(line)));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

/// Splits `USER:PASSWORD` and returns both parts if their lengths are valid. A password may contain colons.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&line[..colon], &line[colon + 1..]);
    let fits = |text: &[u8]| (1..=MAX_TEXT).contains(&text.len());
    (fits(user) && fits(password)).then_some((user, password))
}

/// Returns the digest of a login. The user's length distinguishes `ab` with `c` from `a` with `bc`.
fn digest(user: &[u8], password: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut context = digest::Context::new(&SHA256);
    context.update(&(user.len() as u64).to_be_bytes());
    context.update(user);
    context.update(password);
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(context.finish().as_ref());
    out
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logins({} users)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(content: &[u8]) -> Result<Logins, LoginsError> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("users");
        std::fs::write(&path, content).expect("written");
        Logins::load(&path)
    }

    #[test]
    fn a_user_is_accepted_only_with_the_password_in_the_file() {
        let logins = load(b"# who may\r\n\nann:wonder\r\nbob:a:b\n").expect("users");
        assert_eq!(format!("{logins:?}"), "Logins(2 users)");
        assert!(logins.knows(b"ann", b"wonder") && logins.knows(b"bob", b"a:b"));
        for (user, password) in [
            (&b"ann"[..], &b"a:b"[..]),
            (b"ann", b"Wonder"),
            (b"ann", b"wonder\r"),
            (b"annw", b"onder"),
            (b"", b""),
            (b"# who may", b""),
            (&[b'x'; 256], &[b'y'; 256]),
        ] {
            assert!(!logins.knows(user, password), "{user:?}");
        }
    }

    #[test]
    fn a_malformed_file_is_refused_with_its_line() {
        let why = |content: &[u8]| load(content).expect_err("no users").to_string();
        for content in [&b"ann:wonder\nbob\n"[..], b"#\nbob:\n", b"\n:secret"] {
            let why = why(content);
            assert!(why.contains("line 2: write USER:PASSWORD"), "{why}");
            assert!(!why.contains("bob") && !why.contains("secret"), "{why}");
        }
        assert!(why(b"# no user\n\n").contains("names no user"));
        let missing = Logins::load(Path::new("/nonexistent/users")).expect_err("no file");
        assert_eq!(
            missing.to_string(),
            "cannot read the users of the proxy in /nonexistent/users"
        );
    }

    #[test]
    fn users_and_their_lengths_have_limits() {
        let line = |user: usize, password: usize| {
            [&vec![b'u'; user][..], b":", &vec![b'p'; password], b"\n"].concat()
        };
        let logins = load(&line(255, 255)).expect("a user");
        assert!(logins.knows(&[b'u'; 255], &[b'p'; 255]));
        assert!(matches!(load(&line(256, 1)), Err(LoginsError::Line(_, 1))));
        assert!(matches!(load(&line(1, 256)), Err(LoginsError::Line(_, 1))));
        assert!(load(&line(1, 1).repeat(MAX_USERS)).is_ok());
        let many = load(&line(1, 1).repeat(MAX_USERS + 1));
        assert!(matches!(many, Err(LoginsError::TooMany(_))));
        let large = load(&vec![b'\n'; usize::try_from(MAX_FILE).expect("small") + 1]);
        assert!(matches!(
            large,
            Err(LoginsError::Read(_, ReadError::TooLarge { .. }))
        ));
    }
}
