//! The directory of clients that are invited or have joined, with one file for each client.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use quictun_wire::invitation::{ContentError, is_client_name};

use super::attempt::{InviteSecret, JoinAttempt};
use super::entry::{Entry, is_pending};
use super::error::{InviteError, JoinRefusal};
use super::{MAX_CLIENTS, MAX_ENTRY, MAX_PENDING, MAX_RULES};
use crate::identity::files;
use crate::keeper;
use crate::settings::ClientLimits;

const ENDING: &str = "toml";
const SECRET_ENDING: &str = "psk";

/// The directory `clients` in the state directory of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

/// A file in the state directory that a running server replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFile {
    /// The usage of the clients in this month.
    Usage,
    /// The account at an authority, and the certificate that it has issued.
    Acme,
}

impl StateFile {
    /// All files, in the order of their numbers.
    pub(crate) const ALL: [Self; 2] = [Self::Usage, Self::Acme];

    fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage.json",
            Self::Acme => "acme.json",
        }
    }
}

/// The result of inviting a client.
#[derive(Debug)]
pub struct NewInvitation {
    /// The secret to put into the code.
    pub secret: InviteSecret,
    /// True if an invitation of the same name was pending. Its code is now worthless.
    pub replaced: bool,
}

/// The result of making a client that logs in by its name and a password.
#[derive(Debug)]
pub struct NewLogin {
    /// The password: 22 letters, digits, `-` and `_`.
    pub password: Zeroizing<String>,
    /// True if an invitation of the same name was pending. Its code is now worthless.
    pub replaced: bool,
}

/// The result of enrolling a client: its key is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// The rules of the client.
    pub allow: Vec<String>,
    /// The limits of the client.
    pub limits: ClientLimits,
    /// True if an earlier attempt had already stored the same key and its answer was lost.
    pub already_stored: bool,
}

