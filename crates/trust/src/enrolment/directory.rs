//! The directory of clients that are invited or have joined: one file for each.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use quictun_wire::invitation::{ContentError, is_client_name};

use super::attempt::{Attempt, Secret};
use super::entry::{Entry, is_pending};
use super::error::{InviteError, Refused};
use super::{MAX_CLIENTS, MAX_ENTRY, MAX_PENDING, MAX_RULES};
use crate::identity::files;
use crate::keeper;

const ENDING: &str = "toml";

/// `clients` in the state directory of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

/// A client that was invited.
#[derive(Debug)]
pub struct Invited {
    /// The secret for the code.
    pub secret: Secret,
    /// An invitation of the same name was pending, and its code is worth nothing any more.
    pub replaced: bool,
}

/// A client whose key is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolled {
    /// Its rules.
    pub allow: Vec<String>,
    /// The same key was stored already: by an earlier attempt, whose answer was lost.
    pub before: bool,
}

impl Directory {
    /// Names the directory of clients below a state directory, which need not exist.
    pub fn of(state: &Path) -> Self {
        Self(state.join("clients"))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Invites a client: makes the secret of its code, and the file that the code leads to, until `until_s` (seconds since
    /// 1970). Expired invitations are removed on the way.
    ///
    /// # Errors
    ///
    /// The client has joined already; there is no room; the disk.
    pub fn invite(
        &self,
        name: &str,
        allow: &[String],
        until_s: u64,
        now_s: u64,
    ) -> Result<Invited, InviteError> {
        let path = self.file_of(name).ok_or(ContentError::Name)?;
        if let Some(rule) = allow.iter().find(|rule| !Entry::is_plain(rule)) {
            return Err(InviteError::Rule(rule.clone()));
        }
        if allow.len() > MAX_RULES {
            return Err(InviteError::Rules(allow.len()));
        }
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let owner = self.make().map_err(unusable)?;
        let _lock = self.lock().map_err(unusable)?;
        let replaced = self.make_room(name, now_s)?;
        let secret = Secret::random().map_err(unusable)?;
        let entry = Entry {
            name: name.to_owned(),
            key: secret.public_key(),
            until_s,
            allow: allow.to_vec(),
        };
        files::replace(&path, entry.pending().as_bytes(), owner)
            .map_err(|cause| InviteError::Write(path, cause))?;
        Ok(Invited { secret, replaced })
    }

    /// Removes what has expired. Returns whether an invitation of this name is pending.
    fn make_room(&self, name: &str, now_s: u64) -> Result<bool, InviteError> {
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let (mut pending, mut clients, mut replaced) = (0, 0, false);
        for (other, text) in self.read().map_err(unusable)? {
            clients += 1;
            let entry = Entry::parse(&other, &text);
            let expired = entry.is_some_and(|entry| entry.until_s <= now_s);
            if other == name {
                if !is_pending(&text) {
                    return Err(InviteError::Enrolled(other));
                }
                replaced = !expired;
            } else if expired {
                self.remove(&other).map_err(unusable)?;
                clients -= 1;
            } else if is_pending(&text) {
                pending += 1;
            }
        }
        match () {
            () if pending >= MAX_PENDING => Err(InviteError::Pending),
            () if clients >= MAX_CLIENTS => Err(InviteError::Clients),
            () => Ok(replaced),
        }
    }

    /// Stores the key of a client that joins, and uses up the invitation by that (PROTOCOL JOIN-4).
    ///
    /// # Errors
    ///
    /// Why the client is refused. Then nothing has changed, but for [`Refused::Store`]: the key may be stored, and the client
    /// comes again.
    pub fn enrol(&self, attempt: &Attempt, now_s: u64) -> Result<Enrolled, Refused> {
        let name = &attempt.join.name;
        let path = self.file_of(name).ok_or(Refused::Unknown)?;
        let lock = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Refused::Unknown),
            other => other.map_err(Refused::Store)?,
        };
        // The holder of the lock writes one file. A stopped process that holds it must not stop the server.
        lock.try_lock()
            .map_err(|error| Refused::Store(error.into()))?;
        let text = match keeper::read(&path, MAX_ENTRY) {
            Ok(text) => text,
            Err(error) if error.is_missing() => return Err(Refused::Unknown),
            Err(error) => return Err(Refused::Store(io::Error::other(error))),
        };
        let text = std::str::from_utf8(&text).map_err(|_| Refused::Changed)?;
        if !is_pending(text) {
            let allow = Entry::enrolled_rules(name, attempt.pin, text).ok_or(Refused::Used)?;
            // That attempt may have failed because of this.
            lock.sync_all().map_err(Refused::Store)?;
            return Ok(Enrolled {
                allow,
                before: true,
            });
        }
        let entry = Entry::parse(name, text).ok_or(Refused::Changed)?;
        if !attempt.is_signed_by(&entry.key) {
            return Err(Refused::Wrong);
        }
        if entry.until_s <= now_s {
            return Err(Refused::Late);
        }
        let now = i64::try_from(now_s).unwrap_or(0);
        let now = jiff::Timestamp::from_second(now).unwrap_or_default();
        files::replace(&path, entry.enrolled(attempt.pin, now).as_bytes(), None)
            .map_err(Refused::Store)?;
        Ok(Enrolled {
            allow: entry.allow,
            before: false,
        })
    }

