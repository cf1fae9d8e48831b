//! A client in this process, whose device may need a confirmation.

use quictun_stackd::settings::TunDevice;
use quictun_sys::{END_SIGNALS, Signals};
use quictun_tunnel::reload::{ReadConfig, RereadClient};
use quictun_tunnel::settings::ClientSettings;

use crate::confirm;
use crate::exit::ProgramError;

/// Runs a client until a signal ends it. On SIGHUP the client reads its configuration again with `read_again`, if
/// given.
pub(crate) fn run(
    settings: ClientSettings,
    read_again: Option<ReadConfig<RereadClient>>,
) -> Result<(), ProgramError> {
    if let Some(tun) = &settings.tun
        && matches!(tun.device, TunDevice::Own(_))
    {
        // Until the client handles these signals, they would end it and leave the device's rules and routes behind.
        Signals::hold(&END_SIGNALS)?;
    }
    if let Some(limit) = settings.tun.as_ref().and_then(|tun| tun.confirm) {
        confirm::wait_for(limit)?;
    }
    Ok(quictun_tunnel::client::run(settings, read_again)?)
}