impl Directory {
    /// Returns the directory of clients below a state directory. It need not exist.
    pub fn of(state: &Path) -> Self {
        Self(state.join("clients"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Invites a client: creates the secret of its code, and the file to which the code refers. The invitation is valid
    /// until `until_s` (seconds since 1970). Also removes expired invitations.
    ///
    /// # Errors
    ///
    /// Fails if the client has already joined, or if the name, a rule or a limit cannot be stored. Also fails if there
    /// are too many rules, clients or pending invitations, or if the file system fails.
    pub fn invite(
        &self,
        name: &str,
        allow: &[String],
        limits: &ClientLimits,
        until_s: u64,
        now_s: u64,
    ) -> Result<NewInvitation, InviteError> {
        let secret = self.random()?;
        let entry = Entry {
            name: name.to_owned(),
            key: secret.public_key(),
            until_s,
            allow: allow.to_vec(),
            limits: *limits,
        };
        let replaced = self.add(&entry, now_s, |locked, owner| {
            files::replace(&locked.file_of(name), entry.pending().as_bytes(), owner)
        })?;
        Ok(NewInvitation { secret, replaced })
    }

    /// Makes a client that logs in by its name and a password: creates the password, the file that holds it, and the
    /// client's file. A running server knows the client after its next reload.
    ///
    /// # Errors
    ///
    /// Fails as [`Directory::invite`] does, and if the path of the directory has characters that TOML would escape.
    pub fn add_login(
        &self,
        name: &str,
        allow: &[String],
        limits: &ClientLimits,
        now_s: u64,
    ) -> Result<NewLogin, InviteError> {
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let secret = self.random()?;
        let password = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(secret.as_bytes()));
        let entry = Entry {
            name: name.to_owned(),
            key: secret.public_key(),
            until_s: now_s,
            allow: allow.to_vec(),
            limits: *limits,
        };
        let path = std::path::absolute(self.secret_of(name)).map_err(unusable)?;
        let path = path.to_str().filter(|path| Entry::is_plain(path));
        let path = path.ok_or_else(|| {
            let why = "its path has a quotation mark, a backslash or a control character";
            unusable(io::Error::new(io::ErrorKind::InvalidInput, why))
        })?;
        let file = entry.login(path);
        let replaced = self.add(&entry, now_s, |locked, owner| {
            let directory = locked.directory();
            files::replace(&directory.secret_of(name), password.as_bytes(), owner)?;
            files::replace(&locked.file_of(name), file.as_bytes(), owner)
        })?;
        Ok(NewLogin { password, replaced })
    }

    fn random(&self) -> Result<InviteSecret, InviteError> {
        InviteSecret::random().map_err(|cause| InviteError::Directory(self.0.clone(), cause))
    }

    /// Checks a new client, and lets `write` store it in the locked directory as files of the given owner. Returns true if
    /// an invitation of its name was pending.
    fn add(
        &self,
        entry: &Entry,
        now_s: u64,
        write: impl FnOnce(&Locked, Option<(u32, u32)>) -> io::Result<()>,
    ) -> Result<bool, InviteError> {
        let Entry { name, allow, .. } = entry;
        let path = self.file_of(name).ok_or(ContentError::Name)?;
        if let Some(rule) = allow.iter().find(|rule| !Entry::is_plain(rule)) {
            return Err(InviteError::Rule(rule.clone()));
        }
        if allow.len() > MAX_RULES {
            return Err(InviteError::Rules(allow.len()));
        }
        if Entry::parse(name, &entry.pending()).as_ref() != Some(entry) {
            return Err(InviteError::Limits);
        }
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let owner = self.make().map_err(unusable)?;
        let locked = self.lock().map_err(unusable)?;
        let replaced = self.make_room(&locked, name, now_s)?;
        write(&locked, owner).map_err(|cause| InviteError::Write(path, cause))?;
        Ok(replaced)
    }

    /// Removes expired invitations. Returns true if an invitation of this name is pending.
    fn make_room(&self, locked: &Locked, name: &str, now_s: u64) -> Result<bool, InviteError> {
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let (mut pending, mut clients, mut replaced) = (0, 0, false);
        for (other, text) in locked.directory().read().map_err(unusable)? {
            clients += 1;
            let entry = Entry::parse(&other, &text);
            let expired = entry.is_some_and(|entry| entry.until_s <= now_s);
            if other == name {
                if !is_pending(&text) {
                    return Err(InviteError::Enrolled(other));
                }
                replaced = !expired;
            } else if expired {
                locked.remove(&other).map_err(unusable)?;
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

    /// Stores the key of a client that joins, and thereby uses up the invitation (PROTOCOL JOIN-4).
    ///
    /// # Errors
    ///
    /// Returns the reason why the client is refused. Nothing has changed then, except after [`JoinRefusal::Store`]: the
    /// key may be stored, and the client tries again.
    pub fn enrol(&self, attempt: &JoinAttempt, now_s: u64) -> Result<Enrolment, JoinRefusal> {
        let name = &attempt.join.name;
        let path = self.file_of(name).ok_or(JoinRefusal::Unknown)?;
        let locked = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JoinRefusal::Unknown);
            }
            other => other.map_err(JoinRefusal::Store)?,
        };
        // The holder of the lock writes only one file. If a stopped process holds it, the server must not wait.
        locked
            .try_lock()
            .map_err(|error| JoinRefusal::Store(error.into()))?;
        let locked = Locked(locked);
        let text = match keeper::read_entry(&path, MAX_ENTRY) {
            Ok(text) => text,
            Err(error) if error.is_missing() => return Err(JoinRefusal::Unknown),
            Err(error) => return Err(JoinRefusal::Store(io::Error::other(error))),
        };
        let text = std::str::from_utf8(&text).map_err(|_| JoinRefusal::Changed)?;
        if !is_pending(text) {
            let enrolled = Entry::enrolled_rules(name, attempt.pin, text);
            let (allow, limits) = enrolled.ok_or(JoinRefusal::Used)?;
            // The earlier attempt may have failed because this had not been done.
            locked.0.sync_all().map_err(JoinRefusal::Store)?;
            return Ok(Enrolment {
                allow,
                limits,
                already_stored: true,
            });
        }
        let entry = Entry::parse(name, text).ok_or(JoinRefusal::Changed)?;
        if !attempt.is_signed_by(&entry.key) {
            return Err(JoinRefusal::Wrong);
        }
        if entry.until_s <= now_s {
            return Err(JoinRefusal::Late);
        }
        let now = i64::try_from(now_s).unwrap_or(0);
        let now = jiff::Timestamp::from_second(now).unwrap_or_default();
        files::replace(&path, entry.enrolled(attempt.pin, now).as_bytes(), None)
            .map_err(JoinRefusal::Store)?;
        Ok(Enrolment {
            allow: entry.allow,
            limits: entry.limits,
            already_stored: false,
        })
    }

    /// Removes a client, whether it has joined or not. Returns true if it had joined: a running server then knows it
    /// until the next reload.
    ///
    /// # Errors
    ///
    /// Fails if there is no client of this name, or if the file system fails.
    pub fn revoke(&self, name: &str) -> Result<bool, InviteError> {
        let nobody = || InviteError::UnknownName(name.to_owned());
        let unusable = |cause| InviteError::Directory(self.0.clone(), cause);
        let path = self.file_of(name).ok_or_else(nobody)?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(nobody()),
            other => other.map_err(unusable)?,
        };
        let locked = self.lock().map_err(unusable)?;
        let text = keeper::read_entry(&locked.file_of(name), MAX_ENTRY);
        locked.remove(name).map_err(unusable)?;
        match std::fs::remove_file(locked.directory().secret_of(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(unusable)?,
        }
        // An entry that cannot be read is removed as well, and may have been that of a client.
        let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(!text.is_ok_and(|text| is_pending(&text)))
    }

    /// Returns the sorted names of all clients in the directory. A directory that does not exist has none.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read, or holds more than [`MAX_CLIENTS`] files of clients.
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

    /// Returns the file of a client, or `None` if no client can have this name.
    pub fn file_of(&self, name: &str) -> Option<PathBuf> {
        is_client_name(name).then(|| self.path_of(name))
    }

    /// Returns the name of each client in the directory, and the text of its file.
    ///
    /// # Errors
    ///
    /// Fails if the directory or one of the files cannot be read.
    pub fn read(&self) -> io::Result<Vec<(String, String)>> {
        let mut clients = Vec::new();
        for name in self.names()? {
            let path = self.path_of(&name);
            let text = match keeper::read_entry(&path, MAX_ENTRY) {
                // The client was revoked, or expired and was removed, after the names had been read.
                Err(error) if error.is_missing() => continue,
                other => {
                    let named = |error| io::Error::other(format!("{name}.{ENDING}: {error}"));
                    other.map_err(named)?
                }
            };
            clients.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
        Ok(clients)
    }

    /// Returns the path of a file that stands beside this directory, in the server's state directory.
    pub fn state_file(&self, file: StateFile) -> PathBuf {
        self.0.with_file_name(file.name())
    }

    /// Makes the state directory if it is missing.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn make_state(&self) -> io::Result<()> {
        files::create_private_dir(self.0.parent().unwrap_or(&self.0))
    }

    /// Replaces the content of a file in the state directory.
    pub(crate) fn store(&self, file: StateFile, content: &[u8]) -> io::Result<()> {
        files::replace(&self.state_file(file), content, None)
    }

    /// Returns the file with the password of a client that logs in.
    fn secret_of(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.{SECRET_ENDING}"))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.{ENDING}"))
    }

