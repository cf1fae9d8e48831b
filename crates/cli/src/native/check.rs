//! `quictun config check`: the checks of a configuration that need the disk.

use std::path::Path;
use std::time::SystemTime;

use quictun_trust::access::Policy;
use quictun_trust::logins::Logins;
use quictun_trust::public_certificate::PublicCertificate;
use quictun_trust::settings::{Access, ClientProof, ServerIdentity};
use quictun_trust::{identity, psk, tls};
use quictun_tunnel::settings::{CertificateSource, ClientSettings, ServerSettings};

use super::reload;
use crate::exit::{self, ProgramError};
use quictun_args::native::settings::Server;

/// Checks a server's file, and prints what a reload would change in the server that runs with it.
pub(super) fn server_file(path: &Path, server: &Server) -> Result<(), ProgramError> {
    let about = |failed: ProgramError| failed.about(path.display().to_string());
    server_settings(server).map_err(about)?;
    check_dates(&server.settings).map_err(about)?;
    let denies_all = matches!(&server.settings.access, Access::Named { clients, .. } if clients.iter().all(|client| client.allow.is_empty() && client.listen.is_empty()));
    let but = if denies_all {
        ", but no client may reach any target"
    } else {
        ""
    };
    exit::print(&format!("{}: in order{but}\n", path.display()))?;
    Ok(exit::print(&reload::would_change(&server.settings))?)
}

/// Checks a client's file: its authorities, secrets, certificates, keys, and the users of its proxies.
pub(super) fn client_file(path: &Path, settings: &ClientSettings) -> anyhow::Result<()> {
    client_settings(settings).map_err(|error| error.context(path.display().to_string()))?;
    Ok(exit::print(&format!("{}: in order\n", path.display()))?)
}

/// Checks the clients, secrets, certificates and keys of a server, as far as they exist before its first run.
pub(super) fn server_settings(server: &Server) -> Result<(), ProgramError> {
    let settings = existing(server);
    Policy::new(&settings.access)?;
    if let ServerIdentity::Files(files) = &settings.identity {
        identity::load_files(files).map_err(anyhow::Error::from)?;
    }
    if let Some(CertificateSource::Files(files)) = &settings.certificate {
        PublicCertificate::load(files).map_err(anyhow::Error::from)?;
    }
    Ok(())
}

/// Checks the dates of the certificate that programs without quictun see. A server starts with a late one all the same.
fn check_dates(settings: &ServerSettings) -> Result<(), ProgramError> {
    if let Some(CertificateSource::Files(files)) = &settings.certificate {
        let public = PublicCertificate::load(files).map_err(anyhow::Error::from)?;
        let valid = public.check_dates(files, SystemTime::now());
        valid.map_err(anyhow::Error::from)?;
    }
    Ok(())
}

/// Returns a server's settings without the secret that its first run makes.
fn existing(server: &Server) -> ServerSettings {
    let mut settings = server.settings.clone();
    if let (Access::Named { clients, .. }, Some(made)) = (&mut settings.access, &server.make_psk) {
        let made = ClientProof::PskFile(made.clone());
        for client in clients {
            client.proofs.retain(|proof| *proof != made);
        }
    }
    settings
}

fn client_settings(settings: &ClientSettings) -> anyhow::Result<()> {
    for server in settings.servers() {
        let (trust, identity) = (&server.trust, &server.identity);
        tls::client_config(
            trust,
            identity,
            settings.offer,
            &tls::SharedConfig::default(),
        )?;
        if let Some(path) = &identity.psk_file {
            psk::load_secret(path)?;
        }
    }
    if let Some(path) = &settings.proxy_users {
        Logins::load(path)?;
    }
    Ok(())
}
