//! One order: the authority checks the names, and issues a certificate.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier,
    KeyAuthorization, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rustls::pki_types::Der;
use zeroize::Zeroizing;

use super::error::AcmeError;
use super::http_check::HttpAnswers;
use quictun_trust::public_certificate::{CertificateRequest, RenewalId, challenge_certificate};
use quictun_trust::tls::PublicCertificates;

/// Questions whether the authority has finished: after half a second at first, for two minutes.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_mins(2));

/// The way in which the authority checks that the names lead here.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// On the TLS listener (RFC 8737).
    Tls(PublicCertificates),
    /// On a port for HTTP.
    Http(HttpAnswers),
}

impl Check {
    fn kind(&self) -> ChallengeType {
        match self {
            Self::Tls(_) => ChallengeType::TlsAlpn01,
            Self::Http(_) => ChallengeType::Http01,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Tls(_) => "TLS-ALPN-01",
            Self::Http(_) => "HTTP-01",
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Tls(_) => {
                "TCP port 443 of every address of the name must lead to this server's TLS port (--listen-tls)"
            }
            Self::Http(_) => {
                "TCP port 80 of every address of the name must lead to the address of --acme-http"
            }
        }
    }

    fn other_way(&self) -> &'static str {
        match self {
            Self::Tls(_) => "add --acme-http 80",
            Self::Http(_) => "leave out --acme-http",
        }
    }

    fn answer(&self, name: &str, token: &str, key: &KeyAuthorization) -> Result<(), AcmeError> {
        match self {
            Self::Tls(public) => {
                public.add_challenge(name, challenge_certificate(name, key.digest().as_ref())?);
            }
            Self::Http(answers) => answers.add(token, key.as_str()),
        }
        Ok(())
    }

    fn clear(&self) {
        match self {
            Self::Tls(public) => public.clear_challenges(),
            Self::Http(answers) => answers.clear(),
        }
    }
}

/// Answers the checks until it is dropped, also when the attempt is given up.
struct Answering<'a>(&'a Check);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Returns the name by which the authority knows a certificate.
pub(super) fn identifier(id: &RenewalId) -> CertificateIdentifier<'static> {
    let (key, serial) = (
        Der::from_slice(&id.authority_key),
        Der::from_slice(&id.serial),
    );
    CertificateIdentifier::new(key, serial).into_owned()
}

/// Orders a certificate for these names, which replaces the one with this identifier. Returns its chain and its key.
pub(super) async fn order(
    account: &Account,
    names: &[String],
    replaced: Option<&RenewalId>,
    check: &Check,
) -> Result<(String, Zeroizing<String>), AcmeError> {
    let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
    let mut new = NewOrder::new(&identifiers);
    if let Some(replaced) = replaced {
        new = new.replaces(identifier(replaced));
    }
    let mut order = account.new_order(&new).await?;
    let answering = Answering(check);
    begin_checks(&mut order, check).await?;
    let ready = order.poll_ready(&POLLS).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        failed_check(&mut order, check).await?;
    }
    ready?;
    drop(answering);
    let request = CertificateRequest::new(names)?;
    order.finalize_csr(&request.request).await?;
    let chain = order.poll_certificate(&POLLS).await?;
    let key = request.key;
    Ok((chain, key))
}

/// Answers the checks of all names that the authority has not checked yet, and asks it to begin.
async fn begin_checks(order: &mut Order, check: &Check) -> Result<(), AcmeError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(mut challenge) = authorization.challenge(check.kind()) else {
            return Err(AcmeError::NoCheck {
                name,
                wanted: check.name(),
                advice: check.other_way(),
            });
        };
        let key = challenge.key_authorization();
        check.answer(&name, &challenge.token, &key)?;
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Finds the name whose check has failed. Returns an error that names it.
async fn failed_check(order: &mut Order, check: &Check) -> Result<(), AcmeError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let state = authorization.refresh().await?;
        if state.status == AuthorizationStatus::Invalid {
            let name = state.identifier().to_string();
            let problem = state.challenges.iter().find_map(|it| it.error.as_ref());
            return Err(AcmeError::of_check(&name, problem, check.advice()));
        }
    }
    Ok(())
}
