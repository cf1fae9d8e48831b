//! The calls from here into `quictun-tunnel`: all of them.

use std::path::Path;

use quictun_io::crash::Crash;
use quictun_trust::access::{AccessError, Policy};
use quictun_trust::settings::{Pin, ServerIdentity};
use quictun_trust::{identity, psk, tls};
use quictun_tunnel::reload::Read;
use quictun_tunnel::settings::{ClientSettings, ServerSettings};

use crate::confirm;

/// Runs a client until it is told to end. SIGHUP has it read its configuration by `read_again`, where that is given.
pub fn client(
    settings: ClientSettings,
    read_again: Option<Read<ClientSettings>>,
) -> anyhow::Result<()> {
    if let Some(limit) = settings.tun.as_ref().and_then(|tun| tun.confirm) {
        confirm::wait_for(limit)?;
    }
    quictun_tunnel::client::run(settings, read_again)
}

/// Runs a server until it is told to end. SIGHUP has it read its configuration by `read_again`, where that is given.
pub fn server(
    settings: ServerSettings,
    read_again: Option<Read<ServerSettings>>,
) -> anyhow::Result<()> {
    quictun_tunnel::server::run(settings, read_again)
}

/// Makes a private key and its self-signed certificate, `<stem>.key` and `<stem>.crt` in `dir`.
pub fn generate_identity(dir: &Path, stem: &str) -> anyhow::Result<Pin> {
    Ok(identity::generate(dir, stem)?)
}

/// Makes sure that there is a secret in the file `path`.
pub fn ensure_psk(path: &Path) -> anyhow::Result<()> {
    Ok(identity::ensure_psk(path)?)
}

/// Checks rules, secrets, certificates and keys of a server, as far as they exist before its first run.
pub fn check_server(settings: &ServerSettings) -> anyhow::Result<()> {
    Policy::new(&settings.access)?;
    if let ServerIdentity::Files(files) = &settings.identity {
        identity::load_files(files)?;
    }
    Ok(())
}

/// Checks authorities, secrets, certificates and keys of a client.
pub fn check_client(settings: &ClientSettings) -> anyhow::Result<()> {
    tls::client_config(&settings.trust, &settings.identity, settings.offer, None)?;
    if let Some(path) = &settings.identity.psk_file {
        psk::load_secret(path)?;
    }
    Ok(())
}

/// Whether what went wrong is what the configuration says, not what the world is like.
pub fn blames_configuration(error: &anyhow::Error) -> bool {
    let access = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<AccessError>());
    access.is_some_and(|error| {
        !matches!(
            error,
            AccessError::Secret { .. } | AccessError::Authorities(_)
        )
    })
}

/// Whether it is a fault of the program itself.
pub fn blames_the_program(error: &anyhow::Error) -> bool {
    Crash::of(error.as_ref()).is_some()
}
