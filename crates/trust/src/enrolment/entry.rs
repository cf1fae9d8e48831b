//! The file of a client that is invited or has joined.
//!
//! ```text
//! # quictun invitation 1: key KEY, until SECONDS           # enrolled TIME by an invitation
//! [[client]]                                               [[client]]
//! name = "laptop"                                          name = "laptop"
//! max_flows = 200                                  ─►      key = "sha256:..."
//! allow = [                                                max_flows = 200
//!     "127.0.0.1:22",                                      allow = [
//! ]                                                            "127.0.0.1:22",
//!                                                          ]
//! ```
//!
//! Both are configuration files, and only the first line marks a pending invitation. The code that handles an unknown
//! client's attempt to join therefore needs no TOML parser: it accepts only the exact lines that this module writes.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::MAX_RULES;
use super::attempt::PublicKey;
use super::limit_lines;
use crate::settings::{ClientLimits, Pin};

const PENDING: &str = "# quictun invitation ";
const VERSION: &str = "1: key ";
const ENROLLED: &str = "# enrolled ";
const LOGIN: &str = "# login by name and password";
const UNTIL: &str = ", until ";

/// Returns true if this file of a client is an invitation that has not been used yet.
pub fn is_pending(text: &str) -> bool {
    text.starts_with(PENDING)
}

/// The content of a pending invitation's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the invited client.
    pub name: String,
    pub(super) key: PublicKey,
    /// The time of expiry by the server's clock, seconds since 1970.
    pub until_s: u64,
    /// The rules for the targets that the client may reach.
    pub allow: Vec<String>,
    /// The limits of the client.
    pub limits: ClientLimits,
}

impl Entry {
    /// Returns true if TOML writes the rule as it is, with no escapes.
    pub(super) fn is_plain(rule: &str) -> bool {
        !rule.is_empty() && !rule.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'))
    }

    pub(super) fn pending(&self) -> String {
        let key = BASE64_URL_SAFE_NO_PAD.encode(self.key);
        let head = format!("{PENDING}{VERSION}{key}{UNTIL}{}", self.until_s);
        self.table(&head, None)
    }

    /// Returns the file of a client that has joined with this key at `now`.
    pub(super) fn enrolled(&self, pin: Pin, now: jiff::Timestamp) -> String {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ");
        let head = format!("{ENROLLED}{now} by an invitation");
        self.table(&head, Some(format!("key = \"{pin}\"")))
    }

    /// Returns the rules and limits of a client that has joined with this key. Returns `None` if the file has another
    /// key, or lines that this module does not write.
    pub(super) fn enrolled_rules(
        name: &str,
        pin: Pin,
        text: &str,
    ) -> Option<(Vec<String>, ClientLimits)> {
        let (head, table) = text.split_once('\n')?;
        head.starts_with(ENROLLED).then_some(())?;
        Self::rules_of(name, Some(pin), table)
    }

    /// Returns the file of a client that logs in by its name and the password in the file `secret`.
    pub(super) fn login(&self, secret: &str) -> String {
        self.table(LOGIN, Some(format!("psk_file = \"{secret}\"")))
    }

    /// Reads back what `table` has written after its first line.
    fn rules_of(name: &str, pin: Option<Pin>, table: &str) -> Option<(Vec<String>, ClientLimits)> {
        let table = table.strip_prefix(&format!("[[client]]\nname = \"{name}\"\n"))?;
        let table = match pin {
            Some(pin) => table.strip_prefix(&format!("key = \"{pin}\"\n"))?,
            None => table,
        };
        let (limits, table) = limit_lines::split(table)?;
        let rules = table.strip_prefix("allow = [\n")?.strip_suffix("]\n")?;
        let rules = rules
            .lines()
            .map(|line| line.strip_prefix("    \"")?.strip_suffix("\","));
        let allow: Vec<String> = rules
            .map(|rule| rule.filter(|rule| Self::is_plain(rule)).map(str::to_owned))
            .collect::<Option<_>>()?;
        (allow.len() <= MAX_RULES).then_some((allow, limits))
    }

    fn table(&self, head: &str, proof: Option<String>) -> String {
        let mut lines = vec![
            head.to_owned(),
            "[[client]]".to_owned(),
            format!("name = \"{}\"", self.name),
        ];
        lines.extend(proof);
        lines.push(limit_lines::lines(&self.limits) + "allow = [");
        lines.extend(self.allow.iter().map(|rule| format!("    \"{rule}\",")));
        lines.push("]\n".to_owned());
        lines.join("\n")
    }

    /// Reads a pending invitation. Returns `None` if the file has lines that this module does not write.
    pub fn parse(name: &str, text: &str) -> Option<Self> {
        let (head, table) = text.split_once('\n')?;
        let (key, until) = head
            .strip_prefix(PENDING)?
            .strip_prefix(VERSION)?
            .split_once(UNTIL)?;
        let key = BASE64_URL_SAFE_NO_PAD.decode(key).ok()?;
        let (allow, limits) = Self::rules_of(name, None, table)?;
        Some(Self {
            name: name.to_owned(),
            key: key.try_into().ok()?,
            until_s: until.parse().ok()?,
            allow,
            limits,
        })
    }
}
