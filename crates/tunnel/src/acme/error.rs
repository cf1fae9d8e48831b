//! The reasons why an authority has issued no certificate, each in one sentence that says what to do.

use instant_acme::{Error as LibraryError, Problem};
use quictun_trust::public_certificate::PublicCertificateError;
use thiserror::Error;

use super::http::HttpFailure;
use super::schedule::FailureKind;

/// Longest text of the authority in a sentence, characters.
const TEXT_MAX: usize = 300;

/// The common beginning of the types of ACME's problems (RFC 8555 section 6.7).
const TYPES: &str = "urn:ietf:params:acme:error:";

/// The reason why there is no new certificate.
#[derive(Debug, Error)]
pub(super) enum AcmeError {
    /// The authority was not reached.
    #[error(transparent)]
    Http(HttpFailure),
    /// The authority was too slow.
    #[error("the authority has not finished in time")]
    Slow,
    /// The authority does not know the account.
    #[error("the authority does not know the account of this server any more")]
    NoAccount,
    /// The authority has refused, for a reason that has its own advice.
    #[error("{text}: {advice}")]
    Refused {
        text: String,
        advice: &'static str,
        kind: FailureKind,
    },
    /// The authority has not found this server under a name.
    #[error("the authority could not check {name}: {text}: {advice}")]
    Check {
        name: String,
        text: String,
        advice: &'static str,
    },
    /// The authority does not offer the wanted check.
    #[error("the authority offers no check of {name} by {wanted}: {advice}")]
    NoCheck {
        name: String,
        wanted: &'static str,
        advice: &'static str,
    },
    /// The authority has sent an answer that is not ACME.
    #[error("the authority's answer is not as RFC 8555 has it ({0}): check --acme-directory")]
    Answer(String),
    /// The new certificate cannot be presented.
    #[error("the authority has issued a certificate that cannot be used")]
    Certificate(#[from] PublicCertificateError),
    /// The new certificate has expired already.
    #[error(
        "the authority has issued a certificate that expired on {0}: check this machine's clock and --acme-directory"
    )]
    Expired(String),
    /// The new certificate lacks a name.
    #[error("the authority has issued a certificate that is not for {0}: check --acme-directory")]
    NotNamed(String),
    /// The request for a certificate could not be made.
    #[error("cannot make a key for the certificate")]
    Request(#[from] rcgen::Error),
    /// The account could not be stored, so none was made.
    #[error(
        "cannot store the account's key in {0}, and makes no account before: free some space, or correct the directory's owner"
    )]
    Store(String, #[source] std::io::Error),
}

impl AcmeError {
    pub(super) fn kind(&self) -> FailureKind {
        match self {
            Self::Http(_) | Self::Slow | Self::Answer(_) => FailureKind::Unreachable,
            Self::Refused { kind, .. } => *kind,
            _ => FailureKind::Refused,
        }
    }

    /// Returns the error of a problem with one name.
    pub(super) fn of_check(name: &str, problem: Option<&Problem>, advice: &'static str) -> Self {
        Self::Check {
            name: name.to_owned(),
            text: problem.map_or_else(|| "no reason given".to_owned(), text_of),
            advice,
        }
    }

    fn of_problem(problem: &Problem) -> Self {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(TYPES).unwrap_or(kind);
        let (advice, kind) = match kind {
            "accountDoesNotExist" => return Self::NoAccount,
            "rateLimited" => (
                "the authority's limit is used up, so only waiting helps",
                FailureKind::Refused,
            ),
            "badNonce" | "serverInternal" => (
                "the authority has a fault of its own",
                FailureKind::Unreachable,
            ),
            "rejectedIdentifier" => (
                "the authority issues nothing for this name: check --acme",
                FailureKind::Refused,
            ),
            "caa" => (
                "permit the authority in the name's CAA record",
                FailureKind::Refused,
            ),
            "dns" => ("check the name's A and AAAA records", FailureKind::Refused),
            "externalAccountRequired" => (
                "this authority wants an account that was made on its web site, which is not supported: choose another --acme-directory",
                FailureKind::Refused,
            ),
            "userActionRequired" => ("follow the authority's instructions", FailureKind::Refused),
            "invalidContact" | "unsupportedContact" => {
                ("check --acme-contact", FailureKind::Refused)
            }
            _ => ("the authority has refused", FailureKind::Refused),
        };
        Self::Refused {
            text: text_of(problem),
            advice,
            kind,
        }
    }
}

impl From<LibraryError> for AcmeError {
    fn from(error: LibraryError) -> Self {
        match error {
            LibraryError::Api(problem) => Self::of_problem(&problem),
            LibraryError::Timeout(_) => Self::Slow,
            LibraryError::Other(other) => match other.downcast::<HttpFailure>() {
                Ok(failure) => Self::Http(*failure),
                Err(other) => Self::Answer(cut(&other.to_string())),
            },
            other => Self::Answer(cut(&other.to_string())),
        }
    }
}

/// Returns the authority's own words about a problem and the names that it is about.
fn text_of(problem: &Problem) -> String {
    let detail = problem.detail.as_deref();
    let mut text = detail
        .or(problem.r#type.as_deref())
        .unwrap_or("no reason given")
        .to_owned();
    for part in &problem.subproblems {
        let words = part.detail.as_deref().unwrap_or_default();
        if let Some(identifier) = &part.identifier {
            let name = identifier.authorized(false).to_string();
            text.extend(["; ", &name, ": ", words]);
        }
    }
    cut(&text)
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(problem: &serde_json::Value) -> AcmeError {
        let problem = serde_json::from_value::<Problem>(problem.clone());
        LibraryError::Api(problem.expect("a problem")).into()
    }

    #[test]
    fn each_problem_says_what_to_do() {
        for (kind, words, failure) in [
            ("rateLimited", "only waiting helps", FailureKind::Refused),
            ("badNonce", "a fault of its own", FailureKind::Unreachable),
            ("caa", "CAA record", FailureKind::Refused),
            ("invalidContact", "--acme-contact", FailureKind::Refused),
            ("rejectedIdentifier", "check --acme", FailureKind::Refused),
            ("somethingNew", "has refused", FailureKind::Refused),
        ] {
            let error = of(&json!({"type": format!("{TYPES}{kind}"), "detail": "because"}));
            let text = error.to_string();
            assert!(
                text.starts_with("because: ") && text.contains(words),
                "{text}"
            );
            assert_eq!(error.kind(), failure, "{kind}");
        }
        let gone = of(&json!({"type": format!("{TYPES}accountDoesNotExist")}));
        assert!(matches!(gone, AcmeError::NoAccount), "{gone}");
    }

    #[test]
    fn the_authoritys_text_is_bounded_and_names_what_it_is_about() {
        let long = "x".repeat(10_000);
        assert!(of(&json!({ "detail": long })).to_string().len() < 400);
        let error = of(&json!({"detail": "two names", "subproblems": [
            {"detail": "forbidden", "identifier": {"type": "dns", "value": "a.example"}},
        ]}));
        assert!(
            error
                .to_string()
                .contains("two names; a.example: forbidden"),
            "{error}"
        );
        assert!(of(&json!({})).to_string().contains("no reason given"));
    }
}