    /// Locks the directory while a file is read and changed: an invitation cannot be revoked and used at the same time.
    fn lock(&self) -> io::Result<Locked> {
        let directory = self.open()?;
        directory.lock()?;
        Ok(Locked(directory))
    }

    /// Opens the directory itself. A symbolic link that the server's user has put there must not lead root elsewhere.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.0, flags, Mode::empty())?;
        Ok(File::from(directory))
    }

    /// Creates the directory if it is missing. Returns the owner of new files: if root invites, they belong to the
    /// server's user.
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

/// The locked directory. Its files are reached through the descriptor, because the server's user may put a symbolic link
/// in the place of the directory at any time. This needs `/proc`.
struct Locked(File);

impl Locked {
    fn directory(&self) -> Directory {
        Directory(format!("/proc/self/fd/{}", self.0.as_raw_fd()).into())
    }

    fn file_of(&self, name: &str) -> PathBuf {
        self.directory().path_of(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.file_of(name))
    }
}

impl Drop for Locked {
    /// Unlocks explicitly. Closing is not enough: a child process that another thread starts has the descriptor, and
    /// with it the lock, until it executes its program.
    fn drop(&mut self) {
        // After an error, the lock ends with the last copy of the descriptor.
        if self.0.unlock().is_err() {}
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_directory_leads_no_file_elsewhere() {
        let state = tempfile::tempdir().expect("a directory");
        let clients = Directory::of(state.path());
        clients.make().expect("made");
        let locked = clients.lock().expect("locked");
        let (aside, elsewhere) = (state.path().join("aside"), state.path().join("elsewhere"));
        fs::rename(clients.path(), &aside).expect("moved");
        fs::create_dir(&elsewhere).expect("made");
        symlink(&elsewhere, clients.path()).expect("linked");
        fs::write(elsewhere.join("office.toml"), "precious").expect("written");
        assert!(!clients.make_room(&locked, "office", 0).expect("room"));
        files::replace(&locked.file_of("office"), b"invited", None).expect("written");
        let text = |directory: &Path| fs::read_to_string(directory.join("office.toml"));
        assert_eq!(text(&aside).expect("a file"), "invited");
        locked.remove("office").expect("removed");
        text(&aside).expect_err("no file");
        assert_eq!(text(&elsewhere).expect("a file"), "precious");
        assert!(clients.lock().is_err());
    }

    #[test]
    fn a_child_process_that_starts_meanwhile_keeps_no_lock() {
        let state = tempfile::tempdir().expect("a directory");
        let clients = Directory::of(state.path());
        clients.make().expect("made");
        let locked = clients.lock().expect("locked");
        let _of_the_child = locked.0.try_clone().expect("a descriptor");
        let other = clients.open().expect("opened");
        other.try_lock().expect_err("locked");
        drop(locked);
        other.try_lock().expect("unlocked");
    }

    #[test]
    fn an_entry_that_is_a_pipe_blocks_no_command_and_can_be_revoked() {
        let state = tempfile::tempdir().expect("a directory");
        let clients = Directory::of(state.path());
        clients.make().expect("made");
        let pipe = clients.path().join("pipe.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let invited = clients.invite("laptop", &[], &ClientLimits::default(), u64::MAX, 0);
        let told = with_source(&invited.expect_err("the pipe is named"));
        assert!(told.contains("pipe.toml: it is a pipe"), "{told}");
        let listed = clients.read().expect_err("the pipe is named");
        assert!(listed.to_string().starts_with("pipe.toml: "), "{listed}");
        let attempt = clients.revoke("pipe");
        assert!(attempt.expect("revoked"), "it may have been a client");
        assert!(!pipe.exists());
        symlink("circle.toml", clients.path().join("circle.toml")).expect("linked");
        clients.revoke("circle").expect("revoked");
        let invited = clients.invite("laptop", &[], &ClientLimits::default(), u64::MAX, 0);
        invited.expect("no entry is in the way");
    }

    fn with_source(error: &dyn std::error::Error) -> String {
        let source = error
            .source()
            .map_or_else(String::new, |it| format!(": {it}"));
        format!("{error}{source}")
    }
}
