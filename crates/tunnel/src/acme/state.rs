//! The account and the certificate, as a file keeps them across restarts.
//!
//! One file holds all of it, and is replaced as a whole: a key and its certificate are never from two moments.

use std::fmt;

use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The content of the file.
#[derive(Clone, Default, PartialEq)]
pub(super) struct AcmeState {
    /// URL of the directory of the authority that has the account.
    pub(super) directory: String,
    /// The account and its key, in the form of the ACME library.
    pub(super) account: Option<Value>,
    pub(super) certificate: Option<StoredCertificate>,
}

/// A certificate chain and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct StoredCertificate {
    /// URL of the directory of the authority that has issued it. The account may have moved to another one since.
    pub(super) directory: String,
    pub(super) chain: String,
    pub(super) key: Zeroizing<String>,
}

impl AcmeState {
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let certificate = self.certificate.as_ref();
        let value = json!({
            "version": 1,
            "directory": self.directory,
            "account": self.account,
            "certificate": certificate.map(|it| json!({
                "directory": it.directory,
                "chain": it.chain,
                "key": *it.key,
            })),
        });
        let mut text = format!("{value:#}");
        text.push('\n');
        Zeroizing::new(text.into_bytes())
    }

    /// Reads the content. Returns `None` if it is damaged.
    pub(super) fn decode(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        if value.get("version")?.as_u64()? != 1 {
            return None;
        }
        let directory = value.get("directory")?.as_str()?;
        let certificate = value.get("certificate").filter(|it| !it.is_null());
        let certificate = certificate.map(|stored| {
            // Older files do not name it: the account's authority has issued the certificate.
            let issuing = stored
                .get("directory")
                .map_or(Some(directory), Value::as_str);
            Some(StoredCertificate {
                directory: issuing?.to_owned(),
                chain: stored.get("chain")?.as_str()?.to_owned(),
                key: Zeroizing::new(stored.get("key")?.as_str()?.to_owned()),
            })
        });
        let certificate = match certificate {
            None => None,
            Some(stored) => Some(stored?),
        };
        Some(Self {
            directory: directory.to_owned(),
            account: value.get("account").filter(|it| it.is_object()).cloned(),
            certificate,
        })
    }
}

impl fmt::Debug for AcmeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcmeState")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_and_damage_is_noticed() {
        let whole = AcmeState {
            directory: "https://authority.example/directory".to_owned(),
            account: Some(json!({"id": "7", "key_pkcs8": "secret"})),
            certificate: Some(StoredCertificate {
                directory: "https://old.example/directory".to_owned(),
                chain: "-----BEGIN\nCERTIFICATE".to_owned(),
                key: Zeroizing::new("a key".to_owned()),
            }),
        };
        let without = AcmeState {
            account: None,
            certificate: None,
            ..whole.clone()
        };
        for state in [&whole, &without] {
            assert!(AcmeState::decode(&state.encode()).as_ref() == Some(state));
        }
        let text = whole.encode();
        for cut in 0..text.len() - 2 {
            assert!(AcmeState::decode(&text[..cut]).is_none(), "{cut}");
        }
        for damaged in [
            "{}",
            "[]",
            "{\"version\": 2}",
            r#"{"version": 1, "directory": "x", "certificate": {}}"#,
        ] {
            assert!(AcmeState::decode(damaged.as_bytes()).is_none(), "{damaged}");
        }
        assert!(!format!("{whole:?}").contains("secret"));
    }

    #[test]
    fn a_certificate_of_an_older_file_was_issued_by_the_accounts_authority() {
        let older =
            r#"{"version": 1, "directory": "x", "certificate": {"chain": "c", "key": "k"}}"#;
        let state = AcmeState::decode(older.as_bytes()).expect("whole");
        assert_eq!(state.certificate.expect("one").directory, "x");
    }
}