    /// Takes a client back, whether it has joined or not. Returns whether it had joined: a running server knows it until
    /// it reloads.
    ///
    /// # Errors
    ///
    /// There is none of this name; the disk.
    pub fn revoke(&self, name: &str) -> Result<bool, InviteError> {
        let nobody = || InviteError::Nobody(name.to_owned());
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let path = self.file_of(name).ok_or_else(nobody)?;
        if !path.try_exists().map_err(unusable)? {
            return Err(nobody());
        }
        let _lock = self.lock().map_err(unusable)?;
        let text = std::fs::read_to_string(&path).map_err(unusable)?;
        self.remove(name).map_err(unusable)?;
        Ok(!is_pending(&text))
    }

    /// The names of all clients in it, in order.
    ///
    /// # Errors
    ///
    /// The system's; a directory that does not exist has none.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let names = match keeper::names(&self.0, ENDING) {
            Err(error) if is_absent(&error) => Vec::new(),
            other => other?,
        };
        if names.len() > MAX_CLIENTS {
            let text = format!("more than {MAX_CLIENTS} files: is it the right directory?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(names)
    }

    /// The file of a client; `None`: no client can have this name.
    pub fn file_of(&self, name: &str) -> Option<PathBuf> {
        is_client_name(name).then(|| self.0.join(format!("{name}.{ENDING}")))
    }

    /// All clients in it by name, and the text of their files.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn read(&self) -> io::Result<Vec<(String, String)>> {
        let mut clients = Vec::new();
        for name in self.names()? {
            let path = self.0.join(format!("{name}.{ENDING}"));
            let text = match keeper::read(&path, MAX_ENTRY) {
                // Revoked, or expired and removed, since the names were read.
                Err(error) if error.is_missing() => continue,
                other => other.map_err(io::Error::other)?,
            };
            clients.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
        Ok(clients)
    }

    /// Where it is stored what clients have used: beside this directory, in the server's state.
    pub fn usage_file(&self) -> PathBuf {
        self.0.with_file_name("usage.json")
    }

    /// Stores what clients have used in place of what was stored before.
    pub(crate) fn store_usage(&self, content: &[u8]) -> io::Result<()> {
        files::replace(&self.usage_file(), content, None)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(format!("{name}.{ENDING}")))
    }

    /// Held while a file is looked at and changed: of an invitation that is revoked and used at once, one holds.
    fn lock(&self) -> io::Result<File> {
        let directory = self.open()?;
        directory.lock()?;
        Ok(directory)
    }

    /// Opens the directory itself: a link that the server's user has put there must not lead root elsewhere.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.0, flags, Mode::empty())?;
        Ok(File::from(directory))
    }

    /// Makes the directory where it is missing. Returns to whom its files belong: to the server's user, where root invites.
    fn make(&self) -> io::Result<Option<(u32, u32)>> {
        let state = self.0.parent().unwrap_or(&self.0);
        let state = state.metadata()?;
        let is_root = rustix::process::geteuid().is_root();
        let owner = is_root.then(|| (state.uid(), state.gid()));
        if !self.0.try_exists()? {
            files::create_private_dir(&self.0)?;
            if let Some((user, group)) = owner {
                std::os::unix::fs::fchown(self.open()?, Some(user), Some(group))?;
            }
        }
        Ok(owner)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
