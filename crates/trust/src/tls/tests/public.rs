//! The certificates of clients of the tunnel, of other programs and of authorities.

use quictun_wire::alpn;

use super::*;
use crate::public_certificate::{PublicCertificate, challenge_certificate};

/// Returns the certificate that a client with these protocols sees, or `None` if the server refuses it.
fn seen(
    server: &Arc<ServerConfig>,
    offered: &[&[u8]],
    name: &str,
) -> Option<CertificateDer<'static>> {
    let mut config = (*client(&ServerTrust::Insecure)).clone();
    config.alpn_protocols = alpn_names(offered);
    config.resumption = Resumption::disabled();
    let mut server = (**server).clone();
    server.alpn_protocols = alpn_names(&[alpn::MUX, alpn::HTTP_1, alpn::ACME]);
    let made = handshake(&Arc::new(config), &Arc::new(server), name);
    let client = made.client.ok()?;
    made.server.ok()?;
    client.peer_certificates()?.first().cloned()
}

#[test]
fn the_offered_protocol_decides_which_certificate_a_client_sees() {
    let pki = Pki::new();
    let authority = pki.authority("authority");
    let load = |stem| {
        let files = pki.issue(&authority, stem);
        PublicCertificate::load(&files).expect("in order")
    };
    let own = identity::ephemeral().expect("made");
    let pinned = &own.chain[0];
    let shared = SharedConfig::default();
    let config = server_with(&own, &ClientCertPolicy::NotRequested, PROTOCOLS, &shared);
    let server = config.expect("a configuration");
    let web = |offered: &[&[u8]]| seen(&server, offered, "web.example").expect("a certificate");
    assert_eq!(&web(&[alpn::HTTP_1]), pinned, "there is no other yet");

    let (first, second) = (load("web.example"), load("next.example"));
    shared.public.set(first.certified.clone());
    assert_eq!(web(&[alpn::HTTP_1]), first.certified.cert[0]);
    shared.public.set(second.certified.clone());
    assert_eq!(web(&[alpn::HTTP_1]), second.certified.cert[0]);
    assert_eq!(web(&[]), second.certified.cert[0]);
    for tunnel in [&[alpn::MUX][..], &[alpn::HTTP_1, alpn::MUX]] {
        assert_eq!(&web(tunnel), pinned);
    }

    let check = |name| seen(&server, &[alpn::ACME], name);
    assert_eq!(check("web.example"), None, "no authority was asked");
    let challenge = challenge_certificate("web.example", &[7; 32]).expect("made");
    shared
        .public
        .add_challenge("web.example", challenge.clone());
    assert_eq!(check("WEB.example").as_ref(), Some(&challenge.cert[0]));
    assert_eq!(check("other.example"), None);
    assert_eq!(web(&[alpn::HTTP_1]), second.certified.cert[0]);
    shared.public.clear_challenges();
    assert_eq!(check("web.example"), None);
}
