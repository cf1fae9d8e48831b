//! Chooses a server's certificate by the protocol that a client offers.
//!
//! Clients of quictun know the server by its pin, and see the certificate with that key. Programs without quictun trust
//! authorities, and see a certificate from one of them. The name of the protocol alone decides, so what one kind of client
//! sees never depends on the other kind's certificate.

use std::sync::{Arc, PoisonError, RwLock};

use quictun_wire::alpn;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificates that programs without quictun see. All clones share them, so that the control plane replaces what the
/// workers present.
#[derive(Clone, Debug, Default)]
pub struct PublicCertificates(Arc<RwLock<CertificateSet>>);

#[derive(Debug, Default)]
struct CertificateSet {
    /// The certificate of the host names, once there is one.
    current: Option<Arc<CertifiedKey>>,
    /// The certificates by which an authority checks host names, each with its name.
    challenges: Vec<(String, Arc<CertifiedKey>)>,
}

impl PublicCertificates {
    /// Presents this certificate in handshakes that begin from now on.
    pub fn set(&self, certificate: Arc<CertifiedKey>) {
        self.change(|shown| shown.current = Some(certificate));
    }

    /// Answers the authority's check of a host name with this certificate.
    pub fn add_challenge(&self, name: &str, certificate: Arc<CertifiedKey>) {
        self.change(|shown| shown.challenges.push((name.to_owned(), certificate)));
    }

    /// Answers no more checks.
    pub fn clear_challenges(&self) {
        self.change(|shown| shown.challenges.clear());
    }

    fn change(&self, change: impl FnOnce(&mut CertificateSet)) {
        // Each change is complete as soon as it is visible.
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        shown.current.clone()
    }

    fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut challenges = shown.challenges.iter();
        let found = challenges.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, certificate)| certificate.clone())
    }
}

/// The party to a handshake, by the protocols that it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// A client of quictun or quic-tun.
    Tunnel,
    /// An authority that checks a host name.
    Authority,
    /// A program that knows neither quictun nor ACME. It may offer no protocol at all.
    Program,
}

impl Audience {
    fn of<'a>(offered: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut audience = None;
        for name in offered {
            match name {
                alpn::NATIVE | alpn::MUX | alpn::COMPAT => return Self::Tunnel,
                alpn::ACME => audience = Some(Self::Authority),
                _ => audience = audience.or(Some(Self::Program)),
            }
        }
        audience.unwrap_or(Self::Program)
    }
}

/// The certificate with the pinned key, and the public ones.
#[derive(Debug)]
pub(super) struct ByProtocol {
    pub(super) own: Arc<CertifiedKey>,
    pub(super) public: PublicCertificates,
}

impl ResolvesServerCert for ByProtocol {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match Audience::of(hello.alpn().into_iter().flatten()) {
            Audience::Tunnel => Some(self.own.clone()),
            Audience::Authority => self.public.challenge(hello.server_name()?),
            // Until there is a public certificate, the program refuses this one and says why.
            Audience::Program => self.public.current().or_else(|| Some(self.own.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_of_the_tunnel_decides_whatever_else_is_offered() {
        let of = |offered: &[&[u8]]| Audience::of(offered.iter().copied());
        for program in [&[][..], &[b"h2", alpn::HTTP_1]] {
            assert_eq!(of(program), Audience::Program);
        }
        assert_eq!(of(&[b"anything"]), Audience::Program);
        assert_eq!(of(&[alpn::ACME]), Audience::Authority);
        assert_eq!(of(&[alpn::HTTP_1, alpn::ACME]), Audience::Authority);
        for own in [alpn::MUX, alpn::NATIVE, alpn::COMPAT] {
            assert_eq!(of(&[alpn::HTTP_1, alpn::ACME, own]), Audience::Tunnel);
        }
    }
}
